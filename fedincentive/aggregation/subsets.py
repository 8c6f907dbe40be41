"""Rules that average the clients that agree best, by the distances between them: MDA, MoNNA, SMEA and CAF."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import AggregationError
from .coordinatewise import shorten
from .distance_based import check_count, check_f
from .tiles import StoredBatch, gather
from .updates import Batch

MOST_SUBSETS = 50_000


def mda(updates: Iterable[Any], f: int, *, threads: int | None = None) -> Any:
    """The mean of the n - f clients with the smallest diameter, the largest distance between two of them (El Mhamdi et
    al., 2020); of several such sets the first in the order of the clients. n >= 2f + 1.

    >>> mda([np.float64([v]) for v in (1.0, 50.0, 2.0, 3.0)], f=1)
    array([2.])
    """
    with gather(updates) as batch:
        distances = finite_distances("MDA", batch, f, threads)
        return batch.average(smallest_diameter(distances, batch.clients - f), threads=threads)


def monna(updates: Iterable[Any], f: int, trusted: int = 0, *, threads: int | None = None) -> Any:
    """The mean of the n - f clients nearest to one that is trusted, itself among them (Farhadkhani et al., 2023).

    >>> monna([np.float64([v]) for v in (1.0, 50.0, 2.0, 3.0)], f=1)
    array([2.])
    """
    with gather(updates) as batch:
        n = batch.clients
        check_f("MoNNA", f, n)
        check_count("trusted", trusted, 0, n - 1)
        away = infinite_for_nan(batch.squared_distances(threads=threads))[trusted]
        away[trusted] = -1.0
        chosen = sorted(int(i) for i in np.argsort(away, kind="stable")[: n - f])
        refuse_far("MoNNA", batch, [i for i in chosen if not np.isfinite(away[i])], n - f)
        return batch.average(chosen, threads=threads)


def smea(updates: Iterable[Any], f: int, *, threads: int | None = None) -> Any:
    """The mean of the n - f clients with the smallest maximum eigenvalue of their covariance (Allouah et al., 2023).

    Every subset is looked at, so f must be small. Eigenvalues are exact, where ByzFL takes one random step toward them.

    >>> smea([np.float64([v]) for v in (1.0, 50.0, 2.0, 3.0)], f=1)
    array([2.])
    """
    with gather(updates) as batch:
        n = batch.clients
        squared = finite_distances("SMEA", batch, f, threads) ** 2
        if math.comb(n, f) > MOST_SUBSETS:
            raise AggregationError(
                f"SMEA looks at every subset: {math.comb(n, f)} with f={f}, n={n}, and at most {MOST_SUBSETS} are "
                "tried. Lower f, or choose another rule (MDA and CAF need no such search)."
            )
        spread = [largest_eigenvalue(squared, list(kept)) for kept in itertools.combinations(range(n), n - f)]
        best = next(itertools.islice(itertools.combinations(range(n), n - f), int(np.argmin(spread)), None))
        return batch.average(list(best), threads=threads)


def caf(updates: Iterable[Any], f: int, *, threads: int | None = None) -> Any:
    """The weighted mean with the smallest covariance of a filter's (Allouah et al., 2025): again and again, clients
    lose weight by how far they lie from the mean along the direction of the largest variance, until n - 2f is left.

    Clients with NaN or infinities have no weight from the start. Directions are exact, where ByzFL takes a random step.

    >>> caf([np.float64([v]) for v in (1.0, 50.0, 2.0, 3.0)], f=1).round(1)
    array([2.])
    """
    with gather(updates) as batch:
        n = batch.clients
        check_f("CAF", f, n)
        squared = infinite_for_nan(batch.squared_distances(threads=threads))
        finite = agreeing(squared)
        refuse_far("CAF", batch, [i for i in range(n) if i not in finite] if len(finite) < n - f else [], n - f)
        products = inner_products(squared[np.ix_(finite, finite)])
        if not np.isfinite(products).all():
            raise AggregationError(
                "CAF compares squared distances, and some between these updates are beyond float64. Leave out clients "
                "with values beyond 1e150, or shorten updates first (clipping+caf)."
            )
        return batch.average(finite, weights=filtered(products, n - 2 * f), threads=threads)


def filtered(products: np.ndarray, least: int) -> np.ndarray:
    """CAF's weights, from the clients' inner products."""
    weights, best, smallest = np.ones(len(products)), np.ones(len(products)), np.inf
    while weights.sum() > least:
        part = weights / weights.sum()
        along = products @ part
        centred = products - along[:, None] - along[None, :] + part @ along
        root = np.sqrt(part)
        values, vectors = np.linalg.eigh(root[:, None] * centred * root[None, :])
        if values[-1] < smallest:
            best, smallest = weights, values[-1]
        if values[-1] <= 1e-14 * max(1e-300, float(np.trace(centred))):
            break  # nothing is left to filter
        away = (centred @ (root * vectors[:, -1])) ** 2
        weights = weights * (1 - away / away[weights > 0].max()).clip(0.0, 1.0)
    return best


def finite_distances(name: str, batch: Batch | StoredBatch, f: int, threads: int | None) -> np.ndarray:
    """Distances, infinite for clients with NaN or infinities; there must be no more than f of those."""
    check_f(name, f, batch.clients)
    squared = infinite_for_nan(batch.squared_distances(threads=threads))
    finite = agreeing(squared)
    bad = [i for i in range(batch.clients) if i not in finite]
    refuse_far(name, batch, bad if len(finite) < batch.clients - f else [], batch.clients - f)
    return np.sqrt(squared)


def infinite_for_nan(squared: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(squared), np.inf, squared)


def agreeing(squared: np.ndarray) -> list[int]:
    """The clients with finite distances to most: one with NaN or infinities is infinitely far from all others."""
    n = len(squared)
    others = np.isfinite(squared) & ~np.eye(n, dtype=bool)
    return [i for i in range(n) if n == 1 or others[i].any()]


def refuse_far(name: str, batch: Batch | StoredBatch, bad: list[int], wanted: int) -> None:
    if bad:
        raise AggregationError(
            f"{name} averages {wanted} clients, but clients {shorten([batch.whose(i) for i in bad])} sent NaN, "
            "infinities or values too large to square. Leave them out, or raise f."
        )


def inner_products(squared: np.ndarray) -> np.ndarray:
    """<x_i - p, x_j - p> with p the client in the middle: nobody far away takes digits from the others."""
    near = squared[int(np.argmin(np.median(squared, axis=1)))]
    return (near[:, None] + near[None, :] - squared) / 2


def largest_eigenvalue(squared: np.ndarray, kept: list[int]) -> float:
    """Of the sum of (x - mean)(x - mean)^T over the kept clients."""
    part = squared[np.ix_(kept, kept)]
    if not np.isfinite(part).all():
        return np.inf
    middle = part.mean(axis=0)
    return float(np.linalg.eigvalsh((middle[:, None] + middle[None, :] - part - part.mean()) / 2)[-1])


def smallest_diameter(distances: np.ndarray, size: int) -> list[int]:
    """The first set of `size` clients, in the order of the clients, of the smallest diameter there is.

    A set of diameter at most d is what is left when every pair farther apart loses one of its two: a vertex cover of at
    most n - size clients, which is searched for exactly. Its cost grows with that number, and hardly with n.
    """
    n = len(distances)
    heights = np.unique(distances[np.triu_indices(n, 1)])
    low, high = 0, len(heights) - 1
    while low < high:
        middle = (low + high) // 2
        if coverable(conflicts(distances, heights[middle]), (1 << n) - 1, n - size):
            high = middle
        else:
            low = middle + 1
    graph = conflicts(distances, heights[low] if len(heights) else 0.0)
    left, spare = (1 << n) - 1, n - size
    chosen: list[int] = []
    for client in range(n):
        if len(chosen) == size or not left >> client & 1:
            continue
        without = left & ~graph[client]
        lost = (left & ~without).bit_count()
        if lost <= spare and coverable(graph, without, spare - lost):
            left, spare = without, spare - lost
            chosen.append(client)
        else:
            left, spare = left & ~(1 << client), spare - 1
    return chosen


def conflicts(distances: np.ndarray, height: float) -> list[int]:
    """Per client, as bits, those farther away than the height."""
    return [sum(1 << int(j) for j in np.flatnonzero(row > height)) for row in distances]


def coverable(graph: list[int], left: int, spare: int) -> bool:
    """Whether removing at most `spare` of the clients that are left (bits) ends all conflicts between them."""
    degrees = [((graph[i] & left).bit_count(), i) for i in range(len(graph)) if left >> i & 1]
    most, worst = max(degrees, default=(0, 0))
    if most == 0:
        return True
    if sum(degree for degree, _ in degrees) > 2 * most * spare:
        return False
    without = left & ~(1 << worst)
    if coverable(graph, without, spare - 1):
        return True
    return most <= spare and coverable(graph, left & ~graph[worst], spare - most)
