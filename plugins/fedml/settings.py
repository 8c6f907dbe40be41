"""The `incentive:` mapping of a FedML YAML: the core's settings, plus those of the host.

    incentive_args:
      incentive:            # nested, because FedML flattens its sections into one namespace
        beta: "2"
        cost: 0.2
        round_timeout: 60

FedML's own settings are used where it has them: `federated_optimizer` is the mechanism, `comm_round` the number of
training rounds, `run_id` the run, `random_seed` the seed, and `train_args` the local training.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from ... import checks, hosting
from ...checks import nearest, setting, shown
from ...contribution import METHODS
from ...errors import SettingError
from ...game.reading import BROKEN_YAML
from ...settings import Settings

# What FedML's YAML says elsewhere: the core's key -> FedML's
FEDML_HAS = {
    "mechanism": "train_args.federated_optimizer",
    "rounds": "train_args.comm_round",
    "epochs": "train_args.epochs",
    "batch": "train_args.batch_size",
    "learning_rate": "train_args.learning_rate",
    "run": "run_id (the option --run_id)",
}
MEASURES = (*METHODS, "cgsv")
SAME_MEASURES = {"LOO": "loo", "GTG": "gtg", "MR": "exact"}  # FedML's contribution_alg: ours


UNGIVEN = "0"  # FedML's run_id where nobody gave one
log = logging.getLogger("fedincentive")


def names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or len(set(map(shown, value))) != len(value):
        raise SettingError(f"{name} must be a list of different agent names, one per client, not {shown(value)}.")
    return tuple(checks.text(name, agent) for agent in value)


@dataclasses.dataclass(frozen=True)
class FedmlSettings(hosting.HostSettings):
    """What the FedML host needs beside `fedincentive.Settings`."""

    title = "FedML"

    agents: tuple[str, ...] | None = setting(
        names, None, help="Stable agent names in the order of FedML's clients; agent-1, agent-2, ... when not given."
    )
    game: str | None = setting(
        checks.optional(checks.path), None, help="A closed-form game (YAML) that the clients play instead of training."
    )
    server_timeout: float = setting(
        checks.real(above=0.0), 120.0, help="Seconds after which a client gives up on a server that is not there."
    )
    heartbeat: float = setting(
        checks.real(above=0.0), 5.0, help="Seconds of silence after which a client shows it is there."
    )
    tls_ca: str | None = setting(
        checks.optional(checks.text),
        None,
        help="PEM file of the authority that signed every rank's certificate; with it the gRPC link is encrypted.",
    )
    tls_certificate: str | None = setting(
        checks.optional(checks.text), None, help="PEM file of this rank's own certificate, for its address."
    )
    tls_key: str | None = setting(
        checks.optional(checks.text), None, help="PEM file of the certificate's private key, without a password."
    )
    tls_mutual: bool = setting(
        checks.flag, True, help="Whether who calls must show a certificate too, or only who is called."
    )


def read(args: Any) -> tuple[Settings, FedmlSettings]:
    """Both parts of `args.incentive`, completed from FedML's own settings; every problem is a SettingError."""
    given = getattr(args, "incentive", None) or {}
    refuse_flat(args)
    run = run_id(args, given)
    fixed: dict[str, Any] = {
        "mechanism": checks.text("train_args.federated_optimizer", args.federated_optimizer),
        "rounds": whole("train_args.comm_round", args.comm_round),
        "run": checks.folder_name("run_id", run),
        "seed": whole("common_args.random_seed", getattr(args, "random_seed", 0)),
        **({} if isinstance(given, Mapping) and given.get("game") else local_training(args)),
        **server_optimizer(args),
    }
    per_round = whole("train_args.client_num_per_round", args.client_num_per_round)
    total = whole("train_args.client_num_in_total", args.client_num_in_total)
    if per_round < 1:
        raise SettingError(f"train_args.client_num_per_round must be at least 1, not {shown(per_round)}.")
    if per_round < total:
        fixed["sampled"] = per_round
    refuse_two(given, fixed)
    if (how := measure_of(args)) is not None:
        if (given.get("contribution") or how) != how:
            raise SettingError(
                f"incentive.contribution is {shown(given['contribution'])}, contribution_alg {how!r}: keep one of them."
            )
        fixed["contribution"] = how
    settings, host = hosting.read(given, FedmlSettings, fixed, FEDML_HAS)
    if settings.local != "epochs":
        raise SettingError("incentive.local is 'gradient', but FedML's trainers train for epochs: leave it out.")
    return settings, host


def run_id(args: Any, incentive: Any) -> str:
    """FedML's run_id; where nobody gave one (it is "0" then) a new one, the same in all processes of an MPI job.

    By gRPC and TRPC the server makes one, and clients without an id take part in the run they are asked for.
    """
    given = getattr(args, "run_id", UNGIVEN)
    given = given if isinstance(given, str) else shown(given)
    incentive = incentive if isinstance(incentive, Mapping) else {}
    resume = incentive.get("resume") is True
    if given == UNGIVEN and not resume and getattr(args, "backend", "") in ("GRPC", "TRPC") and incentive.get("keys"):
        raise SettingError(
            "run_id is not given: a signed run across silos needs one, the same in all processes (--run_id)."
        )
    comm = getattr(args, "comm", None) if getattr(args, "backend", "") == "MPI" else None
    if given != UNGIVEN or resume or (comm is None and whole("rank", getattr(args, "rank", 0) or 0) != 0):
        return given
    optimizer = checks.text("train_args.federated_optimizer", args.federated_optimizer)
    made = f"{optimizer}-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    if comm is not None:
        made = comm.bcast(made, root=0)
    args.run_id = made
    log.info("No --run_id was given: this run is called %s", made)
    return made


def local_training(args: Any) -> dict[str, Any]:
    """What FedML's trainers train with, for the record: in the terms, the manifest and every broadcast."""
    known = {"epochs": int, "batch_size": int, "learning_rate": float}
    found: dict[str, Any] = {}
    for name, kind in known.items():
        value = getattr(args, name, None)
        if isinstance(value, bool) or value is None:
            continue
        try:
            number = kind(value)
        except (TypeError, ValueError, OverflowError):
            raise SettingError(f"train_args.{name} must be a number, not {shown(value)}.") from None
        if number > 0:  # a batch_size of -1 is FedML's full batch, which has no number
            found[{"batch_size": "batch"}.get(name, name)] = number
    return found


def server_optimizer(args: Any) -> dict[str, Any]:
    """FedML's settings of the server's optimizer, which are ours by other names; what we do not have is refused."""
    found: dict[str, Any] = {}
    name, rate = getattr(args, "server_optimizer", None), getattr(args, "server_lr", None)
    if name is not None:
        if str(name).lower() not in ("sgd", "adam"):
            raise SettingError(f"train_args.server_optimizer is {shown(name)}: sgd and adam are known here.")
        found["server_optimizer"] = str(name).lower()
    if rate is not None:
        found["eta"] = checks.real(above=0.0)("train_args.server_lr", rate)
    if getattr(args, "server_momentum", 0):
        raise SettingError(
            f"train_args.server_momentum is {shown(args.server_momentum)}: the server's sgd has none here; leave it "
            "out, or use server_optimizer: adam."
        )
    return found


TWICE = {
    "eta": "train_args.server_lr",
    "server_optimizer": "train_args.server_optimizer",
    "sampled": "train_args.client_num_per_round",
}


def refuse_two(given: Any, fixed: Mapping[str, Any]) -> None:
    """What both FedML's settings and ours say, differently: neither is taken silently."""
    for key, theirs in TWICE.items():
        if isinstance(given, Mapping) and key in given and key in fixed and given[key] != fixed[key]:
            raise SettingError(
                f"incentive.{key} is {shown(given[key])}, {theirs} {shown(fixed[key])}: keep one of them."
            )


def measure_asked(args: Any) -> str | None:
    """The method that `contribution_alg` names where `enable_contribution` is true."""
    if not getattr(args, "enable_contribution", False):
        return None
    return str(getattr(args, "contribution_alg", "") or "").strip()


def measure_of(args: Any) -> str | None:
    """What it means for `incentive.contribution` under our mechanisms."""
    named = measure_asked(args)
    if named is None or named in MEASURES:
        return named
    if named not in SAME_MEASURES:
        known = [*MEASURES, *SAME_MEASURES]
        raise SettingError(
            f"enable_contribution is true, and contribution_alg is {shown(named)}: name one of {', '.join(known)}."
            f"{nearest(named, known)}"
        )
    return SAME_MEASURES[named]


def whole(name: str, value: Any) -> int:
    """A whole number, also where FedML hands it over as a text."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise SettingError(f"{name} must be a whole number, not {shown(value)}.") from None


def refuse_flat(args: Any) -> None:
    """A key beside `incentive:` would become one of FedML's own settings, silently: its `beta` is a defence's."""
    given = getattr(args, "yaml_config_file", None)
    if not isinstance(given, (str, Path)) or not os.path.isfile(given):
        return
    try:
        values = yaml.safe_load(Path(given).read_text("utf-8"))
    except (OSError, *BROKEN_YAML) as error:
        raise SettingError(f"{given} is not valid YAML: {error}") from None
    section = values.get("incentive_args") if isinstance(values, Mapping) else None
    stray = [key for key in section if key != "incentive"] if isinstance(section, Mapping) else []
    if stray:
        raise SettingError(
            f"incentive_args.{stray[0]} must stand one level deeper: incentive_args.incentive.{stray[0]}."
        )


def agent_names(host: FedmlSettings, n: int) -> tuple[str, ...]:
    """One name per client; padded, so that name order is client order."""
    if host.agents is None:
        return tuple(hosting.agent_name(index, n) for index in range(n))
    if len(host.agents) != n:
        raise SettingError(
            f"incentive.agents has {len(host.agents)} names for {n} clients (train_args.client_num_in_total)."
        )
    return host.agents
