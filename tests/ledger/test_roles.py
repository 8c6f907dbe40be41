"""The roles that schema/roles.sql makes, with real logins: a writer only appends, an auditor only reads."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

import pytest
from entries import simple

from fedincentive import ledger
from fedincentive.errors import LedgerError
from fedincentive.ledger.verify import verify

FORBIDDEN = [
    "UPDATE fedincentive.entries SET round = 7",
    "DELETE FROM fedincentive.postings",
    "TRUNCATE fedincentive.postings",
    "UPDATE fedincentive.ledger SET minor = 1",
    "INSERT INTO fedincentive.ledger VALUES (1, 1, 1)",
    "ALTER TABLE fedincentive.entries DISABLE TRIGGER ALL",
    "DROP TRIGGER entries_no_change ON fedincentive.entries",
    "DROP TABLE fedincentive.postings",
    "CREATE TABLE fedincentive.more (x int)",
    "CREATE RULE a AS ON INSERT TO fedincentive.entries DO INSTEAD NOTHING",
    "CREATE OR REPLACE FUNCTION fedincentive.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN END $$",
    "SET session_replication_role = replica",
]


@pytest.fixture
def logins(postgres) -> Iterator[dict[str, str]]:
    import psycopg

    address = postgres.empty()
    with ledger.open(address) as book:
        book.append(simple())
    script = resources.files("fedincentive.ledger").joinpath("schema/roles.sql").read_text("utf-8")
    roles = {"center": "fedincentive_writer", "auditor": "fedincentive_auditor", "stranger": ""}
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(script)
        db.execute(script)  # it may be run again
        for login, role in roles.items():
            db.execute(f"CREATE ROLE {login} LOGIN {f'IN ROLE {role}' if role else ''}")
        yield {login: address.replace("postgres@", f"{login}@") for login in roles}
        db.execute("DROP SCHEMA fedincentive CASCADE")
        for role in (*roles, "fedincentive_writer", "fedincentive_auditor"):
            db.execute(f"DROP ROLE {role}")


def test_roles(logins):
    import psycopg

    with ledger.open(logins["center"]) as book:
        assert book.append(simple(round=1)).created and not book.append(simple(round=1)).created
        assert verify(book).clean
    with ledger.read(logins["auditor"]) as book:
        assert verify(book).clean and book.balances() == {"a": 10, "b": -10}
    with ledger.open(logins["auditor"]) as book, pytest.raises(LedgerError, match="permission denied"):
        book.append(simple(round=2))
    with pytest.raises(LedgerError, match="permission denied"):
        ledger.read(logins["stranger"])
    for login in ("center", "auditor"):
        with psycopg.connect(logins[login], autocommit=True) as db:
            for statement in FORBIDDEN:
                with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.WrongObjectType)):
                    db.execute(statement)
    with ledger.read(logins["auditor"]) as book:
        assert verify(book).clean and book.head().count == 2
