"""More than a hundred tamperings by somebody with all rights on the database, in SQLite and PostgreSQL: each is found
under a stated name, and nobody is told a wrong balance."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tampering import Tamperer
from tamperings import FILES, POSTGRES, ROWS, SQLITE, Script

from fedincentive import ledger
from fedincentive.errors import LedgerDamaged, LedgerError
from fedincentive.ledger import Checkpoint, Record
from fedincentive.ledger.verify import unreadable, verify


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Iterator[tuple[Path, list[Record], Checkpoint, dict[str, int]]]:
    """A ledger of today with nine entries, its contents, its head and its balances."""
    path = tmp_path_factory.mktemp("made") / "ledger.db"
    shutil.copy(Path(__file__).parent / "old" / "format1.db", path)
    with ledger.read(path) as book:
        yield path, list(book.entries()), book.head(), book.balances()


@pytest.fixture
def in_sqlite(made, tmp_path) -> str:
    shutil.copy(made[0], tmp_path / "ledger.db")
    return str(tmp_path / "ledger.db")


@pytest.fixture
def in_postgres(made, postgres) -> Iterator[str]:
    import psycopg

    clean = ["DROP SCHEMA IF EXISTS evil CASCADE", "ALTER ROLE postgres RESET ALL", "ALTER DATABASE postgres RESET ALL"]
    address = postgres.empty()
    with ledger.open(address) as book:
        book.restore(made[1])
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("CREATE SCHEMA evil")
        yield address
        for statement in clean:
            db.execute(statement)


@pytest.fixture(scope="module")
def kept(made, postgres) -> str:
    """One ledger for all changes of rows: to make a schema anew takes long."""
    with ledger.open(postgres.empty()) as book:
        book.restore(made[1])
    return postgres.address()


@pytest.fixture
def rows_in_postgres(kept) -> Iterator[str]:
    tables = ("ledger", "entries", "postings")
    with Tamperer(kept).at_work() as tamperer:
        rows = {table: tamperer.do(f"SELECT * FROM fedincentive.{table}") for table in tables}
    yield kept
    with Tamperer(kept).at_work() as tamperer, tamperer.db.transaction():
        for table in tables:
            tamperer.do(f"DELETE FROM fedincentive.{table}")
            for one in rows[table]:
                tamperer.do(f"INSERT INTO fedincentive.{table} VALUES ({', '.join('?' * len(one))})", *one)


def found(target: str, head: Checkpoint) -> set[str]:
    try:
        with ledger.read(target) as book:
            result = verify(book, recompute=True, checkpoints=[head])
    except LedgerDamaged as error:
        result = unreadable(error)
    return {finding.name for finding in result.findings}


def check(target: str, made, name: str, *, rewritten: bool = False) -> None:
    """The tampering is found under its name; a balance that is told is right, or at least that of the bodies."""
    _, _, head, balances = made
    names = found(target, head)
    assert name in names, names
    try:
        with ledger.read(target) as book:
            told = book.balances()
            bodies = [json.loads(row.body) for row in book.rows()]
    except LedgerError:
        return
    if told != balances:
        assert rewritten or "checkpoint" in names, (told, balances)
        sums: dict[str, int] = {}
        for one in bodies:
            for account, amount in one["postings"].items():
                sums[account] = sums.get(account, 0) + amount
        assert told == sums


def tampered(target: str, script: Script) -> None:
    with Tamperer(target).at_work() as tamperer:
        for statement in [script] if isinstance(script, str) else script:
            if statement == "rechain":
                tamperer.rechain()
            else:
                tamperer.do(statement)


@pytest.mark.parametrize("what", ROWS)
def test_changed_rows_are_found_in_sqlite(in_sqlite, made, what):
    script, name = ROWS[what]
    tampered(in_sqlite, script)
    check(in_sqlite, made, name, rewritten=what.startswith("forged"))


@pytest.mark.parametrize("what", ROWS)
def test_changed_rows_are_found_in_postgres(rows_in_postgres, made, what):
    script, name = ROWS[what]
    tampered(rows_in_postgres, script)
    check(rows_in_postgres, made, name, rewritten=what.startswith("forged"))


@pytest.mark.parametrize("what", SQLITE)
def test_sqlite_s_own_ways_are_found(in_sqlite, made, what):
    script, name = SQLITE[what]
    if isinstance(script, list):
        tampered(in_sqlite, script)
    else:
        db = sqlite3.connect(in_sqlite, isolation_level=None)
        if isinstance(script, tuple):
            for statement in script:
                db.execute(statement)
        else:
            script(db)
        db.close()
    check(in_sqlite, made, name)


@pytest.mark.parametrize("what", FILES)
def test_changed_files_are_found(in_sqlite, made, what):
    tamper, name = FILES[what]
    tamper(Path(in_sqlite))
    check(in_sqlite, made, name)


@pytest.mark.parametrize("what", POSTGRES)
def test_postgresql_s_own_ways_are_found(in_postgres, made, what):
    import psycopg

    statements, name = POSTGRES[what]
    with psycopg.connect(in_postgres, autocommit=True) as db:
        for statement in statements:
            db.execute(statement)
    check(in_postgres, made, name)


def removed(wal: Path) -> None:
    wal.unlink()


def cut(wal: Path) -> None:
    wal.write_bytes(wal.read_bytes()[: wal.stat().st_size // 2])


def flipped(wal: Path) -> None:
    data = wal.read_bytes()
    wal.write_bytes(data[:5000] + bytes(b ^ 0xFF for b in data[5000:5100]) + data[5100:])


def nonsense(wal: Path) -> None:
    wal.write_bytes(b"nonsense" * 1000)


@pytest.mark.parametrize("tamper", [removed, cut, flipped, nonsense])
def test_a_changed_log_is_found(tmp_path, made, tamper):
    """Of a ledger in use, most of which is in its write-ahead log only."""
    path = tmp_path / "copy.db"
    with ledger.open(tmp_path / "a.db") as book:
        for record in made[1]:
            book.append(record.entry)
        for end in ("", "-wal"):
            shutil.copy(f"{book.address}{end}", f"{path}{end}")
    with ledger.read(path) as book:
        assert book.head() == made[2]
    tamper(Path(f"{path}-wal"))
    Path(f"{path}-shm").unlink(missing_ok=True)
    try:
        names = found(str(path), made[2])
    except LedgerError as error:
        assert "the file is empty" in str(error)
    else:
        assert "checkpoint" in names


def test_there_are_a_hundred_in_each_store():
    assert len(ROWS) + len(SQLITE) + len(FILES) >= 100
    assert len(ROWS) + len(POSTGRES) >= 100
