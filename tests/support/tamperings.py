"""What somebody with all rights on a database may do to a ledger, by name, and the name it must be found under."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from entries import simple

from fedincentive import ledger

# One statement, or several; "rechain" makes all hashes anew, as a forger with the source code would.
Script = str | list[str]


def body(old: str, new: str, seq: int = 2) -> str:
    return f"UPDATE fedincentive.entries SET body = replace(body, '{old}', '{new}') WHERE seq = {seq}"


def posting(change: str, where: str = "seq = 2 AND account = 'ann'") -> str:
    return f"UPDATE fedincentive.postings SET {change} WHERE {where}"


def row(change: str, seq: int = 2) -> str:
    return f"UPDATE fedincentive.entries SET {change} WHERE seq = {seq}"


def cut(where: str) -> list[str]:
    return [f"DELETE FROM fedincentive.{table} WHERE {where}" for table in ("postings", "entries")]


def moved(old: int, new: int) -> list[str]:
    return [f"UPDATE fedincentive.{table} SET seq = {new} WHERE seq = {old}" for table in ("entries", "postings")]


ROWS: dict[str, tuple[Script, str]] = {
    # postings
    "an amount moved": (
        [posting("amount = amount + 1"), posting("amount = amount - 1", "seq=2 AND account='bob'")],
        "postings",
    ),
    "an amount raised": (posting("amount = amount + 1"), "postings"),
    "an amount's sign": (posting("amount = -amount"), "postings"),
    "all signs of an entry": (posting("amount = -amount", "seq = 2"), "postings"),
    "all amounts doubled": (posting("amount = amount * 2", "seq > 0"), "postings"),
    "all amounts 0": (posting("amount = 0", "seq > 0"), "postings"),
    "the largest amount": (posting("amount = 9223372036854775807"), "postings"),
    "an account renamed": (posting("account = 'eve'"), "postings"),
    "an account in capitals": (posting("account = 'ANN'"), "postings"),
    "a look-alike account": (posting("account = '\u0430nn'"), "postings"),
    "an account with a space": (posting("account = 'ann '"), "postings"),
    "two accounts swapped": (
        [
            posting("account = 'x'"),
            posting("account = 'ann'", "seq=2 AND account='dan'"),
            posting("account = 'dan'", "account = 'x'"),
        ],
        "postings",
    ),
    "a posting removed": ("DELETE FROM fedincentive.postings WHERE seq = 2 AND account = 'ann'", "postings"),
    "an entry's postings removed": ("DELETE FROM fedincentive.postings WHERE seq = 2", "postings"),
    "all postings removed": ("DELETE FROM fedincentive.postings", "postings"),
    "a posting of 0 added": ("INSERT INTO fedincentive.postings VALUES (2, 'eve', 0)", "postings"),
    "a pair of postings added": ("INSERT INTO fedincentive.postings VALUES (2, 'eve', 9), (2, 'mal', -9)", "postings"),
    "postings on a memo": ("INSERT INTO fedincentive.postings VALUES (1, 'eve', 9), (1, 'ann', -9)", "postings"),
    "postings of a later entry": (
        "INSERT INTO fedincentive.postings VALUES (99, 'eve', 9), (99, 'ann', -9)",
        "postings",
    ),
    "postings of entry 0": ("INSERT INTO fedincentive.postings VALUES (0, 'eve', 9), (0, 'ann', -9)", "postings"),
    "postings moved to another entry": (
        ["DELETE FROM fedincentive.postings WHERE seq = 4", posting("seq = 4", "seq = 2")],
        "postings",
    ),
    "postings swapped": (
        [posting("seq = 98", "seq=2"), posting("seq = 2", "seq=4"), posting("seq = 4", "seq=98")],
        "postings",
    ),
    # entries
    "an entry removed": (cut("seq = 3"), "gap"),
    "an entry's row removed": ("DELETE FROM fedincentive.entries WHERE seq = 3", "gap"),
    "the first entries removed": (cut("seq <= 2"), "gap"),
    "the last entry removed": (cut("seq = 9"), "checkpoint"),
    "the last entry's row removed": ("DELETE FROM fedincentive.entries WHERE seq = 9", "postings"),
    "the tail removed": (cut("seq >= 5"), "checkpoint"),
    "everything removed": (cut("seq >= 1"), "checkpoint"),
    "a gap closed": ([*cut("seq = 7"), *moved(8, 7), *moved(9, 8)], "chain"),
    "numbers moved": ([*moved(9, 10)], "gap"),
    "two entries swapped": ([*moved(2, 98), *moved(6, 2), *moved(98, 6)], "chain"),
    "a hash changed": (row(f"hash = '{'0' * 64}'"), "chain"),
    "the first hash changed": (row(f"hash = '{'0' * 64}'", 1), "chain"),
    "the last hash changed": (row(f"hash = '{'0' * 64}'", 9), "chain"),
    "a hash in capitals": (row("hash = upper(hash)"), "chain"),
    "two hashes equal": (row("hash = (SELECT hash FROM fedincentive.entries WHERE seq = 3)"), "chain"),
    "an amount in a body": (body('"postings":{"ann":-', '"postings":{"ann":'), "chain"),
    "an input in a body": (body('"beta":"7/5"', '"beta":"8/5"'), "chain"),
    "the rule in a body": (body("tranche/1", "tranche/2"), "chain"),
    "the claims of a body": (body('["budget-balanced"]', "[]"), "chain"),
    "the run in a body": (body('"run":"demo"', '"run":"Demo"'), "chain"),
    "the round in a body": (body('"round":1', '"round":2'), "chain"),
    "the version in a body": (body('"version":1', '"version":2'), "chain"),
    "a space in a body": (body('"version":1', '"version": 1'), "chain"),
    "a key twice in a body": (body('"version":1', '"version":1,"version":1'), "chain"),
    "a letter written otherwise": (body('"run":"demo"', '"run":"dem\\u006f"'), "chain"),
    "a body cut": (row("body = substr(body, 1, 40)"), "body"),
    "an empty body": (row("body = ''"), "body"),
    "null as a body": (row("body = 'null'"), "body"),
    "a list as a body": (row("body = '[]'"), "body"),
    "a very deep body": (row("body = '" + "[" * 100_000 + "'"), "body"),
    "a very long number": (body('"round":1', '"round":' + "9" * 5000), "body"),
    "letters beyond ASCII": (body('"run":"demo"', '"run":"d\u00e9mo"'), "chain"),
    "a body of another entry": (row("body = (SELECT body FROM fedincentive.entries WHERE seq = 4)"), "chain"),
    "the column run": (row("run = 'other'"), "columns"),
    "the column run in capitals": (row("run = 'DEMO'"), "columns"),
    "the column round": (row("round = 77"), "columns"),
    "the column kind": (row("kind = 'refund'"), "columns"),
    "the column corrects": (row("corrects = 1"), "columns"),
    "a correction's target": (row("corrects = 1", 9), "corrects"),
    "a correction's target gone": (row("corrects = 0", 9), "columns"),
    "the unit of money": ("UPDATE fedincentive.ledger SET minor = 1000", "chain"),
    "the ledger's own row": ("DELETE FROM fedincentive.ledger", "integrity"),
    # with all hashes made anew: only what was seen before, or the amounts themselves, can tell
    "forged: an amount": ([body('"ann":-', '"ann":-1'), "rechain"], "checkpoint"),
    "forged: beta": ([body('"beta":"7/5"', '"beta":"8/5"'), "rechain"], "checkpoint"),
    "forged: a memo": ([body('"beta":"7/5"', '"beta":"8/5"', 1), "rechain"], "checkpoint"),
    "forged: claims": ([body('"claims":[]', '"claims":["budget-balanced"]', 3), "rechain"], "claims"),
    "forged: a rule": ([body("tranche/1", "mine/1"), "rechain"], "rule"),
    "forged: the run": ([body('"run":"demo"', '"run":"other"'), row("run = 'other'"), "rechain"], "checkpoint"),
    "forged: the order": ([*moved(2, 98), *moved(6, 2), *moved(98, 6), "rechain"], "checkpoint"),
    "forged: a gap closed": ([*cut("seq = 7"), *moved(8, 7), *moved(9, 8), "rechain"], "checkpoint"),
    "forged: a name everywhere": (
        [
            "UPDATE fedincentive.entries SET body = replace(body, '\"bob\"', '\"bot\"')",
            posting("account = 'bot'", "account = 'bob'"),
            "rechain",
        ],
        "checkpoint",
    ),
    "forged: a reason": ([body("agreed", "decided", 8), "rechain"], "checkpoint"),
}
NO_OP = "BEGIN SELECT 1; END"
HIDDEN = ["ALTER TABLE {0} RENAME TO kept", "CREATE VIEW {0} AS SELECT * FROM kept"]
FORCE = "PRAGMA ignore_check_constraints = on"
SCHEMA = "PRAGMA writable_schema = on"


def recreated(table: str, old: str, new: str) -> Callable[[sqlite3.Connection], None]:
    """The table again with the same rows, but made otherwise."""

    def tamper(db: sqlite3.Connection) -> None:
        (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        assert old in sql
        guards = db.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        rows = db.execute(f"SELECT * FROM {table}").fetchall()
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute(f"DROP TABLE {table}")
        db.execute(sql.replace(old, new))
        db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)
        for (guard,) in guards:
            db.execute(guard)

    return tamper


# for SQLite: statements with the triggers away and put back (lists), with them in place (tuples), or a function
SQLITE: dict[str, tuple[list[str] | tuple[str, ...] | Callable[[sqlite3.Connection], None], str]] = {
    "a twin account of bytes": (["INSERT INTO postings VALUES (2, x'616e6e', 9), (2, x'626f62', -9)"], "types"),
    "a name as bytes": (["UPDATE postings SET account = CAST(account AS BLOB) WHERE seq = 2"], "types"),
    "an amount as text": ([FORCE, "UPDATE postings SET amount = 'x' WHERE seq = 2 AND account = 'ann'"], "types"),
    "an amount as bytes": ([FORCE, "UPDATE postings SET amount = x'39' WHERE seq = 2 AND account = 'ann'"], "types"),
    "an amount as a fraction": ([FORCE, "UPDATE postings SET amount = 1.5 WHERE seq = 2 AND account = 'ann'"], "types"),
    "a body as bytes": ([FORCE, "UPDATE entries SET body = CAST(body AS BLOB) WHERE seq = 2"], "types"),
    "a hash as bytes": (["UPDATE entries SET hash = CAST(hash AS BLOB) WHERE seq = 2"], "types"),
    "a run as bytes": (["UPDATE entries SET run = CAST(run AS BLOB) WHERE seq = 2"], "types"),
    "a kind as bytes": (["UPDATE entries SET kind = CAST(kind AS BLOB) WHERE seq = 2"], "types"),
    "a twin entry of bytes": (
        [
            "INSERT INTO entries SELECT 10, CAST(run AS BLOB), round, kind, corrects, body, hash FROM entries "
            "WHERE seq = 3",
            "INSERT INTO postings SELECT 10, account, amount FROM postings WHERE seq = 3",
        ],
        "types",
    ),
    "a round as text": ([FORCE, "UPDATE entries SET round = 'one' WHERE seq = 2"], "types"),
    "a name that goes on after a zero": (
        ["UPDATE postings SET account = 'ann' || char(0) || 'x' WHERE seq = 2 AND account = 'ann'"],
        "postings",
    ),
    "a twin name that goes on after a zero": (
        ["INSERT INTO postings VALUES (2, 'ann' || char(0), 9), (2, 'bob' || char(0), -9)"],
        "postings",
    ),
    "a name that is no text": (
        ["UPDATE postings SET account = CAST(x'ff' AS TEXT) WHERE seq = 2 AND account = 'ann'"],
        "integrity",
    ),
    "a body that is no text": (["UPDATE entries SET body = CAST(x'ff' AS TEXT) WHERE seq = 2"], "integrity"),
    "a body that goes on after a zero": (["UPDATE entries SET body = body || char(0) || 'x' WHERE seq = 2"], "chain"),
    "a short hash": ([FORCE, "UPDATE entries SET hash = '' WHERE seq = 2"], "chain"),
    "an empty account": ([FORCE, "UPDATE postings SET account = '' WHERE seq = 2 AND account = 'ann'"], "postings"),
    "a negative number": ([FORCE, "UPDATE entries SET seq = -2 WHERE seq = 2"], "gap"),
    "another word about the version": ([FORCE, "UPDATE ledger SET version = 'x'"], "schema"),
    "another word about the key": ([FORCE, "UPDATE ledger SET one = 0"], "schema"),
    "the unit of money as text": ([FORCE, "UPDATE ledger SET minor = 'many'"], "integrity"),
    "a second word about itself": ([FORCE, "INSERT INTO ledger VALUES (2, 1, 10)"], "schema"),
    **{
        f"no trigger {name}": ((f"DROP TRIGGER {name}",), "schema")
        for name in (
            "postings_closed",
            "entries_in_order",
            "entries_not_replaced",
            "entries_zero_sum",
            "ledger_no_update",
            "ledger_no_delete",
            "ledger_no_insert",
            "entries_no_update",
            "entries_no_delete",
            "postings_no_update",
            "postings_no_delete",
        )
    },
    "a trigger without effect": (
        ("DROP TRIGGER entries_no_update", f"CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries {NO_OP}"),
        "schema",
    ),
    "a trigger on another table": (
        ("DROP TRIGGER entries_no_update", f"CREATE TRIGGER entries_no_update BEFORE UPDATE ON postings {NO_OP}"),
        "schema",
    ),
    "a trigger moved in the catalogue": (
        (SCHEMA, "UPDATE sqlite_master SET tbl_name = 'postings' WHERE name = 'entries_no_update'"),
        "integrity",
    ),
    "a trigger that swallows": (
        ("CREATE TRIGGER swallow BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END",),
        "schema",
    ),
    "a trigger that adds": (
        ("CREATE TRIGGER extra AFTER INSERT ON entries BEGIN INSERT INTO postings VALUES (1, 'eve', 1); END",),
        "schema",
    ),
    "a view for the entries": (tuple(s.format("entries") for s in HIDDEN), "schema"),
    "a view for the postings": (tuple(s.format("postings") for s in HIDDEN), "schema"),
    "a view for the ledger": (tuple(s.format("ledger") for s in HIDDEN), "schema"),
    "a view without the tail": (
        ("ALTER TABLE entries RENAME TO kept", "CREATE VIEW entries AS SELECT * FROM kept WHERE seq < 5"),
        "schema",
    ),
    "a column more": (("ALTER TABLE postings ADD COLUMN note TEXT",), "schema"),
    "a column renamed": (("ALTER TABLE entries RENAME COLUMN hash TO digest",), "schema"),
    "a table more": (("CREATE TABLE more (x)",), "schema"),
    "a table's twin": (('CREATE TABLE "entries " AS SELECT * FROM entries',), "schema"),
    "an index more": (("CREATE UNIQUE INDEX more ON postings (account, seq)",), "schema"),
    "a view more": (("CREATE VIEW more AS SELECT * FROM postings",), "schema"),
    "no table postings": (("PRAGMA foreign_keys = off", "DROP TABLE postings"), "schema"),
    "no table entries": (("PRAGMA foreign_keys = off", "DROP TABLE entries"), "schema"),
    "no table ledger": (("DROP TABLE ledger",), "integrity"),
    "no unique key": (recreated("entries", ",\n    UNIQUE (run, round, kind, corrects)", ""), "schema"),
    "no primary key": (recreated("postings", ",\n    PRIMARY KEY (seq, account)\n) WITHOUT ROWID", ")"), "schema"),
    "no check of types": (recreated("postings", "CHECK (typeof(amount) = 'integer')", ""), "schema"),
    "amounts as floats": (
        recreated("postings", "INTEGER NOT NULL CHECK (typeof(amount) = 'integer')", "REAL"),
        "schema",
    ),
    "names without capitals": (recreated("postings", "account TEXT   ", "account TEXT COLLATE NOCASE"), "schema"),
    "a definition rewritten": (
        (SCHEMA, "UPDATE sqlite_master SET sql = replace(sql, 'CHECK (account <> '''')', '') WHERE name = 'postings'"),
        "schema",
    ),
    "an index out of the catalogue": (
        (SCHEMA, "DELETE FROM sqlite_master WHERE name = 'sqlite_autoindex_entries_1'"),
        "integrity",
    ),
    "roots swapped in the catalogue": (
        (
            SCHEMA,
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'ledger') "
            "WHERE name = 'entries'",
        ),
        "integrity",
    ),
    "another program's mark": (("PRAGMA application_id = 7",), "integrity"),
    "no mark": (("PRAGMA application_id = 0",), "integrity"),
    "a newer format": (("PRAGMA user_version = 2",), "integrity"),
    "no format": (("PRAGMA user_version = 0",), "integrity"),
}


def overwritten(at: int, data: bytes) -> Callable[[Path], None]:
    def tamper(path: Path) -> None:
        whole = bytearray(path.read_bytes())
        whole[at : at + len(data)] = data
        path.write_bytes(whole)

    return tamper


def utf16(path: Path) -> None:
    copied = sqlite3.connect(path)
    script = list(copied.iterdump())
    copied.close()
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA encoding = 'UTF-16'")
        db.executescript("\n".join(script))
        db.execute("PRAGMA application_id = 1178881095")
        db.execute("PRAGMA user_version = 1")
    db.close()


def another_ledger(path: Path) -> None:
    path.unlink()
    with ledger.open(path) as book:
        for round in range(9):
            book.append(simple(round))


def an_older_copy(path: Path) -> None:
    with ledger.read(path) as book:
        records = list(book.entries())[:4]
    path.unlink()
    with ledger.open(path) as book:
        book.restore(records)


# the file itself
FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "the first bytes": (overwritten(0, b"not a database.."), "integrity"),
    "the page size": (overwritten(16, b"\x02\x00"), "integrity"),
    "the schema format": (overwritten(44, b"\x00\x00\x00\x09"), "integrity"),
    "the text encoding": (overwritten(56, b"\x00\x00\x00\x02"), "integrity"),
    "the first page": (overwritten(100, b"\x00" * 3000), "integrity"),
    "the second page": (overwritten(4096, b"\x00" * 4096), "integrity"),
    "the third page": (overwritten(8192, b"\xff" * 4096), "integrity"),
    "half a file": (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "integrity"),
    "a page less": (lambda path: path.write_bytes(path.read_bytes()[:-4096]), "integrity"),
    "nothing but the header": (lambda path: path.write_bytes(path.read_bytes()[:100]), "integrity"),
    "texts in UTF-16": (utf16, "schema"),
    "another ledger's file": (another_ledger, "checkpoint"),
    "an older copy": (an_older_copy, "checkpoint"),
}
P, E = "fedincentive.postings", "fedincentive.entries"
GUARDS = {
    "postings_closed": P,
    "entries_in_order": E,
    "entries_zero_sum": E,
    "entries_no_change": E,
    "postings_no_change": P,
}
PLPGSQL = "RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"
INDEX = "indexrelid = 'fedincentive.postings_pkey'::regclass"
SWALLOW = f"CREATE FUNCTION evil.swallow() {PLPGSQL}"
POSTGRES: dict[str, tuple[list[str], str]] = {
    **{f"no trigger {name}": ([f"DROP TRIGGER {name} ON {table}"], "schema") for name, table in GUARDS.items()},
    **{
        f"{name} switched off": ([f"ALTER TABLE {table} DISABLE TRIGGER {name}"], "schema")
        for name, table in GUARDS.items()
    },
    **{
        f"the function {name}": ([f"CREATE OR REPLACE FUNCTION fedincentive.{name}() {PLPGSQL}"], "schema")
        for name in ("refuse", "refuse_closed", "refuse_gap", "refuse_imbalance")
    },
    "a trigger for replicas only": ([f"ALTER TABLE {E} ENABLE REPLICA TRIGGER entries_no_change"], "schema"),
    "a trigger with a condition": (
        [
            f"DROP TRIGGER entries_in_order ON {E}",
            f"CREATE TRIGGER entries_in_order BEFORE INSERT ON {E} FOR EACH ROW WHEN (false) "
            "EXECUTE FUNCTION fedincentive.refuse_gap()",
        ],
        "schema",
    ),
    "a trigger for one column": (
        [
            f"DROP TRIGGER entries_no_change ON {E}",
            f"CREATE TRIGGER entries_no_change BEFORE UPDATE OF run ON {E} FOR EACH STATEMENT "
            "EXECUTE FUNCTION fedincentive.refuse()",
        ],
        "schema",
    ),
    "a trigger on another table": (
        [
            f"DROP TRIGGER entries_no_change ON {E}",
            f"CREATE TRIGGER entries_no_change BEFORE UPDATE ON {P} FOR EACH STATEMENT "
            "EXECUTE FUNCTION fedincentive.refuse()",
        ],
        "schema",
    ),
    "a trigger with another function": (
        [
            SWALLOW,
            f"DROP TRIGGER entries_no_change ON {E}",
            f"CREATE TRIGGER entries_no_change BEFORE DELETE OR UPDATE OR TRUNCATE ON {E} FOR EACH STATEMENT "
            "EXECUTE FUNCTION evil.swallow()",
        ],
        "schema",
    ),
    "a trigger renamed": ([f"ALTER TRIGGER entries_no_change ON {E} RENAME TO entries_change"], "schema"),
    "a trigger that swallows": (
        [SWALLOW, f"CREATE TRIGGER a BEFORE INSERT ON {E} FOR EACH ROW EXECUTE FUNCTION evil.swallow()"],
        "schema",
    ),
    "a trigger at the commit": (
        [
            SWALLOW,
            f"CREATE CONSTRAINT TRIGGER z AFTER INSERT ON {E} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
            "EXECUTE FUNCTION evil.swallow()",
        ],
        "schema",
    ),
    "foreign keys switched off": (
        [f"ALTER TABLE {P} DISABLE TRIGGER ALL", f"ALTER TABLE {P} ENABLE TRIGGER USER"],
        "schema",
    ),
    "a function with rights": (["ALTER FUNCTION fedincentive.refuse_gap() SECURITY DEFINER"], "schema"),
    "a function with its own path": (["ALTER FUNCTION fedincentive.refuse_gap() SET search_path = evil"], "schema"),
    "a function more": ([f"CREATE FUNCTION fedincentive.more() {PLPGSQL}"], "schema"),
    "triggers off for a role": (["ALTER ROLE postgres SET session_replication_role = replica"], "schema"),
    "triggers off for the database": (["ALTER DATABASE postgres SET session_replication_role = replica"], "schema"),
    "a rule that swallows": ([f"CREATE RULE a AS ON INSERT TO {E} DO INSTEAD NOTHING"], "schema"),
    "a rule that adds": ([f"CREATE RULE a AS ON INSERT TO {E} DO ALSO INSERT INTO {P} VALUES (1, 'eve', 1)"], "schema"),
    "a rule against updates": ([f"CREATE RULE a AS ON DELETE TO {E} DO INSTEAD NOTHING"], "schema"),
    "a view for the entries": (
        [f"ALTER TABLE {E} SET SCHEMA evil", f"CREATE VIEW {E} AS SELECT * FROM evil.entries"],
        "schema",
    ),
    "a view for the postings": (
        [f"ALTER TABLE {P} RENAME TO kept", f"CREATE VIEW {P} AS SELECT * FROM fedincentive.kept"],
        "schema",
    ),
    "a view without the tail": (
        [f"ALTER TABLE {E} SET SCHEMA evil", f"CREATE VIEW {E} AS SELECT * FROM evil.entries WHERE seq < 5"],
        "schema",
    ),
    "a view for the ledger": (
        [
            "ALTER TABLE fedincentive.ledger SET SCHEMA evil",
            "CREATE VIEW fedincentive.ledger AS SELECT * FROM evil.ledger",
        ],
        "schema",
    ),
    "a materialized view": (
        [f"ALTER TABLE {E} SET SCHEMA evil", f"CREATE MATERIALIZED VIEW {E} AS SELECT * FROM evil.entries"],
        "schema",
    ),
    "a table that a crash empties": ([f"ALTER TABLE {P} SET UNLOGGED"], "schema"),
    "a child with a twin posting": (
        [f"CREATE TABLE evil.child () INHERITS ({P})", "INSERT INTO evil.child VALUES (2, 'ann', 5)"],
        "schema",
    ),
    "a child with a twin entry": (
        [f"CREATE TABLE evil.child () INHERITS ({E})", f"INSERT INTO evil.child SELECT * FROM {E} WHERE seq = 9"],
        "schema",
    ),
    "row security": ([f"ALTER TABLE {E} ENABLE ROW LEVEL SECURITY"], "schema"),
    "row security for the owner": ([f"ALTER TABLE {E} FORCE ROW LEVEL SECURITY"], "schema"),
    "a policy": ([f"CREATE POLICY p ON {E} USING (seq < 5)"], "schema"),
    "no primary key and twin postings": (
        [
            f"ALTER TABLE {P} DROP CONSTRAINT postings_pkey",
            f"ALTER TABLE {P} DISABLE TRIGGER USER",
            f"INSERT INTO {P} SELECT * FROM {P} WHERE seq = 2",
        ],
        "postings",
    ),
    "no primary key and a twin entry": (
        [
            f"ALTER TABLE {P} DROP CONSTRAINT postings_seq_fkey",
            f"ALTER TABLE {E} DROP CONSTRAINT entries_pkey",
            f"ALTER TABLE {E} DROP CONSTRAINT entries_run_round_kind_corrects_key",
            f"ALTER TABLE {E} DISABLE TRIGGER USER",
            f"INSERT INTO {E} SELECT * FROM {E} WHERE seq = 2",
        ],
        "gap",
    ),
    "twin postings that the index does not know": (
        [
            f"UPDATE pg_index SET indisready = false, indisvalid = false WHERE {INDEX}",
            f"ALTER TABLE {P} DISABLE TRIGGER ALL",
            f"INSERT INTO {P} SELECT * FROM {P} WHERE seq = 2",
            f"ALTER TABLE {P} ENABLE TRIGGER ALL",
            f"UPDATE pg_index SET indisready = true, indisvalid = true WHERE {INDEX}",
        ],
        "count",
    ),
    "an index not kept": (
        [f"UPDATE pg_index SET indisready = false WHERE {INDEX}"],
        "schema",
    ),
    "no unique key": ([f"ALTER TABLE {E} DROP CONSTRAINT entries_run_round_kind_corrects_key"], "schema"),
    "no foreign key": ([f"ALTER TABLE {P} DROP CONSTRAINT postings_seq_fkey"], "schema"),
    "no check": ([f"ALTER TABLE {E} DROP CONSTRAINT entries_hash_check"], "schema"),
    "a check not validated": (
        [
            f"ALTER TABLE {E} DROP CONSTRAINT entries_hash_check",
            f"ALTER TABLE {E} ADD CONSTRAINT entries_hash_check CHECK (length(hash) = 64) NOT VALID",
        ],
        "schema",
    ),
    "a check more": ([f"ALTER TABLE {E} ADD CONSTRAINT more CHECK (seq < 10)"], "schema"),
    "nulls": (
        [
            f"ALTER TABLE {P} ALTER amount DROP NOT NULL",
            f"ALTER TABLE {P} DISABLE TRIGGER USER",
            f"UPDATE {P} SET amount = NULL WHERE seq = 2",
        ],
        "postings",
    ),
    "amounts as fractions": (
        [
            f"ALTER TABLE {P} DISABLE TRIGGER USER",
            f"ALTER TABLE {P} ALTER amount TYPE numeric",
            f"ALTER TABLE {P} ENABLE TRIGGER USER",
        ],
        "schema",
    ),
    "amounts as floats": ([f"ALTER TABLE {P} ALTER amount TYPE double precision"], "schema"),
    "names of fixed length": ([f"ALTER TABLE {P} ALTER account TYPE char(20)"], "schema"),
    "names in another order": ([f'ALTER TABLE {P} ALTER account TYPE text COLLATE "POSIX"'], "schema"),
    "a default": ([f"ALTER TABLE {P} ALTER amount SET DEFAULT 7"], "schema"),
    "a column more": ([f"ALTER TABLE {P} ADD COLUMN note text"], "schema"),
    "a column renamed": ([f"ALTER TABLE {E} RENAME COLUMN hash TO digest"], "schema"),
    "a table more": (["CREATE TABLE fedincentive.more (x int)"], "schema"),
    "a sequence more": (["CREATE SEQUENCE fedincentive.more"], "schema"),
    "an index more": ([f"CREATE UNIQUE INDEX more ON {P} (account, seq)"], "schema"),
    "no table postings": ([f"DROP TABLE {P}"], "schema"),
    "no table entries": ([f"DROP TABLE {E} CASCADE"], "schema"),
    "no table ledger": (["DROP TABLE fedincentive.ledger"], "integrity"),
}
