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
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ... import checks, hosting
from ...checks import setting, shown
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
    run = getattr(args, "run_id", "0")
    fixed: dict[str, Any] = {
        "mechanism": checks.text("train_args.federated_optimizer", args.federated_optimizer),
        "rounds": whole("train_args.comm_round", args.comm_round),
        "run": checks.folder_name("run_id", run if isinstance(run, str) else shown(run)),
        "seed": whole("common_args.random_seed", getattr(args, "random_seed", 0)),
    }
    per_round = whole("train_args.client_num_per_round", args.client_num_per_round)
    total = whole("train_args.client_num_in_total", args.client_num_in_total)
    if per_round < total:
        fixed["sampled"] = per_round
    settings, host = hosting.read(given, FedmlSettings, fixed, FEDML_HAS)
    if settings.local != "epochs":
        raise SettingError("incentive.local is 'gradient', but FedML's trainers train for epochs: leave it out.")
    return settings, host


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
