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
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ... import checks, hosting
from ...checks import setting
from ...errors import SettingError
from ...settings import Settings

SECTION = "incentive"
SCALARS = (str, int, float, bool)  # what Flower lets stand in a run config


@dataclasses.dataclass(frozen=True)
class FlowerSettings(hosting.HostSettings):
    """What the Flower host needs beside `fedincentive.Settings`."""

    agents: int = setting(checks.integer(1), 2, help="Agents that must enrol before the first round; more may.")
    node_keys: Mapping[str, str] | None = setting(
        checks.optional(checks.mapping),
        None,
        help="By agent, the public key of its node in Flower's SuperNode authentication: nobody else has its name.",
    )
    handout: bool = setting(
        checks.flag, False, help="Send ledger, outcome and model to the nodes at the end; `keep` names their folder."
    )


def read(run_config: Mapping[str, Any], **defaults: Any) -> tuple[Settings, FlowerSettings]:
    """Both parts of the table; every problem is a SettingError. `defaults` fill what it leaves out.

    >>> read({"num-server-rounds": 3, "incentive.mechanism": "upbred", "incentive.round-limit": 50})[0].round_limit
    50
    """
    values = (*run_config.values(), *defaults.values())
    if any(type(value) not in SCALARS for value in values):
        return hosting.read(nested(run_config), FlowerSettings, defaults)
    # 1 and True, 0.0 and -0.0 are equal and not the same
    exact = tuple(math.copysign(1.0, value) if type(value) is float else type(value) for value in values)
    return _read(tuple(run_config.items()), tuple(defaults.items()), exact)


@lru_cache(maxsize=16)
def _read(
    run_config: tuple[tuple[str, Any], ...], defaults: tuple[tuple[str, Any], ...], exact: tuple[Any, ...]
) -> tuple[Settings, FlowerSettings]:
    """Every message carries the whole run config; checking it takes longer than a small node's training."""
    return hosting.read(nested(dict(run_config)), FlowerSettings, dict(defaults))


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
            if key in table:
                raise SettingError(f"{SECTION}.{key} is given twice ({flat}): keep one of them.")
            table[key] = value
            continue
        if not isinstance(table.setdefault(key, {}), dict):
            raise SettingError(f"{SECTION}.{key} is both a value and a table ({flat}): keep one of them.")
        if key == "options" and "." in agent:  # incentive.options.<payment>.<setting>[.<agent>]
            payment, _, own = agent.partition(".")
            own, by_agent, agent = own.partition(".")
            own = own.replace("-", "_")
            place = table[key].setdefault(payment, {})
            if not isinstance(place, dict) or (by_agent and not isinstance(place.setdefault(own, {}), dict)):
                raise SettingError(f"{SECTION}.{key}.{payment} is both a value and a table ({flat}): keep one of them.")
            (place[own] if by_agent else place)[agent if by_agent else own] = value
        else:
            table[key][agent] = value
    return table
