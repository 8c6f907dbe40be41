"""pytest-benchmark suites of the aggregation rules; ratios.py is the comparison with a plain mean and with peers."""

from __future__ import annotations

import numpy as np
import pytest

from fedincentive.aggregation import (
    centered_clipping,
    geometric_median,
    median,
    multi_krum,
    norm_clipping,
    trimmed_mean,
    weighted_mean,
)

RULES = {
    "mean": weighted_mean,
    "weighted mean": lambda x: weighted_mean(x, range(1, len(x) + 1)),
    "trimmed mean": lambda x: trimmed_mean(x, max(1, len(x) // 10)),
    "weighted trimmed mean": lambda x: trimmed_mean(x, max(1, len(x) // 10), weights=range(1, len(x) + 1)),
    "median": median,
}
DISTANCE_RULES = {
    "multi-krum": lambda x: multi_krum(x, len(x) // 5),
    "geometric median": lambda x: geometric_median(x, tolerance=1e-6),
    "centered clipping": lambda x: centered_clipping(x, np.zeros_like(x[0]), 1.0),
    "norm clipping": lambda x: norm_clipping(x, 1.0),
}


def clients(n: int, m: int, dtype: type = np.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    return [rng.standard_normal(m, dtype=np.float32).astype(dtype) for _ in range(n)]


@pytest.mark.parametrize("n", [10, 32, 100, 1024])
@pytest.mark.parametrize("rule", RULES)
def test_coordinatewise(benchmark, rule, n):
    benchmark.group = f"{n} clients, 64 MB of float32"
    benchmark(RULES[rule], clients(n, 16_000_000 // n))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_dtypes(benchmark, dtype):
    benchmark.group = "trimmed mean of 20 clients, 500,000 coordinates"
    benchmark(RULES["trimmed mean"], clients(20, 500_000, dtype))


@pytest.mark.parametrize("m", [10, 1000, 100_000])
def test_small_models(benchmark, m):
    benchmark.group = "trimmed mean of 10 clients, small models"
    benchmark(RULES["trimmed mean"], clients(10, m))


@pytest.mark.parametrize("rule", DISTANCE_RULES)
def test_distance_based(benchmark, rule):
    benchmark.group = "20 clients, 200,000 coordinates"
    benchmark(DISTANCE_RULES[rule], clients(20, 200_000))
