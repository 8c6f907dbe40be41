"""FedBR-BG (Murhekar et al., NeurIPS 2023): costs are shared, p_i = beta (c_i s_i - mean_{j != i} c_j s_j).

beta = 1 - 1/n shares all costs equally, u_i = V_i - sum c s / n, and is what makes welfare maximal on one common curve.
Unofficial code takes a smaller beta for linear costs that differ (`root_of_costs`). Whoever overstates its cost is paid
more, without limit.
"""

from __future__ import annotations

import numpy as np

from ..game.arrays import Array
from .base import LeagueRow, Posting, Promise, Reports, compared, points, texts
from .stage import Stage


def root_of_costs(c: Array) -> float:
    """The root in [0, 1 - 1/n] of C b^2 - (A n (n-2) + C) b + A (n-1)^2, A = 1 / sum(1/c), C = sum c.

    >>> round(root_of_costs(np.full(4, 0.3)), 9)
    0.75
    """
    n, total = len(c), float(c.sum())
    if np.any(c <= 0.0) or total <= 0.0:
        return 0.0  # whoever has no cost makes A = 0
    a = 1.0 / float(np.sum(1.0 / c))
    middle = a * n * (n - 2) + total
    root = np.sqrt(max(middle**2 - 4.0 * total * a * (n - 1) ** 2, 0.0))
    return float(np.clip((middle - root) / (2.0 * total), 0.0, 1.0 - 1.0 / n))


class SharedCosts(LeagueRow):
    """Budget-balanced FedBR."""

    name, source, asks = "fedbr-bg", "Murhekar et al. 2023; equal sharing of costs, recalled", ("c",)
    promises = (
        Promise("budget balanced"),
        Promise("equilibrium"),
        Promise("maximal p-means", ("common curve",), "every p-mean of welfare is maximal in equilibrium"),
        Promise("truthful", ("costs known",)),
    )

    def _rates(self, reports: Reports) -> Array:
        return (1.0 - 1.0 / reports.c.shape[-1]) * reports.c

    def pays(self, stage: Stage, reports: Reports, S: Array) -> Array:
        return compared(self._rates(reports) * S)

    def named(self, stage: Stage, reports: Reports, held: Array) -> Array:
        return compared((held * self._rates(reports)).sum(axis=1))  # beta is published before names enrol

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        rates = texts(stage, self._rates(reports))
        return [("relative/1", {"rates": rates, "amounts": points(stage, s), "unit": 10**6})]
