"""Reproducing: the same seed gives the same results, interrupted runs resume, figures come from results alone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedincentive import ledger
from fedincentive.errors import RunError, SettingError
from fedincentive.experiments import presets, runner
from fedincentive.experiments.studies import STUDIES, trimming
from fedincentive.ledger.verify import verify

SMALL = {"seeds": 1, "only": ["digits"], "jobs": 1}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def moral(tmp_path_factory) -> Path:
    return runner.run("moral-hazard", tmp_path_factory.mktemp("runs"), **SMALL)


def test_a_run_leaves_results_figures_and_a_manifest(moral: Path) -> None:
    manifest = json.loads((moral / "manifest.json").read_text())
    assert manifest["study"] == "moral-hazard" and manifest["preset"] == "quick"
    assert manifest["settings"]["study"]["seeds"] == 1
    assert set(manifest["versions"]) >= {"fedincentive", "python", "torch", "commit"}
    assert manifest["machine"]["cores"] and manifest["results_sha256"] == digest(moral / "results.jsonl")
    records = runner.lines(moral / "results.jsonl")
    assert len(records) == 10 == len((moral / "results.csv").read_text().splitlines()) - 1
    for ending in ("png", "svg"):
        assert (moral / f"moral-hazard.{ending}").stat().st_size > 5000
    ((name, head),) = manifest["ledgers"].items()
    with ledger.read(moral / "ledger" / name) as book:
        assert (book.head().count, book.head().hash) == (head["count"], head["hash"])
        assert verify(book, recompute=True).clean


def test_free_riding_pays_when_settled_at_commitment_and_not_in_tranches(moral: Path) -> None:
    def utility(settlement: str, share: float) -> float:
        (record,) = (
            r
            for r in runner.lines(moral / "results.jsonl")
            if (r["case"]["settlement"], r["case"]["share"]) == (settlement, share)
        )
        return record["result"]["agents"][record["result"]["deviator"]]["utility"]

    assert utility("commitment", 0.0) > utility("commitment", 1.0)
    assert utility("tranches", 0.0) < utility("tranches", 1.0)


def test_the_same_seed_gives_the_same_bytes_also_in_two_processes(tmp_path: Path, monkeypatch) -> None:
    small_sweep = {"betas": ["0.4", "2"], "economies": ["calibrated"], "agents": 4}
    whole = presets.load("quick")
    whole["studies"]["welfare-vs-beta"].update(small_sweep)
    monkeypatch.setattr(presets, "load", lambda name: whole)
    one = runner.run("welfare-vs-beta", tmp_path / "one", **{**SMALL, "seeds": 2})
    two = runner.run("welfare-vs-beta", tmp_path / "two", **{**SMALL, "seeds": 2, "jobs": 2})
    for name in ("results.jsonl", "results.csv", "welfare-vs-beta.png", "welfare-vs-beta.svg"):
        assert digest(one / name) == digest(two / name)


def test_an_interrupted_run_goes_on_where_it_stopped(moral: Path, tmp_path: Path) -> None:
    folder = tmp_path / "moral-hazard"
    shutil.copytree(moral, folder)
    (raw,) = (folder / "raw").glob("*.jsonl")
    written = raw.read_text().splitlines(keepends=True)
    raw.write_text("".join(written[:6]) + written[6][:50])  # killed in the middle of a line
    for name in ("results.jsonl", "moral-hazard.png"):
        (folder / name).unlink()
    with pytest.raises(RunError, match="--resume"):
        runner.run("moral-hazard", tmp_path, **SMALL)
    with pytest.raises(RunError, match="not finished"):
        runner.draw(folder)
    with pytest.raises(RunError, match="another settings"):
        runner.run("moral-hazard", tmp_path, **{**SMALL, "seeds": 2}, resume=True)
    runner.run("moral-hazard", tmp_path, **SMALL, resume=True)
    again = [r["result"]["agents"] for r in runner.lines(folder / "results.jsonl")]
    assert again == [r["result"]["agents"] for r in runner.lines(moral / "results.jsonl")]
    assert digest(folder / "moral-hazard.png") == digest(moral / "moral-hazard.png")


def test_figures_are_redrawn_from_results_alone(moral: Path, tmp_path: Path) -> None:
    for name in ("manifest.json", "results.jsonl", "timings.jsonl"):
        shutil.copy(moral / name, tmp_path / name)
    files = runner.draw(tmp_path)
    assert [path.name for path in files] == ["moral-hazard.png", "moral-hazard.svg"]
    assert digest(tmp_path / "moral-hazard.svg") == digest(moral / "moral-hazard.svg")


@pytest.mark.parametrize("name", ["welfare-vs-time", "non-iid", "payments-vs-contribution"])
def test_studies_run_on_digits(name: str, tmp_path: Path) -> None:
    folder = runner.run(name, tmp_path, **SMALL)
    assert list(folder.glob("*.png")) and runner.lines(folder / "results.jsonl")


def test_example1_ends_where_it_should(tmp_path: Path) -> None:
    folder = runner.run("example1", tmp_path)
    frozen, joint, repaired = (r["result"] for r in runner.lines(folder / "results.jsonl"))
    assert frozen["s"] == pytest.approx([0, 5], abs=1e-3) and frozen["welfare"] == pytest.approx(1.8, abs=1e-3)
    assert frozen["regret"] == pytest.approx(0.0, abs=1e-6)
    assert "s" in joint["ending"] and sum(joint["s"]) < 0.1  # it runs into 0/0, as printed
    assert repaired["s"] == pytest.approx([0, 5], abs=1e-3) and repaired["w"] == pytest.approx([1, 2], abs=1e-3)
    assert repaired["optimal_welfare"] == pytest.approx(1.9)


def test_lying_pays_as_printed_and_not_when_audited(tmp_path: Path, monkeypatch) -> None:
    whole = presets.load("quick")
    whole["studies"]["misreport"].update({"games": 3, "data": "digits", "points": 120, "seeds": 1})
    monkeypatch.setattr(presets, "load", lambda name: whole)
    folder = runner.run("misreport", tmp_path, jobs=1)
    records = runner.lines(folder / "results.jsonl")
    gains = {phi: [r["result"]["gain"] for r in records if r["case"].get("phi") == phi] for phi in ("paper", "audited")}
    assert min(gains["paper"]) > 0 > max(gains["audited"])
    honest, lying = (r["result"]["utility"] for r in records if "data" in r["case"])
    assert lying > honest  # d = 0 and a lower s under UPBReD


def test_trimming_withstands_adversaries(tmp_path: Path, monkeypatch) -> None:
    whole = presets.load("quick")
    whole["studies"]["adversarial"].update({"data": ["digits"], "agents": 10, "alphas": [0.2], "seeds": 1, "size": 8.0})
    monkeypatch.setattr(presets, "load", lambda name: whole)
    folder = runner.run("adversarial", tmp_path, jobs=1)
    found = {(r["case"]["mechanism"], r["case"]["alpha"]): r["result"] for r in runner.lines(folder / "results.jsonl")}
    assert found["2p-upbred", 0.2]["adversaries"] == 2
    assert found["trim-2p-upbred", 0.2]["welfare"] > found["2p-upbred", 0.2]["welfare"]


def test_momentum_averages_the_updates_of_a_site() -> None:
    class Site:
        s_max = 5

        def update(self, w, points, step, s):
            return {"w": np.array([float(step)])}

    site = trimming.Averaging(Site())
    assert [site.update({}, 5, step, {})["w"][0] for step in (10, 20, 0)] == pytest.approx([10, 11, 9.9])
    assert site.s_max == 5


def test_causes_of_what_trimming_costs_are_taken_one_at_a_time(tmp_path: Path, monkeypatch) -> None:
    whole = presets.load("quick")
    small = {"data": "digits", "agents": 5, "seeds": 1, "incentive": {"digits": {"rounds": 8}}}
    whole["studies"]["trimming"].update(small)
    monkeypatch.setattr(presets, "load", lambda name: whole)
    folder = runner.run("trimming", tmp_path, jobs=1)
    found = {r["case"]["variant"]: r["result"] for r in runner.lines(folder / "results.jsonl")}
    assert found["trimmed, flip x 3"]["adversaries"] == 1 and found["trimmed, all honest"]["adversaries"] == 0
    assert len({result["model"] for result in found.values()}) == len(found)  # no two are the same run
    assert (folder / "trimming.png").exists()


def test_every_study_has_a_section_in_both_presets() -> None:
    for preset in presets.NAMES:
        for name in STUDIES:
            given = presets.of_study(name, preset)
            cases = STUDIES[name]().cases(given)
            assert len({runner.label(case) for case in cases}) == len(cases) > 0


def test_the_papers_scale_asks_for_no_more_agents_than_there_is_data_for() -> None:
    given = presets.of_study("welfare-vs-agents", "paper")
    cases = STUDIES["welfare-vs-agents"]().cases(given)
    agents = {data: {case["agents"] for case in cases if case["data"] == data} for data in given["data"]}
    assert agents["sent140"] == {10, 18} and max(agents["cifar10"]) == max(agents["femnist"]) == 100


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="Did you mean 'welfare-vs-beta'"):
        runner.run("welfare-v-beta", tmp_path)
    with pytest.raises(SettingError, match="preset 'quik'.*quick"):
        runner.run("example1", tmp_path, preset="quik")
    with pytest.raises(SettingError, match="--data DIR.*cs.toronto.edu"):
        runner.run("non-iid", tmp_path)


def test_the_command_line(tmp_path: Path) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "fedincentive.cli", "reproduce", "step-sizes", "--out", "runs"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [os.path.join("runs", "step-sizes", "step-sizes.png")]
    assert "100%" in done.stderr  # the progress bar
    again = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert again.returncode == 1 and "--resume" in again.stderr and "Traceback" not in again.stderr


REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "prepare.py"


@pytest.mark.skipif(not REAL.exists(), reason="the packed real data is not beside this checkout")
def test_real_tweets_from_prepare_to_figure(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(REAL), "sent140", str(tmp_path), "3000"], check=True)
    folder = runner.run("welfare-vs-time", tmp_path / "out", directory=tmp_path, only=["sent140"], jobs=1)
    shares = {r["case"]["mechanism"]: r["result"]["share"] for r in runner.lines(folder / "results.jsonl")}
    assert shares["fedavg"] == shares["2p-upbred"] == 1.0 > shares["upbred"] > shares["fedavg-strategic"]
