"""Nothing that was acknowledged is ever lost, nothing is ever half there or twice, whatever happens to the writer."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedincentive import ledger
from fedincentive.errors import LedgerError
from fedincentive.ledger.verify import verify


def test_kill_9_at_random_moments_loses_and_doubles_nothing(tmp_path, writer):
    """One writer forks hundreds of children, each killed at a random moment; the next one goes on where it can."""
    parent = tmp_path / "parent.py"
    parent.write_text(
        "import os, random, runpy, signal, sys, time\n"
        "from fedincentive.ledger import sqlite\n"  # imported once: children start in a millisecond
        "rng = random.Random(7)\n"
        "first = 0\n"
        "for kill in range(300):\n"
        "    out, into = os.pipe()\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os.close(out)\n"
        "        os.dup2(into, 1)\n"
        f"        sys.argv = ['writer', sys.argv[1], 'run', str(first), str(first + 10**6)]\n"
        f"        runpy.run_path({str(writer.program)!r}, run_name='__main__')\n"
        "        os._exit(9)\n"
        "    os.close(into)\n"
        # after up to three acknowledged rounds and a random moment more: on a slow machine as on a fast one
        "    data, rounds = b'', rng.randrange(4)\n"
        "    while data.count(b'\\n') < rounds:\n"
        "        data += os.read(out, 4096)\n"
        "    time.sleep(rng.uniform(0, 0.005))\n"
        "    os.kill(child, signal.SIGKILL)\n"
        "    with os.fdopen(out, 'rb') as file:\n"
        "        data += file.read()\n"
        "    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "    assert status == -signal.SIGKILL, (status, data)\n"
        "    sys.stdout.buffer.write(data if data.endswith(b'\\n') or not data else data + b'\\n')\n"
        "    done = [int(line.split()[0]) for line in data.split(b'\\n')[:-1]]\n"
        # one back: the next child repeats the last acknowledged round, and perhaps one that was kept unacknowledged
        "    first = max([first - 1, *done]) if first or done else 0\n"
    )
    path = tmp_path / "ledger.db"
    done = subprocess.run(
        [sys.executable, str(parent), str(path)], capture_output=True, cwd=tmp_path, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    acks = writer.acknowledged(done.stdout)
    assert len({round for round, _, _ in acks}) > 100
    writer.check(path, {"run": acks})
    with ledger.open(path) as book:
        rounds = [record.round for record in book.entries()]
    assert rounds == list(range(len(rounds)))
    assert len(rounds) - 1 - max(round for round, _, _ in acks) in (0, 1)  # at most the one that was being written


@pytest.fixture
def live_copy(tmp_path, writer) -> tuple[Path, list[str]]:
    """The files of a ledger whose writer died: a database and a write-ahead log that nobody folded in."""
    source = tmp_path / "source.db"
    book = ledger.open(source)
    bodies = []
    for round in range(12):
        book.append(writer.entry("run", round))
        bodies.append(writer.entry("run", round).body)
    kept = tmp_path / "kept"
    kept.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{source}{suffix}", kept / f"ledger.db{suffix}")
    book.close()
    return kept / "ledger.db", bodies


def damaged_copies(wal: bytes) -> list[bytes]:
    rng = random.Random(11)
    torn = [wal[: rng.randrange(len(wal))] for _ in range(100)]
    flipped = []
    for _ in range(100):
        at = rng.randrange(len(wal))
        flipped.append(wal[:at] + bytes([wal[at] ^ 1 << rng.randrange(8)]) + wal[at + 1 :])
    zeroed = []
    for _ in range(50):  # a file system that kept the length but not yet the data
        at = rng.randrange(len(wal))
        zeroed.append(wal[:at] + bytes(len(wal) - at))
    return [wal, *torn, *flipped, *zeroed]


def test_torn_and_flipped_logs_open_to_a_prefix(tmp_path, writer, live_copy):
    path, bodies = live_copy
    wal = Path(f"{path}-wal").read_bytes()
    lengths = set()
    for k, data in enumerate(damaged_copies(wal)):
        copy = tmp_path / f"copy{k}.db"
        shutil.copy(path, copy)
        Path(f"{copy}-wal").write_bytes(data)
        with ledger.open(copy) as book:
            result = verify(book)
            assert result.clean, (k, result.findings)
            found = [record.body for record in book.entries()]
            assert found == bodies[: len(found)]
            assert book.append(writer.entry("run", len(found))).created  # it goes on from there
        lengths.add(len(found))
        copy.unlink()
    assert {0, len(bodies)} <= lengths
    assert len(lengths) > 6


def test_a_flip_in_a_log_that_was_partly_folded_in_is_a_prefix_or_found(tmp_path, writer):
    """The database is ahead of the damaged log here: the result may be broken, but never silently."""
    source = tmp_path / "source.db"
    book = ledger.open(source)
    for round in range(12):
        book.append(writer.entry("run", round))
        if round == 8:
            book._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    head, wal, data = book.head(), Path(f"{source}-wal").read_bytes(), source.read_bytes()
    bodies = [record.body for record in book.entries()]
    book.close()
    rng = random.Random(5)
    for k in range(60):
        copy = tmp_path / f"copy{k}.db"
        copy.write_bytes(data)
        at = rng.randrange(len(wal))
        Path(f"{copy}-wal").write_bytes(wal[:at] + bytes([wal[at] ^ 0x10]) + wal[at + 1 :])
        try:
            with ledger.open(copy) as opened:
                result = verify(opened, checkpoints=[head])
                found = [record.body for record in opened.entries()] if result.clean else None
        except LedgerError:
            continue
        assert found is None or found == bodies
        copy.unlink()


MEETING = """
import multiprocessing, sys, time
from fedincentive import ledger

def meet(me, arrived, paths):
    for turn, path in enumerate(paths):
        arrived[me] = turn
        while arrived[1 - me] < turn:  # not asleep: the moment in which they can meet is short
            pass
        try:
            ledger.open(path).close()
        except BaseException:
            arrived[me] = len(paths)  # the other need not wait
            raise

context = multiprocessing.get_context("fork")  # threads would be held apart by Python's own lock
arrived = context.RawArray("q", [-1, -1])
both = [context.Process(target=meet, args=(me, arrived, sys.argv[1:])) for me in (0, 1)]
for process in both: process.start()
for process in both: process.join()
sys.exit(any(process.exitcode for process in both))
"""


def test_writers_that_make_the_ledger_at_the_same_moment_all_get_it(tmp_path):
    paths = [str(tmp_path / f"{number}.db") for number in range(100)]
    done = subprocess.run([sys.executable, "-c", MEETING, *paths], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_four_writers_make_one_chain(target, writer):
    """They also race to make the ledger: none of them finds it there."""
    processes = {run: writer.start(target, run, 0, 40) for run in ("a", "b", "c", "d")}
    runs = {run: writer.finish(process) for run, process in processes.items()}
    assert all(len(acks) == 40 for acks in runs.values())
    writer.check(target, runs)
    with ledger.read(target) as book:
        assert book.head().count == 160


def test_writers_of_the_same_run_agree(target, writer):
    """Two centers that both believe to be the one: each round is written once, both get the same receipt."""
    processes = [writer.start(target, "run", 0, 40) for _ in range(2)]
    first, second = map(writer.finish, processes)
    assert first == second
    assert [seq for _, seq, _ in first] == list(range(1, 41))
    writer.check(target, {"run": first})


def test_a_backup_taken_while_writing_is_a_sound_prefix(tmp_path, writer):
    path = tmp_path / "ledger.db"
    process = writer.start(path, "run", 0, 400)
    counts, number = [], 0
    while process.poll() is None or not counts:
        if not path.exists():
            time.sleep(0.01)
            continue
        copy = tmp_path / f"backup-{number}.db"
        number += 1
        source, backup = sqlite3.connect(f"file:{path}?mode=ro", uri=True), sqlite3.connect(copy)
        try:
            source.backup(backup, pages=50)
        except sqlite3.OperationalError:
            continue  # the writer had not made its tables yet
        finally:
            source.close()
            backup.close()
        if copy.stat().st_size:
            try:
                with ledger.read(copy) as book:
                    result = verify(book)
                    assert result.clean, result.findings
                    counts.append(result.head)
            except LedgerError as error:
                assert counts == [], error  # before the ledger was made
    acks = writer.acknowledged(process.communicate()[0])
    assert process.returncode == 0
    writer.check(path, {"run": acks})
    with ledger.read(path) as book:
        assert verify(book, checkpoints=counts).clean
    assert counts == sorted(counts, key=lambda head: head.count)
    assert counts
