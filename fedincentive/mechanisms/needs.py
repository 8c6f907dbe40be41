"""Assigned contributions: one-for-one (Blum et al. 2021) and pay-what-you-contribute (Procaccia et al. 2025).

E_i = s_i + spillover_i sum_{j != i} s_j        the points that are useful to i

one-for-one:               s_i = clip(need_i - spillover_i sum_{j != i} s_j, 0, s_max_i), a fixed point
pay-what-you-contribute:   min c.s with E_i >= need_i; the treasury pays c_i s_i
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..errors import SettingError
from ..game import DataValue, Game
from ..messages import Phase
from ..payments import Promises, Reimburse, quantise
from ..run import Run
from ..settings import Settings
from .base import Mechanism, with_costs
from .shaping import StandAlone

Array = NDArray[np.float64]
HALVINGS = 100


def useful(s: Array, spill: Array) -> Array:
    return s + spill * (s.sum(axis=-1, keepdims=True) - s)


def one_for_one(need: Array, spill: Array, s_max: Array) -> Array:
    """The fixed point: what everyone gives falls with the sum of all, so one sum fits, found by halving.

    Where spill_i is 1 only the sum serves i: of those whose need is just that sum the first give what is missing.

    >>> one_for_one(np.array([4.0, 1.0]), np.ones(2), np.array([9.0, 9.0]))
    array([4., 0.])
    """
    own = spill < 1.0

    def given(total: float) -> Array:
        alone = np.where(need > total, np.inf, 0.0)
        return np.clip(np.where(own, (need - spill * total) / np.where(own, 1.0 - spill, 1.0), alone), 0.0, s_max)

    low, high = 0.0, float(s_max.sum())
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if given(middle).sum() > middle else (low, middle)
    s, most = given(high), given(low)
    for i in range(len(s)):
        s[i] += min(most[i] - s[i], max(high - float(s.sum()), 0.0))
    return s


def cheapest(c: Array, need: Array, spill: Array, s_max: Array) -> Array:
    """argmin c.s with E_i >= need_i and 0 <= s <= s_max; a need beyond reach counts as all there is.

    With the sum of s fixed every agent has a least contribution, and the rest is filled cheapest first; the cost is
    convex in that sum, so a search over one number solves the linear programme.

    >>> cheapest(np.array([1.0, 2.0]), np.array([3.0, 5.0]), np.array([1.0, 0.5]), np.array([9.0, 9.0])).round(6)
    array([9. , 0.5])
    """
    need, order = np.minimum(need, useful(s_max, spill)), np.argsort(c, kind="stable")
    own = spill < 1.0

    def least(total: float) -> Array:
        short = need - spill * total
        alone = np.where(short > 1e-12 * np.maximum(need, 1.0), np.inf, 0.0)  # spill 1: only the sum serves it
        return np.maximum(np.where(own, short / np.where(own, 1.0 - spill, 1.0), alone), 0.0)

    def filled(total: float) -> Array:
        s = np.minimum(least(total), s_max)
        left = max(total - float(s.sum()), 0.0)
        for i in order:
            more = min(left, s_max[i] - s[i])
            s[i], left = s[i] + more, left - more
        return s

    low, high = 0.0, float(s_max.sum())
    for _ in range(HALVINGS):  # the smallest sum in which every least contribution fits, and all together
        middle = 0.5 * (low + high)
        wanted = least(middle)
        fits = bool(np.all(wanted <= s_max * (1.0 + 1e-12))) and float(wanted.sum()) <= middle
        low, high = (low, middle) if fits else (middle, high)
    left, right = high, float(s_max.sum())
    for _ in range(120):
        a, b = left + (right - left) / 3.0, right - (right - left) / 3.0
        left, right = (left, b) if c @ filled(a) <= c @ filled(b) else (a, right)
    return min((filled(total) for total in (high, left, right)), key=lambda s: float(c @ s))


class _Assigned(Mechanism):
    """Everyone gives what the rule assigns it from stated needs."""

    def assign(self, run: Run, need: Array, spill: Array, s_max: Array) -> Array:
        raise NotImplementedError

    @classmethod
    def prepared(cls, settings: Settings, game: Game) -> Settings:
        """Where no need is stated, agents of a data-value game state what the league's do, and their own spillover:
        half more points than they would train on alone, and one, but no more than there are."""
        settings = with_costs(settings, game)
        if settings.need is not None or not isinstance(game.valuation, DataValue):
            return settings
        spill = np.broadcast_to(game.valuation.spill, (game.n,)).astype(float)
        alone = StandAlone.of(cls.name, settings, game).targets
        need = np.minimum(1.5 * alone + 1.0, useful(game.s_max, spill))
        needs, spills = (dict(zip(game.agents, x.tolist(), strict=True)) for x in (need, spill))
        return replace(settings, need=needs, spillover=spills)

    def start(self, run: Run) -> Phase:
        settings = run.settings
        if settings.need is None:
            raise SettingError(
                f"Mechanism {self.name!r} assigns points by need: set incentive.need, for all or by agent."
            )
        need = np.array([_of(settings.need, "need", agent) for agent in run.agents])
        spill = np.array([_of(settings.spillover, "spillover", agent) for agent in run.agents])
        if np.any(spill > 1.0):
            raise SettingError(
                "incentive.spillover must be between 0 and 1: another's point is worth at most one's own."
            )
        s_max = np.array([run.limits[agent] for agent in run.agents])
        given = self.assign(run, need, spill, s_max)
        run.s = {
            a: min(quantise(float(x), settings.scale), run.s_max[a]) for a, x in zip(run.agents, given, strict=True)
        }
        return "train"

    def claims(self) -> Promises:
        return Promises(disclaimed={"equilibrium": "contributions are assigned from stated needs, which may be lies"})


class OneForOneMechanism(_Assigned):
    name = "one-for-one"

    def assign(self, run: Run, need: Array, spill: Array, s_max: Array) -> Array:
        return one_for_one(need, spill, s_max)


class PayWhatYouContributeMechanism(_Assigned):
    """Not budget balanced: the treasury pays every cost."""

    name = "pay-what-you-contribute"
    pays = (Reimburse,)

    def assign(self, run: Run, need: Array, spill: Array, s_max: Array) -> Array:
        return cheapest(np.array([run.settings.cost_of(agent) for agent in run.agents]), need, spill, s_max)


def _of(given: float | Mapping[str, float], name: str, agent: str) -> float:
    if not isinstance(given, Mapping):
        return float(given)
    if agent not in given:
        raise SettingError(f"incentive.{name} has no number for agent {agent!r}; known: {', '.join(given)}.")
    return float(given[agent])
