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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ... import checks, hosting
from ...checks import setting
from ...errors import SettingError
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
    if not isinstance(value, (list, tuple)) or len(set(map(str, value))) != len(value):
        raise SettingError(f"{name} must be a list of different agent names, one per client, not {value!r}.")
    return tuple(checks.text(name, agent) for agent in value)


@dataclasses.dataclass(frozen=True)
class FedmlSettings(hosting.HostSettings):
    """What the FedML host needs beside `fedincentive.Settings`."""

    title = "FedML"

    agents: tuple[str, ...] | None = setting(
        names, None, help="Stable agent names in the order of FedML's clients; agent-1, agent-2, ... when not given."
    )
    game: str | None = setting(
        checks.optional(checks.text), None, help="A closed-form game (YAML) that the clients play instead of training."
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
    fixed: dict[str, Any] = {
        "mechanism": str(args.federated_optimizer),
        "rounds": int(args.comm_round),
        "run": checks.folder_name("run_id", str(getattr(args, "run_id", "0"))),
        "seed": int(getattr(args, "random_seed", 0)),
    }
    per_round, total = int(args.client_num_per_round), int(args.client_num_in_total)
    if per_round < total:
        fixed["sampled"] = per_round
    settings, host = hosting.read(given, FedmlSettings, fixed, FEDML_HAS)
    if settings.local != "epochs":
        raise SettingError("incentive.local is 'gradient', but FedML's trainers train for epochs: leave it out.")
    return settings, host


def refuse_flat(args: Any) -> None:
    """A key beside `incentive:` would become one of FedML's own settings, silently: its `beta` is a defence's."""
    path = Path(str(getattr(args, "yaml_config_file", "") or ""))
    if not path.is_file():
        return
    section = (yaml.safe_load(path.read_text()) or {}).get("incentive_args")
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
