"""Shared by the NVFlare suite: the parity game at a table in this process."""

from __future__ import annotations

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
    """A controller and a site for each agent of the parity game; `settings` change the parity settings."""

    def make(mechanism: str = "2p-upbred", folder: str = "w", **settings: Any) -> LoopbackController:
        told = {**parity.INCENTIVE, "mechanism": mechanism, "run": parity.RUN, "rounds": parity.ROUNDS, "agents": 3}
        told |= settings
        for name in (*NAMES, "server"):
            custom = tmp_path / folder / name / JOB / f"app_{name}" / "custom"
            custom.mkdir(parents=True, exist_ok=True)
            (custom / "game.yaml").write_text(yaml.safe_dump({"game": parity.GAME}))
        sites = [Site(name, tmp_path / folder, lambda: GameExecutor(told, "game.yaml")) for name in NAMES]
        return LoopbackController(told, game="game.yaml").sit(tmp_path / folder, sites)

    return make
