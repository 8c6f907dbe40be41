"""Somebody who changes a ledger behind its back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedincentive.entry import canonical
from fedincentive.ledger import chain


class Tamperer:
    """Somebody with all rights on the database."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.sqlite = not target.startswith("postgresql")

    @contextmanager
    def at_work(self) -> Iterator[Tamperer]:
        if self.sqlite:
            self.db: Any = sqlite3.connect(self.target, isolation_level=None)
            triggers = self.db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for name, _ in triggers:
                self.db.execute(f"DROP TRIGGER {name}")
            yield self
            for _, sql in triggers:
                self.db.execute(sql)
        else:
            import psycopg

            self.db = psycopg.connect(self.target, autocommit=True)
            self.db.execute("SET session_replication_role = replica")  # no trigger acts in this session
            yield self
        self.db.close()

    def do(self, statement: str, *values: object) -> list[tuple]:
        if self.sqlite:
            statement = statement.replace("fedincentive.", "")
        else:
            statement = statement.replace("?", "%s")
        cursor = self.db.execute(statement, values)
        return cursor.fetchall() if cursor.description else []

    def body(self, seq: int) -> dict[str, Any]:
        return json.loads(self.do("SELECT body FROM fedincentive.entries WHERE seq = ?", seq)[0][0])

    def set_body(self, seq: int, body: dict[str, Any], *, postings: bool = False) -> None:
        self.do("UPDATE fedincentive.entries SET body = ? WHERE seq = ?", canonical(body), seq)
        if postings:
            self.do("DELETE FROM fedincentive.postings WHERE seq = ?", seq)
            for account, amount in body["postings"].items():
                self.do("INSERT INTO fedincentive.postings VALUES (?, ?, ?)", seq, account, amount)

    def rechain(self, minor: int = 10**6) -> None:
        """What a forger with the source code does: make all hashes anew."""
        previous = chain.genesis(minor)
        for seq, body in self.do("SELECT seq, body FROM fedincentive.entries ORDER BY seq"):
            previous = chain.link(seq, previous, body)
            self.do("UPDATE fedincentive.entries SET hash = ? WHERE seq = ?", previous, seq)
