"""The `incentive` table of a Flower app's run config: the core's settings, plus those of the host.

    [tool.flwr.app.config.incentive]
    mechanism = "2p-upbred"
    beta = "2"                      # money is exact: a quoted decimal
    round-timeout = 60

Flower hands the table over flat (`incentive.beta`), with hyphens as its users write them. `flwr run --run-config` can
only override keys that the app's pyproject.toml has, so an empty string there means "not given".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ... import checks, mechanisms
from ...checks import nearest, setting
from ...errors import SettingError

SECTION = "incentive"


def strategies(name: str, value: Any) -> str | dict[str, str]:
    if isinstance(value, Mapping):
        return {checks.text(name, agent): checks.text(f"{name}.{agent}", v) for agent, v in value.items()}
    return checks.text(name, value)


@dataclasses.dataclass(frozen=True)
class HostSettings:
    """What the Flower host needs beside `fedincentive.mechanisms.Settings`."""

    agents: int = setting(checks.integer(1), 2, help="Agents that must enrol before the first round; more may.")
    strategy: str | dict[str, str] = setting(
        strategies, "gradient", help="What agents want to give: gradient, fixed, free-rider; one, or a table by agent."
    )
    start: float = setting(checks.real(0.0, 1.0), 0.5, help="The part of its points each agent contributes at first.")
    output: str = setting(
        checks.text, "fedincentive-runs", help="Directory of the runs' ledgers and states, one folder for each run."
    )
    join_timeout: float = setting(
        checks.real(above=0.0),
        300.0,
        help="Seconds the ServerApp waits for the agents to enrol before the first round.",
    )
    round_timeout: float = setting(
        checks.real(above=0.0), 600.0, help="Seconds after which an agent that has not answered is absent in a round."
    )


CORE = {field.name for field in dataclasses.fields(mechanisms.Settings)}
HOST = {field.name for field in dataclasses.fields(HostSettings)}


def read(run_config: Mapping[str, Any], **defaults: Any) -> tuple[mechanisms.Settings, HostSettings]:
    """Both parts of the table; every problem is a SettingError. `defaults` fill what it leaves out.

    >>> read({"num-server-rounds": 3, "incentive.mechanism": "upbred", "incentive.round-limit": 50})[0].round_limit
    50
    """
    given = {**defaults, **nested(run_config)}
    for key in given:
        if key not in CORE | HOST:
            raise SettingError(f"{SECTION} has no setting {key!r}.{nearest(str(key), sorted(CORE | HOST))}")
    settings = mechanisms.Settings.read({key: value for key, value in given.items() if key in CORE}, SECTION)
    host = checks.read(HostSettings, {key: value for key, value in given.items() if key in HOST}, SECTION)
    return settings, host


def nested(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """The table as it stood in the TOML file: `incentive.cost.site-a` becomes {"cost": {"site-a": ...}}."""
    table: dict[str, Any] = {}
    for flat, value in run_config.items():
        section, _, rest = flat.partition(".")
        if section != SECTION or value == "":
            continue
        key, dot, agent = rest.partition(".")
        key = key.replace("-", "_")
        if not dot:
            table[key] = value
            continue
        if not isinstance(table.setdefault(key, {}), dict):
            raise SettingError(f"{SECTION}.{key} is both a value and a table ({flat}): keep one of them.")
        table[key][agent] = value
    return table
