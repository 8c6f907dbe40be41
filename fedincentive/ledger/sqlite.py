"""The ledger in one SQLite file: the default, for one machine and several writers on it."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from ..entry import VERSION, Entry, posted_text
from ..errors import LedgerDamaged, LedgerError
from .catalogue import differences, gathered
from .store import Ledger, Row, other_format, power_of_ten

APPLICATION = 0x46444C47  # "FDLG", in the file's header: `file` and we recognise a ledger by it
BUSY_SECONDS = 60.0  # a writer waits this long for another one; a transaction takes milliseconds
CACHE_KIB = 64 * 1024  # `verify` walks the file twice; SQLite's own 2 MB would read it twice
FAILURES = (sqlite3.Error, UnicodeDecodeError)  # the second comes from damaged pages quoted in error messages
NOT_THE_FILE = ("unable to open", "locked", "busy", "I/O", "readonly", "full")  # failures of the disk or of the call
COLUMNS = "seq, run, round, kind, corrects, body, hash"
# columns prefer a type but take any: 'ann' as bytes is another key than 'ann' as text, and looks the same
WRONG_TYPES = """
SELECT 'entries', seq, NULL FROM entries
WHERE typeof(seq) || typeof(round) || typeof(corrects) <> 'integerintegerinteger'
   OR typeof(run) || typeof(kind) || typeof(body) || typeof(hash) <> 'texttexttexttext'
UNION ALL
SELECT 'postings', seq, account FROM postings
WHERE typeof(seq) || typeof(account) || typeof(amount) <> 'integertextinteger'
"""


class SQLiteLedger(Ledger):
    """Write-ahead log, synchronous=FULL: when `append` returns, the entry is on the disk."""

    def __init__(self, path: str | Path, minor: int | None, *, create: bool = True) -> None:
        self.path = Path(path)
        self.address = str(path)
        self._place = self.path.absolute()  # wherever this process goes
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._failure: str | None = None
        self._closed = False
        self._db = self._connect(create)
        try:
            if create:
                self._prepare(minor)
            self.minor = self._read_minor(minor)
            self._file = os.stat(self._place)
        except (*FAILURES, OSError) as error:
            self._db.close()
            raise self._unreadable("used", error) from error
        except BaseException:
            self._db.close()
            raise

    # opening

    def _connect(self, create: bool) -> sqlite3.Connection:
        if self.address == ":memory:":
            raise LedgerError("A ledger must outlive its process; give a file path instead of ':memory:'.")
        if not create and not self.path.is_file():
            raise LedgerError(f"There is no ledger at {self.address}.")
        if not self.path.parent.is_dir():
            raise LedgerError(f"The ledger {self.address} cannot be made: its directory does not exist.")
        modes = ["mode=rwc"] if create else ["mode=ro"]
        if not create and not Path(f"{self.path}-wal").exists():
            modes.append("immutable=1")  # a copy on read-only storage, where no lock file can be made
        for mode in modes:
            address = f"file:{quote(str(self._place))}?{mode}"
            try:
                db = sqlite3.connect(
                    address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
                )
                db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
                db.execute("SELECT count(*) FROM sqlite_master").fetchone()
                return db
            except FAILURES as error:
                problem: Exception = error
        raise self._unreadable("opened", problem) from problem

    def _unreadable(self, what: str, error: Exception) -> LedgerError:
        text = f"{self.address} cannot be {what} as a ledger: {error}."
        ours = isinstance(error, FAILURES) and not any(word in str(error) for word in NOT_THE_FILE)
        return (
            LedgerDamaged(f"{text} It was damaged or tampered with.")
            if ours and self._was_ours()
            else LedgerError(text)
        )

    def _was_ours(self) -> bool:
        """By its first bytes; a damaged database of unknown origin counts too."""
        try:
            with self._place.open("rb") as file:
                start = file.read(72)
        except OSError:
            return False
        return start.startswith(b"SQLite format 3\0") or start[68:] == APPLICATION.to_bytes(4, "big")

    def _prepare(self, minor: int | None) -> None:
        if self._is_empty():
            self._use_write_ahead_log()
            self._create(minor)
        self._check_format()
        for message in self.catalogue():
            raise self._unsound(message)
        self._use_write_ahead_log()
        _set(self._db, "synchronous", "full", 2)
        _set(self._db, "foreign_keys", "on", 1)

    def _use_write_ahead_log(self) -> None:
        """SQLite waits for other writers everywhere but here: of two that open a new file at once, one would fail."""
        give_up = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return _set(self._db, "journal_mode", "wal", "wal")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                if time.monotonic() > give_up:
                    raise LedgerError(
                        f"{self.address}: another process held it for {BUSY_SECONDS:.0f} s. End that one, or open the "
                        "ledger again later."
                    ) from error
            time.sleep(0.01)

    def _is_empty(self) -> bool:
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return tables == 0 and _get(self._db, "application_id") == 0 and _get(self._db, "user_version") == 0

    def _create(self, minor: int | None) -> None:
        units = power_of_ten(minor)
        _set(self._db, "synchronous", "full", 2)
        with self._transaction():
            if not self._is_empty():
                return  # another process made it while we waited
            for statement in _statements():
                self._db.execute(statement)
            self._db.execute("INSERT INTO ledger (one, version, minor) VALUES (1, ?, ?)", (VERSION, units))
            self._db.execute(f"PRAGMA application_id = {APPLICATION}")
            self._db.execute(f"PRAGMA user_version = {VERSION}")

    def _check_format(self) -> None:
        if self._is_empty():
            raise LedgerError(f"There is no ledger at {self.address} yet: the file is empty.")
        if (application := _get(self._db, "application_id")) != APPLICATION:
            found = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
            if found >= {"ledger", "entries", "postings"}:
                raise LedgerDamaged(f"{self.address} says it is a database of another program ({application}), but has "
                                    "the tables of a ledger: it was tampered with.")  # fmt: skip
            raise LedgerError(f"{self.address} is a database of another program, not a ledger; choose another path.")
        version = _get(self._db, "user_version")
        if version != VERSION:
            if self._db.execute("SELECT version FROM ledger").fetchall() == [(VERSION,)]:
                told = f"its header says {version}, its table {VERSION}: it was tampered with."
                raise LedgerDamaged(f"{other_format(self.address, version)} But {told}")
            raise LedgerError(other_format(self.address, version))

    def _read_minor(self, wanted: int | None) -> int:
        self._check_format()
        row = self._db.execute("SELECT minor FROM ledger").fetchone()
        if row is None:
            raise LedgerDamaged(f"{self.address} does not say its minor units per unit; it was tampered with.")
        if not isinstance(row[0], int):
            raise LedgerDamaged(f"{self.address} says {row[0]!r} minor units per unit; it was tampered with.")
        if wanted is not None and wanted != row[0]:
            raise LedgerError(f"{self.address} counts {row[0]} minor units per unit, the settings say {wanted}.")
        return int(row[0])

    # appending

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock, self._transaction():
            self._check_there()
            yield

    def _insert(self, row: Row, entry: Entry) -> None:
        # one statement for all postings: 10,000 bound rows take twice as long
        self._db.execute(
            "INSERT INTO postings (seq, account, amount) SELECT ?, key, value FROM json_each(?)",
            (row.seq, posted_text(entry.body)),
        )
        self._db.execute(f"INSERT INTO entries ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def _taken(self, entry: Entry) -> Row | None:
        key = (entry.run, entry.round, entry.kind, entry.corrects)
        return self._row("run = ? AND round = ? AND kind = ? AND corrects = ?", key)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._check_usable()
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._rollback()
                raise
            self._db.execute("COMMIT")
        except FAILURES as error:
            self._rollback()
            raise self._explain(error) from error

    def _rollback(self) -> None:
        if self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except FAILURES as error:
                self._failure = str(error)

    def _explain(self, error: Exception) -> LedgerError:
        text = str(error)
        if "full" in text:
            return LedgerError(f"{self.address}: {text}. Nothing was written; free some space and append again.")
        if "locked" in text or "busy" in text:
            return LedgerError(f"{self.address}: another writer held it for {BUSY_SECONDS:.0f} s. Append again.")
        if "I/O" in text or "malformed" in text:
            # after a failed fsync the system may have dropped the pages: only a fresh start reads what is there
            self._failure = text
            return LedgerError(
                f"{self.address}: {text}. Whether the entry was kept is unknown: check the disk, open the ledger again "
                "and append the same entry again; it is never written twice."
            )
        return LedgerError(f"{self.address} refused the entry: {text}.")

    def _check_there(self) -> None:
        try:
            there = os.path.samestat(os.stat(self._place), self._file)
        except OSError:
            there = False
        if not there:
            raise LedgerError(
                f"{self.address} was removed or replaced while it was in use. Nothing more is written: put it back, or "
                "begin a new run with a new ledger."
            )

    def _check_usable(self) -> None:
        if self._process != os.getpid():
            raise LedgerError(f"{self.address} was opened by another process; open it again in this one.")
        if self._closed:
            raise LedgerError(f"{self.address} is closed; open it again.")
        if self._failure:
            raise LedgerError(f"{self.address} failed before ({self._failure}); open it again.")

    # reading

    def _head(self) -> tuple[int, str]:
        row = self._db.execute("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
        return (row[0], row[1]) if row else (0, self.genesis)

    def _first(self) -> str | None:
        row = self._db.execute("SELECT hash FROM entries WHERE seq = 1").fetchone()
        return row[0] if row else None

    def _row(self, where: str, values: tuple[object, ...]) -> Row | None:
        row = self._db.execute(f"SELECT {COLUMNS} FROM entries WHERE {where}", values).fetchone()
        return Row(*row) if row else None

    def _row_at(self, seq: int) -> Row | None:
        return self._row("seq = ?", (seq,))

    def _corrections(self, seq: int) -> list[Row]:
        found = self._db.execute(f"SELECT {COLUMNS} FROM entries WHERE corrects = ? ORDER BY seq", (seq,))
        return [Row(*row) for row in found.fetchall()]

    def rows(self, run: str | None = None) -> Iterator[Row]:
        where, values = ("WHERE run = ?", (run,)) if run is not None else ("", ())
        with self._reading():
            yield from map(Row._make, self._db.execute(f"SELECT {COLUMNS} FROM entries {where} ORDER BY seq", values))

    def _hashes(self, after: int) -> list[tuple[int, str]]:
        return self._db.execute("SELECT seq, hash FROM entries WHERE seq > ? ORDER BY seq", (after,)).fetchall()

    def posted(self, seq: int) -> str:
        # as one text: to fetch 10,000 rows one by one takes three times as long
        query = "SELECT json_group_object(account, amount) FROM postings WHERE seq = ? ORDER BY account"
        with self._reading():
            return str(self._db.execute(query, (seq,)).fetchone()[0])

    def orphans(self) -> list[int]:
        numbers = "SELECT DISTINCT seq FROM postings WHERE seq NOT IN (SELECT seq FROM entries) ORDER BY seq"
        with self._reading():
            return [seq for (seq,) in self._db.execute(numbers)]

    def counts(self) -> tuple[int, int]:
        query = "SELECT (SELECT count(*) FROM entries NOT INDEXED), (SELECT count(*) FROM postings)"
        with self._reading():
            entries, postings = self._db.execute(query).fetchone()
            return entries, postings

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self._lock:
            with self._reading():
                self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._rollback()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._check_usable()
        try:
            yield
        except FAILURES as error:
            raise self._unreadable("read", error) from error

    def catalogue(self) -> Iterator[str]:
        with self._reading():
            found = _catalogue(self._db)
        return differences(found, _expected())

    def damage(self) -> Iterator[tuple[str, str]]:
        with self._reading():
            for (line,) in self._db.execute("PRAGMA integrity_check").fetchall():
                if line != "ok":
                    yield "integrity", line
            own = self._db.execute("SELECT one, version, minor FROM ledger").fetchall()
            wrong = self._db.execute(WRONG_TYPES).fetchall()
        if own != [(1, VERSION, self.minor)] or set(map(type, own[0])) != {int}:
            yield "schema", f"the table ledger holds {own}, not [(1, {VERSION}, {self.minor})]."
        for table, seq, account in wrong:
            yield "types", f"{table} has a value of another type in entry {seq!r}{f', {account!r}' if account else ''}."

    def copy_to(self, copy: sqlite3.Connection) -> None:
        """All that is committed, the write-ahead log included, while others go on writing."""
        with self._lock, self._reading():
            self._db.backup(copy)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._db.close()


@cache
def _statements() -> list[str]:
    text = resources.files(__package__).joinpath("schema/sqlite.sql").read_text("utf-8")
    statements, current = [], ""
    for line in text.splitlines(keepends=True):
        if current or line.strip() and not line.startswith("--"):
            current += line
        if current and sqlite3.complete_statement(current):
            statements.append(current.strip())
            current = ""
    return statements


@cache
def _expected() -> dict[str, str]:
    db = sqlite3.connect(":memory:")
    try:
        for statement in _statements():
            db.execute(statement)
        return _catalogue(db)
    finally:
        db.close()


def _catalogue(db: sqlite3.Connection) -> dict[str, str]:
    """Every table, index and trigger, whatever is hidden behind its name, and the encoding of texts."""
    rows = db.execute("SELECT name, type, tbl_name, sql FROM sqlite_master").fetchall()
    objects = [(str(name), f"{kind} on {table}: {sql}") for name, kind, table, sql in rows]
    return gathered([*objects, ("encoding", str(_get(db, "encoding")))])


def _get(db: sqlite3.Connection, pragma: str) -> object:
    return db.execute(f"PRAGMA {pragma}").fetchone()[0]


def _set(db: sqlite3.Connection, pragma: str, value: str, expected: object) -> None:
    """Set and read back: SQLite answers a pragma it cannot honour by silently keeping the old value."""
    db.execute(f"PRAGMA {pragma} = {value}")
    found = _get(db, pragma)
    if found != expected:
        raise LedgerError(
            f"SQLite keeps {pragma} at {found!r} instead of {expected!r}: the ledger would not be durable."
        )
