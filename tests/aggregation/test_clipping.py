"""Norm clipping and centered clipping against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from fedincentive.aggregation import centered_clipping, norm_clipping, reference, weighted_mean
from fedincentive.aggregation.testing import updates
from fedincentive.errors import AggregationError


@pytest.mark.parametrize("n", [1, 4, 30])
def test_norm_clipping(n):
    x = updates("normal", n, 200, np.float64)
    weights = np.arange(1.0, n + 1)
    for limit in (0.5, 13.0, 1e9):
        assert np.allclose(norm_clipping(x, limit), reference.norm_clipping(x, limit), rtol=1e-12, atol=1e-14)
        expected = reference.norm_clipping(x, limit, weights)
        assert np.allclose(norm_clipping(x, limit, weights), expected, rtol=1e-12, atol=1e-14)
    assert np.array_equal(norm_clipping(x, 1e9), weighted_mean(x))
    assert np.linalg.norm(norm_clipping(x, 0.5)) <= 0.5 + 1e-12


def test_norms_span_all_entries():
    x = [
        {"a": np.float64([3.0]), "b": np.float64([4.0]), "steps": np.array(2)},
        {"a": np.float64([0.0]), "b": np.float64([0.0]), "steps": np.array(5)},
    ]
    result = norm_clipping(x, 1.0)
    assert np.allclose([result["a"][0], result["b"][0]], [0.3, 0.4]) and result["steps"] == 5


@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_centered_clipping(iterations):
    x = updates("normal", 9, 120, np.float64)
    x[2] *= 1e5
    center = np.random.default_rng(0).standard_normal(120)
    for radius in (0.1, 9.0, 1e9):
        expected = reference.centered_clipping(x, center, radius, iterations)
        assert np.allclose(
            centered_clipping(x, center, radius, iterations=iterations), expected, rtol=1e-10, atol=1e-10
        )


def test_centered_clipping_bounds_what_an_attacker_moves():
    x = updates("normal", 10, 50)
    center = np.zeros(50, np.float32)
    moved = [*x[:9], np.full(50, 1e30, np.float32)]
    gap = centered_clipping(moved, center, 2.0) - centered_clipping(x, center, 2.0)
    assert np.linalg.norm(gap) <= 2 * 2.0 / 10 + 1e-6
    assert np.array_equal(centered_clipping([center], center, 1.0), center)


def test_refusals():
    x = updates("normal", 3, 5)
    x[1][2] = np.inf
    with pytest.raises(AggregationError, match="Clients 1 sent"):
        norm_clipping(x, 1.0)
    left = [x[0], x[2]]
    assert np.array_equal(norm_clipping(x, 1.0, nan_policy="drop"), norm_clipping(left, 1.0))
    assert np.array_equal(centered_clipping(x, x[0], 1.0, nan_policy="drop"), centered_clipping(left, x[0], 1.0))
    with pytest.raises(AggregationError, match="radius=-1"):
        centered_clipping(left, x[0], -1)
    with pytest.raises(AggregationError, match="no updates"):
        centered_clipping([], x[0], 1.0)
    with pytest.raises(AggregationError, match="The center has NaN, infinities"):
        centered_clipping(left, x[1], 1.0, nan_policy="drop")
    with pytest.raises(AggregationError, match=r"shape \(4,\)"):
        centered_clipping(left, np.zeros(4, np.float32), 1.0)


def test_a_wrong_center_is_called_so():
    x = updates("normal", 3, 4, np.float32)
    with pytest.raises(AggregationError, match="The center has dtype float64, but client 0's has dtype float32"):
        centered_clipping(x, np.zeros(4), 1.0)
    with pytest.raises(AggregationError, match=r"The center has shape \(5,\)"):
        centered_clipping(x, np.zeros(5, np.float32), 1.0)
    named = [{"w": row} for row in x]
    with pytest.raises(AggregationError, match="The center's entry 'w' has dtype float64"):
        centered_clipping(named, {"w": np.zeros(4)}, 1.0)


@pytest.mark.parametrize("size", [1e-170, 1e-200, 1e-290])
def test_tiny_norms_are_clipped_too(size):
    """Their squares are 0 in float64."""
    x = [np.float64([3.0, 4.0]) * size, np.float64([0.0, 1.0]) * size]
    assert np.allclose(norm_clipping(x, size) / size, [0.3, 0.9], rtol=1e-12)
    assert np.allclose(centered_clipping(x, np.zeros(2), size) / size, [0.3, 0.9], rtol=1e-12)
