"""Every rule once more in plain NumPy, as short as its definition: the oracle of the tests, and the text to read first.

Updates are arrays of one shape here, results are float64, and nothing is fast.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Arrays = Sequence[np.ndarray]


def stack(updates: Arrays) -> np.ndarray:
    """All updates in float64, clients along the first axis."""
    return np.stack([np.asarray(update, dtype=np.float64) for update in updates])


def weighted_mean(updates: Arrays, weights: Sequence[float] | None = None) -> np.ndarray:
    """sum_i w_i x_i / sum_i w_i

    >>> weighted_mean([np.array([1.0]), np.array([4.0])], [2, 1])
    array([2.])
    """
    return trimmed_mean(updates, 0, weights)


def trimmed_mean(
    updates: Arrays, trim: int, weights: Sequence[float] | None = None, normalize: str = "kept"
) -> np.ndarray:
    """Sort stably (NaN last), cut `trim` off both ends, average the rest by weight.

    >>> trimmed_mean([np.array([v]) for v in (5.0, 1.0, np.nan, 3.0)], 1)
    array([4.])
    """
    values = stack(updates)
    n = len(values)
    order = np.argsort(values, axis=0, kind="stable")[trim : n - trim]
    kept = np.take_along_axis(values, order, axis=0)
    factors = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    divisor = factors[order].sum(axis=0) if normalize == "kept" else factors.sum()
    return (factors[order] * kept).sum(axis=0) / divisor


def share_trimmed_mean(updates: Arrays, share: float, weights: Sequence[float]) -> np.ndarray:
    """Sort, and average what of the weight lies between `share` and 1 - share of it.

    >>> share_trimmed_mean([np.array([v]) for v in (1.0, 2.0, 1000.0)], 0.25, [2, 1, 1])
    array([1.5])
    """
    values = stack(updates)
    order = np.argsort(np.where(np.isnan(values), np.inf, values), axis=0, kind="stable")
    parts = (np.asarray(weights, dtype=np.float64) / np.sum(weights))[order]
    ends = np.cumsum(parts, axis=0)
    kept = np.clip(ends, share, 1 - share) - np.clip(ends - parts, share, 1 - share)
    kept = np.where(kept > 1e-12, kept, 0.0)
    return np.where(kept > 0, kept * np.take_along_axis(values, order, axis=0), 0.0).sum(axis=0) / kept.sum(axis=0)


def median(updates: Arrays) -> np.ndarray:
    """The middle value, or the mean of the two middle ones.

    >>> median([np.array([v]) for v in (5.0, 1.0, 3.0, 4.0)])
    array([3.5])
    """
    return trimmed_mean(updates, (len(updates) - 1) // 2)


def squared_distances(updates: Arrays) -> np.ndarray:
    """||x_i - x_j||^2 for all pairs.

    >>> squared_distances([np.array([0.0, 0.0]), np.array([3.0, 4.0])])
    array([[ 0., 25.],
           [25.,  0.]])
    """
    values = stack(updates).reshape(len(updates), -1)
    return np.array([((values - one) ** 2).sum(axis=1) for one in values])


def krum_scores(updates: Arrays, f: int) -> np.ndarray:
    """Per client the sum of the squared distances to its n - f - 2 nearest others.

    >>> krum_scores([np.array([v]) for v in (0.0, 1.0, 2.0, 9.0)], 0)
    array([  5.,   2.,   5., 113.])
    """
    distances = squared_distances(updates)
    n = len(distances)
    return np.array([np.sort(np.delete(distances[i], i))[: n - f - 2].sum() for i in range(n)])


def multi_krum(updates: Arrays, f: int, m: int | None = None) -> np.ndarray:
    """The mean of the m updates with the smallest scores; m = 1 is Krum, and n - f the default.

    >>> multi_krum([np.array([v]) for v in (0.0, 1.0, 2.0, 9.0)], 0, 1)
    array([1.])
    """
    m = len(updates) - f if m is None else m
    chosen = np.argsort(krum_scores(updates, f), kind="stable")[:m]
    return stack(updates)[chosen].mean(axis=0)


def distance_sum(updates: Arrays, point: np.ndarray, weights: Sequence[float] | None = None) -> float:
    """sum_i w_i ||x_i - z||, which the geometric median minimises.

    >>> distance_sum([np.array([0.0]), np.array([3.0])], np.array([1.0]))
    3.0
    """
    values = stack(updates).reshape(len(updates), -1)
    factors = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=np.float64)
    return float(factors @ np.linalg.norm(values - np.asarray(point, dtype=np.float64).reshape(-1), axis=1))


def norm_clipping(updates: Arrays, max_norm: float, weights: Sequence[float] | None = None) -> np.ndarray:
    """The weighted mean of x_i min(1, max_norm / ||x_i||).

    >>> norm_clipping([np.array([3.0, 4.0])], 1.0)
    array([0.6, 0.8])
    """
    clipped = [update * min(1.0, max_norm / max(float(np.linalg.norm(update)), 1e-300)) for update in stack(updates)]
    return weighted_mean(clipped, weights)


def centered_clipping(updates: Arrays, center: np.ndarray, radius: float, iterations: int = 1) -> np.ndarray:
    """v <- v + mean of (x_i - v) min(1, radius / ||x_i - v||)

    >>> centered_clipping([np.array([1.0]), np.array([100.0])], np.array([0.0]), 2.0)
    array([1.5])
    """
    v = np.asarray(center, dtype=np.float64)
    for _ in range(iterations):
        gaps = stack(updates) - v
        norms = np.array([max(float(np.linalg.norm(gap)), 1e-300) for gap in gaps])
        v = v + np.mean([gap * min(1.0, radius / norm) for gap, norm in zip(gaps, norms, strict=True)], axis=0)
    return v
