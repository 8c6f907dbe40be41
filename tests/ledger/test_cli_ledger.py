"""`fedincentive ledger` as people and scripts call it, on a file and on a server."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from types import SimpleNamespace

import pytest
from commands import command
from entries import simple

from fedincentive import ledger
from fedincentive.errors import LedgerError
from fedincentive.ledger.export import FORMATS
from fedincentive.ledger.verify import verify


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Calls the command in the test's folder; `stderr` holds everything that was printed."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> SimpleNamespace:
        done = command("ledger", *arguments)
        return SimpleNamespace(returncode=done.exit_code, stdout=done.stdout, stderr=done.output)

    return call


@pytest.fixture
def filled(target, run_entries) -> str:
    with ledger.open(target) as book:
        for entry in run_entries():
            book.append(entry)
        book.append(ledger.reversal(list(book.entries())[2], 9, "the audit was wrong"))
    return target


def test_head_show_and_balances(run, filled):
    with ledger.read(filled) as book:
        head, balances = book.head(), book.balances()
    assert run("head", filled).stdout == f"{head}\n"
    shown = run("show", filled).stdout.splitlines()
    assert shown[0].split() == ["seq", "run", "round", "kind", "rule", "accounts", "moved", "hash"]
    assert len(shown) == 1 + head.count
    assert shown[2].split()[:5] == ["2", "demo", "1", "tranche", "tranche/1"]
    assert [json.loads(line)["seq"] for line in run("show", filled, "--json").stdout.splitlines()] == list(range(1, 9))
    assert "There is no run 'nobody' in this ledger. Known: demo." in run("show", filled, "--run", "nobody").stderr
    table = run("balances", filled).stdout.splitlines()
    assert table[-1].split() == ["sum", "0.000000"]
    assert json.loads(run("balances", filled, "--json").stdout) == {"minor": 10**6, "balances": balances}


def test_a_statement_a_person_can_read(run, filled):
    """Everything that concerns bob: what he committed and delivered, each amount with its reason, and the totals."""
    text = run("statement", filled, "bob").stdout
    lines = text.splitlines()
    assert lines[0] == "Statement of bob"
    rows, (total, unsigned) = lines[3:-3], lines[-2:]
    assert len(rows) == 8 and unsigned == "Nobody signed what agents said in run 'demo'."
    assert "16" in rows[0].split() and "memo" in rows[0]  # committed 16 points
    assert "1.4 per point / 3 rounds x (16 points so far - " in text
    assert "failed: update" in text
    assert "corrects entry 3: the audit was wrong" in text
    with ledger.read(filled) as book:
        balance = book.balances()["bob"]
    assert total.endswith(f"balance {balance / 10**6:.6f}")
    data = json.loads(run("statement", filled, "bob", "--json").stdout)
    assert data["balance"] == balance == sum(line["amount"] for line in data["lines"]) == data["lines"][-1]["balance"]
    assert data["delivered"] == "32"  # absent in one of the three rounds
    assert "delivered 32 points" in total


def test_a_statement_of_nobody_names_the_accounts(run, filled):
    done = run("statement", filled, "eve")
    assert done.returncode == 1
    assert "ann, bob, cyd, dan, treasury" in done.stderr


def test_verify_exits_0_when_clean(run, filled, tmp_path):
    with ledger.read(filled) as book:
        head = str(book.head())
    done = run("verify", filled, "--recompute", "--checkpoint", head)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("clean: 8 entries")
    assert "every amount derived again" in done.stdout
    (tmp_path / "run.log").write_text(f"INFO round 3 head {head}\n")
    (tmp_path / "manifest.json").write_text(json.dumps({"checkpoints": [{"count": 8, "hash": head[2:66], "round": 9}]}))
    for file in ("run.log", "manifest.json"):
        result = json.loads(run("verify", filled, "--json", "--checkpoint", file).stdout)
        assert (result["clean"], result["checkpoint"], result["checkpoints"]) == (True, head, 1)
        assert (result["findings"], result["recomputed"]) == ([], False)
        with ledger.read(filled) as book:
            assert result["postings"] == sum(len(record.postings) for record in book.entries())


def test_verify_exits_1_with_findings(run, filled, tmp_path):
    checkpoint = "99:" + "ab" * 32
    done = run("verify", filled, "--checkpoint", checkpoint)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "checkpoint: 99 entries were seen, 8 are here: the tail was cut."
    (finding,) = json.loads(run("verify", filled, "--checkpoint", checkpoint, "--json").stdout)["findings"]
    assert finding["name"] == "checkpoint"
    assert finding["seq"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "missing.db"],
        ["verify", "text.txt"],
        ["verify", "empty.db", "--checkpoint", "nonsense"],
        ["verify", "empty.db", "--checkpoint", "text.txt"],
        ["verify"],
        ["verify", "empty.db", "--nonsense"],
    ],
)
def test_verify_exits_2_when_called_wrongly(run, tmp_path, arguments):
    ledger.open(tmp_path / "empty.db").close()
    (tmp_path / "text.txt").write_text("nothing here\n" * 100)
    done = run(*arguments)
    assert done.returncode == 2, done.stdout
    assert "Error" in done.stderr


def damaged(path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def not_a_database(path) -> None:
    path.write_bytes(b"x" * 16 + path.read_bytes()[16:])


def without_a_table(path) -> None:
    db = sqlite3.connect(path)
    db.execute("DROP TABLE entries")
    db.close()


@pytest.mark.parametrize("tamper", [damaged, not_a_database, without_a_table])
def test_a_malformed_ledger_is_a_finding_not_a_wrong_call(run, run_entries, tmp_path, tamper):
    with ledger.open(tmp_path / "a.db") as book:
        for entry in run_entries():
            book.append(entry)
        head = str(book.head())
    tamper(tmp_path / "a.db")
    (tmp_path / "log").write_text(head)
    for options in ([], ["--json"], ["--recompute"], ["--checkpoint", head], ["--checkpoint", "log"]):
        done = run("verify", "a.db", *options)
        assert done.returncode == 1, done.stderr
        assert "integrity" in done.stdout or "schema" in done.stdout
    for told in ("balances", "show", "export"):
        assert run(told, "a.db").returncode == 1


def test_a_log_with_heads_of_several_ledgers(run, filled, run_entries, tmp_path):
    """Those of other ledgers are skipped and counted; what says nothing of its ledger is checked as ever."""
    with ledger.open(tmp_path / "other.db") as other:
        for entry in run_entries("other", rounds=5):
            other.append(entry)
        foreign = other.head()
    with ledger.read(filled) as book:
        own = book.head()
    assert str(own) == f"{own.count}:{own.hash}@{own.ledger}" and own.ledger != foreign.ledger
    (tmp_path / "log").write_text(f"Ledger head {foreign}\nLedger head {own}\n")
    done = run("verify", filled, "--checkpoint", "log")
    assert done.returncode == 0 and "1 checkpoint checked (1 of other ledgers skipped)" in done.stdout
    result = json.loads(run("verify", filled, "--checkpoint", "log", "--json").stdout)
    assert (result["clean"], result["checkpoints"], result["skipped"]) == (True, 1, 1)
    (tmp_path / "foreign").write_text(f"{foreign} {foreign}")
    done = run("verify", filled, "--checkpoint", "foreign")
    assert done.returncode == 2 and "None of the 2 checkpoints in foreign is of this ledger" in done.stderr
    done = run("verify", filled, "--checkpoint", str(foreign))  # given by hand, it is meant
    assert done.returncode == 1 and done.stdout.startswith("checkpoint: ")
    (tmp_path / "unnamed").write_text(f"{foreign.count}:{foreign.hash} {own.count}:{own.hash}")
    assert run("verify", filled, "--checkpoint", "unnamed").returncode == 1
    assert run("verify", filled, "--checkpoint", f"{own.count}:{own.hash}").returncode == 0
    (tmp_path / "ledgers.json").write_text(json.dumps({"a": vars(own), "b": vars(foreign)}))
    assert "(1 of other ledgers skipped)" in run("verify", filled, "--checkpoint", "ledgers.json").stdout


def test_an_emptied_ledger_is_told_by_the_log_of_its_runs(run, tmp_path):
    with ledger.open(tmp_path / "a.db") as book:
        book.append(simple())
        (tmp_path / "log").write_text(f"Ledger head {book.head()}")
    (tmp_path / "a.db").unlink()
    ledger.open(tmp_path / "a.db").close()
    done = run("verify", "a.db", "--checkpoint", "log")
    assert done.returncode == 1 and "1 entries were seen, 0 are here" in done.stdout


@pytest.mark.parametrize("command", ["show", "balances", "head", "verify", "export"])
def test_reading_a_missing_ledger_makes_no_file(run, tmp_path, command):
    done = run(command, "missing.db")
    assert done.returncode != 0
    assert "There is no ledger at missing.db." in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_exports_go_to_the_screen_or_to_a_file(run, filled, tmp_path):
    for form in ("csv", "jsonl", "beancount"):
        shown = run("export", filled, "--format", form).stdout
        assert run("export", filled, "--format", form, "-o", "out.txt").returncode == 0
        assert (tmp_path / "out.txt").read_text() == shown != ""
    assert run("export", filled).stdout.splitlines()[0] == '{"ledger":"fedincentive","minor":1000000,"version":1}'


@pytest.mark.parametrize("name", ["a.db", "link", "a.db-wal"])
def test_an_export_does_not_replace_its_ledger(run, run_entries, tmp_path, name):
    with ledger.open(tmp_path / "a.db") as book:
        for entry in run_entries():
            book.append(entry)
        (tmp_path / "link").symlink_to("a.db")
        done = run("export", "a.db", "-o", name)
        assert done.returncode == 1 and f"{name} is the ledger a.db itself: write elsewhere" in done.stderr
        done = command("report", "a.db", "--out", name)
        assert done.exit_code == 1 and "is the ledger a.db itself" in done.output
        assert verify(book).clean


def test_an_export_that_fails_leaves_the_old_file(run, filled, tmp_path, monkeypatch):
    (tmp_path / "out").write_text("old")

    def torn(book):
        yield "half"
        raise LedgerError("The rest is damaged.")

    monkeypatch.setitem(FORMATS, "csv", torn)
    done = run("export", filled, "--format", "csv", "-o", "out")
    assert done.returncode == 1 and "The rest is damaged" in done.stderr
    assert (tmp_path / "out").read_text() == "old" and not list(tmp_path.glob(".fed*"))
    done = run("export", filled, "-o", "nowhere/out")
    assert done.returncode == 1 and "No such file or directory" in done.stderr


def test_as_a_program(tmp_path):
    """The exit codes and the streams are those of a real process."""
    ledger.open(tmp_path / "a.db").close()
    commands = {("verify", "a.db"): 0, ("verify", "a.db", "--checkpoint", "9:" + "ab" * 32): 1, ("verify", "b.db"): 2}
    for arguments, code in commands.items():
        done = subprocess.run(
            [sys.executable, "-m", "fedincentive.cli", "ledger", *arguments],
            capture_output=True, text=True, cwd=tmp_path, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert bool(done.stderr) == (code == 2)
