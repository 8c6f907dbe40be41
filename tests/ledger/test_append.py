"""What both stores promise: append once, refuse conflicts, never change, read back in order."""

from __future__ import annotations

import sqlite3
import threading

import pytest
from entries import simple

from fedincentive import ledger
from fedincentive.errors import LedgerConflict, LedgerError
from fedincentive.ledger import Checkpoint, Receipt, chain
from fedincentive.ledger.verify import verify

NAMES = {'a,"postings":{': 1, "\u00e9": 2, "e\u0301": 3, "\U0001f600": 4, "back\\slash": 5, "'; DROP TABLE entries": 6}


def test_a_new_ledger_is_empty(book):
    assert book.head() == Checkpoint(0, chain.genesis(10**6))
    assert list(book.entries()) == []
    assert book.balances() == {}
    assert verify(book, recompute=True).clean


def test_entries_are_chained_and_read_back(book, run_entries):
    entries = run_entries()
    receipts = [book.append(entry) for entry in entries]
    assert [r.seq for r in receipts] == list(range(1, len(entries) + 1))
    assert all(r.created for r in receipts)
    assert [record.entry for record in book.entries()] == entries
    assert [(record.seq, record.hash) for record in book.entries()] == [(r.seq, r.hash) for r in receipts]
    expected = chain.genesis(10**6)
    for receipt, entry in zip(receipts, entries, strict=True):
        expected = chain.link(receipt.seq, expected, entry.body)
        assert receipt.hash == expected
    assert book.head() == Checkpoint(len(entries), expected)


def test_hashes_are_read_in_order_from_any_place(book, run_entries):
    hashes = [book.append(entry).hash for entry in run_entries()]
    assert [book.hashes(after) for after in (0, 3, len(hashes), 99)] == [hashes, hashes[3:], [], []]


def test_both_stores_make_the_same_chain(tmp_path, postgres, run_entries):
    heads = set()
    for target in (tmp_path / "a.db", postgres.empty()):
        with ledger.open(target) as book:
            for entry in run_entries():
                book.append(entry)
            heads.add(book.head())
    assert len(heads) == 1


def test_a_repeated_entry_is_the_old_one(book, run_entries):
    first = [book.append(entry) for entry in run_entries()]
    again = [book.append(entry) for entry in run_entries()]
    assert again == [Receipt(r.seq, r.hash, created=False) for r in first]
    assert book.head().count == len(first)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"postings": {"a": 6, "b": -6}}, "postings.a"),
        ({"postings": {"a": 5, "c": -5}}, "postings.b"),
        ({"inputs": {"s": {"ann": 2, "bob": 9}}}, "inputs.s.ann"),
        ({"inputs": {"s": {"ann": 1, "bob": 3}}}, "inputs.s.bob"),
        ({"rule": "x/2"}, "rule"),
        ({"claims": ("budget-balanced",)}, "claims"),
    ],
)
def test_a_conflict_names_the_first_differing_field_and_writes_nothing(book, changes, field):
    old = simple(inputs={"s": {"ann": 1, "bob": 2}})
    book.append(old)
    head = book.head()
    with pytest.raises(LedgerConflict, match=f"another {field}:") as caught:
        book.append(simple(**{"inputs": {"s": {"ann": 1, "bob": 2}}, **changes}))
    assert caught.value.field == field
    assert book.head() == head
    assert book.append(old).created is False


def test_runs_rounds_and_kinds_have_entries_of_their_own(book):
    for entry in (simple(0), simple(1), simple(0, run="other"), simple(0, kind="truthful")):
        assert book.append(entry).created
    assert [record.seq for record in book.entries("other")] == [3]
    assert [record.run for record in book.entries()] == ["demo", "demo", "other", "demo"]


def test_balances_over_the_ledger_and_over_a_run(book):
    book.append(simple(0, 5))
    book.append(simple(1, -2))
    book.append(simple(0, 100, run="other"))
    assert book.balances() == {"a": 103, "b": -103}
    assert book.balances("demo") == {"a": 3, "b": -3}
    assert book.balances("nobody") == {}


def test_amounts_at_the_limit_do_not_overflow_anywhere(book):
    largest = 2**63 - 1
    for round in range(3):
        book.append(simple(round, postings={"a": largest, "b": largest, "c": -largest, "d": -largest}))
    assert book.balances() == {"a": 3 * largest, "b": 3 * largest, "c": -3 * largest, "d": -3 * largest}
    assert verify(book).clean


def test_any_printable_name_is_an_account(book):
    book.append(simple(postings={**NAMES, "rest": -sum(NAMES.values())}, run="r\u00fcn 'x'"))
    assert {account: book.balances()[account] for account in NAMES} == NAMES
    assert list(book.balances()) == sorted(book.balances())
    assert verify(book).clean


def test_corrections_point_at_an_old_entry_of_their_run(book, run_entries):
    for entry in run_entries():
        book.append(entry)
    before = book.balances()
    wrong = list(book.entries())[2]
    assert book.append(ledger.reversal(wrong, 9, "the audit was wrong")).created
    book.append(ledger.transfer(wrong, 9 + 1, "as agreed", {"ann": 3, "treasury": -3}))
    after = book.balances()
    assert {a: after[a] - before[a] for a in after} == {
        a: -wrong.postings[a] + {"ann": 3, "treasury": -3}.get(a, 0) for a in after
    }
    assert verify(book, recompute=True).clean
    with pytest.raises(LedgerError, match="reversed already"):
        book.append(ledger.reversal(wrong, 11, "once more"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"corrects": 99}, "does not exist"),
        ({"hash": "0" * 64}, "but its hash is"),
    ],
)
def test_a_correction_of_nothing_is_refused(book, changes, words):
    receipt = book.append(simple())
    inputs = {"corrects": receipt.seq, "hash": receipt.hash, "reason": "x", **changes}
    with pytest.raises(LedgerError, match=words):
        book.append(simple(1, kind="correction", inputs=inputs))
    with pytest.raises(LedgerError, match="of run 'demo'"):
        good = {"corrects": receipt.seq, "hash": receipt.hash, "reason": "x"}
        book.append(simple(1, kind="correction", inputs=good, run="other"))
    assert book.head().count == 1


def test_a_ledger_survives_closing_and_is_found_again(target, run_entries):
    with ledger.open(target) as book:
        for entry in run_entries():
            book.append(entry)
        head = book.head()
    with ledger.open(target) as book:
        assert book.head() == head
    with ledger.read(target) as book:
        assert book.head() == head
        assert book.minor == 10**6


def test_a_closed_book_stays_closed(target):
    book = ledger.open(target)
    book.append(simple())
    book.close()
    book.close()
    for use in (lambda: book.append(simple(1)), book.head, lambda: list(book.rows()), book.balances):
        with pytest.raises(LedgerError, match="is closed; open it again"):
            use()


def test_minor_units_are_fixed_when_a_ledger_is_made(target):
    with ledger.open(target, minor=100) as book:
        assert book.minor == 100
        assert book.genesis != chain.genesis(10**6)
    with pytest.raises(LedgerError, match="counts 100 minor units per unit, the settings say 1000000"):
        ledger.open(target)
    with ledger.open(target, minor=None) as book:
        assert book.minor == 100


@pytest.mark.parametrize("minor", [0, -10, 7, 250, 1.0, True, None, 10**16])
def test_minor_units_are_a_power_of_ten(target, minor):
    with pytest.raises(LedgerError, match="minor is"):
        ledger.open(target, minor=minor)


def test_reading_a_ledger_that_is_not_there_makes_nothing(tmp_path, postgres):
    with pytest.raises(LedgerError, match="There is no ledger at"):
        ledger.read(tmp_path / "missing.db")
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        with pytest.raises(LedgerError, match="There is no ledger in"):
            ledger.read(postgres.empty())


def test_a_book_can_be_shared_by_threads(book):
    errors: list[Exception] = []

    def write(run: str) -> None:
        try:
            for round in range(20):
                book.append(simple(round, run=run))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(f"run-{k}",)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert book.head().count == 80
    assert verify(book).clean


def test_a_snapshot_does_not_see_later_entries(target):
    with ledger.open(target) as writer, ledger.read(target) as reader:
        writer.append(simple(0))
        with reader.snapshot():
            assert reader.head().count == 1
            writer.append(simple(1))
            assert reader.head().count == 1
            assert len(list(reader.rows())) == 1
        assert reader.head().count == 2


def execute(book, statement: str) -> None:
    if isinstance(book._db, sqlite3.Connection):
        statement = statement.replace("fedincentive.", "")
    book._db.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE fedincentive.entries SET round = 9",
        "DELETE FROM fedincentive.entries",
        "UPDATE fedincentive.postings SET amount = amount + 1",
        "DELETE FROM fedincentive.postings WHERE account = 'a'",
        "UPDATE fedincentive.ledger SET minor = 1",
        "DELETE FROM fedincentive.ledger",
        "INSERT INTO fedincentive.ledger (one, version, minor) VALUES (1, 1, 10)",
        "INSERT INTO fedincentive.postings (seq, account, amount) VALUES (1, 'late', 0)",
        "INSERT INTO fedincentive.postings (seq, account, amount) VALUES (7, 'orphan', 0)",
        f"INSERT INTO fedincentive.entries VALUES (3, 'gap', 0, 'settlement', 0, '', '{'a' * 64}')",
        f"INSERT INTO fedincentive.entries VALUES (2, 'demo', 0, 'settlement', 0, '', '{'a' * 64}')",
    ],
)
def test_the_database_itself_refuses_changes(book, statement):
    book.append(simple())
    with pytest.raises(Exception, match=r"(?i)never|closed|foreign key|violates|named once|without gaps"):
        execute(book, statement)
    assert verify(book).clean


def test_the_database_itself_refuses_an_entry_that_does_not_sum_to_zero(book):
    with pytest.raises(Exception, match="must sum to zero"):
        execute(book, "BEGIN")
        execute(book, "INSERT INTO fedincentive.postings (seq, account, amount) VALUES (1, 'a', 5), (1, 'b', -4)")
        execute(book, f"INSERT INTO fedincentive.entries VALUES (1, 'r', 0, 'settlement', 0, '', '{'a' * 64}')")
        execute(book, "COMMIT")


# SQLite only


def test_insert_or_replace_does_not_get_around_the_triggers(tmp_path):
    with ledger.open(tmp_path / "a.db") as book:
        book.append(simple())
        for statement in (
            f"INSERT OR REPLACE INTO entries VALUES (1, 'demo', 0, 'settlement', 0, '', '{'a' * 64}')",
            f"INSERT OR REPLACE INTO entries VALUES (2, 'demo', 0, 'settlement', 0, '', '{'a' * 64}')",
            "INSERT OR REPLACE INTO postings VALUES (1, 'a', 9)",
            "INSERT OR REPLACE INTO ledger VALUES (1, 1, 9)",
        ):
            with pytest.raises(sqlite3.IntegrityError):
                book._db.execute(statement)
        assert verify(book).clean
