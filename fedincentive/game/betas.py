"""Which prices beta work: for individual rationality, for budgets, and for full contribution as an equilibrium."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Array
from .games import Game


@dataclass(frozen=True)
class Bound:
    """One agent's demand on beta: at least `low`, at most `high`, and why."""

    agent: str
    low: float
    high: float
    why: str

    def __str__(self) -> str:
        if self.low > self.high:
            return f"{self.agent}: {self.why} fails for every beta"
        ends = [f"beta >= {self.low:.6g}"] if self.low > 0.0 else []
        ends += [f"beta <= {self.high:.6g}"] if np.isfinite(self.high) else []
        return f"{self.agent}: {self.why} needs {' and '.join(ends)}"


@dataclass(frozen=True)
class BetaRange:
    """The betas every agent accepts, [low, high], or the demands that exclude each other."""

    low: float
    high: float
    blocking: tuple[Bound, ...]  # empty where the range is not

    @property
    def empty(self) -> bool:
        return self.low > self.high

    def __contains__(self, beta: float) -> bool:
        return self.low <= beta <= self.high

    def __str__(self) -> str:
        if self.empty:
            more = f"; and {len(self.blocking) - 5} more" if len(self.blocking) > 5 else ""
            return "none: " + "; ".join(str(bound) for bound in self.blocking[:5]) + more
        return f"[{self.low:.6g}, {'no limit' if np.isinf(self.high) else f'{self.high:.6g}'}]"


def advantage(s: Array) -> Array:
    """s_i - mean_{j != i} s_j: what one unit of beta pays each agent."""
    return s - (np.sum(s) - s) / (len(s) - 1)


def rational(game: Game, base: Array, outside: Array) -> list[Bound]:
    """base_i + beta (s_max_i - mean of the others) >= outside_i, base_i = v_i - c_i at s_max."""
    paid, missing = advantage(game.s_max), outside - base
    slack = 1e-9 * np.maximum(1.0, np.abs(base))
    bounds = []
    for i, name in enumerate(game.agents):
        low, high = 0.0, np.inf
        if paid[i] > 0.0 and missing[i] > 0.0:
            low = float(missing[i] / paid[i])
        elif paid[i] < 0.0 and missing[i] <= slack[i]:
            high = max(0.0, float(missing[i] / paid[i]))
        elif missing[i] > slack[i]:
            low, high = np.inf, 0.0  # it does not gain from beta and loses even without payment
        if low > 0.0 or np.isfinite(high):
            bounds.append(Bound(name, low, high, "individual rationality"))
    return bounds


def affordable(game: Game) -> list[Bound]:
    """beta (mean of the others - s_max_i) <= budget_i for everyone who pays."""
    if game.budget is None:
        return []
    paid = advantage(game.s_max)
    payers = np.flatnonzero((paid < 0.0) & np.isfinite(game.budget))
    return [Bound(game.agents[i], 0.0, float(game.budget[i] / -paid[i]), "its budget") for i in payers]


def combine(bounds: list[Bound]) -> BetaRange:
    """The intersection of all demands; where it is empty, the demands at its two ends and those nobody can meet."""
    low = max((b.low for b in bounds), default=0.0)
    high = min((b.high for b in bounds), default=np.inf)
    if low <= high:
        return BetaRange(low, high, ())
    hopeless = tuple(b for b in bounds if b.low > b.high)
    blocking = hopeless or tuple(b for b in bounds if b.low > high or b.high < low)
    return BetaRange(low, high, blocking)
