"""The preset `paper`: every round is kept, a run that is killed goes on to the same bytes, time is told beforehand."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from fedincentive.center import state
from fedincentive.errors import RunError, SettingError
from fedincentive.experiments import presets, runner
from fedincentive.experiments.forecast import Forecast, fitted, seconds_of

STUDY = "welfare-vs-time"
SMALL = {"preset": "paper", "seeds": 1, "only": ["digits"], "jobs": 1}
# Which save of the state each of six processes dies at, and whether before or after it.
KILLS = [(count, when) for count in (2, 3, 5, 4, 3) for when in ("after", "before")]  # ten of them


@pytest.fixture
def tiny(monkeypatch) -> None:
    """The paper's preset with three agents of 30 digits, three rounds, and a short first phase."""
    whole = presets.load("paper")
    whole["data"]["digits"]["layout"].update(points=30)
    whole["data"]["digits"]["incentive"].update(rounds=3)
    whole["economies"]["paper"]["incentive"].update(round_limit=12, gamma=5.0)
    whole["studies"][STUDY].update(agents=3)
    monkeypatch.setattr(presets, "load", lambda name: whole)


def killed_at(out: Path, count: int, when: str) -> None:
    """Play until the state is saved for the `count`-th time, and die there."""
    real, seen = state.save, [0]

    def save(*given) -> None:
        seen[0] += 1
        if seen[0] == count and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        real(*given)
        if seen[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)

    state.save = save
    runner.run(STUDY, out, resume=True, **SMALL)


def test_a_run_killed_ten_times_and_moved_gives_the_bytes_of_one_that_was_not(tiny, tmp_path: Path) -> None:
    whole = runner.run(STUDY, tmp_path / "whole", **SMALL)
    fork = multiprocessing.get_context("fork")
    for k, (count, when) in enumerate(KILLS):
        child = fork.Process(target=killed_at, args=(tmp_path / f"part-{k}", count, when))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        os.rename(tmp_path / f"part-{k}", tmp_path / f"part-{k + 1}")
    again = runner.run(STUDY, tmp_path / f"part-{len(KILLS)}", resume=True, **SMALL)
    for name in ("results.jsonl", "results.csv"):
        assert (again / name).read_bytes() == (whole / name).read_bytes()
    assert not list((again / "state").glob("*/*"))  # what is finished is not kept twice
    manifest = runner.read_manifest(again)
    assert manifest["ledgers"] == runner.read_manifest(whole)["ledgers"]
    assert manifest["forecast"]["seconds"] >= 0 and manifest["forecast"]["memory_gib"] >= 0


def test_a_budget_leaves_out_seeds_and_then_rounds_and_says_so(tiny, tmp_path: Path) -> None:
    given = presets.of_study(STUDY, "paper", data=["digits"])
    assert given["study"]["seeds"] == 10
    expected = Forecast(seconds=1000.0, memory=0.0, rounds=0, examples=0.0)
    assert fitted(given, expected, 2000.0) == (given, [])
    smaller, left_out = fitted(given, expected, 350.0)
    assert (smaller["study"]["seeds"], left_out) == (3, ["seeds: 3 of 10"])
    smaller, left_out = fitted(given, expected, 70.0)
    assert left_out == ["seeds: 1 of 10", "digits: 2 of 3 rounds"]
    assert smaller["study"]["incentive"]["digits"]["rounds"] == 2 and "incentive" not in given["study"]
    with pytest.raises(SettingError, match="one round of each run take 0.6 min"):
        fitted(given, expected, 1.0)
    lines: list[str] = []
    folder = runner.run(STUDY, tmp_path, **SMALL, budget="1h", say=lines.append)
    assert "12 training rounds" in lines[0] and lines[1].endswith("left out to fit 1h: nothing.")
    with pytest.raises(RunError, match="another budget"):
        runner.run(STUDY, tmp_path, **SMALL, budget="2h", resume=True)
    assert runner.run(STUDY, tmp_path, **SMALL, budget="1h", resume=True) == folder


def test_times_are_read_or_refused() -> None:
    assert [seconds_of(text) for text in ("2h", "90m", "1h30m", "45s")] == [7200.0, 5400.0, 5400.0, 45.0]
    for wrong in ("2", "h", "2 h", "2d", ""):
        with pytest.raises(SettingError, match="write 2h"):
            seconds_of(wrong)
