"""Rules about how many useful points each agent needs: one-for-one (Blum et al. 2021), pay-what-you-contribute.

    one-for-one:  s_i = clip(need_i - spill_i sum_{j != i} s_j, 0, s_max_i), a fixed point
    pwyc:         min c.s  with  s_i + spill_i sum_{j != i} s_j >= need_i;   the treasury pays c_i s_i
"""

from __future__ import annotations

import numpy as np

from ..game.arrays import Array
from .base import Moves, Posting, Promise, Reports, Row, points, texts, useful
from .stage import CLOSE, SWEEPS, Stage, peaks


class _Needs(Row):
    chooses = False

    def suits(self, stage: Stage) -> str:
        return super().suits(stage) or ("" if stage.shared is not None else "needs a data-value game")


class OneForOne(_Needs):
    """Everyone adds what the others leave it short of."""

    name, source, asks = "one-for-one", "Blum et al. 2021 (arXiv 2103.03228), recalled", ("need",)
    promises = (
        Promise("needs met", ("needs within reach",)),
        Promise("envy-free", ("needs within reach",), "no swap with a smaller s keeps the need"),
        Promise("truthful", ("threshold utility",)),
        Promise("budget balanced"),
    )

    def moves(self, stage: Stage, reports: Reports, start: Array | None = None) -> Moves:
        s = np.zeros(stage.n) if start is None else np.array(start)
        for sweep in range(1, SWEEPS + 1):
            before = s.copy()
            for i in range(stage.n):
                s[i] = np.clip(reports.need[i] - stage.spill[i] * (s.sum() - s[i]), 0.0, stage.s_max[i])
            if np.all(np.abs(s - before) <= CLOSE * stage.s_max):
                break
        return Moves(s, sweep, 2 * stage.n * sweep)


class PayWhatYouContribute(_Needs):
    """Procaccia et al. 2025: the cheapest assignment that meets all needs, costs paid back."""

    name, source, asks = "pwyc", "Procaccia et al. 2025 (arXiv 2509.21612); needs stand for its hypothesis pairs", ("need", "c")
    promises = (
        Promise("needs met"),
        Promise("budget balanced", note="the paper's Table 1"),
        Promise("truthful", ("threshold utility", "costs known")),
    )

    def moves(self, stage: Stage, reports: Reports, start: Array | None = None) -> Moves:
        return Moves(cheapest(stage, reports.c, reports.need), 1, 2 * stage.n)

    def pays(self, stage: Stage, reports: Reports, S: Array) -> Array:
        return reports.c * S

    def named(self, stage: Stage, reports: Reports, held: Array) -> Array:
        return (held * reports.c).sum(axis=1)

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        return [("reimburse/1", {"rates": texts(stage, reports.c), "points": points(stage, s), "scale": 10**6})]


def cheapest(stage: Stage, c: Array, need: Array) -> Array:
    """argmin c.s with E_i(s) >= need_i in the box; a need beyond reach counts as all there is.

    With the sum of s fixed every agent has a least contribution, and the rest is filled cheapest first; the cost is
    convex in that sum, so a search over one number solves the linear programme.
    """
    need = np.minimum(need, useful(stage, stage.s_max))
    spill, most, order = stage.spill, stage.s_max, np.argsort(c, kind="stable")
    room = np.where(spill < 1.0, 1.0 - spill, 1.0)

    def least(total: Array) -> Array:
        short = need - spill * total[:, None]
        own = np.where(spill < 1.0, short / room, np.where(short > 1e-12 * np.maximum(need, 1.0), np.inf, 0.0))
        return np.maximum(own, 0.0)

    def filled(total: Array) -> Array:
        s = np.minimum(least(total), most)
        left = np.maximum(total - s.sum(axis=1), 0.0)
        for i in order:
            more = np.minimum(left, most[i] - s[:, i])
            s[:, i] += more
            left = left - more
        return s

    low, high = 0.0, float(most.sum())
    for _ in range(100):  # the smallest sum that is feasible: every least contribution fits, and so do all together
        middle = np.array([0.5 * (low + high)])
        own = least(middle)[0]
        fits = np.all(own <= most * (1.0 + 1e-12)) and own.sum() <= middle[0]
        low, high = (low, float(middle[0])) if fits else (float(middle[0]), high)
    room_above = np.array([max(float(most.sum()) - high, 0.0)])
    extra, _ = peaks(lambda T: -(filled(high + T[:, 0]) * c).sum(axis=1, keepdims=True), room_above)
    return filled(high + extra)[0]
