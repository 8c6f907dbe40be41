"""Every kind of tampering is found and named, with the triggers out of the way and put back afterwards."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from entries import tranche
from tampering import Tamperer

from fedincentive import ledger
from fedincentive.entry import canonical
from fedincentive.errors import LedgerError
from fedincentive.ledger import Entry, Ledger, standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify

TRANSFER, REVERSAL, NEXT = 8, 9, 10  # entries of the ledger `filled` makes


@pytest.fixture
def filled(target, run_entries) -> Callable[[], Ledger]:
    """A ledger with a run of three rounds and two corrections (9 entries)."""
    with ledger.open(target) as book:
        for entry in run_entries():
            book.append(entry)
        book.append(ledger.transfer(list(book.entries())[3], 9, "agreed", {"ann": 2, "bob": -2}))
        book.append(ledger.reversal(list(book.entries())[4], 9, "wrong"))
    return target


def names(target: str, **options) -> list[str]:
    with ledger.read(target) as book:
        return [finding.name for finding in verify(book, **options).findings]


def change_amount(t: Tamperer) -> None:
    t.do("UPDATE fedincentive.postings SET amount = amount + 1 WHERE seq = 2 AND account = 'ann'")
    t.do("UPDATE fedincentive.postings SET amount = amount - 1 WHERE seq = 2 AND account = 'bob'")


def change_one_amount(t: Tamperer) -> None:
    t.do("UPDATE fedincentive.postings SET amount = amount + 1 WHERE seq = 2 AND account = 'ann'")


def change_amount_in_the_body(t: Tamperer) -> None:
    body = t.body(2)
    body["postings"]["ann"] += 1
    body["postings"]["bob"] -= 1
    t.set_body(2, body, postings=True)


def change_inputs(t: Tamperer) -> None:
    body = t.body(2)
    body["inputs"]["delivered"]["ann"] += 10**6
    t.set_body(2, body)


def swap_agents(t: Tamperer) -> None:
    t.do("UPDATE fedincentive.postings SET account = 'x' WHERE seq = 2 AND account = 'ann'")
    t.do("UPDATE fedincentive.postings SET account = 'ann' WHERE seq = 2 AND account = 'dan'")
    t.do("UPDATE fedincentive.postings SET account = 'dan' WHERE seq = 2 AND account = 'x'")


def remove_posting(t: Tamperer) -> None:
    t.do("DELETE FROM fedincentive.postings WHERE seq = 2 AND account = 'ann'")


def add_posting(t: Tamperer) -> None:
    t.do("INSERT INTO fedincentive.postings VALUES (2, 'eve', 0)")


def add_orphan(t: Tamperer) -> None:
    t.do("INSERT INTO fedincentive.postings VALUES (99, 'eve', 0)")


def remove_entry(t: Tamperer) -> None:
    t.do("DELETE FROM fedincentive.postings WHERE seq = 3")
    t.do("DELETE FROM fedincentive.entries WHERE seq = 3")


def remove_first_entries(t: Tamperer) -> None:
    t.do("DELETE FROM fedincentive.postings WHERE seq <= 2")
    t.do("DELETE FROM fedincentive.entries WHERE seq <= 2")


def remove_entry_and_close_the_gap(t: Tamperer) -> None:
    for table in ("postings", "entries"):
        t.do(f"DELETE FROM fedincentive.{table} WHERE seq >= 7")
    remove_entry(t)
    for seq in (4, 5, 6):
        t.do("UPDATE fedincentive.entries SET seq = ? WHERE seq = ?", seq - 1, seq)
        t.do("UPDATE fedincentive.postings SET seq = ? WHERE seq = ?", seq - 1, seq)


def swap_entries(t: Tamperer) -> None:
    for old, new in ((2, 98), (6, 2), (98, 6)):
        t.do("UPDATE fedincentive.entries SET seq = ? WHERE seq = ?", new, old)
        t.do("UPDATE fedincentive.postings SET seq = ? WHERE seq = ?", new, old)


def change_hash(t: Tamperer) -> None:
    t.do("UPDATE fedincentive.entries SET hash = ? WHERE seq = 7", "0" * 64)


def change_minor(t: Tamperer) -> None:
    t.do("UPDATE fedincentive.ledger SET minor = 1000")


def change_column(t: Tamperer) -> None:
    t.do("UPDATE fedincentive.entries SET round = 77 WHERE seq = 2")


def not_json(t: Tamperer) -> None:
    t.do("UPDATE fedincentive.entries SET body = '{\"claims\":' WHERE seq = 2")


def other_spelling(t: Tamperer) -> None:
    text = t.do("SELECT body FROM fedincentive.entries WHERE seq = 2")[0][0]
    t.do("UPDATE fedincentive.entries SET body = ? WHERE seq = 2", text.replace(":", ": ", 1))


@pytest.mark.parametrize(
    ("tamper", "found"),
    [
        (change_amount, ["postings"]),
        (change_one_amount, ["postings", "zero-sum"]),
        (change_amount_in_the_body, ["chain"]),
        (change_inputs, ["chain"]),
        (swap_agents, ["postings"]),
        (remove_posting, ["postings", "zero-sum"]),
        (add_posting, ["postings"]),
        (add_orphan, ["postings"]),
        (remove_entry, ["gap"]),
        (remove_first_entries, ["gap"]),
        (remove_entry_and_close_the_gap, ["chain"]),
        (swap_entries, ["chain"]),
        (change_hash, ["chain"]),
        (change_minor, ["chain"]),
        (change_column, ["columns"]),
        (not_json, ["chain", "body"]),
        (other_spelling, ["chain"]),
    ],
)
def test_tampering_is_found_and_named(filled, tamper, found):
    assert names(filled, recompute=True) == []
    with Tamperer(filled).at_work() as tamperer:
        tamper(tamperer)
    assert set(names(filled)) == set(found)


def test_each_finding_says_where(filled):
    with Tamperer(filled).at_work() as tamperer:
        change_amount(tamperer)
        change_hash(tamperer)
    with ledger.read(filled) as book:
        findings = verify(book).findings
    assert [(f.name, f.seq) for f in findings] == [("postings", 2), ("chain", 7), ("chain", 8)]
    assert "'ann'" in findings[0].message
    assert str(findings[0]).startswith("postings: entry 2: ")


def test_a_cut_tail_is_seen_through_a_checkpoint_only(filled):
    with ledger.read(filled) as book:
        head = book.head()
    with Tamperer(filled).at_work() as tamperer:
        for table in ("postings", "entries"):
            tamperer.do(f"DELETE FROM fedincentive.{table} WHERE seq >= 7")
    assert names(filled, recompute=True) == []
    with ledger.read(filled) as book:
        (finding,) = verify(book, checkpoints=[head]).findings
    assert (finding.name, finding.message) == ("checkpoint", "9 entries were seen, 6 are here: the tail was cut.")


# Forgeries: the hashes are made anew, so that the chain itself is sound.


def forge_amount(t: Tamperer) -> None:
    body = t.body(2)
    body["postings"]["ann"] += 1
    body["postings"]["bob"] -= 1
    t.set_body(2, body, postings=True)


def forge_swap(t: Tamperer) -> None:
    body = t.body(2)
    amounts = body["postings"]
    amounts["ann"], amounts["dan"] = amounts["dan"], amounts["ann"]
    t.set_body(2, body, postings=True)


def forge_input(name: str, change: Callable[[Any], Any], seq: int = 2) -> Callable[[Tamperer], None]:
    def forge(t: Tamperer) -> None:
        body = t.body(seq)
        body["inputs"][name] = change(body["inputs"][name])
        t.set_body(seq, body)

    return forge


def more(values: dict[str, int]) -> dict[str, int]:
    return {**values, "ann": values["ann"] + 10**6}


def forge_imbalance(t: Tamperer) -> None:
    body = t.body(2)
    body["postings"]["ann"] += 1
    t.set_body(2, body, postings=True)


def forge_float(t: Tamperer) -> None:
    body = t.body(2)
    body["postings"]["ann"] = float(body["postings"]["ann"])
    t.set_body(2, body)


def forge_claim(t: Tamperer) -> None:
    body = t.body(3)
    body["claims"] = ["budget-balanced"]
    t.set_body(3, body)


def forge_rule(t: Tamperer) -> None:
    t.set_body(2, {**t.body(2), "rule": "mine/1"})


def forge_correction(t: Tamperer) -> None:
    body = t.body(REVERSAL)
    body["inputs"]["hash"] = "0" * 64
    t.set_body(REVERSAL, body)


def forge_second_reversal(t: Tamperer) -> None:
    body = {**t.body(REVERSAL), "round": 10}
    key = (NEXT, "demo", 10, "correction", 5)
    t.do("INSERT INTO fedincentive.entries VALUES (?, ?, ?, ?, ?, ?, ?)", *key, canonical(body), "0" * 64)
    t.set_body(NEXT, body, postings=True)


def forge_duplicate(t: Tamperer) -> None:
    body = t.body(3)
    t.do("INSERT INTO fedincentive.entries VALUES (?, 'demo', 1, 'x', 0, ?, ?)", NEXT, canonical(body), "0" * 64)
    t.set_body(NEXT, body, postings=True)


@pytest.mark.parametrize(
    ("forge", "plain", "recomputed", "alone"),
    [
        (forge_amount, set(), {"recompute"}, {"recompute"}),
        (forge_swap, set(), {"recompute"}, {"recompute"}),
        (forge_input("delivered", more), set(), {"total", "recompute"}, {"total", "recompute"}),
        (forge_input("total", more), set(), {"total"}, {"total"}),
        (forge_input("beta", lambda beta: "3/2"), set(), {"terms", "recompute"}, {"terms", "recompute"}),
        (forge_input("rounds", lambda rounds: 2), set(), {"terms", "recompute"}, {"terms", "recompute"}),
        (forge_input("valuations", more, 3), set(), {"previous", "recompute"}, {"previous", "recompute"}),
        (forge_input("previous", more, 5), set(), {"previous", "recompute"}, {"previous", "recompute"}),
        (forge_input("failed", lambda failed: {}, 5), set(), {"recompute"}, {"recompute"}),
        (forge_input("fine", lambda fine: 1, 5), set(), {"recompute"}, {"recompute"}),
        (forge_input("amounts", more, TRANSFER), set(), {"recompute"}, {"recompute"}),
        (forge_imbalance, {"zero-sum"}, {"zero-sum", "recompute"}, {"zero-sum", "recompute"}),
        (forge_float, {"body"}, {"body", "recompute"}, {"recompute", "total"}),
        (forge_claim, {"claims"}, {"claims"}, {"claims"}),
        (forge_rule, set(), {"rule", "total"}, {"rule", "total"}),
        (forge_correction, {"corrects"}, {"corrects"}, {"corrects"}),
        (forge_second_reversal, set(), {"recompute"}, {"recompute"}),
        (forge_duplicate, {"duplicate", "columns"}, {"duplicate", "columns", "previous"}, {"duplicate", "previous"}),
    ],
)
def test_a_forgery_with_new_hashes_is_found_and_named(filled, forge, plain, recomputed, alone):
    """By its contents where they contradict each other, in the database and in an exported file; rewritten history also
    by an old checkpoint. Corrections carry the hash of what they correct, so a forger has to change those too."""
    with ledger.read(filled) as book:
        seen = book.head()
    with Tamperer(filled).at_work() as tamperer:
        forge(tamperer)
        tamperer.rechain()
        for seq in (TRANSFER, REVERSAL):
            if forge is not forge_correction:
                body = tamperer.body(seq)
                row = tamperer.do("SELECT hash FROM fedincentive.entries WHERE seq = ?", body["inputs"]["corrects"])
                body["inputs"]["hash"] = row[0][0]
                tamperer.set_body(seq, body)
                tamperer.rechain()
        if forge is forge_second_reversal:
            tamperer.set_body(NEXT, {**tamperer.body(REVERSAL), "round": 10})
            tamperer.rechain()
    assert set(names(filled)) == plain
    assert set(names(filled, recompute=True)) == recomputed
    rewritten = forge not in (forge_second_reversal, forge_duplicate)  # those are added at the end
    assert ("checkpoint" in names(filled, checkpoints=[seen])) == rewritten
    with ledger.read(filled) as book:
        lines = list(to_jsonl(book))
    assert {name for name, _, _ in standalone.check(lines)[0]} == alone
    assert ("checkpoint" in {name for name, _, _ in standalone.check(lines, [str(seen)])[0]}) == rewritten


def test_a_consistent_forgery_is_seen_through_the_checkpoint_only(target, run_entries):
    """Other delivered points, the right amounts for them, all hashes anew: nothing in the file contradicts."""
    with ledger.open(target) as book:
        honest = run_entries(rounds=1)
        for entry in honest:
            book.append(entry)
        seen = book.head()
    delivered = {**honest[1].inputs["delivered"], "ann": 99 * 10**6}
    forged = tranche("demo", 1, beta="7/5", rounds=1, delivered=delivered, total=delivered, posted={})
    with Tamperer(target).at_work() as tamperer:
        tamperer.set_body(2, json.loads(forged.body), postings=True)
        tamperer.rechain()
    assert names(target, recompute=True) == []
    assert names(target, recompute=True, checkpoints=[seen]) == ["checkpoint"]


def test_dropped_and_switched_off_triggers_are_named(filled):
    tamperer = Tamperer(filled)
    with tamperer.at_work():
        pass
    assert names(filled) == []
    if tamperer.sqlite:
        db = sqlite3.connect(filled, isolation_level=None)
        db.execute("DROP TRIGGER postings_no_update")
        db.execute("DROP TRIGGER entries_zero_sum")
        db.execute("CREATE TRIGGER entries_zero_sum BEFORE INSERT ON entries BEGIN SELECT 1; END")
        expected = ["postings_no_update is missing", "entries_zero_sum is not as it was made"]
    else:
        import psycopg

        db = psycopg.connect(filled, autocommit=True)
        db.execute("DROP TRIGGER postings_no_change ON fedincentive.postings")
        db.execute("ALTER TABLE fedincentive.entries DISABLE TRIGGER entries_zero_sum")
        db.execute(
            "CREATE OR REPLACE FUNCTION fedincentive.refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RETURN NEW; END $$"
        )
        expected = [
            "postings_no_change is missing",
            "entries_zero_sum is not as it was made: 'switched off",
            "refuse() is not as it was made",
        ]
    db.close()
    with ledger.read(filled) as book:
        messages = [finding.message for finding in verify(book).findings]
    assert len(messages) == len(expected)
    for part in expected:
        assert any(part in message for message in messages), (part, messages)


def test_a_trigger_that_was_added_is_named(filled):
    """It could let an entry vanish that `append` takes for written."""
    if Tamperer(filled).sqlite:
        db = sqlite3.connect(filled, isolation_level=None)
        db.execute("CREATE TRIGGER swallow BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END")
    else:
        import psycopg

        db = psycopg.connect(filled, autocommit=True)
        db.execute("CREATE FUNCTION public.swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
        db.execute(
            "CREATE TRIGGER swallow BEFORE INSERT ON fedincentive.entries FOR EACH ROW EXECUTE FUNCTION "
            "public.swallow()"
        )
    with ledger.read(filled) as book:
        assert ["swallow was added" in finding.message for finding in verify(book).findings] == [True]
    if not Tamperer(filled).sqlite:
        db.execute("DROP FUNCTION public.swallow() CASCADE")
    db.close()


@pytest.mark.parametrize("value", ["version = 'x'", "one = 0"])
def test_the_ledger_s_word_about_itself_is_checked(tmp_path, value):
    ledger.open(tmp_path / "a.db").close()
    with sqlite3.connect(tmp_path / "a.db") as db:
        guards = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            db.execute(f"DROP TRIGGER {name}")
        db.execute("PRAGMA ignore_check_constraints = on")
        db.execute(f"UPDATE ledger SET {value}")
        for _, sql in guards:
            db.execute(sql)
    with ledger.read(tmp_path / "a.db") as book:
        assert any("the table ledger holds" in finding.message for finding in verify(book).findings)


def test_damaged_pages_are_named(tmp_path, run_entries):
    """Bytes of the file overwritten at random places: every copy is refused, or found damaged, or was not touched."""
    path = tmp_path / "a.db"
    with ledger.open(path) as book:
        for entry in run_entries(rounds=20):
            book.append(entry)
        head = book.head()
    data = path.read_bytes()
    named = 0
    for k in range(60):
        at = (k * 104729 + 4096) % (len(data) - 64)
        copy = tmp_path / "copy.db"
        copy.write_bytes(data[:at] + bytes(b ^ 0xFF for b in data[at : at + 48]) + data[at + 48 :])
        try:
            with ledger.read(copy) as book:
                result = verify(book, recompute=True, checkpoints=[head])
                same = [record.body for record in book.entries()] if result.clean else None
        except LedgerError:
            named += 1
            continue
        if result.clean:
            with ledger.read(path) as book:
                assert same == [record.body for record in book.entries()]
        named += not result.clean
    assert named > 30


def test_an_unknown_body_version_is_named(filled):
    with Tamperer(filled).at_work() as tamperer:
        tamperer.set_body(2, {**tamperer.body(2), "version": 2})
        tamperer.rechain()
    assert "body" in names(filled)


def test_a_ledger_is_verified_while_others_write(target):
    with ledger.open(target) as writer, ledger.read(target) as reader:
        for round in range(30):
            writer.append(Entry("r", round, "settlement", "x/1", {}, {"a": 1, "b": -1}))
            assert verify(reader).head.count == round + 1
