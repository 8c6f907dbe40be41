"""The ledger's speed with pytest-benchmark; `python benchmarks/ledger.py` prints the same beside their yardsticks."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from fedincentive import ledger
from fedincentive.ledger.verify import verify

figures = runpy.run_path(str(Path(__file__).with_name("ledger.py")))


def test_an_empty_durable_transaction(benchmark, tmp_path):
    benchmark(figures["yardstick"](tmp_path / "empty.db"))


@pytest.mark.parametrize("agents", [100, 10_000])
def test_append_a_round(benchmark, tmp_path, agents):
    count = 400 if agents == 100 else 20
    entries = iter([make() for make in figures["rounds"](agents, count)])
    with ledger.open(tmp_path / "rounds.db") as book:
        benchmark.pedantic(book.append, setup=lambda: ((next(entries),), {}), rounds=count)
        assert book.head().count == count


@pytest.mark.parametrize("agents", [100, 10_000])
def test_make_a_round(benchmark, agents):
    make = next(figures["rounds"](agents, 2))
    assert len(benchmark(make).postings) == agents


@pytest.mark.parametrize("recompute", [False, True])
def test_verify(benchmark, tmp_path, recompute):
    with ledger.open(tmp_path / "rounds.db") as book:
        for make in figures["rounds"](100, 300):
            book.append(make())
        result = benchmark(verify, book, recompute=recompute)
    assert result.clean
    assert result.postings == 30_000
    benchmark.extra_info["postings_per_second"] = round(30_000 / benchmark.stats["min"])
