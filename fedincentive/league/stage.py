"""A game as the league plays it: values, costs and stand-alone optima for many contribution vectors at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..errors import GameError
from ..game import DataValue, Game, LinearCost, Logarithm, random_data_value, random_quadratic
from ..game.arrays import Array
from ..game.random_games import names as agent_names

SHARES = np.unique(np.concatenate([np.linspace(0.0, 1.0, 33), 2.0 ** -np.arange(6, 15)]))
ZOOMS, INNER = 8, np.linspace(-1.0, 1.0, 9)
SWEEPS = 400  # of best replies before the league calls it no rest
CLOSE = 3e-6  # of s_max: best replies that move less rest


@dataclass(frozen=True, eq=False)
class Stage:
    """One game, with the model at its best for everyone (w_OPT), where server SGD ends.

    Rows of S are contribution vectors: every method takes (..., n) and returns (..., n).
    """

    game: Game
    label: str = ""  # how to draw it again

    @cached_property
    def w(self) -> Array:
        best = self.game.valuation.optimum(self.game.s_max)
        return self.game.w0 if best is None else best

    @property
    def n(self) -> int:
        return self.game.n

    @property
    def s_max(self) -> Array:
        return self.game.s_max

    @cached_property
    def c(self) -> Array:
        """The cost of a point; the league's games have linear costs."""
        return self.game.cost.slope(self.game.s_max)

    @property
    def linear(self) -> bool:
        return isinstance(self.game.cost, LinearCost)

    @property
    def shared(self) -> DataValue | None:
        """The valuation where data is a shared good: rules about needed points read their spill from it."""
        return self.game.valuation if isinstance(self.game.valuation, DataValue) else None

    @cached_property
    def spill(self) -> Array:
        return np.broadcast_to(np.nan if self.shared is None else self.shared.spill, (self.n,)).astype(float)

    def values(self, S: Array) -> Array:
        """V_i(w, s) for every row."""
        if (shared := self.shared) is not None:
            total = S.sum(axis=-1, keepdims=True)
            misfit = 0.5 * shared.fit * np.sum((self.w - shared.x) ** 2, axis=1)
            return shared.curve.value(S + shared.spill * (total - S)) - misfit
        rows = S.reshape(-1, self.n)
        found = [self.game.valuation.unilateral(self.w, s, s) for s in rows]  # -inf where v is not defined
        return np.array(found).reshape(S.shape)

    def slopes(self, S: Array) -> Array:
        """d V_i / d s_i for every row."""
        if (shared := self.shared) is not None:
            return shared.curve.slope(S + shared.spill * (S.sum(axis=-1, keepdims=True) - S))
        return np.array([self.game.valuation.slope(self.w, s) for s in S.reshape(-1, self.n)]).reshape(S.shape)

    def costs(self, S: Array) -> Array:
        if self.linear:
            return self.c * S
        return np.array([self.game.costs(s) for s in S.reshape(-1, self.n)]).reshape(S.shape)

    def alone(self, T: Array) -> Array:
        """A_i(t_i): each agent by itself with its own best model."""
        found = self.game.valuation.alone(T)
        if found is None:
            raise GameError("What agents have alone is not known in this game.")
        return found

    def alone_best(self, c: Array) -> Array:
        """t*(c) = argmax A_i(t) - c_i t; the last answers are kept, as every search asks again."""
        if (key := c.tobytes()) not in self._found:
            if len(self._found) > 64:
                self._found.clear()
            self._found[key] = peaks(lambda T: self.alone(T) - c * T, np.broadcast_to(self.s_max, c.shape))[0]
        return self._found[key]

    @cached_property
    def _found(self) -> dict[bytes, Array]:
        return {}

    @cached_property
    def t_star(self) -> Array:
        return self.alone_best(self.c)

    @cached_property
    def outside(self) -> Array:
        """What each agent has by training alone as much as it likes."""
        return self.alone(self.t_star) - self.costs(self.t_star)


def peaks(f: Callable[[Array], Array], high: Array) -> tuple[Array, Array]:
    """(argmax, max) over [0, high] for every entry of `high`: grid, ends, refinement around the best cell.

    `f` maps trials of shape (trials, *high.shape) to values of that shape, each entry its own function.
    """
    column = (-1, *(1,) * np.ndim(high))
    t, top = _best(f, SHARES.reshape(column) * high)
    width = high / 32.0
    for _ in range(ZOOMS):
        tried, value = _best(f, np.clip(t + INNER.reshape(column) * width, 0.0, high))
        t, top = np.where(value > top, tried, t), np.maximum(value, top)
        width = width / 4.0
    return t, top


def _best(f: Callable[[Array], Array], T: Array) -> tuple[Array, Array]:
    value = np.nan_to_num(f(T), nan=-np.inf, posinf=np.inf, neginf=-np.inf)  # what is not defined is never best
    best = value.argmax(axis=0)[None]
    return np.take_along_axis(T, best, 0)[0], np.take_along_axis(value, best, 0)[0]


def unilateral(s: Array, T: Array) -> Array:
    """(B, n, n): row [b, i] is s with agent i's contribution replaced by T[b, i]."""
    S = np.broadcast_to(s, (*T.shape, len(s))).copy()
    np.einsum("bii->bi", S)[...] = T
    return S


def deviations(utilities: Callable[[Array], Array], s: Array, T: Array) -> Array:
    """u_i where i alone moves to T[b, i], for all b and i."""
    return np.einsum("bii->bi", utilities(unilateral(s, T)))


def rest(utilities: Callable[[Array], Array], s_max: Array, start: Array) -> tuple[Array, int]:
    """Best replies one after the other until nobody moves: (s, sweeps). `start` may have many vectors as rows."""
    s, n = np.array(start, dtype=float), len(s_max)
    for sweep in range(1, SWEEPS + 1):
        before = s.copy()
        for i in range(n):
            s[..., i] = reply(utilities, s, i, s_max[i])
        if np.all(np.abs(s - before) <= CLOSE * np.maximum(s_max, 1e-12)):
            return s, sweep
        if sweep > 20:  # replies that circle are led to the middle
            s = 0.5 * (s + before)
    return s, SWEEPS


def reply(utilities: Callable[[Array], Array], s: Array, i: int, most: float) -> Array:
    """The best contribution of agent i to those of the others, in every row of s."""

    def own(T: Array) -> Array:
        S = np.broadcast_to(s, (len(T), *s.shape)).copy()
        S[..., i] = T
        return utilities(S)[..., i]

    return peaks(own, np.full(s.shape[:-1], most))[0]


def draw(family: str, seed: int, n: int, fit: float) -> Stage:
    """A random game: `data-value` (own curves and ideals), `common` (one curve, one ideal), or `quadratic`."""
    label = f"--family {family} --n {n} --fit {fit:g} --seed {seed} --games 1"
    if family == "quadratic":
        return Stage(random_quadratic(seed, n, 2), label)
    game = random_data_value(seed, n)
    assert isinstance(game.valuation, DataValue)
    if family == "data-value":
        return Stage(replace(game, valuation=replace(game.valuation, fit=np.float64(fit))), label)
    if family == "common":
        common = DataValue(Logarithm(np.array(0.5), np.array(10.0)), x=np.zeros((n, 1)), fit=np.float64(0.0))
        return Stage(replace(game, valuation=common, agents=agent_names(n)), label)
    raise GameError(f"There is no family {family!r}; known: data-value, common, quadratic.")
