"""From a clean clone to a report by the README's commands alone, timed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.timeout(1800)  # it compiles the kernels
def test_a_stranger_gets_from_a_clone_to_a_report() -> None:
    done = subprocess.run([sys.executable, "benchmarks/stranger.py"], cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    *steps, total = done.stdout.splitlines()
    assert [re.sub(r"^ *[0-9.]+ s  ", "", line).split()[0] for line in steps[3:]] == ["fedincentive"] * 5
    assert re.fullmatch(r" *[0-9.]+ s  from nothing to a report of [0-9,]+ characters", total)
    spent = [float(line.split()[0]) for line in (*steps, total)]
    assert spent[-1] >= sum(spent[:-1]) - 0.05 * len(spent)  # every step counts; each figure is rounded to 0.1 s
