"""PostgreSQL stopped as if its power was cut, again and again: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import threading
import time

import pytest

from fedincentive import ledger
from fedincentive.errors import LedgerError
from fedincentive.ledger.verify import verify


def test_immediate_stops_lose_and_double_nothing(postgres, writer):
    """One book lives through three of them: it connects again by itself, and its caller repeats the entry."""
    target = postgres.empty()
    acks, errors, stop = [], [], threading.Event()

    def write() -> None:
        round = 0
        with ledger.open(target) as book:
            while not stop.is_set():
                try:
                    receipt = book.append(writer.entry("run", round))
                except LedgerError as error:
                    errors.append(str(error))
                    time.sleep(0.02)
                    continue
                acks.append((round, receipt.seq, receipt.hash))
                round += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(3):
            before = len(acks)
            while len(acks) < before + 20 and thread.is_alive():
                time.sleep(0.01)
            postgres.stop("immediate")
            postgres.start()
        before = len(acks)
        while len(acks) < before + 5 and thread.is_alive():
            time.sleep(0.01)
    finally:
        stop.set()
        thread.join()
    assert len(acks) >= 65
    assert any("never written twice" in error for error in errors), errors
    writer.check(target, {"run": acks})
    with ledger.read(target) as book:
        assert book.head().count == len(acks)


def test_a_killed_writer_leaves_no_lock_behind(postgres, writer):
    target = postgres.empty()
    acks = []
    for attempt in range(6):
        process = writer.start(target, "run", len(acks), 10**6)
        output = b""
        while output.count(b"\n") < 5 + attempt:
            output += process.stdout.read1(65536)
        process.kill()
        output += process.communicate()[0]
        acks += writer.acknowledged(output)
        writer.check(target, {"run": acks})
    assert len(acks) > 30
    with ledger.read(target) as book:
        rounds = [record.round for record in book.entries()]
    assert rounds == list(range(len(rounds)))


def test_an_entry_is_not_kept_when_its_postings_do_not_sum_to_zero_at_commit(postgres):
    """The deferred constraint speaks last, even to a program that does not use this package."""
    import psycopg

    target = postgres.empty()
    with ledger.open(target) as book:
        with psycopg.connect(target) as db:
            db.execute("INSERT INTO fedincentive.postings VALUES (1, 'a', 5), (1, 'b', -4)")
            db.execute("INSERT INTO fedincentive.entries VALUES (1, 'r', 0, 'x', 0, '', %s)", ("a" * 64,))
            with pytest.raises(psycopg.errors.RaiseException, match="sum to zero"):
                db.commit()
        assert book.head().count == 0
        assert verify(book).clean
