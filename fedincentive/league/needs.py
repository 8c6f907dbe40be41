"""Rules about how many useful points each agent needs: one-for-one (Blum et al. 2021), pay-what-you-contribute.

one-for-one:  s_i = clip(need_i - spill_i sum_{j != i} s_j, 0, s_max_i), a fixed point
pwyc:         min c.s  with  s_i + spill_i sum_{j != i} s_j >= need_i;   the treasury pays c_i s_i
"""

from __future__ import annotations

import numpy as np

from ..game.arrays import Array
from ..mechanisms.needs import cheapest, one_for_one
from .base import LeagueRow, Moves, Posting, Promise, Reports, points, texts
from .stage import Stage


class _Needs(LeagueRow):
    chooses = False

    def moves(self, stage: Stage, reports: Reports, start: Array | None = None) -> Moves:
        if reports.c.ndim == 1:
            return self.assign(stage, reports)
        rows = [self.assign(stage, reports.row(k)) for k in range(len(reports.c))]
        return Moves(np.array([row.s for row in rows]), rows[0].rounds, rows[0].messages)

    def assign(self, stage: Stage, reports: Reports) -> Moves:
        raise NotImplementedError

    def suits(self, stage: Stage) -> str:
        return super().suits(stage) or ("" if stage.shared is not None else "needs a data-value game")


class OneForOne(_Needs):
    """Everyone adds what the others leave it short of."""

    name, asks = "one-for-one", ("need",)
    source = "Blum et al. 2021 (arXiv 2103.03228), abstract checked, rule recalled"
    promises = (
        Promise("needs met", ("needs within reach",)),
        Promise("envy-free", ("needs within reach",), "no swap with a smaller s keeps the need"),
        Promise("truthful", ("threshold utility",)),
        Promise("budget balanced"),
    )

    def assign(self, stage: Stage, reports: Reports) -> Moves:
        return Moves(one_for_one(reports.need, stage.spill, stage.s_max), 1, 2 * stage.n)


class PayWhatYouContribute(_Needs):
    """Procaccia et al. 2025: the cheapest assignment that meets all needs, costs paid back."""

    name, asks = "pwyc", ("need", "c")
    source = "Procaccia et al. 2025 (arXiv 2509.21612), abstract checked, the rest recalled; one need for its pairs"
    promises = (
        Promise("needs met"),
        Promise("budget balanced", note="the paper's Table 1"),
        Promise("truthful", ("threshold utility", "costs known")),
    )

    def assign(self, stage: Stage, reports: Reports) -> Moves:
        return Moves(cheapest(reports.c, reports.need, stage.spill, stage.s_max), 1, 2 * stage.n)

    def pays(self, stage: Stage, reports: Reports, S: Array) -> Array:
        return reports.c * S

    def named(self, stage: Stage, reports: Reports, held: Array) -> Array:
        return (held * reports.c).sum(axis=1)

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        return [("reimburse/1", {"rates": texts(stage, reports.c), "points": points(stage, s), "scale": 10**6})]
