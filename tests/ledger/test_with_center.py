"""The ledger and the real Center: whole runs check out, and a crash around an append repeats and loses nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from entries import settlement
from table import answer, play, play_until, set_table

from fedincentive import ledger
from fedincentive.center import Center
from fedincentive.errors import LedgerConflict, LedgerError, RunError
from fedincentive.game import random_data_value
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_beancount, to_jsonl
from fedincentive.ledger.statement import statement
from fedincentive.ledger.verify import verify

GAME = random_data_value(3, 4, 3)
TERMS = {"run": "real", "rounds": 5, "beta": "9", "gamma": 2.0, "eta": 0.1, "loss_cap": 10_000.0, "resume": True}
RUNS = [
    ("2p-upbred", {}),
    ("2p-upbred", {"settlement": "end"}),
    ("2p-upbred", {"settlement": "commitment"}),
    ("2p-upbred", {"payment": "both", "audit": 0.5, "audit_seed": 3, "sampled": 3}),
    ("t-upbred", {}),
    ("t-upbred", {"h": "clarke"}),
    ("t-upbred", {"h": "zero", "phi": "paper"}),
    ("upbred", {"payment": "contribution"}),
    ("fedavg", {"payment": "contribution"}),
]


def seat(book, state: Path | None, mechanism: str, **options) -> tuple[Center, list]:
    """A real center and real agents; a saved run is continued."""
    return set_table(GAME, mechanism, book=book, folder=state, **{**TERMS, **options})


@pytest.mark.parametrize(("mechanism", "values"), RUNS, ids=str)
def test_a_whole_run_checks_out(tmp_path, mechanism, values):
    """In the database, in the exported file, against the manifest, and against what the center says it paid."""
    with ledger.open(tmp_path / "a.db") as book:
        center, agents = seat(book, tmp_path / "state", mechanism, lies={"agent-2": "inflate-v"}, **values)
        outcome = play(center, agents)
        checkpoints = ledger.Checkpoint.find((tmp_path / "state" / "manifest.json").read_text())
        assert len(checkpoints) == book.head().count > 0
        assert checkpoints[-1] == book.head()
        assert center.head == book.head().hash
        result = verify(book, recompute=True, checkpoints=checkpoints)
        assert result.clean, result.findings
        findings, end = standalone.check(list(to_jsonl(book)), [str(c) for c in checkpoints])
        assert (findings, end) == ([], str(book.head()))
        paid = {**outcome.payments, "treasury": outcome.treasury}
        assert {a: book.balances().get(a, 0) for a in paid} == paid
        assert sum(book.balances().values()) == 0
        for agent in outcome.payments:
            assert statement(book, agent).balance == outcome.payments[agent]


def test_a_fully_delivered_run_pays_exactly_the_whole_payment(tmp_path):
    with ledger.open(tmp_path / "a.db") as book:
        center, agents = seat(book, None, "2p-upbred")
        outcome = play(center, agents)
        tranches = [record for record in book.entries() if record.kind == "tranche"]
        s = {agent: round(points * 10**6) for agent, points in outcome.s.items()}
        whole = settlement("real", tranches[-1].round, beta="9", s=s)
        assert len(tranches) == 5
        assert {a: book.balances()[a] for a in s} == whole.postings


@pytest.fixture
def whole(tmp_path) -> dict:
    """The run without a crash."""
    with ledger.open(tmp_path / "whole.db") as book:
        center, agents = seat(book, tmp_path / "whole", "2p-upbred")
        outcome = play(center, agents)
        return {"head": book.head(), "digest": outcome.digest, "payments": outcome.payments}


def finish(book, state: Path) -> dict:
    center, agents = seat(book, state, "2p-upbred")
    outcome = play(center, agents)
    result = verify(book, recompute=True)
    assert result.clean, result.findings
    return {"head": book.head(), "digest": outcome.digest, "payments": outcome.payments}


def test_a_crash_between_saving_the_state_and_appending(tmp_path, whole):
    """The ledger cannot be reached when the state is saved already: the saved entry is appended by the next start."""
    path, state = tmp_path / "a.db", tmp_path / "state"
    book = ledger.open(path)
    center, agents = seat(book, state, "2p-upbred")
    play_until(center, agents, "train")
    answer(center, agents)
    count = book.head().count
    book.close()
    with pytest.raises(LedgerError, match="is closed"):
        center.close()
    center.release()
    (pending,) = json.loads((state / "state.json").read_text())["pending"]
    with ledger.open(path) as book:
        assert book.head().count == count
        seat(book, state, "2p-upbred")[0].release()
        assert book.head().count == count + 1
        assert list(book.entries())[-1].body == pending
        assert finish(book, state) == whole


def test_a_crash_between_appending_and_broadcasting(tmp_path, whole):
    """The entry is in the ledger, but the checkpoint that comes next cannot: nothing is appended twice."""
    path, state = tmp_path / "a.db", tmp_path / "state"
    with ledger.open(path) as book:
        center, agents = seat(book, state, "2p-upbred")
        play_until(center, agents, "train")
        answer(center, agents)
        count = book.head().count
        (state / "checkpoints.jsonl").rename(state / "away")
        (state / "checkpoints.jsonl").mkdir()
        with pytest.raises(RunError, match="checkpoints.jsonl cannot be written: Is a directory. Remove the cause"):
            center.close()
        center.release()
        assert book.head().count == count + 1
        (state / "checkpoints.jsonl").rmdir()
        (state / "away").rename(state / "checkpoints.jsonl")
        seat(book, state, "2p-upbred")[0].release()
        assert book.head().count == count + 1
        assert finish(book, state) == whole


def test_an_older_state_with_other_answers_is_a_conflict_not_a_second_payment(tmp_path):
    """A state put back from a backup plays a round again; other answers then meet the same key in the ledger."""
    path, state = tmp_path / "a.db", tmp_path / "state"
    with ledger.open(path) as book:
        center, agents = seat(book, state, "2p-upbred")
        play_until(center, agents, "train")
        backup = {file.name: file.read_bytes() for file in state.iterdir()}
        answer(center, agents)
        center.close()
        center.release()
        head = book.head()
        for file in state.iterdir():
            file.unlink()
        for name, data in backup.items():
            (state / name).write_bytes(data)
        center, agents = seat(book, state, "2p-upbred", quorum=0.5)
        answer(center, agents[:-1])
        with pytest.raises(LedgerConflict, match="Nothing was written"):
            center.close()
        assert book.head() == head
        assert verify(book, recompute=True).clean


def test_bean_check_accepts_a_real_run_and_rejects_one_unit(tmp_path, needs):
    beside = Path(sysconfig.get_path("scripts")) / "bean-check"
    program = str(beside) if beside.exists() else needs("bean-check")
    with ledger.open(tmp_path / "a.db") as book:
        center, agents = seat(book, None, "2p-upbred", payment="both")
        play(center, agents)
        text = "".join(to_beancount(book))
    path = tmp_path / "real.beancount"

    def check(journal: str) -> subprocess.CompletedProcess[str]:
        path.write_text(journal)
        return subprocess.run([program, "--no-cache", str(path)], capture_output=True, text=True, check=False)

    accepted = check(text)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    amounts = list(re.finditer(r"^  \S+  (-?\d+\.\d{6}) CREDIT$", text, re.MULTILINE))
    match = amounts[int(np.random.default_rng(1).integers(len(amounts)))]
    digit = (int(match[1][-1]) + 1) % 10
    assert check(f"{text[: match.end(1) - 1]}{digit}{text[match.end(1) :]}").returncode != 0


def test_the_manifest_and_the_log_reveal_a_cut_ledger(tmp_path, caplog):
    """As an auditor would: `fedincentive ledger verify --checkpoint manifest.json`, or with the log of the run."""
    caplog.set_level("INFO", logger="fedincentive")
    with ledger.open(tmp_path / "a.db") as book:
        center, agents = seat(book, tmp_path / "state", "2p-upbred")
        play(center, agents)
        entries = [record.entry for record in book.entries()]
    with ledger.open(tmp_path / "cut.db") as book:
        for entry in entries[:-1]:
            book.append(entry)
    (tmp_path / "run.log").write_text(caplog.text)
    for name, seen, code in (
        ("a.db", "state/manifest.json", 0),
        ("cut.db", "state/manifest.json", 1),
        ("a.db", "run.log", 0),
        ("cut.db", "run.log", 1),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "fedincentive.cli", "ledger", "verify", "--recompute", name, "--checkpoint", seen],
            capture_output=True, text=True, cwd=tmp_path, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        assert ("the tail was cut" in done.stdout) == bool(code)
