"""What an IncentiveRecipe is told beside NVFlare's own arguments: the core's settings, plus those of the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import checks, hosting
from ...checks import setting
from ...settings import Settings

ELSEWHERE = {"rounds": "num_rounds", "agents": "min_clients"}  # NVFlare's recipes have these by names of their own


@dataclasses.dataclass(frozen=True)
class NvflareSettings(hosting.HostSettings):
    """What the NVFlare host needs beside `fedincentive.Settings`."""

    title = "NVFlare"

    agents: int = setting(checks.integer(1), 2, help="Agents that must enrol before the first round; more may.")


def read(given: Mapping[str, Any], **fixed: Any) -> tuple[Settings, NvflareSettings]:
    """Both parts of what a recipe was told; every problem is a SettingError.

    >>> read({"mechanism": "upbred", "round_limit": 50}, run="trial", rounds=3, agents=2)[0].round_limit
    50
    """
    return hosting.read(given, NvflareSettings, fixed, ELSEWHERE)


def here(settings: Settings, host: NvflareSettings, run: Path, site: Path) -> tuple[Settings, NvflareSettings]:
    """The same at one site: relative paths of results are in the job's own folder `run`, which NVFlare brings back,
    relative paths of keys in the site's own configuration folder `site`, which no job can write."""
    keys = None if settings.keys is None else str(site / settings.keys)
    return dataclasses.replace(settings, keys=keys), dataclasses.replace(host, output=str(run / host.output))
