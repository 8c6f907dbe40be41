"""Regret: the most any agent could gain by changing its own contribution alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..payments import Payment, felt
from .arrays import Array
from .games import Game, Pay
from .phases import beta_dom
from .search import Search, maximise

# exact: from the game itself. attested: an audit found it. signed: its agent said so, provably. reported: somebody did.
Basis = Literal["exact", "attested", "signed", "reported", "assumed", "unavailable"]
BASES: tuple[Basis, ...] = ("exact", "attested", "signed", "reported", "assumed", "unavailable")
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


def regrets(game: Game, w: Array, s: Array, pay: Pay = (), *, search: Search | None = None) -> tuple[Array, Array]:
    """(gain, deviation) of every agent: the most it could gain by moving alone, and where to."""
    paid = felt(pay)

    def utility(t: Array) -> Array:
        return game.deviations(w, s, t, paid)

    here = utility(s)
    lowest, concave = np.zeros(game.n), known_concave(game, paid)
    best, top = maximise(utility, lowest, game.s_max, search or Search(), concave=concave)
    gain = top - here
    gain = np.where(gain <= ROUNDING * np.maximum(1.0, np.abs(here)), 0.0, gain)
    return gain, np.where(gain > 0.0, best, s)


def known_concave(game: Game, paid: Sequence[Payment]) -> bool:
    return bool(game.concave) and all(payment.concave for payment in paid)


def max_regret(
    game: Game,
    w: Array,
    s: Array,
    pay: Pay = (),
    *,
    search: Search | None = None,
    basis: Basis = "exact",
) -> Regret:
    """The largest gain of any agent by a unilateral change of s_i at this w, payments included.

    `pay` is what a change still moves: the run's payments while they are live, none once they are sunk.

    >>> from fedincentive.game import paper_example
    >>> game = paper_example()
    >>> max_regret(game, game.w0, np.array([0.0, 5.0])).value
    0.0
    >>> print(max_regret(game, game.w0, np.array([5.0, 5.0])))
    0.15: agent-1 gains by moving to s = 0
    """
    s, paid, search = game.check(s), felt(pay), search or Search()
    if _dominant(game, w, s, paid):
        return Regret(0.0, None, None, basis, lower_bound=False, search="s_max is dominant: beta >= zeta + tau")
    gain, deviation = regrets(game, w, s, paid, search=search)
    i = int(gain.argmax())
    moves = gain[i] > 0.0
    errors, concave = game.valuation.standard_error(w, s), known_concave(game, paid)
    return Regret(
        value=float(gain[i]),
        agent=game.agents[i] if moves else None,
        deviation=float(deviation[i]) if moves else None,
        basis=basis,
        lower_bound=not concave,
        search="concave" if concave else str(search),
        # A gain is the difference of two estimates; drawn from the same rounds, its error is at most this.
        standard_error=None if errors is None else float(np.sqrt(2.0) * errors[i]),
    )


def _dominant(game: Game, w: Array, s: Array, paid: Sequence[Payment]) -> bool:
    """At s_max with a price of at least zeta + tau no smaller s_i can be better, whatever the shape of u_i."""
    bound, priced = beta_dom(game, w), all(payment.price for payment in paid)
    return bound is not None and priced and float(sum(p.price for p in paid)) >= bound and bool(np.all(s >= game.s_max))
