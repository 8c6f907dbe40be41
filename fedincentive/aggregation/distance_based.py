"""Rules built on distances between clients: Krum, multi-Krum and the geometric median."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from ..errors import AggregationError
from . import kernel
from .coordinatewise import check_choice, check_weights, shorten
from .updates import Batch, read


def krum(updates: Iterable[Any], f: int, *, threads: int | None = None) -> Any:
    """The update closest to its neighbours (Blanchard et al., 2017): the client i with the smallest

        score(i) = sum of ||x_i - x_j||^2 over the n - f - 2 clients j != i nearest to i

    `f` is the number of clients that may be malicious; n >= 2f + 3 is required. The convention is the paper's
    n - f - 2 neighbours, i itself not counted (ByzFL and Flower use the same). Ties go to the first client. A client
    that sends NaN or infinities is infinitely far from all and is never chosen.

    >>> import numpy as np
    >>> krum([np.float64([v]) for v in (1.0, 1.1, 1.2, 1.3, 50.0)], f=1)
    array([1.1])
    """
    return multi_krum(updates, f, 1, threads=threads)


def multi_krum(updates: Iterable[Any], f: int, m: int | None = None, *, threads: int | None = None) -> Any:
    """The plain mean of the m updates with the smallest Krum scores (see `krum`); m defaults to n - f.

    >>> import numpy as np
    >>> multi_krum([np.float64([v]) for v in (1.0, 1.5, 2.0, 2.5, 50.0)], f=1)
    array([1.75])
    """
    batch = read(updates)
    results, _ = kernel.reduce(batch.select(krum_selection(batch, f, m, threads=threads)), threads=threads)
    return batch.assemble(results)


def krum_selection(
    updates: Iterable[Any] | Batch, f: int, m: int | None = None, *, threads: int | None = None
) -> list[int]:
    """Which m clients have the smallest Krum scores, in client order: for callers that average them in their own way.

    >>> import numpy as np
    >>> krum_selection([np.float64([v]) for v in (50.0, 1.0, 1.5, 2.0, 2.5)], f=1, m=2)
    [2, 3]
    """
    batch = updates if isinstance(updates, Batch) else read(updates)
    n = batch.clients
    check_count("f", f, 0, n)
    if n < 2 * f + 3:
        raise AggregationError(f"Krum needs n >= 2f + 3 clients. Got f={f}, n={n}.")
    m = n - f if m is None else m
    check_count("m", m, 1, n)
    scores = krum_scores(kernel.squared_distances(batch, threads=threads), f)
    chosen = sorted(int(i) for i in np.argsort(scores, kind="stable")[:m])
    bad = [i for i in chosen if not np.isfinite(scores[i])]
    if bad:
        raise AggregationError(
            f"Only {m - len(bad)} of the {m} clients to choose have finite distances to {n - f - 2} others; "
            f"clients {shorten(bad)} or their neighbours sent NaN, infinities or values too large to square."
        )
    return chosen


def krum_scores(distances: np.ndarray, f: int) -> np.ndarray:
    """Per client the sum of its n - f - 2 smallest squared distances to others; NaN counts as infinitely far."""
    distances = np.where(np.isnan(distances), np.inf, distances)
    np.fill_diagonal(distances, np.inf)
    nearest = np.sort(distances, axis=1)[:, : len(distances) - f - 2]
    return nearest.sum(axis=1)


def geometric_median(
    updates: Iterable[Any],
    weights: Sequence[float] | None = None,
    *,
    tolerance: float = 1e-9,
    iterations: int = 200,
    nan_policy: Literal["raise", "drop"] = "raise",
    threads: int | None = None,
) -> Any:
    """The point z with the smallest sum_i w_i ||x_i - z|| (Weiszfeld's iteration from the coordinate-wise median):

        z <- sum_i c_i x_i / sum_i c_i,   c_i = w_i / ||x_i - z||

    It ends when z moves by at most `tolerance` times the mean distance to the clients, or after `iterations` steps.
    Before a step would run into a client's own point, that point is tested: it is returned exactly if it is the
    minimiser (Vardi and Zhang, 2000), that is if the others pull with no more than its weight. z is held in float64.
    Clients with NaN or infinities are an error that names them, or are left out with nan_policy="drop".

    >>> import numpy as np
    >>> geometric_median([np.float64([0, 0]), np.float64([2, 0]), np.float64([1, 1]), np.float64([1, -1])]) + 0.0
    array([1., 0.])
    """
    batch = read(updates)
    check_choice("nan_policy", nan_policy, ("raise", "drop"))
    factors = np.ones(batch.clients) if weights is None else check_weights(weights, batch.clients)
    batch, present = finite_clients(batch, nan_policy, threads)
    factors = factors[present]
    if factors.max() == 0:
        raise AggregationError("All clients with finite updates have weight 0; at least one must be positive.")
    coefficients = weiszfeld(batch, factors, tolerance, iterations, threads)
    results, _ = kernel.reduce(batch, weights=coefficients, threads=threads)
    return batch.assemble(results)


def weiszfeld(batch: Batch, weights: np.ndarray, tolerance: float, iterations: int, threads: int | None) -> np.ndarray:
    """The coefficients c_i of the geometric median as a weighted mean of the clients."""
    center, _ = kernel.reduce(batch, trim=(batch.clients - 1) // 2, threads=threads, wide=True)
    coefficients, tested = weights, set[int]()
    for _ in range(iterations):
        distances = np.sqrt(kernel.squared_distances(batch, center, threads=threads))
        scale = float(weights @ distances) / float(weights.sum())
        nearest = int(np.argmin(np.where(weights > 0, distances, np.inf)))
        if nearest not in tested and distances[nearest] <= 0.1 * scale:
            tested.add(nearest)
            if is_minimiser(batch, weights, nearest, threads):
                return np.eye(batch.clients)[nearest]
        coefficients = weights / np.maximum(distances, 1e-12 * scale if scale > 0 else 1.0)
        coefficients = coefficients / coefficients.max()
        moved, _ = kernel.reduce(batch, weights=coefficients, threads=threads, wide=True)
        step = np.sqrt(sum(float(np.sum((new - old) ** 2)) for new, old in zip(moved, center, strict=True)))
        center = moved
        if step <= tolerance * scale:
            break
    return coefficients


def is_minimiser(batch: Batch, weights: np.ndarray, client: int, threads: int | None) -> bool:
    """Whether the others pull at x_i, by sum_j w_j (x_j - x_i) / ||x_j - x_i||, with no more than its own weight."""
    point, _ = kernel.reduce(batch.select([client]), wide=True, threads=threads)
    distances = np.sqrt(kernel.squared_distances(batch, point, threads=threads))
    here = distances == 0
    pull = np.where(here, 0.0, weights / np.where(here, 1.0, distances))
    total = float(pull.sum())
    if total == 0:
        return True
    mean, _ = kernel.reduce(batch, weights=pull, threads=threads, wide=True)
    strength = total * np.sqrt(sum(float(np.sum((m - p) ** 2)) for m, p in zip(mean, point, strict=True)))
    return bool(strength <= float(weights[here].sum()))


def finite_clients(batch: Batch, nan_policy: str, threads: int | None) -> tuple[Batch, list[int]]:
    """The clients with finite squared norms; the others are an error or left out."""
    norms = squared_norms(batch, threads)
    present = [i for i in range(batch.clients) if np.isfinite(norms[i])]
    bad = [i for i in range(batch.clients) if not np.isfinite(norms[i])]
    if bad and (nan_policy == "raise" or not present):
        raise AggregationError(
            f"Clients {shorten(bad)} sent NaN, infinities or values too large to square. Leave these clients out, or "
            'pass nan_policy="drop".'
        )
    return (batch.select(present) if bad else batch), present


def squared_norms(batch: Batch, threads: int | None) -> np.ndarray:
    """||x_i||^2 over all floating entries."""
    origin = [np.zeros(entry.arrays[0].shape) for entry in batch.floating()]
    return kernel.squared_distances(batch, origin, threads=threads)


def check_count(setting: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise AggregationError(f"{setting}={value!r} must be a whole number from {least} to {most}.")
