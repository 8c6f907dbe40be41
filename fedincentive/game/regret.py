"""Regret: the most any agent could gain by changing its own contribution alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from .arrays import Array
from .games import Game
from .phases import beta_dom
from .search import Search, maximise

Basis = Literal["exact", "attested", "reported", "assumed", "unavailable"]
BASES: tuple[Basis, ...] = ("exact", "attested", "reported", "assumed", "unavailable")
ROUNDING = 1e-12  # relative; a smaller difference of two utilities is rounding, not a gain


def weakest(*bases: Basis) -> Basis:
    """A result is known no better than its worst known part.

    >>> weakest("exact", "reported")
    'reported'
    """
    return max(bases, key=BASES.index)


@dataclass(frozen=True)
class Regret:
    """0 if and only if s is a Nash equilibrium for this w; a lower bound where u_i is not known concave."""

    value: float | None
    agent: str | None  # who gains most, where anyone gains
    deviation: float | None  # the contribution it would move to
    basis: Basis
    lower_bound: bool
    search: str = ""
    standard_error: float | None = None  # of estimated valuations

    def __str__(self) -> str:
        if self.value is None:
            return "unavailable"
        error = "" if self.standard_error is None else f" +- {self.standard_error:.2g} (estimated)"
        if self.agent is None or self.deviation is None:
            return f"0{error}: " + (
                f"no gain found, search = {self.search}" if self.lower_bound else "nobody gains alone"
            )
        least = "at least " if self.lower_bound else ""
        return f"{least}{self.value:.6g}{error}: {self.agent} gains by moving to s = {self.deviation:.6g}"


def regrets(
    game: Game, w: Array, s: Array, beta: float = 0.0, *, truthful: bool = False, search: Search | None = None
) -> tuple[Array, Array]:
    """(gain, deviation) of every agent: the most it could gain by moving alone, and where to.

    `truthful` adds p*: the others' values, which a move of s_i changes too.
    """

    def utility(t: Array) -> Array:
        own = game.deviations(w, s, t, beta)
        return own + game.valuation.others(w, s, t) if truthful else own

    concave = bool(game.concave) and not truthful
    here = utility(s)
    best, top = maximise(utility, np.zeros(game.n), game.s_max, search or Search(), concave=concave)
    gain = top - here
    gain = np.where(gain <= ROUNDING * np.maximum(1.0, np.abs(here)), 0.0, gain)
    return gain, np.where(gain > 0.0, best, s)


def max_regret(
    game: Game,
    w: Array,
    s: Array,
    beta: float = 0.0,
    *,
    truthful: bool = False,
    search: Search | None = None,
    basis: Basis = "exact",
) -> Regret:
    """The largest gain of any agent by a unilateral change of s_i at this w, payments included.

    beta is the payment per point that a change still moves: the run's beta while payments are live, 0 once sunk.

    >>> from fedincentive.game import paper_example
    >>> game = paper_example()
    >>> max_regret(game, game.w0, np.array([0.0, 5.0])).value
    0.0
    >>> print(max_regret(game, game.w0, np.array([5.0, 5.0])))
    0.15: agent-1 gains by moving to s = 0
    """
    s = game.check(s)
    search = search or Search()
    if not truthful and _dominant(game, w, s, beta):
        return Regret(0.0, None, None, basis, lower_bound=False, search="s_max is dominant: beta >= zeta + tau")
    gain, deviation = regrets(game, w, s, beta, truthful=truthful, search=search)
    i = int(gain.argmax())
    moves = gain[i] > 0.0
    errors = game.valuation.standard_error(w, s)
    return Regret(
        value=float(gain[i]),
        agent=game.agents[i] if moves else None,
        deviation=float(deviation[i]) if moves else None,
        basis=basis,
        lower_bound=truthful or not game.concave,
        search="concave" if game.concave and not truthful else str(search),
        # A gain is the difference of two estimates; drawn from the same rounds, its error is at most this.
        standard_error=None if errors is None else float(np.sqrt(2.0) * errors[i]),
    )


def _dominant(game: Game, w: Array, s: Array, beta: float) -> bool:
    """At s_max with beta >= zeta + tau no smaller s_i can be better, whatever the shape of u_i."""
    bound = beta_dom(game, w)
    return bound is not None and beta >= bound and bool(np.all(s >= game.s_max))
