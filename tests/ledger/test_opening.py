"""What is opened is a ledger, durable and its own; anything else is refused by name and left alone."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from entries import simple

from fedincentive import ledger
from fedincentive.errors import LedgerError
from fedincentive.ledger.verify import verify


def test_sqlite_is_set_up_to_be_durable(tmp_path):
    with ledger.open(tmp_path / "a.db") as book:
        pragma = {name: book._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
        assert pragma == {"journal_mode": "wal", "synchronous": 2}
        assert book._db.execute("PRAGMA foreign_keys").fetchone()[0] == 1
    head = (tmp_path / "a.db").read_bytes()[:100]
    assert head[68:72] == b"FDLG"
    assert int.from_bytes(head[60:64], "big") == 1


def foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")


def other_application(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA application_id = 7")


def newer_format(path: Path) -> None:
    ledger.open(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 2")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text("not a database, but long enough to have a header" * 10), "not a database"),
        (foreign_database, "another program"),
        (other_application, "another program"),
        (newer_format, "format 2, this release reads 1"),
        (lambda path: path.mkdir(), "cannot be opened|There is no ledger"),
    ],
)
def test_a_foreign_or_newer_file_is_refused_and_left_alone(tmp_path, make, words):
    path = tmp_path / "file.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    for opener in (ledger.open, ledger.read):
        with pytest.raises(LedgerError, match=words):
            opener(path)
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize(
    ("version", "words"),
    [(2, "install a newer fedincentive, or export it there"), (0, "with the release that wrote it and `fedincentive")],
)
def test_a_ledger_of_another_format_says_what_to_do(tmp_path, version, words):
    ledger.open(tmp_path / "a.db").close()
    with sqlite3.connect(tmp_path / "a.db") as db:
        db.execute("DROP TRIGGER ledger_no_update")
        db.execute("PRAGMA ignore_check_constraints = on")
        db.execute(f"UPDATE ledger SET version = {version}")
        db.execute(f"PRAGMA user_version = {version}")
    for opener in (ledger.open, ledger.read):
        with pytest.raises(LedgerError, match=words):
            opener(tmp_path / "a.db")


def test_an_empty_file_becomes_a_ledger(tmp_path):
    """mktemp makes such files, and a crash in the first moments leaves one."""
    (tmp_path / "a.db").touch()
    with pytest.raises(LedgerError, match=r"no ledger at .*a\.db yet"):
        ledger.read(tmp_path / "a.db")
    with ledger.open(tmp_path / "a.db") as book:
        assert book.append(simple()).created


def test_a_ledger_that_was_removed_or_replaced_takes_no_entry(tmp_path):
    path = tmp_path / "a.db"
    for replaced in (False, True):
        with ledger.open(path) as book:
            book.append(simple())
            path.rename(tmp_path / f"moved-{replaced}")
            if replaced:
                ledger.open(path).close()
            with pytest.raises(LedgerError, match="a.db was removed or replaced while it was in use"):
                book.append(simple(round=1))
        for left in tmp_path.glob("a.db*"):
            left.unlink()


def test_a_process_may_go_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path)
    with ledger.open("a.db") as book:
        monkeypatch.chdir(tmp_path / "else")
        assert book.append(simple()).created


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(LedgerError, match="directory does not exist"):
        ledger.open(tmp_path / "nowhere" / "a.db")


def test_a_memory_database_is_refused_because_it_is_not_durable():
    with pytest.raises(LedgerError, match="outlive its process"):
        ledger.open(":memory:")


def test_a_book_is_not_used_across_a_fork(tmp_path):
    with ledger.open(tmp_path / "a.db") as book:
        child = os.fork()
        if child == 0:
            try:
                book.append(simple())
            except LedgerError as error:
                os._exit(42 if "another process" in str(error) else 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42


def test_a_copy_on_read_only_storage_can_be_read(tmp_path, run_entries):
    with ledger.open(tmp_path / "a.db") as book:
        for entry in run_entries():
            book.append(entry)
        head = book.head()
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "a.db").write_bytes((tmp_path / "a.db").read_bytes())
    (folder / "a.db").chmod(stat.S_IRUSR | stat.S_IROTH)
    folder.chmod(0o555)
    try:
        with ledger.read(folder / "a.db") as book:
            assert book.head() == head
            assert verify(book, recompute=True).clean
            with pytest.raises(LedgerError):
                book.append(simple(77))
    finally:
        folder.chmod(0o755)


# PostgreSQL only


def test_a_missing_psycopg_names_the_extra(tmp_path):
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from fedincentive import ledger\n"
        "try: ledger.open('postgresql://127.0.0.1/x')\n"
        "except ledger.LedgerError as error: print(error)"
    ).replace("ledger.LedgerError", "Exception")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "fedincentive[postgres]" in done.stdout


def test_a_server_that_is_not_there_is_named_without_the_password():
    with pytest.raises(LedgerError, match="127.0.0.1:1/x cannot be reached") as caught:
        ledger.open("postgresql://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)


def test_a_newer_or_foreign_schema_is_refused(postgres):
    import psycopg

    address = postgres.empty()
    ledger.open(address).close()
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("ALTER TABLE fedincentive.ledger DISABLE TRIGGER ALL")
        db.execute("UPDATE fedincentive.ledger SET version = 2")
    with pytest.raises(LedgerError, match="format 2, this release reads 1"):
        ledger.open(address)
    address = postgres.empty()
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("CREATE SCHEMA fedincentive")
    with pytest.raises(LedgerError, match="is not a ledger"):
        ledger.open(address)


def test_a_server_without_fsync_is_refused(postgres):
    import psycopg

    with psycopg.connect(postgres.empty(), autocommit=True) as db:
        db.execute("ALTER SYSTEM SET fsync = off")
        db.execute("SELECT pg_reload_conf()")
        try:
            while db.execute("SHOW fsync").fetchone()[0] == "on":
                pass
            with pytest.raises(LedgerError, match="fsync off"):
                ledger.open(postgres.address())
        finally:
            db.execute("ALTER SYSTEM RESET fsync")
            db.execute("SELECT pg_reload_conf()")
            while db.execute("SHOW fsync").fetchone()[0] == "off":
                pass
