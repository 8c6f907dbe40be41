"""Values of ByzFL's and Flower's rules, computed here from their definitions, and where we differ on purpose.

The installed ByzFL is compared with in test_byzfl.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedincentive.aggregation import centered_clipping, geometric_median, krum, median, trimmed_mean

X = [np.float64(row) for row in [(1, 2, 3), (4, 5, 6), (7, 8, 9)]]  # the example in ByzFL's documentation


def test_byzfl_documented_examples():
    """ByzFL documents for these three vectors and f = 1: TrMean, Median and GeometricMedian [4, 5, 6]."""
    assert trimmed_mean(X, 1).tolist() == [4, 5, 6]
    assert median(X).tolist() == [4, 5, 6]
    assert geometric_median(X).tolist() == [4, 5, 6]


def flower_krum_order(x: list[np.ndarray], f: int) -> np.ndarray:
    """Flower: for every client the closest n - f - 2 others, itself skipped, squared norms summed."""
    distances = np.array([[np.linalg.norm(a - b) ** 2 for b in x] for a in x])
    closest = max(1, len(x) - f - 2)
    return np.argsort([np.sort(row)[1 : closest + 1].sum() for row in distances], kind="stable")


@pytest.mark.parametrize(("n", "f"), [(7, 1), (11, 4), (20, 5)])
def test_krum_agrees_with_flower(n, f):
    rng = np.random.default_rng(n)
    for _ in range(20):
        x = list(rng.standard_normal((n, 15)))
        assert np.array_equal(krum(x, f), x[flower_krum_order(x, f)[0]])


def flower_trimmed_avg(x: list[np.ndarray], proportion: float) -> np.ndarray:
    """Flower cuts int(proportion * n) on each side of np.partition."""
    low = int(proportion * len(x))
    high = len(x) - low
    part = np.partition(np.stack(x), (low, high - 1), axis=0)
    return np.mean(part[low:high], axis=0)


def test_trimmed_mean_agrees_with_flower_where_its_count_is_right():
    x = list(np.random.default_rng(0).standard_normal((100, 30)))
    for percent in (0, 5, 10, 20, 30, 40):
        assert np.allclose(trimmed_mean(x, alpha=percent / 100), flower_trimmed_avg(x, percent / 100), rtol=1e-12)
    # int(0.29 * 100) is 28: we trim the 29 that 0.29 of 100 are
    assert np.allclose(trimmed_mean(x, alpha=0.29), trimmed_mean(x, 29))
    assert not np.allclose(trimmed_mean(x, alpha=0.29), flower_trimmed_avg(x, 0.29))


def test_centered_clipping_agrees_with_byzfl():
    """ByzFL: v <- v + sum clip(x - v, C) / n, L times from a given start."""
    rng = np.random.default_rng(1)
    x, start = list(rng.standard_normal((8, 20)) * 5), rng.standard_normal(20)
    v = start.copy()
    for _ in range(3):
        gaps = [a - v for a in x]
        v = v + sum(g * min(1.0, 2.5 / np.linalg.norm(g)) for g in gaps) / 8
    assert np.allclose(centered_clipping(x, start, 2.5, iterations=3), v, rtol=1e-12)
