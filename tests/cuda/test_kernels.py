"""Every kernel, all network sizes, all kinds of input: against the definition, and against the CPU (bit for bit where
both add in the same order)."""

from __future__ import annotations

import numpy as np
import pytest

DTYPES = ["float32", "float64", "float16", "bfloat16"]
# Around every border between kernels; float64 has half as many clients per network and warp.
LARGE = [129, 200, 255, 256, 511, 512, 513, 700, 1023, 1024, 1025, 1500]


def trims(n: int) -> list[int]:
    return sorted({0, 1, 4, 5, 16, 17, n // 4, (n - 1) // 2} & set(range((n + 1) // 2)))


def weights_of(n: int) -> np.ndarray:
    weights = np.random.default_rng(n).random(n)
    weights[n // 2 :: 5] = 0
    weights[0] = 1
    return weights


def defined(values: np.ndarray, trim: int, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The definition in NumPy, and a bound on the rounding error of any order of summation in float64."""
    n = len(values)
    order = np.argsort(values, axis=0, kind="stable")[trim : n - trim]
    kept = np.take_along_axis(values, order, axis=0)
    factors = np.ones_like(kept) if weights is None else weights[order]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        total = factors.sum(axis=0)
        size = (factors * np.abs(kept)).sum(axis=0) / total
        return (factors * kept).sum(axis=0) / total, 4 * n * 2.0**-53 * size


def check_against_definition(answer, rows, dtype, trim, weights, wide):
    values = wide(rows, dtype)
    expected, error = defined(values, trim, weights)
    got = wide(answer.values, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        step = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
        least = {"float64": 0, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}[dtype]
        close = np.abs(got - expected) <= error + np.abs(expected) * step + least
    beyond = {"float16": 65504}.get(dtype, np.inf)
    same = close | (np.isnan(got) & np.isnan(expected)) | (got == expected) | (np.isinf(got) & (abs(expected) > beyond))
    assert same.all(), f"columns {np.flatnonzero(~same)}: {got[~same]} instead of {expected[~same]}"


def check_against_cpu(answer, cpu, dtype, same):
    assert (answer.not_finite, answer.weightless, answer.clients) == (cpu.not_finite, cpu.weightless, cpu.clients)
    apart = ~same(answer, cpu, dtype)
    found = np.flatnonzero(apart), answer.values[apart], cpu.values[apart]
    if dtype == "float32":  # a pair of float32 has fewer bits than float64: a rare value rounds to its neighbour
        steps = np.abs(found[1].view(np.int32).astype(np.int64) - found[2].view(np.int32))
        assert len(steps) <= 1 and (steps == 1).all(), found
    else:
        assert not apart.any(), found


def check(simulated, reduce, on_cpu, same, wide, rows, dtype, trim, weights):
    given = () if weights is None else weights
    answer = reduce(simulated, rows, dtype, trim, given)
    check_against_definition(answer, rows, dtype, trim, weights, wide)
    check_against_cpu(answer, on_cpu(rows, dtype, trim, given), dtype, same)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", range(8))
def test_up_to_128_clients(simulated, reduce, on_cpu, same, zoo, wide, dtype, group):
    numbers = range(1 + group, 129, 8)
    if dtype == "float64":  # beyond 64 another kernel's turn, and a slow one here
        numbers = [n for n in numbers if n <= 64] + [65, 128] * (group == 0)
    for n in numbers:
        rows = zoo(n, dtype)
        for trim in trims(n):
            for weights in (None, weights_of(n)):
                check(simulated, reduce, on_cpu, same, wide, rows, dtype, trim, weights)


# The 16-bit types differ from float32 in reading and writing only.
@pytest.mark.parametrize(
    "dtype, n",
    [(dtype, n) for dtype in ("float32", "float64") for n in LARGE]
    + [(dtype, n) for dtype in ("float16", "bfloat16") for n in (129, 1024, 1500)],
)
def test_more_clients(simulated, reduce, on_cpu, same, zoo, wide, dtype, n):
    rows = zoo(n, dtype)
    for trim in trims(n):
        for weights in (None, weights_of(n)):
            check(simulated, reduce, on_cpu, same, wide, rows, dtype, trim, weights)


@pytest.mark.parametrize("n", [5, 20, 150])
@pytest.mark.parametrize("weighted", [False, True])
def test_wide_output_and_divisor(simulated, reduce, on_cpu, same, zoo, n, weighted):
    rows = zoo(n)
    weights = weights_of(n) if weighted else ()
    for trim in (0, (n - 1) // 2):
        ours = reduce(simulated, rows, trim=trim, weights=weights, divisor=7.0, wide=True)
        cpu = on_cpu(rows, trim=trim, weights=weights, divisor=7.0, wide=True)
        assert same(ours, cpu).all()


@pytest.mark.parametrize("size", [1, 31, 32, 33, 127, 128, 129, 255, 257, 1000])
def test_sizes_around_blocks_and_warps(simulated, reduce, on_cpu, same, size):
    rng = np.random.default_rng(size)
    for n, trim in ((3, 0), (20, 3), (128, 30), (140, 4), (140, 60), (1030, 100)):
        rows = rng.normal(size=(n, size)).astype(np.float32)
        rows[: trim + 1, 0] = np.inf
        ours, cpu = reduce(simulated, rows, trim=trim), on_cpu(rows, trim=trim)
        assert same(ours, cpu).all() and ours.clients == cpu.clients


def test_finite_values_whose_sum_overflows(simulated, reduce, on_cpu, same):
    rows = np.full((20, 3), 1.7e308)
    rows[:, 1] *= -1
    for trim in (0, 3):
        ours, cpu = reduce(simulated, rows, "float64", trim), on_cpu(rows, "float64", trim)
        assert np.isfinite(ours.values).all() and same(ours, cpu).all()
        assert ours.not_finite == 0


def test_kept_clients_without_weight_are_counted(simulated, reduce, on_cpu):
    rows = np.arange(15, dtype=np.float32).reshape(5, 3)
    weights = [1.0, 0, 0, 0, 1]
    ours, cpu = reduce(simulated, rows, trim=1, weights=weights), on_cpu(rows, trim=1, weights=weights)
    assert (ours.weightless, cpu.weightless) == (3, 3)


def test_rounding_to_half_precision_is_the_cpus(simulated, reduce, on_cpu, same):
    rng = np.random.default_rng(0)
    for dtype in ("float16", "bfloat16"):
        rows = rng.integers(0, 2**16, size=(2, 2**14), dtype=np.uint16)
        rows = rows.view(np.float16) if dtype == "float16" else rows
        ours, cpu = reduce(simulated, rows, dtype), on_cpu(rows, dtype)
        assert same(ours, cpu).all()


def test_several_arrays_and_empty_ones_in_one_call(simulated, device_memory):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(4, size)).astype(np.float32) for size in (5, 0, 300)]
    outputs = [np.empty(array.shape[1], np.float32) for array in arrays]
    simulated.reduce(
        np.array([row.ctypes.data for array in arrays for row in array], np.uint64),
        np.array([array.shape[1] for array in arrays]),
        np.array([output.ctypes.data for output in outputs], np.uint64),
        *(4, 0, False, 1, [], 0.0, 0, 0, device_memory()),
    )
    for array, output in zip(arrays, outputs, strict=True):
        np.testing.assert_allclose(output, np.sort(array, axis=0)[1:3].mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    "settings", [{"trim": 3}, {"trim": -1}, {"weights": [1.0]}], ids=["too much trim", "negative trim", "weights"]
)
def test_requests_that_do_not_fit_are_refused(simulated, reduce, settings):
    with pytest.raises(ValueError):
        reduce(simulated, np.zeros((5, 4), np.float32), **settings)
