"""What hosts log after every round: plain numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..aggregation import median
from ..aggregation.native import thread_count
from ..entry import RESERVED, TREASURY
from ..mechanisms import Mechanism
from ..messages import Update
from ..run import Answer, Run

FAR = 3.0  # times the median distance
SAMPLE = 2**14  # coordinates of each array that the median is taken of
PIECE = 2**16  # of a difference, so that it stays in the processor's cache
MUCH = 2**22  # numbers, from which on threads are worth it


def far(updates: Sequence[Update], d: Update) -> list[int]:
    """Which updates are more than three times as far from the aggregate d as half of them are, or from their median:
    where too many are bad, they draw the aggregate to themselves.

    >>> one, off = {"w": np.ones(2)}, {"w": np.full(2, -5.0)}
    >>> far([one, {"w": np.full(2, 1.1)}, off, one, {"w": np.full(2, 0.9)}], one)
    [2]
    """
    names = [name for name in d if np.issubdtype(d[name].dtype, np.floating)]
    some = [{n: np.ravel(u[n])[:: 1 + d[n].size // SAMPLE] for n in names} for u in updates]
    middle = median([{n: np.ascontiguousarray(one[n]) for n in names} for one in some]) if names else {}
    whole = [{n: u[n] for n in names} for u in updates]
    return sorted(_beyond(distances(some, middle)) | _beyond(distances(whole, d)))


def _beyond(away: np.ndarray) -> set[int]:
    return set(np.flatnonzero(away > FAR * np.median(away)).tolist())


def distances(updates: Sequence[Update], center: Update) -> np.ndarray:
    """Of each update to the center, which is read once for all of them; with all cores where there is much to read."""
    squares = np.zeros(len(updates))

    def add(clients: Sequence[int]) -> None:
        for name in updates[0]:
            given, other = [(i, np.ravel(updates[i][name])) for i in clients], np.ravel(center[name])
            piece = np.empty(min(PIECE, other.size), np.result_type(other, given[0][1]))
            for start in range(0, other.size, PIECE):
                here = other[start : start + PIECE]
                for i, mine in given:
                    off = np.subtract(mine[start : start + PIECE], here, out=piece[: here.size])
                    squares[i] += float(np.dot(off, off))

    n = len(updates)
    workers = min(thread_count(), n) if n * sum(center[name].size for name in updates[0]) >= MUCH else 1
    shares = [range(first, n, workers) for first in range(workers)]
    if workers == 1:
        add(shares[0])
    else:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(add, shares))
    return np.sqrt(squares)


def metrics(
    run: Run,
    mechanism: Mechanism,
    reports: Mapping[str, Answer],
    absent: Collection[str],
    paid: Mapping[str, int],
    d: Update | None,
) -> dict[str, float]:
    """Contributions, payments and the welfare of the reported valuations, once every agent has reported one."""
    settings = run.settings
    total = sum(run.s.values()) / settings.scale
    found = {
        "answered": float(len(reports)),
        "absent": float(len(absent)),
        "contribution": total,
        "contribution_share": total * settings.scale / sum(run.s_max.values()),
        "paid": sum(a for account, a in paid.items() if a > 0 and account not in RESERVED) / settings.minor,
        "treasury": run.balances.get(TREASURY, 0) / settings.minor,
    }
    if run.n == len(run.valuations):
        found["welfare"] = sum(run.valuations.values()) / settings.minor
    for payment in mechanism.payments if d is not None and mechanism.values else ():
        found |= payment.metrics(run, d or {})
    return found
