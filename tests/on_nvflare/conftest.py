"""Shared by the NVFlare suite: the parity game at a table in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import parity
import pytest
import yaml
from fedincentive.plugins.nvflare.executor import GameExecutor
from nvflare_loopback import JOB, LoopbackController, Site

NAMES = [agent["name"] for agent in parity.GAME["agents"]]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """A controller and a site for each agent of the parity game, and for those `beside`; `settings` change the parity
    settings, `kinds` the executors of some sites."""

    def make(
        mechanism: str = "2p-upbred",
        folder: str = "w",
        beside: Sequence[str] = (),
        kinds: Mapping[str, Any] = {},  # noqa: B006
        **settings: Any,
    ) -> LoopbackController:
        told = {**parity.INCENTIVE, "mechanism": mechanism, "run": parity.RUN, "rounds": parity.ROUNDS, "agents": 3}
        told |= settings
        names = (*NAMES, *beside)
        for name in (*names, "server"):
            custom = tmp_path / folder / name / JOB / f"app_{name}" / "custom"
            custom.mkdir(parents=True, exist_ok=True)
            (custom / "game.yaml").write_text(yaml.safe_dump({"game": parity.GAME}))
        sites = [
            Site(name, tmp_path / folder, partial(kinds.get(name, GameExecutor), told, "game.yaml")) for name in names
        ]
        return LoopbackController(told, game="game.yaml").sit(tmp_path / folder, sites)

    return make
