"""Rules that shorten long updates before they are averaged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from ..errors import AggregationError
from . import kernel
from .coordinatewise import check_choice, check_weights
from .distance_based import check_count, finite_clients
from .tiles import StoredBatch, gather
from .updates import Batch, read, with_counts


def norm_clipping(
    updates: Iterable[Any],
    max_norm: float,
    weights: Sequence[float] | None = None,
    *,
    nan_policy: Literal["raise", "drop"] = "raise",
    threads: int | None = None,
) -> Any:
    """sum_i w_i x_i min(1, max_norm / ||x_i||) / sum_i w_i: no client counts for more than max_norm.

    The norm is Euclidean, over all floating entries together. Clients with NaN or infinities are an error that names
    them, or are left out with nan_policy="drop".

    >>> import numpy as np
    >>> norm_clipping([np.float64([3, 4]), np.float64([0, 1])], max_norm=1.0)
    array([0.3, 0.9])
    """
    check_positive("max_norm", max_norm)
    check_choice("nan_policy", nan_policy, ("raise", "drop"))
    updates, weights = with_counts(updates, weights)
    with gather(updates) as everyone:
        factors = np.ones(everyone.clients) if weights is None else check_weights(weights, everyone.clients)
        present = finite_clients(everyone, nan_policy, threads)
        factors, batch = factors[present], everyone.select(present)
        if factors.max() == 0:
            raise AggregationError("All clients with finite updates have weight 0; at least one must be positive.")
        scales = shrink(norms(batch, max_norm, threads), max_norm)
        output, _ = batch.reduce(weights=factors * scales, divisor=float(factors.sum()), threads=threads)
        return batch.assemble(output)


def centered_clipping(
    updates: Iterable[Any],
    center: Any,
    radius: float,
    *,
    iterations: int = 1,
    nan_policy: Literal["raise", "drop"] = "raise",
    threads: int | None = None,
) -> Any:
    """Average what the clients differ from a center by, no difference longer than `radius` (Karimireddy et al., 2021):

        v <- v + 1/n sum_i (x_i - v) min(1, radius / ||x_i - v||),   v starts at `center`, `iterations` times

    `center` has the form of one update (usually the last round's result). v is held in float64 between iterations.
    See `norm_clipping` for `nan_policy`.

    >>> import numpy as np
    >>> centered_clipping([np.float64([1.0]), np.float64([3.0]), np.float64([1000.0])], np.float64([2.0]), radius=1.5)
    array([2.5])
    """
    check_positive("radius", radius)
    check_count("iterations", iterations, 1, 10**6)
    check_choice("nan_policy", nan_policy, ("raise", "drop"))
    everyone = read(updates, center)
    present = finite_clients(everyone, nan_policy, threads, center=True)
    if len(present) == 1:
        raise AggregationError("No client's update is finite.")
    batch = everyone.select(present)
    # v stays a weighted mean of clients and center: only its coefficients change from one iteration to the next.
    clients = batch.clients - 1
    coefficients = np.eye(batch.clients)[clients]
    for _ in range(iterations):
        v, _ = kernel.reduce(batch, weights=coefficients, divisor=1.0, threads=threads, wide=True)
        pull = shrink(distances_from(batch, v, radius, threads)[:clients], radius) / clients
        coefficients = coefficients * max(0.0, 1.0 - pull.sum())
        coefficients[:clients] += pull
    results, _ = kernel.reduce(batch, weights=coefficients, divisor=1.0, threads=threads)
    return without_center(batch).assemble(results)


def distances_from(batch: Batch, center: list[np.ndarray], limit: float, threads: int | None) -> np.ndarray:
    """||x_i - center||"""
    return precise(limit, batch.clients, partial(kernel.squared_distances, batch, center, threads=threads))


def norms(batch: Batch | StoredBatch, limit: float, threads: int | None) -> np.ndarray:
    """||x_i||"""
    return precise(limit, batch.clients, partial(batch.squared_norms, threads=threads))


def precise(limit: float, clients: int, squares: Callable[..., np.ndarray]) -> np.ndarray:
    """Roots of squared distances; where a tiny limit asks for it, also of those that float64 rounds to 0."""
    found = np.sqrt(squares())
    if limit > 1e-130 or (found > 1e-140).all():
        return found
    scaled = squares(around=clients, scales=[2.0**600] * (clients + 1))
    return np.where(found > 1e-140, found, np.sqrt(scaled) * 2.0**-600)


def shrink(norms: np.ndarray, limit: float) -> np.ndarray:
    """min(1, limit / norm), 1 where the norm is 0."""
    return limit / np.maximum(norms, limit)


def without_center(batch: Batch) -> Batch:
    return batch.select(range(batch.clients - 1))


def check_positive(setting: str, value: float) -> None:
    number = isinstance(value, (int, float, np.integer, np.floating))
    if not number or not 0 < value <= sys.float_info.max:
        raise AggregationError(f"{setting}={value!r} must be a positive finite number.")
