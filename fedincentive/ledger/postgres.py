"""The ledger in PostgreSQL, where several machines write. Needs the extra `fedincentive[postgres]` (psycopg 3)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import Any

from ..entry import VERSION, Entry
from ..errors import LedgerDamaged, LedgerError
from .address import Address
from .catalogue import differences, gathered
from .store import Ledger, Row, other_format, power_of_ten

try:
    import psycopg
except ImportError as error:
    raise LedgerError(
        f"A postgresql:// ledger needs psycopg 3, which cannot be imported ({error}): "
        "pip install 'fedincentive[postgres]', or give a file path to use SQLite."
    ) from error

LOCK = 0x46444C47  # one writer at a time: the advisory lock's key, "FDLG" as in the SQLite file's header
CONNECT_SECONDS = 10
BUSY_SECONDS = 60  # as long as SQLite waits for another writer
TABLES = ("ledger", "entries", "postings")
COLUMNS = "seq, run, round, kind, corrects, body, hash"
DAMAGE = (  # what the server says of tables that are not as they were made, or of damaged pages
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.WrongObjectType,
    psycopg.DataError,
    psycopg.InternalError,
)


class PostgresLedger(Ledger):
    """One chain for all writers: each append holds an advisory lock until its commit is on the server's disk."""

    def __init__(self, address: str, minor: int | None, *, create: bool = True) -> None:
        self._address = Address(address)
        self.address = self._address.shown
        self._lock = threading.RLock()
        self._closed = False
        self._db: psycopg.Connection[Any] = self._connect()
        try:
            with self._explained("be used as a ledger"):
                self._check_server()
                if create:
                    self._create(minor)
                self.minor = self._read_minor(minor)
                for message in self.catalogue() if create else ():
                    raise self._unsound(message)
        except BaseException:
            self._db.close()
            raise

    # opening

    def _connect(self) -> psycopg.Connection[Any]:
        with self._explained("be reached"):
            db = psycopg.connect(
                self._address.given, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="fedincentive"
            )
            db.execute("SET search_path = pg_catalog, pg_temp")  # a role's own could put other functions before these
            db.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # what is read after the lock must be the newest
            return db

    def _check_server(self) -> None:
        if self._value("SHOW server_encoding") != "UTF8":
            raise LedgerError(f"{self.address}: the database's encoding must be UTF8 to hold agents' names.")
        if self._value("SHOW fsync") != "on":
            raise LedgerError(f"{self.address}: the server runs with fsync off and could lose payments; turn it on.")

    def _create(self, minor: int | None) -> None:
        with self._db.transaction():
            self._wait_for_others()
            if self._value("SELECT to_regnamespace('fedincentive')") is not None:
                return
            units = power_of_ten(minor)
            self._db.execute(_file("postgres.sql"))
            self._db.execute(
                "INSERT INTO fedincentive.ledger (one, version, minor) VALUES (1, %s, %s)", (VERSION, units)
            )

    def _read_minor(self, wanted: int | None) -> int:
        if self._value("SELECT to_regnamespace('fedincentive')") is None:
            raise LedgerError(f"There is no ledger in {self.address}.")
        there = {name: self._value(f"SELECT to_regclass('fedincentive.{name}')") for name in TABLES}
        if there["ledger"] is None and any(there.values()):
            raise LedgerDamaged(f"{self.address} has no table fedincentive.ledger any more; it was tampered with.")
        if there["ledger"] is None:
            raise LedgerError(f"{self.address} has a schema 'fedincentive' that is not a ledger; use another database.")
        row = self._db.execute("SELECT version, minor FROM fedincentive.ledger").fetchone()
        if row is None:
            raise LedgerDamaged(f"{self.address} does not say its minor units per unit; it was tampered with.")
        if row[0] != VERSION:
            raise LedgerError(other_format(self.address, row[0]))
        if wanted is not None and wanted != row[1]:
            raise LedgerError(f"{self.address} counts {row[1]} minor units per unit, the settings say {wanted}.")
        return int(row[1])

    # appending

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock, self._appending(), self._db.transaction():
            self._db.execute("SET LOCAL synchronous_commit = on")
            self._wait_for_others()
            yield

    def _insert(self, row: Row, entry: Entry) -> None:
        self._db.execute("SET CONSTRAINTS ALL DEFERRED")
        self._db.execute(
            "INSERT INTO fedincentive.postings (seq, account, amount) "
            "SELECT %s, account, amount FROM unnest(%s::text[], %s::bigint[]) AS p (account, amount)",
            (row.seq, list(entry.postings), list(entry.postings.values())),
        )
        self._db.execute(f"INSERT INTO fedincentive.entries ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
        self._db.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what waits for the commit acts before the row is read back

    def _taken(self, entry: Entry) -> Row | None:
        key = (entry.run, entry.round, entry.kind, entry.corrects)
        return self._row("run = %s AND round = %s AND kind = %s AND corrects = %s", key)

    def _wait_for_others(self) -> None:
        """Be the only writer until the transaction ends."""
        self._db.execute(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'")
        try:
            self._db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        except psycopg.errors.LockNotAvailable as error:
            raise LedgerError(
                f"{self.address}: another writer held the ledger for {BUSY_SECONDS} s; nothing was written. End that "
                "one, or append again later."
            ) from error

    @contextmanager
    def _appending(self) -> Iterator[None]:
        self._reconnect()
        try:
            yield
        except psycopg.Error as error:
            if self._db.closed or self._db.broken:
                self._db.close()
                raise LedgerError(
                    f"{self.address}: the connection was lost ({self._address.words(error)}). Whether the entry was "
                    "kept is unknown: append the same entry again; it is never written twice."
                ) from self._address.cause(error)
            raise LedgerError(
                f"{self.address} refused the entry: {self._address.words(error)}."
            ) from self._address.cause(error)

    def _reconnect(self) -> None:
        """After the server was restarted; all that it acknowledged is there."""
        if self._closed:
            raise LedgerError(f"{self.address} is closed; open it again.")
        if self._db.closed:
            self._db = self._connect()

    # reading

    def _value(self, query: str) -> Any:
        row = self._db.execute(query).fetchone()
        return row[0] if row else None

    def _head(self) -> tuple[int, str]:
        row = self._db.execute("SELECT seq, hash FROM fedincentive.entries ORDER BY seq DESC LIMIT 1").fetchone()
        return (row[0], row[1]) if row else (0, self.genesis)

    def _first(self) -> str | None:
        found: str | None = self._value("SELECT hash FROM fedincentive.entries WHERE seq = 1")
        return found

    def _row_at(self, seq: int) -> Row | None:
        return self._row("seq = %s", (seq,))

    def _row(self, where: str, values: tuple[object, ...]) -> Row | None:
        row = self._db.execute(f"SELECT {COLUMNS} FROM fedincentive.entries WHERE {where}", values).fetchone()
        return Row(*row) if row else None

    def _corrections(self, seq: int) -> list[Row]:
        query = f"SELECT {COLUMNS} FROM fedincentive.entries WHERE corrects = %s ORDER BY seq"
        return [Row(*row) for row in self._db.execute(query, (seq,)).fetchall()]

    def rows(self, run: str | None = None) -> Iterator[Row]:
        where, values = ("WHERE run = %s", (run,)) if run is not None else ("", ())
        query = f"SELECT {COLUMNS} FROM fedincentive.entries {where} ORDER BY seq"
        with self._reading(), self._db.transaction(), self._db.cursor(name=f"rows{id(where)}") as cursor:
            cursor.itersize = 200
            yield from map(Row._make, cursor.execute(query, values))

    def _hashes(self, after: int) -> list[tuple[int, str]]:
        query = "SELECT seq, hash FROM fedincentive.entries WHERE seq > %s ORDER BY seq"
        return self._db.execute(query, (after,)).fetchall()

    def posted(self, seq: int) -> str:
        query = "SELECT account, amount FROM fedincentive.postings WHERE seq = %s ORDER BY account"
        with self._reading():
            rows = self._db.execute(query, (seq,)).fetchall()
        return "{" + ",".join(f"{json.dumps(account)}:{json.dumps(amount)}" for account, amount in rows) + "}"

    def orphans(self) -> list[int]:
        query = (
            "SELECT DISTINCT seq FROM fedincentive.postings p "
            "WHERE NOT EXISTS (SELECT 1 FROM fedincentive.entries e WHERE e.seq = p.seq) ORDER BY seq"
        )
        with self._reading():
            return [seq for (seq,) in self._db.execute(query)]

    def counts(self) -> tuple[int, int]:
        query = "SELECT (SELECT count(*) FROM fedincentive.entries), (SELECT count(*) FROM fedincentive.postings)"
        with self._reading(), self._db.transaction():
            for plan in ("indexscan", "indexonlyscan", "bitmapscan"):  # an index may have been kept from growing
                self._db.execute(f"SET LOCAL enable_{plan} = off")
            entries, postings = self._db.execute(query).fetchone() or (0, 0)
        return entries, postings

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self._lock, self._reading(), self._db.transaction():
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._reconnect()
        with self._explained("be read"):
            yield

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            kind = LedgerDamaged if isinstance(error, DAMAGE) else LedgerError
            raise kind(f"{self.address} cannot {what}: {self._address.words(error)}.") from self._address.cause(error)

    def catalogue(self) -> Iterator[str]:
        with self._reading():
            found = gathered(self._db.execute(_file("catalogue.sql")).fetchall())
        return differences(found, json.loads(_file("catalogue.json")))

    def damage(self) -> Iterator[tuple[str, str]]:
        with self._reading():
            own = self._db.execute("SELECT one, version, minor FROM fedincentive.ledger").fetchall()
        if own != [(1, VERSION, self.minor)]:
            yield "schema", f"the table ledger holds {own}, not [(1, {VERSION}, {self.minor})]."

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._db.close()


@cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath(f"schema/{name}").read_text("utf-8")
