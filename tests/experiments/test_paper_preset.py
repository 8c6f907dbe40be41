"""The preset `paper`: every round is kept, a run that is killed goes on to the same bytes, time is told beforehand."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from fedincentive.center import state
from fedincentive.errors import RunError, SettingError
from fedincentive.experiments import presets, runner
from fedincentive.experiments.federation import Federation
from fedincentive.experiments.forecast import Forecast, fitted, seconds_of, trainings
from fedincentive.experiments.shared_training import Group, Memory
from fedincentive.experiments.studies import Bench
from fedincentive.experiments.studies.base import summary
from fedincentive.experiments.studies.welfare import Welfare
from fedincentive.experiments.training import Grouped

STUDY = "welfare-vs-time"
SMALL = {"preset": "paper", "seeds": 1, "only": ["digits"], "jobs": 1}
LONG = 0.05  # seconds of a slow training
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


def test_fedavg_trains_for_2p_upbred_round_by_round_and_the_manifest_says_so(tiny, tmp_path: Path, monkeypatch) -> None:
    """With a memory that has room for less than one round, as at the paper's scale, beside runs that share nothing."""
    trained: list[int] = []
    real = Grouped.updates

    def slow(self, w, asked, step):
        trained.append(step)
        start = time.process_time()
        while time.process_time() < start + LONG:
            pass
        return real(self, w, asked, step)

    monkeypatch.setattr(Grouped, "updates", slow)
    begun = Federation.__init__
    monkeypatch.setattr(Federation, "__init__", lambda *a, **k: begun(*a, **{**k, "memory": Memory(1000)}))
    shared = runner.run(STUDY, tmp_path / "shared", **SMALL)
    together, trained[:] = list(trained), []
    monkeypatch.setattr(Group, "round_bytes", 0)
    with monkeypatch.context() as patched:
        patched.setattr(Welfare, "play", played_alone)
        alone = runner.run(STUDY, tmp_path / "alone", **SMALL)
    assert len(trained) == len(together) + 3
    for name in ("results.jsonl", "results.csv"):
        assert (shared / name).read_bytes() == (alone / name).read_bytes()
    said, unshared = runner.read_manifest(shared), runner.read_manifest(alone)
    assert said["ledgers"] == unshared["ledgers"] and unshared["shared"] == {}
    case = "data=digits agents=3 seed=0 economy=paper mechanism="
    assert said["shared"] == {f"{case}2p-upbred": {f"{case}fedavg": "0-2"}}
    fedavg, paid = (t["seconds"] for t in runner.lines(shared / "timings.jsonl")[:2])
    assert len(fedavg) == len(paid) == 5 and paid == sorted(paid)  # after phase 1, three rounds and the last valuations
    assert min(b - a for a, b in pairwise(paid[:4])) >= LONG  # what FedAvg has trained for it counts


def played_alone(self: Welfare, case: dict, bench: Bench) -> dict:
    played = self._begin(case, bench).end()
    self.note(played.seconds, bench)
    return summary(played)


def test_what_is_asked_for_of_a_list_is_played_and_the_rest_is_named(tiny, tmp_path: Path) -> None:
    lines: list[str] = []
    parts = {"economies": ["paper"], "agents": ["10"]}
    small = {**SMALL, "budget": "1h", "say": lines.append}
    presets.load("paper")["studies"]["welfare-vs-agents"]["agents"] = [3, 10]
    folder = runner.run("welfare-vs-agents", tmp_path, **small, parts=parts, points=20)
    manifest = runner.read_manifest(folder)
    assert manifest["cut_to"] == ["economies: 1 of 2", "agents: 1 of 2", "points: at most 20 of an agent"]
    assert "cut as asked to economies: 1 of 2; agents: 1 of 2; points: at most 20 of an agent." in lines[1]
    (first, *_) = runner.lines(folder / "results.jsonl")
    assert {agent["s_max"] for agent in first["result"]["agents"].values()} == {16.0}  # a fifth is held out
    cases = [r["case"] for r in runner.lines(folder / "results.jsonl")]
    assert len(cases) == 4 and {(c["economy"], c["agents"]) for c in cases} == {("paper", 10)}
    with pytest.raises(RunError, match="another settings"):
        runner.run("welfare-vs-agents", tmp_path, **small, resume=True)
    for wrong, why in (({"agents": ["7"]}, "has 3, 10, not '7'"), ({"alphas": ["0.1"]}, "it has agents, economies")):
        with pytest.raises(SettingError, match=why):
            runner.run("welfare-vs-agents", tmp_path, **small, parts=wrong, resume=True)


def test_a_forecast_counts_what_agents_train_before_the_training(tiny) -> None:
    plain = {"rounds": 3, "slope": "paper", "round_limit": 100}
    assert trainings({**plain, "mechanism": "fedavg-strategic"}) == (3, 0)
    counterfactual = {**plain, "slope": "counterfactual"}
    assert trainings({**counterfactual, "mechanism": "fedavg"}) == (3, 0)
    assert trainings({**counterfactual, "mechanism": "upbred"}) == (6, 0)
    assert trainings({**counterfactual, "mechanism": "fedavg-strategic"}) == (3, 200)
    given = presets.of_study(STUDY, "paper", data=["digits"], seeds=1)
    smaller, _ = fitted(given, Forecast(seconds=40.0, memory=0.0, rounds=0, examples=0.0, fixed=10.0), 35.0)
    assert smaller["study"]["incentive"]["digits"]["rounds"] == 2


def test_a_budget_leaves_out_seeds_and_then_rounds_and_says_so(tiny, tmp_path: Path) -> None:
    given = presets.of_study(STUDY, "paper", data=["digits"])
    assert given["study"]["seeds"] == 10
    expected = Forecast(seconds=1000.0, memory=0.0, rounds=0, examples=0.0)
    assert fitted(given, expected, 2000.0) == (given, [])
    smaller, cut_to = fitted(given, expected, 350.0)
    assert (smaller["study"]["seeds"], cut_to) == (3, ["seeds: 3 of 10"])
    smaller, cut_to = fitted(given, expected, 70.0)
    assert cut_to == ["seeds: 1 of 10", "digits: 2 of 3 rounds"]
    assert smaller["study"]["incentive"]["digits"]["rounds"] == 2 and "incentive" not in given["study"]
    with pytest.raises(SettingError, match="one round of each run take 0.6 min"):
        fitted(given, expected, 1.0)
    lines: list[str] = []
    folder = runner.run(STUDY, tmp_path, **SMALL, budget="1h", say=lines.append)
    assert "9 training rounds" in lines[0]  # of three mechanisms: 2P-UPBReD has FedAvg's
    assert lines[1].endswith("fits 1h whole.")
    with pytest.raises(RunError, match="another budget"):
        runner.run(STUDY, tmp_path, **SMALL, budget="2h", resume=True)
    assert runner.run(STUDY, tmp_path, **SMALL, budget="1h", resume=True) == folder


def test_times_are_read_or_refused() -> None:
    assert [seconds_of(text) for text in ("2h", "90m", "1h30m", "45s")] == [7200.0, 5400.0, 5400.0, 45.0]
    for wrong in ("2", "h", "2 h", "2d", ""):
        with pytest.raises(SettingError, match="write 2h"):
            seconds_of(wrong)
