"""Other papers' mechanisms in NVFlare: the engine's ledger in a closed-form game."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import parity
import pytest


@pytest.mark.parametrize("name", parity.PEERS)
def test_a_game_gives_the_engines_ledger(table: Any, name: str, tmp_path: Path) -> None:
    played = table(**parity.peer(name)).play()
    assert played.panics == []
    assert played.outcome.checkpoint == parity.peer_in_engine(name, tmp_path)
