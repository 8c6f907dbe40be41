"""Kinds of input and dtypes that every aggregation test runs over."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

DTYPES = (np.float32, np.float64, np.float16)
Generator = np.random.Generator


def _extremes(rng: Generator, n: int, m: int) -> np.ndarray:
    values = rng.standard_normal((n, m))
    signs = np.where(rng.random((n, m)) < 0.5, -1.0, 1.0)
    return np.where(rng.random((n, m)) < 0.2, signs * 1e30, values)


def _subnormal(rng: Generator, n: int, m: int) -> np.ndarray:
    return rng.integers(-50, 50, (n, m)) * 2.0**-149


KINDS: dict[str, Callable[[Generator, int, int], np.ndarray]] = {
    "normal": lambda rng, n, m: rng.standard_normal((n, m)),
    "sorted": lambda rng, n, m: np.sort(rng.standard_normal((n, m)), axis=0),
    "reversed": lambda rng, n, m: -np.sort(rng.standard_normal((n, m)), axis=0),
    "constant": lambda rng, n, m: np.full((n, m), 0.1),
    "ties": lambda rng, n, m: rng.integers(-2, 3, (n, m)).astype(float),
    "zeros": lambda rng, n, m: np.where(rng.random((n, m)) < 0.5, 0.0, -0.0),
    "subnormal": _subnormal,
    "huge": _extremes,
}


def updates(kind: str, n: int, m: int, dtype: type = np.float32, seed: int = 0) -> list[np.ndarray]:
    """n clients' arrays of m values of one kind.

    >>> len(updates("ties", 3, 5)), updates("ties", 3, 5)[0].dtype.name
    (3, 'float32')
    """
    values = KINDS[kind](np.random.default_rng([seed, n, m]), n, m)
    limit = float(np.finfo(dtype).max)
    return [np.ascontiguousarray(row) for row in np.clip(values, -limit, limit).astype(dtype)]


def close(result: np.ndarray, expected: np.ndarray, scale: np.ndarray) -> bool:
    """Whether a result in its own dtype is the float64 expectation, rounded, up to the error of a sum of that scale:
    four values at a time are added in float32, or float64, before float64 takes over.

    >>> close(np.float32([1.0]), np.array([1.0]), np.array([1.0]))
    True
    """
    limits = np.finfo(result.dtype)
    with np.errstate(over="ignore"):
        spacing = np.spacing(np.abs(expected).astype(result.dtype)).astype(np.float64)
    rounding = 0.51 * np.maximum(spacing, float(limits.smallest_subnormal))
    error = np.abs(result.astype(np.float64) - expected)
    precision = 2.0**-45 if result.dtype == np.float64 else 2.0**-23
    return bool(np.all(error <= rounding + precision * np.abs(scale)))
