"""The selection plans, proved by the 0-1 principle: a network of exchanges that separates every sequence of zeros and
ones separates every input. Exhaustive to 16 clients; beyond, all sorted and rotated patterns and random ones."""

from __future__ import annotations

import numpy as np
import pytest

from fedincentive.aggregation import native, trimmed_mean

LOAD, COMPARE, QUAD, KEEP = range(4)


def run_plan(n: int, k: int, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Executes a plan on columns of inputs (n rows): the lowest, the kept and the highest values."""
    plan = native.load().plan(n, k)
    wires = np.full((plan["wires"], inputs.shape[1]), 99, dtype=inputs.dtype)
    kept, loaded = [], 0
    for kind, begin, count, detail in plan["steps"]:
        if kind == LOAD:  # the block is sorted in registers; its networks are tested by themselves below
            wires[detail : detail + count] = np.sort(inputs[begin : begin + count], axis=0)
            loaded += count
        elif kind == KEEP:
            kept += [wires[wire].copy() for wire in plan["kept"][begin : begin + count]]
        else:
            for low, high in comparators(plan, kind, begin, count, detail):
                wires[low], wires[high] = np.minimum(wires[low], wires[high]), np.maximum(wires[low], wires[high])
    assert loaded == n
    return wires[plan["lowest"]], np.array(kept), wires[plan["highest"]]


def comparators(plan, kind, begin, count, detail):
    if kind == COMPARE:
        return plan["pairs"][begin : begin + count]
    pattern = plan["patterns"][detail]
    return [(quad[a], quad[b]) for quad in plan["quads"][begin : begin + count] for a, b in pattern]


def check(n: int, k: int, inputs: np.ndarray) -> None:
    lowest, kept, highest = run_plan(n, k, inputs)
    assert lowest.shape[0] == highest.shape[0] == k and kept.shape[0] == n - 2 * k
    ordered = np.sort(inputs, axis=0)
    assert np.array_equal(np.sort(lowest, axis=0), ordered[:k])
    assert np.array_equal(np.sort(kept, axis=0), ordered[k : n - k])
    assert np.array_equal(np.sort(highest, axis=0), ordered[n - k :])


@pytest.mark.parametrize("n", range(3, 17))
def test_exhaustively_for_few_clients(n):
    every = ((np.arange(2**n)[None, :] >> np.arange(n)[:, None]) & 1).astype(np.int8)
    for k in range(1, (n - 1) // 2 + 1):
        check(n, k, every)


def structured(n: int, rng: np.random.Generator) -> np.ndarray:
    """Every number of ones: at the top, at the bottom, rotated, strided and at random."""
    columns = []
    for ones in range(n + 1):
        base = (np.arange(n) >= n - ones).astype(np.int8)
        columns += [base, base[::-1], np.roll(base, n // 3), np.roll(base, n // 2 + 1)]
        for _ in range(4):
            columns.append(rng.permutation(base))
        columns.append(base[np.argsort(np.arange(n) % 7, kind="stable")])
    return np.array(columns).T


@pytest.mark.parametrize("n", [*range(17, 70), 96, 100, 127, 128, 129, 160, 256, 257])
def test_by_patterns_for_more(n):
    rng = np.random.default_rng(n)
    inputs = structured(n, rng)
    most = (n - 1) // 2
    for k in sorted({1, 2, 3, n // 10, n // 8, n // 4, n // 3, most - 1, most} - {0}):
        check(n, k, inputs)


@pytest.mark.parametrize("n", [512, 1000, 1024, 1025])
def test_by_patterns_for_many(n):
    inputs = structured(n, np.random.default_rng(n))[:, ::7]
    for k in (1, n // 10, (n - 1) // 2):
        check(n, k, inputs)


@pytest.mark.parametrize("n", range(2, 17))
def test_blocks_in_registers_exhaustively(n):
    """The same through the kernels themselves: all 0-1 columns, every trim, every instruction set."""
    every = ((np.arange(2**n)[None, :] >> np.arange(n)[:, None]) & 1).astype(np.float32)
    ones = every.sum(axis=0)
    for k in range(1, (n - 1) // 2 + 1):
        expected = np.clip(ones - k, 0, n - 2 * k) / (n - 2 * k)
        assert np.array_equal(trimmed_mean(list(every), k), expected.astype(np.float32))


def test_one_changed_comparator_is_noticed(monkeypatch):
    """The proof can fail: leaving out any single comparator of a plan breaks it for some 0-1 input."""
    n, k = 20, 3
    whole = native.load().plan(n, k)
    inputs = structured(n, np.random.default_rng(0))
    noticed, total = 0, len(whole["pairs"])
    for missing in range(total):
        pairs = list(whole["pairs"])
        pairs[missing] = (pairs[missing][0], pairs[missing][0])
        broken = {**whole, "pairs": pairs}
        monkeypatch.setattr(
            native, "load", lambda broken=broken: type("M", (), {"plan": staticmethod(lambda *_: broken)})
        )
        try:
            check(n, k, inputs)
        except AssertionError:
            noticed += 1
    assert total > 5 and noticed == total
