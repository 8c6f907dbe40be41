"""One-dimensional maxima for all agents at once: grid, end points, refinement.

A bounded scalar search alone follows the first hill it meets; the grid sees every hill wider than a cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .arrays import Array

CONCAVE_CELLS = 4  # a concave function needs no grid: its best cells always contain the maximum


@dataclass(frozen=True)
class Search:
    """How thoroughly to look: `points` cells per range, the `hills` best of them refined in `zooms` steps."""

    points: int = 256
    hills: int = 3
    zooms: int = 24

    def __str__(self) -> str:
        return f"grid of {self.points} cells + end points, {self.hills} hills refined {self.zooms} times"


def maximise(
    f: Callable[[Array], Array], low: Array, high: Array, search: Search, *, concave: bool
) -> tuple[Array, Array]:
    """(argmax, max) of f_i on [low_i, high_i] for every i; `f` maps one t_i per agent to one value per agent.

    >>> best, value = maximise(lambda t: -((t - 0.3) ** 2), np.zeros(2), np.ones(2), Search(), concave=True)
    >>> best.round(6)
    array([0.3, 0.3])
    """
    share = np.linspace(0.0, 1.0, CONCAVE_CELLS + 1) if concave else _shares(search.points)

    def score(t: Array) -> Array:
        value = f(t)
        return np.where(np.isnan(value), -np.inf, value)

    best = low.astype(np.float64).copy()
    top = np.full(len(low), -np.inf)
    for k, height in zip(*_hills(score, low, high, share, 1 if concave else search.hills), strict=True):
        left = low + share[np.maximum(k - 1, 0)] * (high - low)
        right = low + share[np.minimum(k + 1, len(share) - 1)] * (high - low)
        t, value = _climb(score, left, right, low + share[k] * (high - low), height, search.zooms)
        better = value > top
        best, top = np.where(better, t, best), np.where(better, value, top)
    return best, top


def _shares(cells: int) -> Array:
    """Evenly spaced points and both end points, crowded towards the ends, where the hills of data curves stand."""
    near = 2.0 ** -np.arange(2, 21)
    return np.unique(np.concatenate([np.linspace(0.0, 1.0, cells + 1), near, 1.0 - near]))


def _hills(
    score: Callable[[Array], Array], low: Array, high: Array, share: Array, count: int
) -> tuple[NDArray[np.intp], Array]:
    """For each agent the grid indices and heights of its `count` highest local maxima.

    The grid is walked, not kept: a hundred thousand agents times the grid would not fit a small machine.
    """
    n = len(low)
    index, height = np.zeros((count, n), dtype=np.intp), np.full((count, n), -np.inf)
    before, here = np.full(n, -np.inf), score(low)
    for k in range(len(share)):
        after = score(low + share[k + 1] * (high - low)) if k + 1 < len(share) else np.full(n, -np.inf)
        lowest = height.argmin(axis=0)
        peak = np.flatnonzero((here >= before) & (here >= after) & (here > height.min(axis=0)))
        index[lowest[peak], peak], height[lowest[peak], peak] = k, here[peak]
        before, here = here, after
    return index, height


def _climb(
    f: Callable[[Array], Array], left: Array, right: Array, t: Array, value: Array, zooms: int
) -> tuple[Array, Array]:
    """Shrinks each bracket around its best point; the best point only ever improves."""
    for _ in range(zooms):
        inner = [left + x * (right - left) for x in (0.25, 0.5, 0.75)]
        tried = [t, *inner]
        scores = np.stack([value, *(f(x) for x in inner)])
        pick = scores.argmax(axis=0)[None]
        t = np.take_along_axis(np.stack(tried), pick, axis=0)[0]
        value = np.take_along_axis(scores, pick, axis=0)[0]
        quarter = 0.25 * (right - left)
        left, right = np.maximum(left, t - quarter), np.minimum(right, t + quarter)
    return t, value
