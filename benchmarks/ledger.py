"""The ledger's speed, each figure beside its yardstick from the same run: `python benchmarks/ledger.py [DIRECTORY]`.

A round is one tranche entry with its inputs, made and appended durably. The yardstick is one transaction with a single
row, as durable, in another file of the same directory; the two take turns, so that both meet the same disk.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from fedincentive import ledger
from fedincentive.ledger.verify import verify


def rounds(agents: int, count: int) -> Iterator[Callable[[], ledger.Entry]]:
    """The tranche entries of a run, each made when called."""
    names = [f"agent-{k:05d}" for k in range(agents)]
    total, posted = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for step in range(1, count + 1):
        delivered = {name: 10**6 * (400 + k * 7919 * step % 200) for k, name in enumerate(names)}
        for name in names:
            total[name] += delivered[name]
        make = partial(
            ledger.tranche, "benchmark", step, beta="7/5", rounds=count, delivered=delivered, total=total, posted=posted
        )
        yield make
        for name, amount in make().postings.items():
            posted[name] += amount


def yardstick(path: Path) -> Callable[[], None]:
    """One empty durable transaction, as durable as the ledger's."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = wal")
    db.execute("PRAGMA synchronous = full")
    db.execute("CREATE TABLE t (x INTEGER)")

    def commit() -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO t VALUES (1)")
        db.execute("COMMIT")

    return commit


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def appends(directory: Path, agents: int, count: int) -> tuple[float, float, float]:
    """Median seconds of (an empty transaction, deriving and making an entry, appending it)."""
    empty = yardstick(directory / f"empty-{agents}.db")
    figures: list[tuple[float, float, float]] = []
    with ledger.open(directory / f"rounds-{agents}.db") as book:
        for make in rounds(agents, count):
            base = timed(empty)
            start = time.perf_counter()
            entry = make()
            made = time.perf_counter() - start
            figures.append((base, made, timed(lambda entry=entry: book.append(entry))))
    base, made, appended = (statistics.median(column) for column in zip(*figures, strict=True))
    return base, made, appended


def checks(path: Path, recompute: bool) -> float:
    """Postings checked a second."""
    with ledger.read(path) as book:
        start = time.perf_counter()
        result = verify(book, recompute=recompute)
        seconds = time.perf_counter() - start
    assert result.clean, result.findings
    return result.postings / seconds


def main() -> None:
    place = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        directory = Path(name)
        for agents, count, bar in ((100, 400, 1.0), (10_000, 20, 50.0)):
            base, made, appended = (1000 * seconds for seconds in appends(directory, agents, count))
            beyond = appended - base
            print(
                f"{agents:>6} postings: {appended:.2f} ms durable round, empty transaction {base:.2f} ms, "
                f"beyond it {beyond:.2f} ms (bar {bar:g}); deriving the amounts and the entry {made:.2f} ms more"
            )
        for agents in (100, 10_000):
            plain, full = (checks(directory / f"rounds-{agents}.db", recompute) for recompute in (False, True))
            print(
                f"{agents:>6} postings: verify {plain:,.0f} postings/s (bar 500,000), "
                f"with --recompute {full:,.0f} postings/s"
            )


if __name__ == "__main__":
    main()
