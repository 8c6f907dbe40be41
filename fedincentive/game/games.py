"""The game: who plays, what each agent values, what it pays in effort, and how far it can go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import GameError
from ..payments import Payment, felt
from .arrays import Array, per_agent, vector
from .costs import Cost, LinearCost
from .valuations import SharedError, Valuation

Pay = float | Payment | Sequence[Payment]
NEAR = 1e-11  # of s_max: more than the rounding of ten thousand steps, far less than a data point


@dataclass(frozen=True, eq=False)
class Game:
    """n agents, each choosing a contribution s_i in [0, s_max_i], around one model w in R^m.

        u_i(w, s) = v_i(w, s) - c_i(s) + p_i(s)

    `pay` is the payments p that agents feel, none by default; a number stands for the contribution payment with that
    price beta. All methods return one entry per agent.

    >>> game = paper_example()
    >>> game.utilities(game.w0, np.array([0.0, 5.0]))
    array([0.9, 0.8])
    """

    agents: tuple[str, ...]
    valuation: Valuation
    cost: Cost
    s_max: Array
    s0: Array
    w0: Array
    outside_option: Array | None = None  # what each agent has by not taking part
    budget: Array | None = None  # the most each agent can pay over the run (inf: no limit)

    def __post_init__(self) -> None:
        n = len(self.agents)
        _check_names(self.agents)
        object.__setattr__(self, "agents", tuple(self.agents))
        object.__setattr__(self, "s_max", per_agent("s_max", self.s_max, n, low=0.0))
        object.__setattr__(self, "s0", per_agent("s0", self.s0, n, low=0.0))
        object.__setattr__(self, "w0", vector("w0", self.w0))
        if self.w0.ndim != 1:
            raise GameError(f"w0 must be one row of model parameters, but has shape {self.w0.shape}.")
        if self.outside_option is not None:
            object.__setattr__(self, "outside_option", per_agent("outside_option", self.outside_option, n))
        if self.budget is not None:
            limited = np.array(self.budget, dtype=np.float64)
            per_agent("budget", np.where(np.isposinf(limited), 0.0, limited), n, low=0.0)
            object.__setattr__(self, "budget", np.broadcast_to(limited, (n,)).copy())
        self.valuation.check(n, self.m)
        self.check(self.s0, "s0")
        for what, result in (("value", self.values(self.w0, self.s0)), ("slope", self.slopes(self.w0, self.s0))):
            if result.shape != (n,) or not np.isfinite(result).all():
                raise GameError(
                    f"The {what} of the game at (w0, s0) is {result!r}: it needs {n} finite numbers, one per agent."
                )

    @property
    def n(self) -> int:
        return len(self.agents)

    @property
    def m(self) -> int:
        return len(self.w0)

    def check(self, s: Any, name: str = "s") -> Array:
        """`s` as a point of the game, or a GameError that names the first agent outside [0, s_max]."""
        s = per_agent(name, s, self.n)
        outside = np.flatnonzero((s < 0.0) | (s > self.s_max))
        if outside.size:
            i = int(outside[0])
            raise GameError(
                f"{name} of agent {self.agents[i]!r} is {s[i]:g}: "
                f"it must be between 0 and its s_max = {self.s_max[i]:g}."
            )
        return s

    def starting_at(self, *, s0: Any = None, w0: Any = None) -> Game:
        """The same game from another starting point."""
        return replace(self, s0=self.s0 if s0 is None else s0, w0=self.w0 if w0 is None else w0)

    def values(self, w: Array, s: Array) -> Array:
        return self.valuation.value(w, s)

    def costs(self, s: Array) -> Array:
        return self.cost.value(s)

    def payments(self, s: Array, pay: Pay = ()) -> Array:
        """p_i(s) in floats, for analysis; exact amounts are the payments' own."""
        return sum((p.floats(self.agents, s) for p in self._felt(pay)), start=np.zeros(self.n))

    def utilities(self, w: Array, s: Array, pay: Pay = ()) -> Array:
        return self.values(w, s) - self.costs(s) + self.payments(s, pay)

    def deviations(self, w: Array, s: Array, t: Array, pay: Pay = ()) -> Array:
        """u_i(w, (t_i, s_-i)) for all i at once: what each agent would have by moving alone to t_i."""
        alone = self.valuation.unilateral(w, s, t) - self.cost.unilateral(s, t)
        return sum((p.deviations(self, w, s, t) for p in self._felt(pay)), start=alone)

    def slopes(self, w: Array, s: Array, pay: Pay = ()) -> Array:
        """d u_i / d s_i; the payments add theirs."""
        own = self.valuation.slope(w, s) - self.cost.slope(s)
        return sum((p.slopes(self.agents, s) for p in self._felt(pay)), start=own)

    def masked(self, g: Array, s: Array) -> Array:
        """The paper's mu: 0 where s_i = 0 and g_i < 0, or s_i = s_max_i and g_i > 0."""
        return np.where(((s <= 0.0) & (g < 0.0)) | ((s >= self.s_max) & (g > 0.0)), 0.0, g)

    def step(self, w: Array, s: Array, gamma: float, pay: Pay = ()) -> Array:
        """clip(s + gamma g(w, s), 0, s_max): one step of every agent up its own utility."""
        return self.move(s, gamma * self.masked(self.slopes(w, s, pay), s))

    def move(self, s: Array, change: Array) -> Array:
        """clip(s + change, 0, s_max), where a step that ends within rounding of the bound it runs to ends on it.

        The mask and `s = s_max` ask for equality, which sums of floats miss by an ulp.
        """
        reached = np.clip(s + change, 0.0, self.s_max)
        near = NEAR * self.s_max
        reached = np.where((change > 0.0) & (self.s_max - reached <= near), self.s_max, reached)
        return np.where((change < 0.0) & (reached <= near), 0.0, reached)

    def gradients(self, w: Array, s: Array) -> Array:
        """Row i is d_i = grad_w v_i(w, s)."""
        return self.valuation.gradient(w, s)

    def gradient(self, i: int, w: Array, s: Array) -> Array:
        return self.gradients(w, s)[i]

    def mean_gradient(self, w: Array, s: Array) -> Array:
        """(1/n) sum_i d_i, what the center adds to w, without building the n rows."""
        return self.valuation.mean_gradient(w, s)

    def welfare(self, w: Array, s: Array) -> float:
        """sum_i v_i."""
        return float(self.values(w, s).sum())

    def net_welfare(self, w: Array, s: Array) -> float:
        """sum_i (v_i - c_i); payments between agents cancel."""
        return float((self.values(w, s) - self.costs(s)).sum())

    def _felt(self, pay: Pay) -> tuple[Payment, ...]:
        paid = felt(pay)
        if paid and self.n < 2:
            raise GameError("A payment compares an agent with the others: it needs at least 2 agents, this game has 1.")
        return paid

    @property
    def zeta(self) -> float | None:
        """The largest c_i' of any agent on its range, or None where none is known."""
        bound = self.cost.zeta(self.s_max)
        return None if bound is None else float(bound.max())

    @property
    def tau(self) -> float | None:
        """The largest -d v_i/d s_i for any agent, s and w (at least 0), or None where none is known."""
        return self.tau_at(None)

    def tau_at(self, w: Array | None) -> float | None:
        """tau with w held at this value, as in phase 1; it can exist where `tau` over every w does not."""
        bound = self.valuation.tau(self.s_max, w)
        return None if bound is None else float(bound.max())

    @property
    def concave(self) -> bool | None:
        """Whether every u_i is known concave in s_i: only then is a regret search exact."""
        known = (self.valuation.concave, self.cost.concave_utility)
        return True if all(known) else None

    def optimum(self) -> Array | None:
        """w_OPT = argmax_w sum_i v_i(w, s_max), or None where it is not known."""
        return self.valuation.optimum(self.s_max)


def paper_example(*, s0: Any = (2.5, 2.5), w0: Any = (0.5, 1.5)) -> Game:
    """Example 1 of the paper as printed. With w frozen at (0.5, 1.5) it rests at s = (0, 5), welfare 1.8.

    Its joint dynamics do not converge: w runs to (1, 2), where nobody values data, and s to (0, 0).
    """
    return _two_agents(SharedError(np.ones(2), np.ones(2), np.array([1.0, 2.0])), s0, w0)


def repaired_example(*, s0: Any = (2.5, 2.5), w0: Any = (0.5, 1.5)) -> Game:
    """Example 1 with v_i = 1 - (q + 0.5)/(s_1 + s_2): the joint dynamics rest at w = (1, 2), s = (0, 5).

    Welfare there is 1.8, against 1.9 at the optimum (w = (1, 2), s = (5, 5)).
    """
    return _two_agents(SharedError(np.ones(2), np.ones(2), np.array([1.0, 2.0]), floor=0.5), s0, w0)


def _two_agents(valuation: Valuation, s0: Any, w0: Any) -> Game:
    return Game(
        ("agent-1", "agent-2"), valuation, LinearCost(np.array([0.04, 0.02])), s_max=np.full(2, 5.0), s0=s0, w0=w0
    )


def _check_names(agents: tuple[str, ...]) -> None:
    if not agents:
        raise GameError("A game needs at least one agent.")
    for name in agents:
        if not isinstance(name, str) or not name:
            raise GameError(f"An agent's name must be a non-empty string, not {name!r}.")
    twice = [name for name, count in Counter(agents).items() if count > 1]
    if twice:
        raise GameError(f"Agent name {twice[0]!r} is used more than once: every agent needs its own name.")
