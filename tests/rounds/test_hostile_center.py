"""A short campaign of a hostile center; `make hostile` is the long one."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

CAMPAIGN = Path(__file__).parents[2] / "benchmarks" / "hostile_center.py"


def test_every_attack_is_noticed_and_no_honest_center_is_accused(capsys: Any) -> None:
    done = runpy.run_path(str(CAMPAIGN))["main"](["--count", "40", "--honest", "3"])
    told = capsys.readouterr().out
    assert done == 0, told
    assert "UNNOTICED" not in told and "0 of 3 honest centers accused" in told
    assert len(told.splitlines()) > 30
