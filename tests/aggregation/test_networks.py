"""The selection plans, proved by the 0-1 principle: a network of exchanges that separates all columns of zeros and ones
separates every input. Blocks of up to 16 clients are sorted as they are loaded, so a plan sees only how many zeros each
block has: all combinations are tried where there are few enough (64 clients and less), else a great many. Columns are
packed 64 to a word; the smaller of two bits is their AND, the larger their OR."""

from __future__ import annotations

import numpy as np
import pytest

from fedincentive.aggregation import native, trimmed_mean

LOAD, COMPARE, DISPLACE, KEEP = range(4)


def block_sizes(plan: dict) -> list[int]:
    return [count for kind, _, count, _ in plan["steps"] if kind == LOAD]


def zeros_per_block(sizes: list[int], k: int, rng: np.random.Generator, most: int) -> np.ndarray:
    """All combinations, or `most` random ones: the zeros shared out evenly or unevenly, their total often near k or
    n - k, where the cuts are."""
    if np.prod([size + 1.0 for size in sizes]) <= most:
        return np.stack([axis.reshape(-1) for axis in np.meshgrid(*[np.arange(size + 1) for size in sizes])])
    n, parts = sum(sizes), []
    for evenness in (0.1, 0.5, 2.0, 20.0):
        shares = rng.dirichlet(np.full(len(sizes), evenness), most // 4)
        totals = np.where(rng.random(most // 4) < 0.2, rng.integers(0, n + 1, most // 4), 0)
        near = rng.choice([k, n - k], most // 4) + rng.integers(-2, 3, most // 4)
        drawn = rng.multinomial(np.clip(np.where(totals, totals, near), 0, n), shares).T
        parts.append(np.minimum(drawn, np.array(sizes)[:, None]))
    return np.concatenate(parts, axis=1)


def columns(sizes: list[int], zeros: np.ndarray) -> np.ndarray:
    """One row of packed bits per client: zeros first in every block."""
    missing = -zeros.shape[1] % 64
    zeros = np.concatenate([zeros, np.zeros((len(sizes), missing), zeros.dtype)], axis=1)
    rows = [np.packbits(row >= zeros[block]) for block, size in enumerate(sizes) for row in range(size)]
    return np.stack(rows).view(np.uint64)


def exchange(wires: np.ndarray, low: int, high: int) -> None:
    smaller = wires[low] & wires[high]
    wires[high] |= wires[low]
    wires[low] = smaller


def displace(wires: np.ndarray, listed: list[int], leaf: list[int], highest: int) -> list[np.ndarray]:
    """The list takes the smallest (or largest) of both and gives up the rest; then it is in order again."""
    for one, other in zip(listed, reversed(leaf), strict=True):
        exchange(wires, *((other, one) if highest else (one, other)))
    for last in range(len(listed) - 1, 0, -1):
        for i in range(last):
            exchange(wires, listed[i], listed[i + 1])
    return [wires[wire].copy() for wire in leaf]


def separates(plan: dict, inputs: np.ndarray) -> bool:
    """Whether the lowest are below all others and the highest above, in every column."""
    wires = np.zeros((plan["wires"], inputs.shape[1]), dtype=np.uint64)
    kept: list[np.ndarray] = []
    for kind, begin, count, detail in plan["steps"]:
        if kind == LOAD:
            wires[detail : detail + count] = inputs[begin : begin + count]
        elif kind == COMPARE:
            for low, high in plan["pairs"][begin : begin + count]:
                exchange(wires, low, high)
        elif kind == DISPLACE:
            lists = plan["wires_of"][begin : begin + 2 * count]
            kept += displace(wires, lists[:count], lists[count:], detail)
        else:
            kept += [wires[wire].copy() for wire in plan["wires_of"][begin : begin + count]]
    lowest, highest = wires[plan["lowest"]], wires[plan["highest"]]
    assert len(lowest) + len(kept) + len(highest) == len(inputs) and sum(block_sizes(plan)) == len(inputs)
    middle_or, middle_and = np.bitwise_or.reduce(kept), np.bitwise_and.reduce(kept)
    bottom, top = np.bitwise_or.reduce(lowest), np.bitwise_and.reduce(highest)
    return not np.any(bottom & ~middle_and) and not np.any((bottom | middle_or) & ~top)


def proof_inputs(plan: dict, k: int, most: int) -> np.ndarray:
    sizes = block_sizes(plan)
    return columns(sizes, zeros_per_block(sizes, k, np.random.default_rng(sum(sizes)), most))


@pytest.mark.parametrize("n", range(3, 65))
def test_every_plan_exhaustively(n):
    """All numbers of zeros in the blocks (where small blocks give more than 2^17 combinations, that many of them)."""
    most = (n - 1) // 2
    some = {1, 2, 5, n // 10, n // 5, n // 4, n // 3, most - 1, most}
    for k in range(1, most + 1) if n < 40 else some:
        plan = native.load().plan(n, k)
        assert separates(plan, proof_inputs(plan, k, 2**17)), (n, k)


@pytest.mark.parametrize("n", [65, 79, 96, 100, 127, 128, 129, 160, 255, 256, 257])
def test_plans_for_more_clients(n):
    for k in sorted({1, 3, n // 10, n // 8, n // 4, n // 3, (n - 3) // 2, (n - 1) // 2}):
        plan = native.load().plan(n, k)
        assert separates(plan, proof_inputs(plan, k, 2**17)), (n, k)


@pytest.mark.parametrize("n", [512, 1000, 1024, 1025])
def test_plans_for_many_clients(n):
    for k in (1, 13, n // 10, (n - 1) // 2):
        plan = native.load().plan(n, k)
        assert separates(plan, proof_inputs(plan, k, 2**16)), (n, k)


@pytest.mark.parametrize(
    ("n", "k", "share"), [(34, 15, 1.0), (48, 15, 1.0), (64, 20, 0.7), (100, 10, 0.8), (128, 30, 0.9)]
)
def test_missing_comparators_are_noticed(n, k, share):
    """The proof can fail: without one comparator some columns come out wrong. (The 64-20 plan has some it could spare:
    there all columns are tried.)"""
    plan, rng = native.load().plan(n, k), np.random.default_rng(0)
    inputs = proof_inputs(plan, k, 2**18)
    chosen = rng.permutation(len(plan["pairs"]))[:60]
    noticed = 0
    for missing in chosen:
        pairs = list(plan["pairs"])
        pairs[missing] = (pairs[missing][0], pairs[missing][0])
        noticed += not separates({**plan, "pairs": pairs}, inputs)
    assert len(chosen) > 20 and noticed >= share * len(chosen)


def check_kernels(inputs: np.ndarray, k: int) -> None:
    """The kernels themselves: exchanges lose nothing, so the right number of ones among the kept proves the cut."""
    n = len(inputs)
    expected = np.clip(inputs.sum(axis=0, dtype=np.int64) - k, 0, n - 2 * k) / (n - 2 * k)
    for dtype in (np.float32, np.float64):
        result = trimmed_mean([np.ascontiguousarray(row, dtype=dtype) for row in inputs], k)
        assert np.allclose(result, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("n", range(3, 17))
def test_kernels_exhaustively_for_few_clients(n):
    every = ((np.arange(2**n)[None, :] >> np.arange(n)[:, None]) & 1).astype(np.int8)
    for k in range(1, (n - 1) // 2 + 1):
        check_kernels(every, k)


@pytest.mark.parametrize("n", [*range(17, 42), 48, 55, 63, 64, 65, 99, 128, 200])
def test_kernels_for_more_clients(n):
    """Every k that is streamed through registers or displaced there, and some that go by comparators."""
    rng = np.random.default_rng(n)
    for k in sorted({*range(1, 14), n // 4, (n - 1) // 2}):
        if 2 * k >= n:
            continue
        size = {1: 8, 2: 4, 3: 4, 4: 8}.get(k, 16)  # kBlock of stream.inl
        sizes = [size] * (n // size) + ([n % size] if n % size else [])
        zeros = zeros_per_block(sizes, k, rng, 4000)
        inputs = np.concatenate([np.arange(s)[:, None] >= zeros[block] for block, s in enumerate(sizes)])
        check_kernels(inputs.astype(np.int8), k)
        check_kernels((rng.random((n, 500)) < rng.random(500)).astype(np.int8), k)
