"""Backups and imports: the same ledger elsewhere, byte for byte of what is hashed; and a ledger of the first format."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from commands import command
from entries import simple

from fedincentive import ledger
from fedincentive.errors import LedgerError
from fedincentive.ledger import Checkpoint, copies, standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify

OLD = Path(__file__).parent / "old"
HEAD = "9:4936029ed43fa6dd228a78d246094ccb663976b06f1bbc2a1af73230c794394b"


@pytest.fixture
def old(tmp_path) -> Path:
    """A ledger as release 0.1.0 first wrote it."""
    return Path(shutil.copy(OLD / "format1.db", tmp_path / "old.db"))


def test_a_ledger_of_the_first_format_is_opened_verified_and_continued(old):
    with ledger.read(old) as book:
        assert verify(book, recompute=True, checkpoints=[Checkpoint.parse(HEAD)]).clean
        assert "".join(to_jsonl(book)) == (OLD / "format1.jsonl").read_text()
    assert standalone.check((OLD / "format1.jsonl").read_text().splitlines(keepends=True), [HEAD])[0] == []
    with ledger.open(old) as book:
        assert book.append(simple(run="next")).seq == 10
        assert verify(book, checkpoints=[Checkpoint.parse(HEAD)]).clean


def test_an_old_export_becomes_a_ledger_in_each_store_and_back(target, tmp_path):
    done = command("ledger", "import", OLD / "format1.jsonl", target)
    assert done.exit_code == 0 and HEAD in done.output
    with ledger.read(target) as book:
        assert verify(book, recompute=True).clean
        assert "".join(to_jsonl(book)) == (OLD / "format1.jsonl").read_text()
    assert command("ledger", "export", target, "-o", tmp_path / "back.jsonl").exit_code == 0
    assert command("ledger", "import", tmp_path / "back.jsonl", tmp_path / "back.db").exit_code == 0
    with ledger.read(tmp_path / "back.db") as book:
        assert str(book.head()).startswith(HEAD)


def test_deposits_by_the_first_rule_verify_for_ever(tmp_path):
    """A run of three agents with deposit/1, which asked for twice what deposit/2 asks for points."""
    assert command("ledger", "import", OLD / "deposit1.jsonl", tmp_path / "old.db").exit_code == 0
    with ledger.read(tmp_path / "old.db") as book:
        assert verify(book, recompute=True).clean
        assert "deposit/1" in [record.entry.rule for record in book.entries()]
    assert standalone.check((OLD / "deposit1.jsonl").read_text().splitlines(keepends=True))[0] == []


def test_audits_by_the_second_rule_verify_for_ever(tmp_path):
    """With q = 0.4; a pass was checked again, and with q/1.1, as by audit/3, other agents would have been drawn."""
    assert command("ledger", "import", OLD / "audit2.jsonl", tmp_path / "old.db").exit_code == 0
    with ledger.read(tmp_path / "old.db") as book:
        assert verify(book, recompute=True).clean
        assert {"audit/2", "deposit/2", "forfeit/1"} <= {record.entry.rule for record in book.entries()}
    assert standalone.check((OLD / "audit2.jsonl").read_text().splitlines(keepends=True))[0] == []


def test_an_import_needs_a_new_ledger(target):
    with ledger.open(target) as book:
        book.append(simple())
    done = command("ledger", "import", OLD / "format1.jsonl", target)
    assert done.exit_code == 1 and "holds 1 entries; restore into a new ledger" in done.output
    with ledger.read(target) as book:
        assert book.head().count == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[:3] + lines[4:], "gap: entry 3"),
        (lambda lines: [line.replace('"ann":-', '"ann":-1') for line in lines], "chain: entry"),
        (lambda lines: lines[:-1], "checkpoint: entry 9"),
        (lambda lines: lines[:-2], "checkpoint: entry 8"),
        (lambda lines: ["{}\n", *lines], "header"),
        (lambda lines: ["nonsense\n"], "not the JSONL export"),
        (lambda lines: ["[" * 100_000], "not the JSONL export"),
        (lambda lines: [], "header"),
        (lambda lines: ["\u00e9\n"], "cannot be read as an export"),
    ],
)
def test_an_unsound_export_is_refused_before_anything_is_made(tmp_path, change, words):
    lines = (OLD / "format1.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "bad.jsonl").write_text("".join(change(lines)), encoding="utf-8")
    done = command("ledger", "import", tmp_path / "bad.jsonl", tmp_path / "new.db")
    assert done.exit_code == 1 and words in done.output
    assert not (tmp_path / "new.db").exists()


def test_an_import_is_all_or_nothing(target):
    """The ninth entry has a hash of its own."""
    _, records, _ = copies._records((OLD / "format1.jsonl").read_text().splitlines(keepends=True), "x")
    records[8] = ledger.Record(9, "0" * 64, records[8].entry)
    with ledger.open(target) as book:
        with pytest.raises(LedgerError, match="Entry 9 is not the one its hash was made of"):
            book.restore(records)
        assert book.head().count == 0


def test_a_backup_holds_what_is_only_in_the_log(tmp_path, run_entries):
    path, out = tmp_path / "a.db", tmp_path / "copy.db"
    with ledger.open(path) as book:
        for entry in run_entries():
            book.append(entry)
        assert (tmp_path / "a.db-wal").stat().st_size > 0
        done = command("ledger", "backup", path, out)
        assert done.exit_code == 0 and str(book.head()) in done.output
        head = book.head()
    out = Path(shutil.move(out, tmp_path / "elsewhere.db"))  # one file is all of it
    with ledger.read(out) as copy:
        assert verify(copy, recompute=True, checkpoints=[head]).clean and copy.head() == head
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.db", "elsewhere.db"]
    with ledger.open(out) as copy:
        assert copy.append(simple(99)).created


def test_a_backup_replaces_nothing_unasked(old, tmp_path):
    (tmp_path / "out").write_text("precious")
    done = command("ledger", "backup", old, tmp_path / "out")
    assert done.exit_code == 1 and "exists already" in done.output
    assert (tmp_path / "out").read_text() == "precious"
    assert command("ledger", "backup", old, tmp_path / "out", "--force").exit_code == 0
    with ledger.read(tmp_path / "out") as book:
        assert book.head().count == 9
    done = command("ledger", "backup", old, old, "--force")
    assert done.exit_code == 1 and "is the ledger" in done.output
    (tmp_path / "used-wal").write_text("of a ledger in use")
    done = command("ledger", "backup", old, tmp_path / "used", "--force")
    assert done.exit_code == 1 and "used-wal belongs to a ledger that is in use" in done.output
    done = command("ledger", "backup", old, tmp_path / "nowhere" / "out")
    assert done.exit_code == 1 and "nowhere" in done.output
    assert not list(tmp_path.glob(".fed*"))


def test_a_damaged_ledger_gives_no_backup(old, tmp_path):
    db = sqlite3.connect(old)
    db.execute("DROP TRIGGER entries_no_update")
    db.close()
    done = command("ledger", "backup", old, tmp_path / "out")
    assert done.exit_code == 1 and "entries_no_update is missing" in done.output
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".fed*"))


def test_a_backup_is_made_while_others_write(tmp_path):
    path, stop = tmp_path / "a.db", threading.Event()

    def write() -> None:
        with ledger.open(path) as book:
            round = 0
            while not stop.is_set():
                round += 1
                book.append(simple(round))

    ledger.open(path).close()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        with ledger.read(path) as book:
            heads = [copies.backup(book, tmp_path / f"{k}.db") for k in range(5)]
    finally:
        stop.set()
        writer.join()
    assert [head.count for head in heads] == sorted(head.count for head in heads)
    with ledger.read(path) as book:
        assert verify(book, checkpoints=heads).clean


def test_a_backup_of_a_server_s_ledger_is_an_export_that_import_takes(postgres, tmp_path):
    command("ledger", "import", OLD / "format1.jsonl", postgres.empty())
    done = command("ledger", "backup", postgres.address(), tmp_path / "out.jsonl")
    assert done.exit_code == 0 and HEAD in done.output
    assert (tmp_path / "out.jsonl").read_bytes() == (OLD / "format1.jsonl").read_bytes()
    assert command("ledger", "import", tmp_path / "out.jsonl", tmp_path / "a.db").exit_code == 0
