"""The trimmed mean against plain NumPy, SciPy and torch, over sizes, kinds of input, dtypes and trims."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import library

from fedincentive.aggregation import median, reference, trim_count, trimmed_mean, weighted_mean
from fedincentive.aggregation.testing import DTYPES, KINDS, close, updates
from fedincentive.errors import AggregationError

CLIENTS = [1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 20, 31, 32, 33, 48, 63, 64, 65, 66, 100, 127, 129, 200]


def trims(n: int) -> list[int]:
    most = (n - 1) // 2
    return sorted({0, min(1, most), n // 10, n // 4 if 2 * (n // 4) < n else most, max(0, most - 1), most})


def check(x: list[np.ndarray], trim: int) -> None:
    expected = reference.trimmed_mean(x, trim)
    ordered = np.sort(reference.stack(x), axis=0)[trim : len(x) - trim]
    assert close(trimmed_mean(x, trim), expected, np.abs(ordered).max(axis=0))


@pytest.mark.parametrize("n", CLIENTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_trim_equals_the_reference(n, dtype):
    for kind in KINDS:
        x = updates(kind, n, 131, dtype)
        for trim in trims(n) if n > 33 else range((n - 1) // 2 + 1):
            check(x, trim)


@pytest.mark.parametrize(("n", "m"), [(255, 70), (512, 65), (1000, 64), (1024, 130), (1025, 33)])
def test_many_clients(n, m):
    for kind in ("normal", "ties", "huge"):
        x = updates(kind, n, m)
        for trim in trims(n):
            check(x, trim)


@pytest.mark.parametrize("m", [0, 1, 2, 7, 8, 9, 63, 64, 65, 511, 512, 513, 1000, 4097, 100_000])
def test_every_length_and_tail(m):
    for dtype in DTYPES:
        x = updates("normal", 11, m, dtype)
        check(x, 2)
        check(x, 0)


@pytest.mark.parametrize("offset", range(1, 9))
def test_unaligned_starts(offset):
    for dtype in DTYPES:
        item = np.dtype(dtype).itemsize
        x = []
        for row in updates("normal", 9, 300, dtype):
            buffer = np.zeros(300 * item + 64, dtype=np.uint8)
            view = buffer[offset : offset + 300 * item].view(dtype)
            view[:] = row
            x.append(view)
        check(x, 2)
        assert np.array_equal(weighted_mean(x), weighted_mean([row.copy() for row in x]))


def test_scipy_agrees():
    stats = library("scipy.stats")
    x = updates("normal", 40, 1000, np.float64)
    assert np.allclose(trimmed_mean(x, 4), stats.trim_mean(np.stack(x), 0.1, axis=0), rtol=1e-13, atol=1e-15)


def test_torch_sort_agrees():
    torch = library("torch")
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = [torch.randn(777, dtype=torch.float32).to(dtype) for _ in range(23)]
        stacked = torch.sort(torch.stack(x).double(), dim=0).values[5:18]
        result = trimmed_mean(x, 5)
        assert result.dtype == dtype
        # next to the float64 mean: no other value of the dtype is closer, but for the rounding of sums of four
        gap = (result.double() - stacked.mean(dim=0)).abs()
        for other in (torch.nextafter(result, torch.full_like(result, s)) for s in (-float("inf"), float("inf"))):
            assert bool((gap <= (other.double() - stacked.mean(dim=0)).abs() + 2.0**-23).all())


@pytest.mark.parametrize("n", [3, 33, 255, 1025])
def test_heavy_trimming_loses_no_precision(n):
    """Values around 1 whose extremes are huge: lo + hi minus multiples of them would cancel."""
    rng = np.random.default_rng(n)
    x = (1 + rng.random((n, 257)) * 1e-3).astype(np.float32)
    x[: n // 3] *= 1e6
    trim = (n - 1) // 2
    check(list(x), trim)
    assert np.array_equal(median(list(x)), trimmed_mean(list(x), trim))


def test_the_median_is_the_middle():
    for n in (1, 2, 5, 8, 33, 64, 101):
        x = updates("normal", n, 200, np.float64)
        assert np.allclose(median(x), np.median(np.stack(x), axis=0), rtol=1e-15, atol=0)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 17, 40, 90, 300])
def test_weights_follow_the_kept_clients(n):
    rng = np.random.default_rng(n)
    for kind in ("normal", "ties", "constant", "zeros", "huge"):
        for dtype in DTYPES:
            x = updates(kind, n, 150, dtype)
            weights = rng.integers(1, 50, n)
            for trim in trims(n):
                expected = reference.trimmed_mean(x, trim, weights)
                kept = np.sort(reference.stack(x), axis=0)[trim : n - trim]
                assert close(trimmed_mean(x, trim, weights=weights), expected, np.abs(kept).max(axis=0) * n), (
                    kind,
                    trim,
                )


def test_ties_are_cut_by_position():
    """Equal values, different weights: a stable sort trims the first on the low side and the last on the high side."""
    x = [np.float64([v]) for v in (2, 1, 1, 1, 2, 2)]
    weights = [1, 10, 100, 1000, 10_000, 100_000]
    kept = [2, 3, 0, 4]  # sorted: clients 1 2 3 0 4 5
    expected = sum(weights[i] * x[i][0] for i in kept) / sum(weights[i] for i in kept)
    assert trimmed_mean(x, 1, weights=weights)[0] == pytest.approx(expected, rel=1e-15)
    same = [np.float32([7.0]) for _ in range(5)]
    assert trimmed_mean(same, 2, weights=[0, 0, 3, 0, 0])[0] == 7.0
    with pytest.raises(AggregationError, match="weight 0"):
        trimmed_mean(same, 2, weights=[1, 1, 0, 1, 1])


def test_the_paper_divides_by_all_clients():
    x = updates("normal", 10, 50, np.float64)
    assert np.allclose(trimmed_mean(x, 2, normalize="paper"), trimmed_mean(x, 2) * 6 / 10, rtol=1e-14)
    weights = np.arange(1.0, 11)
    expected = reference.trimmed_mean(x, 2, weights, normalize="paper")
    assert np.allclose(trimmed_mean(x, 2, weights=weights, normalize="paper"), expected, rtol=1e-14)


def test_large_weights_and_sums_do_not_overflow():
    x = [np.float64([1.5e308]), np.float64([1.7e308]), np.float64([1.6e308])]
    assert weighted_mean(x)[0] == pytest.approx(1.6e308)
    assert weighted_mean(x, [1e308, 1e308, 1e308])[0] == pytest.approx(1.6e308)
    assert median([*x, np.float64([1.7e308])])[0] == pytest.approx(1.65e308)


def test_trim_count_is_exact_for_every_fraction():
    for n in range(1, 400):
        for k in range((n + 1) // 2):
            assert trim_count(k / n, n) == k
    assert [trim_count(a, 100) for a in (0.07, 0.29, 0.1, 0.0)] == [7, 29, 10, 0]
    assert trim_count(1 / 11, 11) == 1


@settings(max_examples=150)
@given(
    n=st.integers(1, 70),
    m=st.integers(0, 200),
    fraction=st.floats(0, 0.499),
    kind=st.sampled_from(sorted(KINDS)),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
)
def test_properties(n, m, fraction, kind, dtype, seed):
    x = updates(kind, n, m, dtype, seed)
    trim = trim_count(fraction, n)
    if 2 * trim >= n:
        trim = (n - 1) // 2
    before = [row.copy() for row in x]
    result = trimmed_mean(x, trim)
    check(x, trim)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(x, before, strict=True))
    order = np.random.default_rng(seed).permutation(n)
    shuffled = trimmed_mean([x[i] for i in order], trim)
    scale = np.abs(np.stack(x).astype(float)).max(axis=0) if m else np.zeros(0)
    assert close(shuffled, reference.trimmed_mean(x, trim), scale)
    middle = np.sort(np.stack(x).astype(np.float64), axis=0)[trim : n - trim]
    slack = 1e-14 * scale if dtype is np.float64 else 0.0  # sums of float32 and float16 have bits to spare
    assert np.all(result >= middle.min(axis=0) - slack) and np.all(result <= middle.max(axis=0) + slack)


def test_no_weight_is_left_after_dropping():
    """All that weighed anything is dropped: an error, whatever a call before left in memory."""
    x = [np.full(400, v, np.float32) for v in (np.nan, 5, 7, 9, 11)]
    for _ in range(3):
        trimmed_mean(x[1:], 1, weights=[1, 2, 3, 4])
        with pytest.raises(AggregationError, match="In 400 coordinates all clients .* weight 0"):
            weighted_mean(x, weights=[1, 0, 0, 0, 0], nan_policy="drop")
    y = [np.float32(v) for v in ([np.nan, np.inf], [np.inf, np.nan], [1, 1], [2, 2], [30, 30])]
    with pytest.raises(AggregationError, match="weight 0"):
        trimmed_mean(y, 1, weights=[1, 2, 0, 0, 0], nan_policy="drop")


@pytest.mark.parametrize("normalize", ["kept", "paper"])
def test_equal_weights_are_no_weights(normalize):
    x = list(np.random.default_rng(0).standard_normal((9, 500)).astype(np.float32))
    expected = trimmed_mean(x, 2, normalize=normalize)
    assert np.array_equal(trimmed_mean(x, 2, weights=[3.0] * 9, normalize=normalize), expected)
    assert not np.array_equal(trimmed_mean(x, 2, weights=[3.0] * 8 + [4.0], normalize=normalize), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_median_of_negative_zeros_is_zero_for_every_number_of_clients(dtype):
    """One form of the kernel for all: a sum begins with +0."""
    for n in CLIENTS:
        assert not np.signbit(median([np.full(3, -0.0, dtype) for _ in range(n)])).any(), n
