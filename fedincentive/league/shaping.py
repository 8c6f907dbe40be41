"""Accuracy shaping (Karimireddy et al. 2022) and RealFM (Bornstein et al. 2023): a degraded model instead of money.

    level_i = min(V_i, A_i(s_i))                                 up to t*(c^), what i would train on alone
            = min(V_i, A_i(t*) + (c^ + eps) (s_i - t*))          beyond it: a further point just pays for itself

RealFM grants accuracy: value is phi(a), and the grant solves its second-order expansion,
g = (-phi' + sqrt(phi'^2 + 2 phi'' (c^ + eps) (s_i - t*))) / phi''.
"""

from __future__ import annotations

import numpy as np

from ..game.arrays import Array
from ..payments.levels import taylor
from .base import LeagueRow, Posting, Promise, Reports, by_agent
from .stage import Stage

EPSILON = 0.01  # of the cost: how much a further point pays beyond itself


class Shaping(LeagueRow):
    """Exact in value."""

    name, source, asks = (
        "shaping",
        "Karimireddy et al. 2022 (arXiv 2207.04557), abstract checked, rule recalled",
        ("c",),
    )
    promises = (
        Promise("no payments"),
        Promise("individually rational", ("fit 0",)),
        Promise("equilibrium", ("fit 0",)),
        Promise("full contribution", note="data maximisation"),
        Promise("truthful", ("costs known",)),
    )

    def suits(self, stage: Stage) -> str:
        return super().suits(stage) or (
            "" if stage.game.valuation.alone(stage.s_max) is not None else "A_i is not known"
        )

    def cap(self, stage: Stage, reports: Reports, S: Array) -> Array:
        t = stage.alone_best(reports.c)
        return self.grant(stage, stage.alone(np.minimum(S, t)), (1.0 + EPSILON) * reports.c * np.maximum(S - t, 0.0))

    def grant(self, stage: Stage, level: Array, worth: Array) -> Array:
        return level + worth

    def levels(self, stage: Stage, reports: Reports, S: Array, T: Array) -> Array:
        return np.minimum(stage.values(T), self.cap(stage, reports, S))

    def named(self, stage: Stage, reports: Reports, held: Array) -> None:
        return None  # a second name gets a second model, which is worth nothing to its owner

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        return [("level/1", {"levels": by_agent(stage, self.levels(stage, reports, s, s))})]


class RealFM(Shaping):
    """Expanded in accuracy, with phi(a) = 1/(1-a)^2 - 1 over the value of no data, as in the authors' code."""

    name, source = "realfm", "Bornstein et al. 2023 (arXiv 2310.13681), grant and phi as in the authors' code"

    def suits(self, stage: Stage) -> str:
        if why := super().suits(stage):
            return why
        return "" if np.isfinite(stage.alone(np.zeros(stage.n))).all() else "the value of no data is not finite"

    def grant(self, stage: Stage, level: Array, worth: Array) -> Array:
        return taylor(stage.alone(np.zeros(stage.n)), level, worth)
