"""The midpoint of the middle: half of the smallest plus the largest value once f are cut on each side."""

from __future__ import annotations

import numpy as np

from fedincentive.aggregation.rules import Rule, named


def midpoint(updates, f):
    def middle(arrays):
        ordered = np.sort(np.stack(arrays), axis=0)
        return ((ordered[f] + ordered[-f - 1]) / 2).astype(ordered.dtype)

    if isinstance(updates[0], dict):
        return {name: middle([update[name] for update in updates]) for name in updates[0]}
    return middle(updates)


MIDPOINT = Rule(
    "midpoint",
    midpoint,
    named("f"),  # the common options it takes; a run gives f from incentive.alpha
    least=lambda n, f: 2 * f + 1,
    conventions="Values f + 1 and n - f of each coordinate, in order, and their mean.",
)
