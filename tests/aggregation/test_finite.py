"""One bad value among many, wherever it is."""

from __future__ import annotations

import numpy as np
import pytest

from fedincentive.aggregation import all_finite, finite


@pytest.fixture(autouse=True, params=[finite.SMALL, -1], ids=["numpy", "kernel"])
def small(request, monkeypatch):
    """What looks at small arrays; larger ones are the kernel's."""
    monkeypatch.setattr(finite, "SMALL", request.param)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 7, 64, 65, 1000, 300_001])
def test_one_bad_value_is_seen_anywhere(dtype, size):
    rng = np.random.default_rng(size)
    values = rng.normal(size=size).astype(dtype)
    assert all_finite(values)
    for bad in (np.nan, np.inf, -np.inf):
        for place in {0, size // 2, size - 1, *rng.integers(0, max(size, 1), 8).tolist()} & set(range(size)):
            before, values[place] = values[place], bad
            assert not all_finite(values, threads=2), (bad, place)
            values[place] = before
    assert all_finite(values, threads=3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_largest_numbers_are_finite_however_many(dtype):
    limits = np.finfo(dtype)
    values = np.tile(np.array([limits.max, limits.min, limits.smallest_subnormal, -0.0], dtype), 10_000)
    assert all_finite(values) and all_finite(np.full(10_000, limits.max))


def test_every_half():
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    assert [all_finite(halves[i : i + 1]) for i in range(65536)] == np.isfinite(halves).tolist()


def test_layouts_and_other_types():
    grid = np.arange(12.0).reshape(3, 4)
    assert all_finite(grid.T) and all_finite(grid[::2, 1::2]) and all_finite(np.float32(1).reshape(()))
    grid[1, 1] = np.nan
    assert not all_finite(grid.T) and all_finite(grid[::2]) and all_finite(np.arange(5))
    assert not all_finite(np.array([np.nan], dtype=">f4"))
