"""Weights as shares of the whole: capped, so that a liar cannot buy mass, and checked before they are trimmed by.

Whoever trims the share a of the weight from both ends of every coordinate cannot be moved outside the range of the
honest values by clients that hold at most a together. That is as far as any rule goes: a client with more than half of
the weight decides alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import AggregationError


def shares_of(weights: np.ndarray, cap: float | None, names: Sequence[str]) -> np.ndarray:
    """Each client's part of all weight, none above the cap; one above 1/2 is refused by name.

    >>> shares_of(np.array([6.0, 2.0, 2.0]), 0.5, "abc")
    array([0.5 , 0.25, 0.25])
    """
    shares = weights / weights.sum() if cap is None else capped(weights, cap)
    largest = int(np.argmax(shares))
    if shares[largest] > 0.5 + 1e-12 and len(shares) > 1:
        raise AggregationError(
            f"Client {names[largest]} holds {100 * shares[largest]:.4g} % of the weight: above 1/2 it decides alone, "
            "and nothing protects the others from it. Give a cap of 0.5 or less."
        )
    return shares


def capped(weights: np.ndarray, cap: float) -> np.ndarray:
    """Shares of the weights cut off at the height that leaves nobody with more than `cap` of what remains."""
    total = np.count_nonzero(weights)
    if not 0 < cap <= 1 or cap * total < 1 - 1e-12:
        raise AggregationError(
            f"cap={cap:g} must be at most 1 and at least 1/{total}: the {total} clients with a weight share all of it."
        )
    order = np.argsort(-weights, kind="stable")
    rest = weights.sum() - np.concatenate([[0.0], np.cumsum(weights[order])[:-1]])  # from the j-th largest on
    for j, client in enumerate(order):
        # with the j largest at the cap, those below share 1 - j cap
        below = max(0.0, 1 - j * cap)
        if rest[j] <= 0 or weights[client] / rest[j] * below <= cap * (1 + 1e-12):
            shares = weights * (below / rest[j] if rest[j] > 0 else 0.0)
            shares[order[:j]] = cap
            return shares / shares.sum()
    return np.full(len(weights), 1 / len(weights))
