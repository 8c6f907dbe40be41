"""The geometric median, found on the distances between clients: the updates themselves are read twice, and
once more where somebody is far from the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from ..errors import AggregationError
from .coordinatewise import as_written, check_choice, check_weights
from .distance_based import check_count, finite_clients
from .tiles import StoredBatch, gather
from .updates import Batch, with_counts

FAR = 30  # typical distances: inner products with whoever is farther would lose digits


def geometric_median(
    updates: Iterable[Any],
    weights: Sequence[float] | None = None,
    *,
    tolerance: float = 1e-9,
    iterations: int = 200,
    nan_policy: Literal["raise", "drop"] = "raise",
    threads: int | None = None,
) -> Any:
    """The point z with the smallest sum_i w_i ||x_i - z||.

    If it is a client's own point, that is returned exactly: the one whose sum is the smallest, if the others pull at it
    with no more than its weight (Vardi and Zhang, 2000). Otherwise it is the z at which all pulls balance,

        z = sum_i c_i x_i / sum_i c_i,   c_i = w_i / ||x_i - z||,

    to within `tolerance` of their sum (1e-7 of it where updates are of 32 bits or fewer), found from there by steps
    of Newton and Weiszfeld, at most `iterations`. All of it is done on the inner products of the clients' differences
    from the one in their middle, so that nobody's own size, however large, has a say in how precisely the others are
    seen. Clients with NaN or infinities are an error
    that names them, or are left out with nan_policy="drop".

    >>> import numpy as np
    >>> geometric_median([np.float64([0, 0]), np.float64([2, 0]), np.float64([1, 1]), np.float64([1, -1])]) + 0.0
    array([1., 0.])
    """
    check_choice("nan_policy", nan_policy, ("raise", "drop"))
    check_count("iterations", iterations, 1, 10**6)
    tolerance = as_written("tolerance", tolerance)
    if not 0 <= tolerance < 1:
        raise AggregationError(f"tolerance={tolerance} must be at least 0 and below 1.")
    updates, weights = with_counts(updates, weights)
    with gather(updates) as everyone:
        factors = np.ones(everyone.clients) if weights is None else check_weights(weights, everyone.clients)
        batch, squared = everyone, everyone.squared_distances(threads=threads)
        if everyone.clients == 1 or not np.isfinite(squared).all():
            finite = finite_clients(everyone, nan_policy, threads)
            batch, factors, squared = everyone.select(finite), factors[finite], squared[np.ix_(finite, finite)]
        present = [int(i) for i in np.flatnonzero(factors)]
        if not present:
            raise AggregationError("All clients with finite updates have weight 0; at least one must be positive.")
        chosen, factors, squared = batch.select(present), factors[present], squared[np.ix_(present, present)]
        coefficients = minimise(Cloud.of(chosen, factors, squared, threads), tolerance, iterations)
        return batch.average(present, weights=coefficients, threads=threads)


class Cloud:
    """The clients as seen from the one in their middle, p: b_i = (x_i - p) t_i, those far away brought near by t_i.

    A point z is p + sum_i e_i b_i, given by its e.
    """

    def __init__(self, weights: np.ndarray, distances: np.ndarray, shrinks: np.ndarray, products: np.ndarray) -> None:
        self.weights, self.distances, self.shrinks, self.products = weights, distances, shrinks, products

    @classmethod
    def of(cls, batch: Batch | StoredBatch, weights: np.ndarray, squared: np.ndarray, threads: int | None) -> Cloud:
        distances = np.sqrt(squared)
        if not np.isfinite(distances).all():
            raise AggregationError("Clients differ by values too large to square: scale the updates down.")
        radii = np.array([weighted_median(row, weights) for row in distances])
        middle = int(np.argmin(radii))
        away, scale = distances[middle], radii[middle]
        shrinks = np.ones(len(weights))
        if scale > 0 and away.max() > FAR * scale:
            shrinks = np.minimum(1.0, scale / np.maximum(away, scale))
            squared = batch.squared_distances(around=middle, scales=list(shrinks), threads=threads)
        near = squared[middle]
        return cls(weights, distances, shrinks, (near[:, None] + near[None, :] - squared) / 2)

    def client(self, k: int) -> np.ndarray:
        return np.eye(len(self.weights))[k] / self.shrinks[k]

    def away(self, e: np.ndarray) -> np.ndarray:
        """||x_i - z|| of every client."""
        along, own = self.products @ e, float(e @ self.products @ e)
        squares = np.diag(self.products) / self.shrinks**2 - 2 * along / self.shrinks + own
        return np.sqrt(np.maximum(squares, 0.0))

    def cosines(self, e: np.ndarray, away: np.ndarray) -> np.ndarray:
        """Inner products of the unit vectors from z to the clients; 0 for a client that z is at."""
        along, own = self.products @ e, float(e @ self.products @ e)
        inverse = np.where(away > 0, 1 / np.where(away > 0, away, 1.0), 0.0)
        unit = inverse / self.shrinks
        cross = np.outer(unit * along, inverse)
        return np.outer(unit, unit) * self.products - cross - cross.T + own * np.outer(inverse, inverse)

    def cost(self, e: np.ndarray) -> float:
        """sum_i w_i (||x_i - z|| - ||x_i - p||): what is the same for all z would drown the rest, of far clients."""
        along, own = self.products @ e, float(e @ self.products @ e)
        return float(self.weights @ self._differences(own - 2 * along / self.shrinks, self.away(e)))

    def client_costs(self) -> np.ndarray:
        """The same where z is at each of the clients."""
        own = np.diag(self.products) / self.shrinks**2
        squares = own[:, None] - 2 * self.products / np.outer(self.shrinks, self.shrinks)
        return np.asarray(self._differences(squares, self.distances) @ self.weights)

    def _differences(self, squares: np.ndarray, away: np.ndarray) -> np.ndarray:
        """Of distances, from those of their squares: a - b = (a^2 - b^2) / (a + b)."""
        sums = away + np.sqrt(np.maximum(np.diag(self.products), 0.0)) / self.shrinks
        return squares / np.where(sums > 0, sums, 1.0)


def weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """The smallest value that, with all smaller ones, has at least half of the weight."""
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)])


def minimise(cloud: Cloud, tolerance: float, iterations: int) -> np.ndarray:
    """The coefficients c_i of the geometric median as a weighted mean of the clients."""
    weights = cloud.weights
    best = int(np.argmin(cloud.client_costs()))
    e, away = cloud.client(best), cloud.distances[best]
    here = away == 0
    cosines = cloud.cosines(e, away)
    pull = float(np.sqrt(max(0.0, weights @ cosines @ weights)))
    own = float(weights[here].sum())
    if pull <= own + tolerance * weights.sum():
        return np.eye(len(weights))[best]
    # From here on every step lowers the cost, so z never comes to a client again.
    strengths = np.where(here, 0.0, weights / np.where(here, 1.0, away))
    e = toward(cloud, e, (1 - own / pull) * strengths / strengths.sum())
    away, cost = cloud.away(e), cloud.cost(e)
    for _ in range(iterations):
        strengths = weights / np.maximum(away, np.finfo(float).tiny)
        total = float(strengths.sum())
        cosines = cloud.cosines(e, away)
        if max(0.0, weights @ cosines @ weights) <= (tolerance * weights.sum()) ** 2:
            break
        steps = [toward(cloud, e, strengths / total)]
        with np.errstate(all="ignore"):
            matrix = np.eye(len(weights)) - cosines * (strengths / total)
            try:
                along = np.linalg.solve(matrix, cosines @ weights / total)
                steps.append(toward(cloud, e, strengths / total * (1 + along / away)))
            except np.linalg.LinAlgError:
                pass
        costs = [cloud.cost(step) if np.isfinite(step).all() else np.inf for step in steps]
        if min(costs) >= cost:
            break
        e, cost = steps[int(np.argmin(costs))], min(costs)
        away = cloud.away(e)
    coefficients = weights / np.maximum(away, np.finfo(float).tiny)
    return coefficients / coefficients.max()


def toward(cloud: Cloud, e: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """z + sum_i parts_i (x_i - z)"""
    return e * (1 - parts.sum()) + parts / cloud.shrinks
