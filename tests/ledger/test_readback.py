"""An entry that a tampered database swallows is never said to be kept, and a tampered one is not opened for writing."""

from __future__ import annotations

import sqlite3

import pytest
from entries import simple

from fedincentive import ledger
from fedincentive.errors import LedgerDamaged, LedgerError

SQLITE = {
    "swallowed": ["CREATE TRIGGER swallow BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END"],
    "postings swallowed": ["CREATE TRIGGER swallow BEFORE INSERT ON postings BEGIN SELECT RAISE(IGNORE); END"],
    "changed": [
        "DROP TRIGGER postings_no_update",
        "CREATE TRIGGER change AFTER INSERT ON entries BEGIN UPDATE postings SET amount = -amount; END",
    ],
    "a twin added": [
        "DROP TRIGGER postings_closed",
        "CREATE TRIGGER twin AFTER INSERT ON entries "
        "BEGIN INSERT INTO postings VALUES (NEW.seq, x'61', 1), (NEW.seq, x'62', -1); END",
    ],
    "taken by a view": [
        "ALTER TABLE entries RENAME TO kept",
        "CREATE VIEW entries AS SELECT * FROM kept",
        "CREATE TRIGGER taken INSTEAD OF INSERT ON entries BEGIN SELECT 1; END",
    ],
}
E = "fedincentive.entries"
NOTHING = "CREATE FUNCTION evil.f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"
DELETES = f"CREATE FUNCTION evil.f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM {E}; RETURN NULL; END $$"
POSTGRES = {
    "a rule": [f"CREATE RULE a AS ON INSERT TO {E} DO INSTEAD NOTHING"],
    "a rule on postings": ["CREATE RULE a AS ON INSERT TO fedincentive.postings DO INSTEAD NOTHING"],
    "swallowed": [NOTHING, f"CREATE TRIGGER a BEFORE INSERT ON {E} FOR EACH ROW EXECUTE FUNCTION evil.f()"],
    "deleted at the commit": [
        DELETES,
        f"ALTER TABLE {E} DISABLE TRIGGER entries_no_change",
        "ALTER TABLE fedincentive.postings DROP CONSTRAINT postings_seq_fkey",
        f"CREATE CONSTRAINT TRIGGER a AFTER INSERT ON {E} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
        "EXECUTE FUNCTION evil.f()",
    ],
    "taken by a view": [
        f"ALTER TABLE {E} RENAME TO kept",
        f"CREATE VIEW {E} AS SELECT * FROM fedincentive.kept",
        NOTHING,
        f"CREATE TRIGGER a INSTEAD OF INSERT ON {E} FOR EACH ROW EXECUTE FUNCTION evil.f()",
    ],
}


def refused(target: str, tamper) -> None:
    with ledger.open(target) as book:
        book.append(simple())
        tamper()
        with pytest.raises(LedgerError):  # mostly ours; the database itself may refuse too
            book.append(simple(round=1))
    with pytest.raises(LedgerDamaged, match="was tampered with"):
        ledger.open(target)
    with ledger.read(target) as book, pytest.raises(LedgerDamaged, match="was tampered with"):
        book.balances()


@pytest.mark.parametrize("what", SQLITE)
def test_an_append_is_read_back_in_sqlite(tmp_path, what):
    def tamper() -> None:
        db = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        for statement in SQLITE[what]:
            db.execute(statement)
        db.close()

    refused(str(tmp_path / "a.db"), tamper)


@pytest.mark.parametrize("what", POSTGRES)
def test_an_append_is_read_back_in_postgres(postgres, what):
    import psycopg

    address = postgres.empty()
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("CREATE SCHEMA evil")
        try:
            refused(address, lambda: [db.execute(statement) for statement in POSTGRES[what]])
        finally:
            db.execute("DROP SCHEMA evil CASCADE")


def test_what_swallows_is_named(tmp_path):
    with ledger.open(tmp_path / "a.db") as book:
        db = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        db.execute(SQLITE["swallowed"][0])
        with pytest.raises(LedgerDamaged, match="did not keep run 'demo', round 0, settlement as it was given"):
            book.append(simple())
        db.execute("DROP TRIGGER swallow")
        db.close()
        assert book.append(simple()).created and book.head().count == 1


def test_a_search_path_of_somebody_else_s_has_no_effect(postgres):
    """Functions of the same names that come first on a role's path."""
    import psycopg

    address = postgres.empty()
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("CREATE SCHEMA evil")
        db.execute("CREATE FUNCTION evil.length(text) RETURNS int LANGUAGE sql AS $$ SELECT 64 $$")
        db.execute("CREATE FUNCTION evil.pg_get_triggerdef(oid) RETURNS text LANGUAGE sql AS $$ SELECT '' $$")
        db.execute("CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT 'evil' $$")
        db.execute("ALTER ROLE postgres SET search_path = evil, pg_catalog")
        try:
            with ledger.open(address) as book:
                assert book.append(simple()).created
                assert list(book.catalogue()) == []
        finally:
            db.execute("ALTER ROLE postgres RESET search_path")
            db.execute("DROP SCHEMA evil CASCADE")
