"""Other papers' mechanisms in Flower: the engine's ledger in a closed-form game, and models of their own in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import parity
import pytest
from fedincentive.plugins.flower import IncentiveStrategy, play
from fedincentive.plugins.flower.settings import FlowerSettings
from flwr.app import Array, ArrayRecord

from fedincentive import game
from fedincentive.settings import Settings

GAME = game.read({"game": parity.GAME})


@pytest.mark.parametrize("name", parity.PEERS)
def test_a_game_gives_the_engines_ledger(grid: Any, name: str, tmp_path: Path) -> None:
    nodes = grid({"incentive.mechanism": parity.peer(name)["mechanism"]})
    for agent in GAME.agents:
        nodes.join(play(GAME), agent=agent)
    host = FlowerSettings(agents=GAME.n, output=str(tmp_path))
    strategy = IncentiveStrategy(Settings.read(parity.peer(name)), host, game=GAME)
    strategy.start(nodes, ArrayRecord({"w": Array(GAME.w0)}))
    assert strategy.outcome is not None
    assert strategy.outcome.checkpoint == parity.peer_in_engine(name, tmp_path)
