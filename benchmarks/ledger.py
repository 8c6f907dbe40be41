"""The ledger's speed, each figure beside its yardstick from the same run: `python benchmarks/ledger.py [DIRECTORY]`.

A round is one tranche entry with its inputs, made and appended durably. The yardstick is one transaction with a single
row, as durable, in another file of the same directory; the two take turns, so that both meet the same disk. CPU times
stand beside the wall clock, because other work on the machine slows that.
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
from typing import Any, NamedTuple

from fedincentive import ledger
from fedincentive.ledger.verify import verify
from fedincentive.payments import MINOR, SCALE, Contribution


def tranche(step: int, inputs: dict[str, Any], memory: dict[str, Any]) -> ledger.Entry:
    """What the center makes of a training round."""
    amounts = Contribution.amounts({"round": step, "rule": "tranche/1", "inputs": inputs}, memory, MINOR)
    return ledger.Entry("benchmark", step, "tranche", "tranche/1", inputs, amounts, (ledger.BALANCED,))


def rounds(agents: int, count: int) -> Iterator[Callable[[], ledger.Entry]]:
    """The tranche entries of a run, each made when called."""
    names = [f"agent-{k:05d}" for k in range(agents)]
    total, posted = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for step in range(1, count + 1):
        delivered = {name: 10**6 * (400 + k * 7919 * step % 200) for k, name in enumerate(names)}
        for name in names:
            total[name] += delivered[name]
        terms = {"beta": "7/5", "rounds": count, "scale": SCALE, "delivered": delivered, "total": dict(total)}
        make = partial(tranche, step, terms, {"paid": posted})
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


class Time(NamedTuple):
    """Seconds on the wall clock and of this process."""

    wall: float
    cpu: float


def timed(work: Callable[[], object]) -> Time:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Time(time.perf_counter() - wall, time.process_time() - cpu)


def median(times: list[Time]) -> Time:
    """In milliseconds."""
    return Time(*(1000 * statistics.median(column) for column in zip(*times, strict=True)))


def appends(directory: Path, agents: int, count: int) -> tuple[Time, Time, Time]:
    """Median milliseconds of (an empty transaction, deriving and making an entry, appending it)."""
    empty = yardstick(directory / f"empty-{agents}.db")
    bases, makes, adds = [], [], []
    with ledger.open(directory / f"rounds-{agents}.db") as book:
        for make in rounds(agents, count):
            bases.append(timed(empty))
            made: list[ledger.Entry] = []
            makes.append(timed(lambda make=make, made=made: made.append(make())))
            adds.append(timed(lambda made=made: book.append(made[0])))
    return median(bases), median(makes), median(adds)


def checks(path: Path, recompute: bool) -> Time:
    """Postings checked a second."""
    with ledger.read(path) as book:
        results = []
        spent = timed(lambda: results.append(verify(book, recompute=recompute)))
    assert results[0].clean, results[0].findings
    return Time(results[0].postings / spent.wall, results[0].postings / spent.cpu)


def main() -> None:
    place = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        directory = Path(name)
        for agents, count, bar in ((100, 400, 1.0), (10_000, 20, 50.0)):
            base, made, added = appends(directory, agents, count)
            print(
                f"{agents:>6} postings: durable round {added.wall:.2f} ms (CPU {added.cpu:.2f}), empty transaction "
                f"{base.wall:.2f} ms, beyond it {added.wall - base.wall:.2f} ms (CPU {added.cpu - base.cpu:.2f}, bar "
                f"{bar:g}); deriving the amounts and the entry {made.wall:.2f} ms (CPU {made.cpu:.2f}) more"
            )
        for agents in (100, 10_000):
            path = directory / f"rounds-{agents}.db"
            for recompute in (False, True):
                speed = checks(path, recompute)
                print(
                    f"{agents:>6} postings: verify{' --recompute' if recompute else ''} {speed.wall:,.0f} postings/s "
                    f"(CPU {speed.cpu:,.0f}{'' if recompute else ', bar 500,000'})"
                )


if __name__ == "__main__":
    main()
