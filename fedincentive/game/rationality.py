"""Individual rationality and budgets: who is worse off than alone, and who pays more than it can."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arrays import Array
from .claims import Shortfall
from .games import Game
from .search import Search, maximise


def outside_options(game: Game) -> Array | None:
    """What each agent has without the federation: as given, else its best by training alone, else None.

    Training alone, agent i picks the t that maximises its value alone minus its cost.
    """
    if game.outside_option is not None:
        return game.outside_option
    if game.valuation.alone(game.s_max) is None:
        return None
    nobody = np.zeros(game.n)

    def alone(t: Array) -> Array:
        value = game.valuation.alone(t)
        return (nobody if value is None else value) - game.cost.unilateral(nobody, t)

    concave = game.valuation.concave_alone and game.cost.concave_utility
    return maximise(alone, nobody, game.s_max, Search(), concave=bool(concave))[1]


def worse_off(game: Game, w: Array, s: Array, paid: Array, outside: Array | None) -> tuple[Shortfall, ...] | None:
    """The agents whose utility at (w, s) with these payments is below their outside option."""
    if outside is None:
        return None
    utility = game.values(w, s) - game.costs(s) + paid
    return _rows(game, utility, outside, utility < outside - _slack(utility))


def over_budget(game: Game, paid: Array) -> tuple[Shortfall, ...] | None:
    """The agents that pay more than their budget."""
    if game.budget is None:
        return None
    return _rows(game, -paid, game.budget, -paid > game.budget + _slack(paid))


def _slack(amount: Array) -> Array:
    return 1e-9 * np.maximum(1.0, np.abs(amount))  # rounding is no loss


def _rows(game: Game, amount: Array, limit: Array, which: NDArray[np.bool_]) -> tuple[Shortfall, ...]:
    return tuple(Shortfall(game.agents[i], float(amount[i]), float(limit[i])) for i in np.flatnonzero(which))
