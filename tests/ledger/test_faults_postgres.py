"""PostgreSQL stopped as if its power was cut, again and again: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fedincentive import ledger
from fedincentive.errors import LedgerError
from fedincentive.ledger.export import to_jsonl
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


def test_a_writer_that_never_ends_is_not_waited_for_without_end(postgres, writer, monkeypatch):
    import psycopg

    from fedincentive.ledger import postgres as store

    target = postgres.empty()
    monkeypatch.setattr(store, "BUSY_SECONDS", 1)
    with ledger.open(target) as book, psycopg.connect(target, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (store.LOCK,))
        began = time.monotonic()
        with pytest.raises(LedgerError, match="another writer held the ledger for 1 s; nothing was written"):
            book.append(writer.entry("run", 0))
        with pytest.raises(LedgerError, match="another writer held the ledger for 1 s"):
            ledger.open(target)
        assert 2 <= time.monotonic() - began < 20
        other.execute("SELECT pg_advisory_unlock(%s)", (store.LOCK,))
        assert book.append(writer.entry("run", 0)).created


GAME = """
game: {kind: repaired}
incentive: {mechanism: 2p-upbred, beta: "0.5", gamma: 20.0, rounds: 200}
"""


def test_a_killed_run_goes_on_in_postgresql(postgres, tmp_path: Path) -> None:
    """The real command without --state: it keeps one of its own, and is resumed from there."""
    (tmp_path / "game.yaml").write_text(GAME)
    target = postgres.empty()
    play = [sys.executable, "-m", "fedincentive.cli", "play", "game.yaml", "--ledger"]
    subprocess.run([*play, "whole.db"], cwd=tmp_path, capture_output=True, check=True)
    child = subprocess.Popen([*play, target], cwd=tmp_path, stdout=subprocess.DEVNULL)
    state = tmp_path / "fedincentive-runs" / "run" / "state" / "state.json"
    while child.poll() is None and not (state.exists() and re.search(r'"trained": \d\d', state.read_text())):
        time.sleep(0.001)
    child.kill()
    assert child.wait() == -9
    again = subprocess.run([*play, target], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 1 and "exists in" in again.stderr and "Traceback" not in again.stderr
    subprocess.run([*play, target, "--resume"], cwd=tmp_path, capture_output=True, check=True)
    with ledger.read(target) as book, ledger.read(tmp_path / "whole.db") as whole:
        assert list(to_jsonl(book)) == list(to_jsonl(whole))
