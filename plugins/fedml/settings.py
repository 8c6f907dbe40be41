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

from ... import checks, mechanisms
from ...checks import nearest, setting
from ...errors import SettingError

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


def strategies(name: str, value: Any) -> str | dict[str, str]:
    if isinstance(value, Mapping):
        return {checks.text(name, agent): checks.text(f"{name}.{agent}", v) for agent, v in value.items()}
    return checks.text(name, value)


@dataclasses.dataclass(frozen=True)
class HostSettings:
    """What the FedML host needs beside `fedincentive.mechanisms.Settings`."""

    agents: tuple[str, ...] | None = setting(
        names, None, help="Stable agent names in the order of FedML's clients; agent-1, agent-2, ... when not given."
    )
    strategy: str | dict[str, str] = setting(
        strategies,
        "gradient",
        help="What agents want to give: gradient, fixed or free-rider; one for all, or a mapping.",
    )
    start: float = setting(checks.real(0.0, 1.0), 0.5, help="The part of its points each agent contributes at first.")
    game: str | None = setting(
        checks.optional(checks.text), None, help="A closed-form game (YAML) that the clients play instead of training."
    )
    output: str = setting(
        checks.text, "fedincentive-runs", help="Directory of the runs' ledgers and states, one folder for each run."
    )
    join_timeout: float = setting(
        checks.real(above=0.0), 300.0, help="Seconds the server waits for all agents to enrol before the first round."
    )
    round_timeout: float = setting(
        checks.real(above=0.0), 600.0, help="Seconds after which an agent that has not answered is absent in a round."
    )
    server_timeout: float = setting(
        checks.real(above=0.0), 120.0, help="Seconds after which a client gives up on a server that is not there."
    )
    heartbeat: float = setting(
        checks.real(above=0.0), 5.0, help="Seconds of silence after which a client shows it is there."
    )


def read(args: Any) -> tuple[mechanisms.Settings, HostSettings]:
    """Both parts of `args.incentive`, completed from FedML's own settings; every problem is a SettingError."""
    given = getattr(args, "incentive", None) or {}
    refuse_flat(args)
    if not isinstance(given, Mapping):
        raise SettingError(f"incentive_args.incentive must be a mapping of settings, not {given!r}.")
    core = {field.name for field in dataclasses.fields(mechanisms.Settings)}
    host = {field.name for field in dataclasses.fields(HostSettings)}
    known = sorted((core | host) - set(FEDML_HAS))
    for key in given:
        if key in FEDML_HAS:
            raise SettingError(f"incentive.{key} is FedML's own setting: give it as {FEDML_HAS[key]}.")
        if key not in known:
            raise SettingError(f"incentive has no setting {key!r}.{nearest(str(key), known)}")
    values: dict[str, Any] = {key: value for key, value in given.items() if key in core}
    values["mechanism"] = str(args.federated_optimizer)
    values["rounds"] = int(args.comm_round)
    values["run"] = checks.folder_name("run_id", str(getattr(args, "run_id", "0")))
    values.setdefault("seed", int(getattr(args, "random_seed", 0)))
    per_round, total = int(args.client_num_per_round), int(args.client_num_in_total)
    if per_round < total:
        values.setdefault("sampled", per_round)
    settings = mechanisms.Settings.read(values)
    if settings.local != "epochs":
        raise SettingError("incentive.local is 'gradient', but FedML's trainers train for epochs: leave it out.")
    return settings, checks.read(HostSettings, {k: v for k, v in given.items() if k in host}, "incentive")


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


def agent_names(host: HostSettings, n: int) -> tuple[str, ...]:
    """One name per client; padded, so that name order is client order."""
    if host.agents is None:
        return tuple(f"agent-{rank:0{len(str(n))}d}" for rank in range(1, n + 1))
    if len(host.agents) != n:
        raise SettingError(
            f"incentive.agents has {len(host.agents)} names for {n} clients (train_args.client_num_in_total)."
        )
    return host.agents
