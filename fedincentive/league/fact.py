"""FACT (Bornstein et al. 2024): a penalty makes t*(c^) the best contribution, a sandwich game rewards the middle cost.

m* = t*(c^),   D_i = V_i - A_i at m*,   K = (c^ - V_i')/(2 lam),   lam = (c^ - V_i')^2 / (4 (1 - alpha/2) D_i)
i pays its fee D_i and the penalty lam (K + m* - s_i)^2
agents are drawn into threes; the strictly middle c^ wins (3/n) sum_{j != i} D_j
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..game.arrays import Array
from .base import LeagueRow, Posting, Promise, Reports, by_agent
from .stage import Stage

ALPHA = 1.9
COST_UNIT = 10**12  # costs per point are small; the trios compare whole numbers


class FactRow(LeagueRow):
    name, source, asks = "fact", "Bornstein et al. 2024 (arXiv 2405.13879), as in the authors' code", ("c",)
    promises = (
        Promise("equilibrium", ("fit 0",)),
        Promise("treasury never pays", ("n divisible by 3",)),
        Promise("individually rational", ("fit 0",)),
        Promise("truthful", note="DSIC in the paper's Table 1"),
        Promise("full contribution", note="the paper's Table 1"),
    )

    def suits(self, stage: Stage) -> str:
        if stage.n < 3:
            return "trios need three agents"
        return super().suits(stage) or (
            "" if stage.game.valuation.alone(stage.s_max) is not None else "A_i is not known"
        )

    @staticmethod
    @lru_cache(maxsize=8)
    def terms(stage: Stage, reports: Reports) -> tuple[Array, Array, Array, Array]:
        """(m*, fee D, lam, K) from what is reported; nobody with nothing to gain is charged."""
        m = stage.alone_best(reports.c)
        fee = np.maximum(stage.values(m) - stage.alone(m), 0.0)
        # A_i'(m*) is c^ unless m* is all there is; without it whoever reports no cost would be held to nothing.
        h = 1e-6 * stage.s_max
        rising = np.where(m >= stage.s_max - h, (stage.alone(m) - stage.alone(m - h)) / h, 0.0)
        gap = np.maximum(np.maximum(reports.c, rising) - stage.slopes(m), 0.0)
        charged = (fee > 0.0) & (gap > 0.0)
        lam = np.where(charged, gap**2 / np.where(charged, 4.0 * (1.0 - ALPHA / 2.0) * fee, 1.0), 0.0)
        return m, fee, lam, np.where(charged, gap / np.where(charged, 2.0 * lam, 1.0), 0.0)

    def chances(self, c: Array) -> Array:
        """P(i's cost is strictly between those of two others), drawn at random: its chance to win."""
        mine, theirs = c[..., :, None], c[..., None, :]
        lower, higher, n = (theirs < mine).sum(axis=-1), (theirs > mine).sum(axis=-1), c.shape[-1]
        threes = (n // 3) * 3 / n  # the chance to be in a trio at all
        return threes * lower * higher / ((n - 1) * (n - 2) / 2.0)

    def pays(self, stage: Stage, reports: Reports, S: Array) -> Array:
        """In expectation over the trios."""
        m, fee, lam, k = self.terms(stage, reports)
        prize = 3.0 / stage.n * (fee.sum(axis=-1, keepdims=True) - fee) * self.chances(reports.c)
        return prize - fee - lam * (k + m - S) ** 2

    def named(self, stage: Stage, reports: Reports, held: Array) -> None:
        return None  # D_i of a name without a valuation of its own is not defined

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        m, fee, lam, k = self.terms(stage, reports)
        penalty = lam * (k + m - s) ** 2
        costs = by_agent(stage, reports.c, COST_UNIT)
        told = {"fees": by_agent(stage, fee), "penalties": by_agent(stage, penalty), "costs": costs, "seed": str(seed)}
        return [("sandwich/1", told)]
