"""The examples of docs/extending.md, installed as packages of their own and run without touching ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import fedincentive
from fedincentive import ledger

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "extending"
PAGE = ROOT / "docs" / "extending.md"
AGENTS = [{"name": "a", "s_max": 40}, {"name": "b", "s_max": 60, "cost": 0.02}, {"name": "c", "s_max": 100}]
GAME = {"kind": "data-value", "each": {"cost": 0.01}, "agents": AGENTS}
COSTS = {"a": 0.01, "b": 0.02, "c": 0.01}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pip installed the four packages into."""
    root = tmp_path_factory.mktemp("extending")
    shutil.copytree(EXAMPLES, root / "sources")  # pip builds where the sources are
    packages = [str(root / "sources" / name) for name in ("payment", "mechanism", "rule", "host")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "--target", str(root / "site"), *packages], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return root / "site"


def run(installed: Path, folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """A Python program in a folder, with the packages on its path."""
    ours = str(Path(fedincentive.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), ours])}
    return subprocess.run([sys.executable, *map(str, words)], cwd=folder, env=env, capture_output=True, text=True)


def command(installed: Path, folder: Path, *words: object, code: int = 0) -> str:
    done = run(installed, folder, "-m", "fedincentive.cli", *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def game(folder: Path, **incentive: object) -> str:
    (folder / "game.yaml").write_text(yaml.safe_dump({"game": GAME, "incentive": {"rounds": 4, **incentive}}))
    return "game.yaml"


@pytest.mark.parametrize("name", ["payment/cost_sharing.py", "mechanism/half.py", "rule/midpoint.py", "host/pipes.py"])
def test_the_page_shows_the_examples_as_they_are(name: str) -> None:
    code = (EXAMPLES / name).read_text().rstrip()
    assert f"```python\n{code}\n```" in PAGE.read_text()
    assert len(code.splitlines()) <= 60


def test_a_payment(installed: Path, tmp_path: Path) -> None:
    """In the engine, ledger, recomputation, statement, quote and certificate."""
    file = game(tmp_path, payment="cost-sharing", beta="1.5", cost=COSTS, gamma=2000)
    played = json.loads(command(installed, tmp_path, "play", file, "--ledger", "l.db", "--json"))
    cost = {"a": 0.4, "b": 1.2, "c": 1.0}
    paid = {"a": 1.5 * (0.4 - 1.1), "b": 1.5 * (1.2 - 0.7), "c": 1.5 * (1.0 - 0.8)}  # by hand
    assert {row["agent"]: row["cost"] for row in played["agents"]} == pytest.approx(cost)
    assert {row["agent"]: row["payment"] for row in played["agents"]} == pytest.approx(paid)
    assert sum(played["outcome"]["payments"].values()) == 0
    with ledger.read(tmp_path / "l.db") as book:
        assert [entry.kind for entry in book.entries()] == ["terms", "commitment", "cost-sharing"]
    assert "every amount derived again" in command(installed, tmp_path, "ledger", "verify", "l.db", "--recompute")
    assert "its cost = 1.8, less the others' mean 1.05" in command(
        installed, tmp_path, "ledger", "statement", "l.db", "b"
    )
    certificate = played["certificate"]
    assert certificate["payments"] == ["cost-sharing, beta = 3/2"] and certificate["regret"]["value"] == 0.0
    verdicts = {found["claim"]: found["status"] for found in certificate["findings"]}
    assert verdicts["budget-balanced"] == "held" and verdicts["truthful"] == "not claimed"
    assert "false-name-proof" not in verdicts  # that is another payment's claim
    quoted = json.loads(command(installed, tmp_path, "quote", file, "--json"))
    assert {row["agent"]: row["payment"] for row in quoted["agents"]} == pytest.approx(paid)
    assert quoted["agents"][0]["worst_payment"] == pytest.approx(-1.5 * 1.1) and quoted["rational"] is None


def test_a_payment_that_was_tampered_with_is_found(installed: Path, tmp_path: Path) -> None:
    file = game(tmp_path, payment="cost-sharing", beta="1.5", cost=COSTS, gamma=2000)
    command(installed, tmp_path, "play", file, "--ledger", "l.db")
    with ledger.read(tmp_path / "l.db") as book:
        honest = list(book.entries())[-1].entry
    wrong = {**honest.postings, "a": honest.postings["a"] + 1, "b": honest.postings["b"] - 1}
    with ledger.open(tmp_path / "forged.db") as book:
        changed = {"inputs": honest.inputs, "postings": wrong, "claims": honest.claims}
        book.append(ledger.Entry("run", honest.round, honest.kind, honest.rule, **changed))
    said = command(installed, tmp_path, "ledger", "verify", "forged.db", "--recompute", code=1)
    assert "recompute: entry 1: 'a' has" in said and "recompute: entry 1: 'b' has" in said


def test_an_auditor_without_the_package_is_told_what_cannot_be_derived(installed: Path, tmp_path: Path) -> None:
    file = game(tmp_path, payment="cost-sharing", beta="1.5", cost=COSTS, gamma=2000)
    command(installed, tmp_path, "play", file, "--ledger", "l.db")
    assert "clean" in command(tmp_path, tmp_path, "ledger", "verify", "l.db")
    said = command(tmp_path, tmp_path, "ledger", "verify", "l.db", "--recompute", code=1)
    assert "the rule 'cost-sharing/1' is unknown here" in said
    assert "cost-sharing/1" in command(tmp_path, tmp_path, "ledger", "statement", "l.db", "b")


def test_a_mechanism(installed: Path, tmp_path: Path) -> None:
    file = game(tmp_path, mechanism="half", beta="0.5")
    played = json.loads(command(installed, tmp_path, "play", file, "--json"))
    assert played["outcome"]["s"] == {"a": 20.0, "b": 30.0, "c": 50.0}
    assert [row["payment"] for row in played["agents"]] == pytest.approx([-10.0, -2.5, 12.5])


def test_a_rule(installed: Path, tmp_path: Path) -> None:
    file = game(tmp_path, mechanism="fedavg", aggregation="midpoint", alpha=0.3)
    assert "complete" in command(installed, tmp_path, "play", file)
    said = run(installed, tmp_path, "-m", "fedincentive.cli", "play", game(tmp_path, aggregation="midpont"))
    assert said.returncode == 1 and "Did you mean 'midpoint'" in said.stderr and "Traceback" not in said.stderr
    code = "import numpy as np; from fedincentive.aggregation import rule; "
    code += "print(rule('midpoint').use([np.float64([v]) for v in (1, 2, 4, 90)], alpha=0.25))"
    assert run(installed, tmp_path, "-c", code).stdout == "[3.]\n"


def test_a_host_gives_the_engines_ledger(installed: Path, tmp_path: Path) -> None:
    file = game(tmp_path, mechanism="2p-upbred", beta="0.5", gamma=100)
    done = run(installed, tmp_path, "-m", "pipes", file)
    assert done.returncode == 0, done.stderr
    assert "Certificate: 3 agents, beta = 0.5, payment live (tranches)" in done.stderr
    command(installed, tmp_path, "play", file, "--ledger", "l.db")
    heads = [
        command(installed, tmp_path, "ledger", "head", path) for path in ("l.db", "fedincentive-runs/run/ledger.sqlite")
    ]
    assert heads[0] == heads[1]
    assert "Certificate: 3 agents" in command(installed, tmp_path, "certify", "fedincentive-runs/run")


@pytest.mark.parametrize(
    ("incentive", "words"),
    [
        ({"payment": "cost-shering"}, "incentive.payment is 'cost-shering'. Did you mean 'cost-sharing'?"),
        (
            {"payment": "shapley"},
            "incentive.payment is 'shapley'. Did you mean 'share'?",
        ),
        ({"payment": "contribution, contribution"}, "which both write 'tranche' entries"),
        ({"options": {"contribution": {"gain": 1}}}, "incentive.options.contribution has no setting 'gain'"),
        ({"options": {"contributon": {}}}, "which this run does not pay. Did you mean 'contribution'?"),
    ],
)
def test_mistakes_are_named(installed: Path, tmp_path: Path, incentive: dict, words: str) -> None:
    done = run(installed, tmp_path, "-m", "fedincentive.cli", "play", game(tmp_path, **incentive))
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr, done.stderr
