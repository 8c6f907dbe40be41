"""The ledger in PostgreSQL, where several machines write. Needs the extra `fedincentive[postgres]` (psycopg 3)."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from ..entry import VERSION, Entry, canonical
from ..errors import LedgerError
from . import chain
from .chain import Checkpoint
from .store import Ledger, Receipt, Row, corrected, existing, power_of_ten

try:
    import psycopg
except ImportError as error:
    raise LedgerError(
        f"A postgresql:// ledger needs psycopg 3, which cannot be imported ({error}): "
        "pip install 'fedincentive[postgres]', or give a file path to use SQLite."
    ) from error

LOCK = 0x46444C47  # one writer at a time: the advisory lock's key, "FDLG" as in the SQLite file's header
CONNECT_SECONDS = 10
COLUMNS = "seq, run, round, kind, corrects, body, hash"


class PostgresLedger(Ledger):
    """One chain for all writers: each append holds an advisory lock until its commit is on the server's disk."""

    def __init__(self, address: str, minor: int | None, *, create: bool = True) -> None:
        self._target = address
        self.address = _without_password(address)
        self._lock = threading.RLock()
        self._closed = False
        self._db: psycopg.Connection[Any] = self._connect()
        try:
            with self._explained("be used as a ledger"):
                self._check_server()
                if create:
                    self._create(minor)
                self.minor = self._read_minor(minor)
        except BaseException:
            self._db.close()
            raise

    # opening

    def _connect(self) -> psycopg.Connection[Any]:
        with self._explained("be reached"):
            db = psycopg.connect(
                self._target, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="fedincentive"
            )
            db.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # what is read after the lock must be the newest
            return db

    def _check_server(self) -> None:
        if self._value("SHOW server_encoding") != "UTF8":
            raise LedgerError(f"{self.address}: the database's encoding must be UTF8 to hold agents' names.")
        if self._value("SHOW fsync") != "on":
            raise LedgerError(f"{self.address}: the server runs with fsync off and could lose payments; turn it on.")

    def _create(self, minor: int | None) -> None:
        with self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            if self._value("SELECT to_regnamespace('fedincentive')") is not None:
                return
            units = power_of_ten(minor)
            self._db.execute(_schema())
            self._db.execute(
                "INSERT INTO fedincentive.ledger (one, version, minor) VALUES (1, %s, %s)", (VERSION, units)
            )

    def _read_minor(self, wanted: int | None) -> int:
        if self._value("SELECT to_regnamespace('fedincentive')") is None:
            raise LedgerError(f"There is no ledger in {self.address}.")
        if self._value("SELECT to_regclass('fedincentive.ledger')") is None:
            raise LedgerError(f"{self.address} has a schema 'fedincentive' that is not a ledger; use another database.")
        row = self._db.execute("SELECT version, minor FROM fedincentive.ledger").fetchone()
        if row is None:
            raise LedgerError(f"{self.address} does not say its minor units per unit; it was tampered with.")
        if row[0] != VERSION:
            raise LedgerError(
                f"{self.address} has ledger format {row[0]}, this release reads {VERSION}; install a newer one."
            )
        if wanted is not None and wanted != row[1]:
            raise LedgerError(f"{self.address} counts {row[1]} minor units per unit, the settings say {wanted}.")
        return int(row[1])

    # appending

    def append(self, entry: Entry) -> Receipt:
        with self._lock, self._appending(), self._db.transaction():
            self._db.execute("SET LOCAL synchronous_commit = on")
            self._db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            taken = self._row(
                "run = %s AND round = %s AND kind = %s AND corrects = %s",
                (entry.run, entry.round, entry.kind, entry.corrects),
            )
            if taken:
                return existing(entry, taken)
            if entry.corrects:
                corrected(entry, self._row("seq = %s", (entry.corrects,)), self._corrections(entry.corrects))
            count, previous = self._head()
            seq = count + 1
            digest = chain.link(seq, previous, entry.body)
            self._db.execute(
                "INSERT INTO fedincentive.postings (seq, account, amount) "
                "SELECT %s, account, amount FROM unnest(%s::text[], %s::bigint[]) AS p (account, amount)",
                (seq, list(entry.postings), list(entry.postings.values())),
            )
            self._db.execute(
                f"INSERT INTO fedincentive.entries ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (seq, entry.run, entry.round, entry.kind, entry.corrects, entry.body, digest),
            )
        return Receipt(seq, digest, created=True)

    @contextmanager
    def _appending(self) -> Iterator[None]:
        self._reconnect()
        try:
            yield
        except psycopg.Error as error:
            if self._db.closed or self._db.broken:
                self._db.close()
                raise LedgerError(
                    f"{self.address}: the connection was lost ({_line(error)}). Whether the entry was kept is unknown: "
                    "append the same entry again; it is never written twice."
                ) from error
            raise LedgerError(f"{self.address} refused the entry: {_line(error)}.") from error

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

    def _row(self, where: str, values: tuple[object, ...]) -> Row | None:
        row = self._db.execute(f"SELECT {COLUMNS} FROM fedincentive.entries WHERE {where}", values).fetchone()
        return Row(*row) if row else None

    def _corrections(self, seq: int) -> list[Row]:
        query = f"SELECT {COLUMNS} FROM fedincentive.entries WHERE corrects = %s ORDER BY seq"
        return [Row(*row) for row in self._db.execute(query, (seq,)).fetchall()]

    def head(self) -> Checkpoint:
        with self._reading():
            return Checkpoint(*self._head())

    def row(self, seq: int) -> Row | None:
        with self._reading():
            return self._row("seq = %s", (seq,))

    def rows(self, run: str | None = None) -> Iterator[Row]:
        where, values = ("WHERE run = %s", (run,)) if run is not None else ("", ())
        query = f"SELECT {COLUMNS} FROM fedincentive.entries {where} ORDER BY seq"
        with self._reading(), self._db.transaction(), self._db.cursor(name=f"rows{id(where)}") as cursor:
            cursor.itersize = 200
            yield from map(Row._make, cursor.execute(query, values))

    def posted(self, seq: int) -> str:
        query = "SELECT account, amount FROM fedincentive.postings WHERE seq = %s"
        with self._reading():
            return canonical(dict(self._db.execute(query, (seq,)).fetchall()))

    def orphans(self) -> list[int]:
        query = (
            "SELECT DISTINCT seq FROM fedincentive.postings p "
            "WHERE NOT EXISTS (SELECT 1 FROM fedincentive.entries e WHERE e.seq = p.seq) ORDER BY seq"
        )
        with self._reading():
            return [seq for (seq,) in self._db.execute(query)]

    def balances(self, run: str | None = None) -> dict[str, int]:
        where, values = ("WHERE e.run = %s", (run,)) if run is not None else ("", ())
        query = (
            "SELECT account, SUM(amount) FROM fedincentive.postings JOIN fedincentive.entries e USING (seq) "
            f"{where} GROUP BY account ORDER BY account"
        )
        with self._reading():
            return {account: int(amount) for account, amount in self._db.execute(query, values)}

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
            raise LedgerError(f"{self.address} cannot {what}: {_line(error)}.") from error

    def damage(self) -> Iterator[tuple[str, str]]:
        schema = _schema()
        triggers = "SELECT tgname, tgenabled FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid "
        with self._reading():
            ours = "WHERE relnamespace = to_regnamespace('fedincentive') AND NOT tgisinternal"
            rows = self._db.execute(triggers + ours).fetchall()
            enabled = {name: state for name, state in rows}
            sources = "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = to_regnamespace('fedincentive')"
            source = dict(self._db.execute(sources).fetchall())
        expected = re.findall(r"CREATE (?:CONSTRAINT )?TRIGGER (\w+)", schema)
        for name in sorted(enabled.keys() - set(expected)):
            yield "schema", f"the trigger {name} was added."
        for name in expected:
            if name not in enabled:
                yield "schema", f"{name} is missing: it was dropped."
            elif enabled[name] not in ("O", "A"):
                yield "schema", f"{name} is switched off."
        for name, text in re.findall(r"FUNCTION fedincentive\.(\w+)\(\) RETURNS.*?\$\$(.*?)\$\$", schema, re.DOTALL):
            if source.get(name) != text:
                yield "schema", f"the function {name} is not as it was made."

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._db.close()


def _schema() -> str:
    return resources.files(__package__).joinpath("schema/postgres.sql").read_text("utf-8")


def _without_password(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise LedgerError(f"The ledger's postgresql:// address cannot be read: {error}.") from None
    if parts.password is None:
        return address
    return address.replace(f":{parts.password}@", "@", 1)


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
