"""Krum, multi-Krum and the geometric median against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import library

from fedincentive.aggregation import geometric_median, krum, multi_krum, reference
from fedincentive.aggregation.kernel import squared_distances
from fedincentive.aggregation.testing import DTYPES, updates
from fedincentive.aggregation.updates import read
from fedincentive.errors import AggregationError


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "m"), [(1, 5), (2, 1), (7, 0), (10, 1000), (33, 77), (130, 513)])
def test_distances_equal_the_reference(n, m, dtype):
    x = updates("normal", n, m, dtype)
    close = 1e-12 if dtype is np.float64 else 1e-6  # what is no wider than float32 is compared in float32
    assert np.allclose(squared_distances(read(x)), reference.squared_distances(x), rtol=close, atol=1e-18)


def test_distances_do_not_cancel():
    """Two clients 1e-3 apart at 1e6 from the origin: a Gram matrix would lose every digit of 1e-6."""
    a = np.full(100, 1e6)
    b = a.copy()
    b[0] += 2.0**-10
    assert squared_distances(read([a, b]))[0, 1] == 2.0**-20


def test_distances_in_float32_neither_cancel_nor_overflow_nor_vanish():
    """Beside each other in one block: clients far from the origin, huge, tiny, equal, and one with a NaN."""
    near, far = np.float32([1e6] * 100), np.float32([1e6] * 100)
    far[0] += 2.0**-4
    huge, tiny = np.full(100, 3e38, np.float32), np.full(100, 1e-38, np.float32)
    bad = np.full(100, np.nan, np.float32)
    x = [near, far, near.copy(), huge, -huge, tiny, -tiny, 2 * tiny, 0 * tiny, bad]
    with np.errstate(invalid="ignore"):
        expected = reference.squared_distances(x)
    np.fill_diagonal(expected, 0.0)
    found = squared_distances(read(x))
    assert found[0, 1] == 2.0**-8
    assert found[0, 2] == 0
    assert 0 < found[5, 8] < 1e-70
    assert np.allclose(found, expected, rtol=1e-6, atol=0, equal_nan=True)


def test_distances_over_entries_and_strides():
    rng = np.random.default_rng(0)
    x = [{"w": rng.random((6, 4)).T, "n": np.array(3), "b": rng.random(5).astype(np.float32)} for _ in range(5)]
    flat = [np.concatenate([u["w"].reshape(-1), u["b"].astype(np.float64)]) for u in x]
    assert np.allclose(squared_distances(read(x)), reference.squared_distances(flat), rtol=1e-14)


@pytest.mark.parametrize(("n", "f"), [(3, 0), (5, 1), (10, 3), (25, 11), (41, 5)])
def test_krum_equals_the_definition(n, f):
    for kind in ("normal", "ties"):
        x = updates(kind, n, 60, np.float64)
        assert np.array_equal(krum(x, f), reference.multi_krum(x, f, 1))
        assert np.allclose(multi_krum(x, f), reference.multi_krum(x, f), rtol=1e-14, atol=1e-15)
        assert np.allclose(multi_krum(x, f, 2), reference.multi_krum(x, f, 2), rtol=1e-14, atol=1e-15)


def test_krum_ignores_attackers():
    x = updates("normal", 12, 200)
    x[3][:] = 1e6
    x[5][:] = np.nan
    x[7][0] = np.inf
    result = multi_krum(x, 4, 5)
    assert np.isfinite(result).all() and np.abs(result).max() < 10
    state = [{"w": row, "steps": np.array(i)} for i, row in enumerate(x)]
    chosen = krum(state, 4)
    assert any(np.array_equal(chosen["w"], row) for row in x) and chosen["steps"] == 11


def test_krum_refusals():
    x = updates("normal", 6, 3)
    with pytest.raises(AggregationError, match=r"n >= 2f \+ 3.*f=2, n=6"):
        krum(x, 2)
    with pytest.raises(AggregationError, match="f=-1"):
        krum(x, -1)
    with pytest.raises(AggregationError, match="m=7"):
        multi_krum(x, 1, 7)
    for row in x[:4]:
        row[:] = np.nan
    with pytest.raises(AggregationError, match="finite distances"):
        krum(x, 1)


def gradient_norm(x: list[np.ndarray], z: np.ndarray, weights: np.ndarray) -> float:
    gaps = reference.stack(x) - z
    return float(np.linalg.norm((weights[:, None] * gaps / np.linalg.norm(gaps, axis=1)[:, None]).sum(axis=0)))


@pytest.mark.parametrize("n", [3, 8, 25])
def test_geometric_median_is_stationary(n):
    x = updates("normal", n, 40, np.float64)
    for weights in (np.ones(n), np.linspace(1.0, 1.5, n)):
        z = geometric_median(x, weights)
        assert gradient_norm(x, z, weights) < 1e-6 * n
        best = reference.distance_sum(x, z, weights)
        rng = np.random.default_rng(0)
        assert all(reference.distance_sum(x, z + 1e-3 * rng.standard_normal(40), weights) > best for _ in range(20))


def test_geometric_median_at_a_client_is_exact():
    square = [np.float64(p) for p in [(0, 0), (2, 0), (0, 2), (2, 2), (1, 1)]]
    assert np.array_equal(geometric_median(square), [1.0, 1.0])
    heavy = updates("normal", 6, 30, np.float32)
    assert np.array_equal(geometric_median(heavy, [1, 1, 10, 1, 1, 1]), heavy[2])
    assert np.array_equal(geometric_median([heavy[0]]), heavy[0])
    assert np.array_equal(geometric_median([heavy[0]] * 4), heavy[0])
    line = [np.float64([v]) for v in (1, 2, 3, 50, 1000)]
    assert geometric_median(line)[0] == 3.0


def test_geometric_median_resists_and_reports():
    x = updates("normal", 11, 100)
    clean = geometric_median(x)
    for i in range(4):
        x[i] = x[i] + np.float32(1e6)
    assert np.linalg.norm(geometric_median(x) - clean) < 20
    x[9][3] = np.nan
    with pytest.raises(AggregationError, match="Clients 9 sent"):
        geometric_median(x)
    left = [row for i, row in enumerate(x) if i != 9]
    assert np.array_equal(geometric_median(x, nan_policy="drop"), geometric_median(left))


def test_tensors_of_every_dtype():
    torch = library("torch")
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = [torch.randn(4, 5).to(dtype) for _ in range(7)]
        for result in (krum(x, 1), multi_krum(x, 1), geometric_median(x)):
            assert result.dtype == dtype and result.shape == (4, 5)
        expected = geometric_median([t.double() for t in x])
        assert torch.allclose(geometric_median(x).double(), expected, rtol=0, atol=1e-2)


def least_sum(points: np.ndarray, weights: np.ndarray) -> float:
    """The smallest sum of distances, by a solver of scipy's that knows nothing of medians, from several starts."""
    optimize = library("scipy.optimize")

    def cost(z: np.ndarray) -> float:
        return float(weights @ np.linalg.norm(points - z, axis=1))

    options = {"xatol": 1e-11, "fatol": 1e-13, "maxfev": 3000, "maxiter": 3000}
    starts = [points.mean(axis=0) + 0.01, np.median(points, axis=0) - 0.01]
    found = [optimize.minimize(cost, start, method="Nelder-Mead", options=options).fun for start in starts]
    return min(*found, *(cost(point) for point in points))


CLOUDS = {
    "grid": lambda rng, n, d: rng.integers(0, 3, (n, d)).astype(float),
    "collinear": lambda rng, n, d: np.outer(rng.integers(-5, 5, n), np.arange(1.0, d + 1)),
    "duplicates": lambda rng, n, d: rng.standard_normal((n, d))[rng.integers(0, max(1, n // 2), n)],
    "normal": lambda rng, n, d: rng.standard_normal((n, d)),
}


@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_geometric_median_against_a_convex_solver(kind, weighted):
    rng = np.random.default_rng(len(kind) + weighted)
    for _ in range(12):
        n, d = int(rng.integers(1, 10)), int(rng.integers(1, 4))
        points = CLOUDS[kind](rng, n, d)
        weights = rng.integers(0, 4, n).astype(float) if weighted else np.ones(n)
        weights[0] = max(weights[0], 1.0)
        z = geometric_median(list(points), weights)
        best = least_sum(points, weights)
        assert reference.distance_sum(list(points), z, weights) <= best * (1 + 1e-9) + 1e-12, (points, weights)


@pytest.mark.parametrize("size", [1e3, 1e7, 1e15, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_size_of_one_client_moves_the_geometric_median(size, dtype):
    """A client that far away pulls as hard as at any other distance: what counts is its direction."""
    x = updates("normal", 10, 50, dtype)
    far = [*x[:9], (x[9] * dtype(size)).astype(dtype)]
    z = geometric_median(far)
    assert np.abs(z).max() < 5 and gradient_norm(far, z.astype(np.float64), np.ones(10)) < 1e-6
    several = [*x[:6], *((row * dtype(size)).astype(dtype) for row in x[6:])]
    z = geometric_median(several)
    assert np.abs(z).max() < 5 and gradient_norm(several, z.astype(np.float64), np.ones(10)) < 1e-6


def test_geometric_median_leaves_a_client_that_is_not_the_minimiser():
    corner = [np.float64(p) for p in [(0, 0), (1, 0), (1, 1)]]
    assert abs(reference.distance_sum(corner, geometric_median(corner)) - (1 + np.sqrt(3)) / np.sqrt(2)) < 1e-12
