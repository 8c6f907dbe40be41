"""Rules that choose clients by the distances between them: Krum and multi-Krum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from ..errors import AggregationError
from .coordinatewise import check_choice, shorten
from .tiles import StoredBatch, gather
from .updates import Batch, read

Convention = Literal["paper", "byzfl"]
FEWER = {"paper": 2, "byzfl": 1}  # neighbours than n - f


def krum(updates: Iterable[Any], f: int, *, convention: Convention = "paper", threads: int | None = None) -> Any:
    """The update closest to its neighbours (Blanchard et al., 2017): the client i with the smallest

        score(i) = sum of ||x_i - x_j||^2 over the n - f - 2 clients j != i nearest to i

    `f` is the number of clients that may be malicious; n >= 2f + 3 is required. The convention is the paper's, and
    Flower's: n - f - 2 neighbours, i itself not counted. With convention="byzfl" it is that library's: n - f - 1
    neighbours, and n >= 2f + 1. Ties go to the first client. A client that sends NaN or infinities is infinitely far
    from all and is never chosen.

    >>> import numpy as np
    >>> krum([np.float64([v]) for v in (1.0, 1.1, 1.2, 1.3, 50.0)], f=1)
    array([1.1])
    """
    return multi_krum(updates, f, 1, convention=convention, threads=threads)


def multi_krum(
    updates: Iterable[Any],
    f: int,
    m: int | None = None,
    *,
    convention: Convention = "paper",
    threads: int | None = None,
) -> Any:
    """The plain mean of the m updates with the smallest Krum scores (see `krum`); m defaults to n - f.

    >>> import numpy as np
    >>> multi_krum([np.float64([v]) for v in (1.0, 1.5, 2.0, 2.5, 50.0)], f=1)
    array([1.75])
    """
    with gather(updates) as batch:
        return batch.average(krum_selection(batch, f, m, convention=convention, threads=threads), threads=threads)


def krum_selection(
    updates: Iterable[Any] | Batch | StoredBatch,
    f: int,
    m: int | None = None,
    *,
    convention: Convention = "paper",
    threads: int | None = None,
) -> list[int]:
    """Which m clients have the smallest Krum scores, in client order: for callers that average them in their own way.

    >>> import numpy as np
    >>> krum_selection([np.float64([v]) for v in (50.0, 1.0, 1.5, 2.0, 2.5)], f=1, m=2)
    [2, 3]
    """
    batch = updates if isinstance(updates, (Batch, StoredBatch)) else read(updates)
    n = batch.clients
    check_choice("convention", convention, list(FEWER))
    check_f("Krum", f, n, "2f + 3" if convention == "paper" else "2f + 1")
    m = n - f if m is None else m
    check_count("m", m, 1, n)
    neighbours = n - f - FEWER[convention]
    scores = krum_scores(batch.squared_distances(threads=threads), neighbours)
    chosen = sorted(int(i) for i in np.argsort(scores, kind="stable")[:m])
    bad = [i for i in chosen if not np.isfinite(scores[i])]
    if bad:
        raise AggregationError(
            f"Only {m - len(bad)} of the {m} clients to choose have finite distances to {neighbours} others; "
            f"clients {shorten(bad)} or their neighbours sent NaN, infinities or values too large to square."
        )
    return chosen


def krum_scores(distances: np.ndarray, neighbours: int) -> np.ndarray:
    """Per client the sum of its smallest squared distances to others; NaN counts as infinitely far."""
    distances = np.where(np.isnan(distances), np.inf, distances)
    np.fill_diagonal(distances, np.inf)
    nearest = np.sort(distances, axis=1)[:, :neighbours]
    return nearest.sum(axis=1)


def finite_clients(batch: Batch | StoredBatch, nan_policy: str, threads: int | None, center: bool = False) -> list[int]:
    """The clients with finite squared norms; others are an error or left out. A center, the last, must be finite."""
    norms = batch.squared_norms(threads=threads)
    if center and not np.isfinite(norms[-1]):
        raise AggregationError("The center has NaN, infinities or values too large to square.")
    present = [i for i in range(batch.clients) if np.isfinite(norms[i])]
    bad = [batch.whose(i) for i in range(batch.clients) if not np.isfinite(norms[i])]
    if bad and (nan_policy == "raise" or not present):
        raise AggregationError(
            f"Clients {shorten(bad)} sent NaN, infinities or values too large to square. Leave these clients out, or "
            'pass nan_policy="drop".'
        )
    return present


def check_count(setting: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise AggregationError(f"{setting}={value!r} must be a whole number from {least} to {most}.")


def check_f(name: str, f: int, n: int, least: str = "2f + 1") -> None:
    """Refuse more liars than a rule can withstand; `least` says how many clients it needs."""
    check_count("f", f, 0, n)
    times, more = least.split("f + ")
    if n < int(times) * f + int(more):
        raise AggregationError(f"{name} needs n >= {least} clients. Got f={f}, n={n}.")
