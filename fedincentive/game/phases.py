"""Phase 1 as a value: did everyone reach s_max, who is short, and which prices beta would work."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import GameError
from ..payments.contribution import advice
from .arrays import Array
from .dynamics import contributions
from .games import Game
from .search import Search, maximise

Ending = Literal["full", "rested", "round limit"]


@dataclass(frozen=True)
class PhaseOne:
    """How phase 1 ended. `full` is success; the other two are results with advice, never settled silently."""

    ending: Ending
    rounds: int
    s: tuple[float, ...]
    residual: float  # ||g||_inf at the end
    short: tuple[str, ...]  # agents below their s_max
    beta: float
    beta_ne: float | None  # from here on s_max is an equilibrium at this w
    beta_dom: float | None  # above it every agent gains by every further point, whatever the others do
    beta_ne_at_least: bool = False  # u is not known concave: beta_NE comes from a search and may be larger

    @property
    def advice(self) -> str:
        if self.ending == "full":
            return f"Every agent gives its s_max after {self.rounds} rounds."
        ne, dom, at_least, speed = self.beta_ne, self.beta_dom, self.beta_ne_at_least, f"|g| = {self.residual:.3g}"
        return advice(self.ending, self.short, self.beta, ne, dom, self.rounds, speed, at_least=at_least)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "advice": self.advice}


def phase_one(
    game: Game,
    *,
    gamma: float | None = None,
    beta: float,
    w: Array | None = None,
    s: Array | None = None,
    round_limit: int = 10_000,
    tol: float = 1e-9,
) -> PhaseOne:
    """Plays the contribution dynamics with payment beta until s = s_max, rest, or the round limit.

    Without a gamma agents take strides of their own, and rest is where nobody moves by `tol` of its s_max.

    >>> from fedincentive.game import repaired_example
    >>> phase_one(repaired_example(), gamma=1.0, beta=0.05).rounds, phase_one(repaired_example(), beta=0.05).rounds
    (96, 5)
    """
    if beta < 0.0 or not np.isfinite(beta):
        raise GameError(f"beta is {beta!r}: it must be a finite number, at least 0 (0 plays without payment).")
    w = game.w0 if w is None else w
    states = contributions(game, gamma, pay=beta, w=w, s=s)
    ending: Ending | None = None
    before: Array | None = None
    while ending is None:
        state = next(states)
        moving = state.residual
        if gamma is None and moving > 0.0:
            part = np.ones(game.n) if before is None else np.abs(state.s - before) / np.maximum(game.s_max, 1e-300)
            moving, before = float(part.max()), state.s
        ending = ending_of(state.s, game.s_max, moving, state.round, tol=tol, round_limit=round_limit)
    short = tuple(game.agents[i] for i in np.flatnonzero(state.s < game.s_max))
    ne, dom = (None, None) if ending == "full" else (beta_ne(game, w), beta_dom(game, w))
    return PhaseOne(
        ending=ending,
        rounds=state.round,
        s=tuple(state.s.tolist()),
        residual=state.residual,
        short=short,
        beta=beta,
        beta_ne=ne,
        beta_dom=dom,
        beta_ne_at_least=not game.concave,
    )


def ending_of(s: Array, s_max: Array, residual: float, rounds: int, *, tol: float, round_limit: int) -> Ending | None:
    """The ending reached, or None while phase 1 goes on. Rest is ||g||_inf <= tol: some g_i > 0 would end too early."""
    if bool(np.all(s >= s_max)):
        return "full"
    if residual <= tol:
        return "rested"
    return "round limit" if rounds >= round_limit else None


def withholding_gains(game: Game, w: Array, search: Search | None = None) -> Array:
    """Per agent, the largest average gain per withheld point at s_max, without payment; -inf where s_max_i = 0.

        sup over t < s_max_i of [h_i(t) - h_i(s_max_i)] / (s_max_i - t),   h_i = v_i - c_i with the others at s_max

    A payment of beta per point takes beta from each of them, so s_max is an equilibrium at w iff beta is at least
    this for every agent. The limit t -> s_max_i is c_i' - d v_i/d s_i; for a concave h_i it is the supremum.
    """
    full = game.s_max
    limit = np.where(full > 0.0, -game.slopes(w, full), -np.inf)
    if game.concave:
        return limit
    here = game.deviations(w, full, full)

    def per_point(t: Array) -> Array:
        withheld = full - t
        inside = withheld > 1e-5 * full  # closer than this the quotient is rounding noise; the limit covers it
        gain = game.deviations(w, full, t) - here
        return np.where(inside, gain / np.where(inside, withheld, 1.0), -np.inf)

    _, best = maximise(per_point, np.zeros(game.n), full, search or Search(), concave=False)
    return np.maximum(limit, best)


def beta_ne(game: Game, w: Array, search: Search | None = None) -> float:
    """The smallest beta >= 0 for which s_max is an equilibrium at w (a lower bound of it unless u is known concave)."""
    return max(0.0, float(withholding_gains(game, w, search).max()))


def beta_dom(game: Game, w: Array | None = None) -> float | None:
    """zeta + tau: above it giving more is dominant for everyone. At this w, or for every w; None where unbounded."""
    zeta, tau = game.zeta, game.tau_at(w)
    return None if zeta is None or tau is None else zeta + tau


@dataclass(frozen=True)
class Bound:
    """One agent's demand on beta: at least `low`, at most `high`, and what for."""

    agent: str
    low: float
    high: float
    why: str

    def __str__(self) -> str:
        if self.low > self.high:
            return f"no price lets {self.agent} {self.why}"
        ends = [f"at least {self.low:.6g}"] if self.low > 0.0 else []
        ends += [f"at most {self.high:.6g}"] if np.isfinite(self.high) else []
        return f"{self.agent} needs {' and '.join(ends)} to {self.why}"


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
        if np.isinf(self.high):
            return "any" if self.low <= 0.0 else f"{self.low:.6g} or more"
        return f"{self.low:.6g} to {self.high:.6g}"


def rational(game: Game, base: Array, outside: Array, paid: Array) -> list[Bound]:
    """base_i + beta paid_i >= outside_i: base_i = v_i - c_i at s_max, paid_i what one unit of beta pays there."""
    missing = outside - base
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
            bounds.append(Bound(name, low, high, "end no worse off than alone"))
    return bounds


def affordable(game: Game, paid: Array, beside: Array) -> list[Bound]:
    """-(beta paid_i + beside_i) <= budget_i: paid_i is what one unit of beta pays at s_max, beside_i all the rest."""
    if game.budget is None:
        return []
    known = np.flatnonzero(np.isfinite(game.budget))
    return _at_most(game, -paid, -beside, game.budget, known, "stay within its budget")


def capped(game: Game, worst: Array, beside: Array, cap: float) -> list[Bound]:
    """beta worst_i + beside_i <= cap: worst_i is the most it can owe for one unit of beta, whatever it does."""
    return _at_most(game, worst, beside, np.full(game.n, cap), np.arange(game.n), f"owe at most {cap:g} (most_owed)")


def _at_most(game: Game, rate: Array, beside: Array, most: Array, whose: NDArray[np.intp], why: str) -> list[Bound]:
    """beta rate_i + beside_i <= most_i for these agents."""
    bounds = []
    for i in whose:
        room, low, high = float(most[i] - beside[i]), 0.0, np.inf
        if rate[i] > 0.0 and room >= 0.0:
            high = room / float(rate[i])
        elif rate[i] < 0.0 and room < 0.0:
            low = room / float(rate[i])
        elif room < 0.0:
            low, high = np.inf, 0.0
        if low > 0.0 or np.isfinite(high):
            bounds.append(Bound(game.agents[i], low, high, why))
    return bounds


def combine(bounds: list[Bound]) -> BetaRange:
    """The intersection of all demands; where it is empty, the demands at its two ends and those nobody can meet."""
    low = max((b.low for b in bounds), default=0.0)
    high = min((b.high for b in bounds), default=np.inf)
    if low <= high:
        return BetaRange(low, high, ())
    hopeless = tuple(b for b in bounds if b.low > b.high)
    blocking = hopeless or tuple(b for b in bounds if b.low > high or b.high < low)
    return BetaRange(low, high, blocking)
