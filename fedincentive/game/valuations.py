"""Valuations: the benefit v_i(w, s) of each agent, for all agents at once.

In closed form: the paper's example as a family, quadratic games, data as a shared good with a curve from points to
value. From training: the held-out loss of a host's model; no framework is imported here.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import GameError, TooLarge
from .arrays import Array, shaped, vector

MOST_OTHERS = 2_000  # agents whose values are evaluated for everyone's move, where there is no closed form


class Valuation(ABC):
    """v_i(w, s) for all agents at once.

    A new valuation writes `value`, `slope` and `gradient`; the rest has correct defaults and is overridden where a
    closed form is faster or more is known.
    """

    concave: bool | None = None  # v_i known concave in its own s_i (True), known not to be (False), not known (None)
    concave_alone: bool | None = None  # the same of `alone`
    estimated: bool = False  # values come from training runs and carry a standard error

    @abstractmethod
    def value(self, w: Array, s: Array) -> Array:
        """v_i(w, s), shape (n,)."""

    @abstractmethod
    def slope(self, w: Array, s: Array) -> Array:
        """d v_i / d s_i, shape (n,)."""

    @abstractmethod
    def gradient(self, w: Array, s: Array) -> Array:
        """grad_w v_i(w, s), one row per agent, shape (n, m)."""

    def check(self, n: int, m: int) -> None:  # noqa: B027
        """Raises GameError unless this valuation fits n agents and m parameters."""

    def mean_gradient(self, w: Array, s: Array) -> Array:
        """(1/n) sum_i grad_w v_i, shape (m,); closed forms compute it without the (n, m) matrix."""
        return self.gradient(w, s).mean(axis=0)

    def unilateral(self, w: Array, s: Array, t: Array) -> Array:
        """v_i(w, (t_i, s_-i)) for all i: each agent alone moves to its own t_i; -inf where that is not defined.

        One call of `value` per agent unless overridden.
        """
        out = np.empty(len(s))
        moved = np.array(s, dtype=np.float64)
        for i in range(len(s)):
            moved[i] = t[i]
            out[i] = self.value(w, moved)[i]
            moved[i] = s[i]
        return out

    def tau(self, s_max: Array, w: Array | None = None) -> Array | None:
        """max(0, sup of -d v_i/d s_i) over the box [0, s_max]; at this w, or over every w. None where none is known."""
        return None

    def others(self, w: Array, s: Array, t: Array) -> Array:
        """sum_{j != i} v_j(w, (t_i, s_-i)) for all i: what the others would have if i alone moved to t_i."""
        if len(s) > MOST_OTHERS:
            raise TooLarge(f"{len(s)} agents are too many to evaluate everyone's value for every agent's move.")
        out = np.empty(len(s))
        moved = np.array(s, dtype=np.float64)
        for i in range(len(s)):
            moved[i] = t[i]
            values = self.value(w, moved)
            out[i] = values.sum() - values[i]
            moved[i] = s[i]
        return out

    def optimum(self, s: Array) -> Array | None:
        """argmax_w sum_i v_i(w, s), or None where it is not known in closed form."""
        return None

    def standard_error(self, w: Array, s: Array) -> Array | None:
        """The standard error of each v_i(w, s) where values are estimated."""
        return None

    def alone(self, t: Array) -> Array | None:
        """max_w v_i(w, (t_i, 0)): agent i by itself on t_i points with its own best model, or None if undefined."""
        return None

    def curvature(self, s: Array) -> tuple[float, float] | None:
        """(nu, M): strong convexity and smoothness in w of f = -(1/n) sum_i v_i at this s, or None."""
        return None


class Curve(ABC):
    """An increasing concave function of the useful points e >= 0, elementwise over agents."""

    def check(self, n: int) -> None:
        """Raises GameError unless every parameter is one number or one per agent."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            shaped(field.name, getattr(self, field.name), (), (n,))

    @abstractmethod
    def value(self, e: Array) -> Array: ...

    @abstractmethod
    def slope(self, e: Array) -> Array: ...


@dataclass(frozen=True, eq=False)
class PowerLaw(Curve):
    """An accuracy curve a - b (prior + e)^(-power): every further point helps less and the value stays below a.

    >>> PowerLaw(1.0, 1.0, 0.5, 1.0).value(np.array([0.0, 3.0]))
    array([0. , 0.5])
    """

    a: Array
    b: Array
    power: Array = 0.5  # type: ignore[assignment]
    prior: Array = 1.0  # type: ignore[assignment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", vector("a", self.a))
        object.__setattr__(self, "b", vector("b", self.b, low=0.0))
        object.__setattr__(self, "power", vector("power", self.power, above=0.0))
        object.__setattr__(self, "prior", vector("prior", self.prior, above=0.0))

    def value(self, e: Array) -> Array:
        return self.a - self.b * (self.prior + e) ** -self.power

    def slope(self, e: Array) -> Array:
        return self.b * self.power * (self.prior + e) ** (-self.power - 1.0)


@dataclass(frozen=True, eq=False)
class Logarithm(Curve):
    """b ln(1 + e / scale).

    >>> Logarithm(2.0, 1.0).slope(np.array([0.0, 1.0]))
    array([2., 1.])
    """

    b: Array
    scale: Array = 1.0  # type: ignore[assignment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "b", vector("b", self.b, low=0.0))
        object.__setattr__(self, "scale", vector("scale", self.scale, above=0.0))

    def value(self, e: Array) -> Array:
        return self.b * np.log1p(e / self.scale)

    def slope(self, e: Array) -> Array:
        return self.b / (self.scale + e)


@dataclass(frozen=True, eq=False)
class Line(Curve):
    """b e: every point is worth the same.

    >>> Line(0.5).value(np.array([4.0]))
    array([2.])
    """

    b: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "b", vector("b", self.b, low=0.0))

    def value(self, e: Array) -> Array:
        return self.b * e

    def slope(self, e: Array) -> Array:
        return np.broadcast_to(self.b, np.shape(e)).copy()


@dataclass(frozen=True, eq=False)
class SharedError(Valuation):
    """The paper's Example 1 as a family: v_i = a_i - b_i (||w - target||^2 + floor) / (s_1 + ... + s_n).

    With floor = 0 (as printed) the dynamics drift to s = 0, where v is not defined; floor = 0.5 repairs it.

    >>> SharedError(1.0, 1.0, [1.0, 2.0]).value(np.array([0.5, 1.5]), np.array([0.0, 5.0]))
    array([0.9, 0.9])
    """

    a: Array
    b: Array
    target: Array
    floor: float = 0.0
    concave = True
    concave_alone = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", vector("a", self.a))
        object.__setattr__(self, "b", vector("b", self.b, low=0.0))
        object.__setattr__(self, "target", vector("target", self.target))
        object.__setattr__(self, "floor", float(vector("floor", self.floor, low=0.0)))

    def check(self, n: int, m: int) -> None:
        shaped("a", self.a, (), (n,))
        shaped("b", self.b, (), (n,))
        shaped("target", self.target, (m,))

    def error(self, w: Array) -> float:
        return float(np.sum((w - self.target) ** 2)) + self.floor

    def value(self, w: Array, s: Array) -> Array:
        return np.broadcast_to(self.a - self.b * self.error(w) / self._total(s), np.shape(s)).copy()

    def slope(self, w: Array, s: Array) -> Array:
        return np.broadcast_to(self.b * self.error(w) / self._total(s) ** 2, np.shape(s)).copy()

    def gradient(self, w: Array, s: Array) -> Array:
        pull = -2.0 * (w - self.target) / self._total(s)
        return np.multiply.outer(np.broadcast_to(self.b, np.shape(s)), pull)

    def mean_gradient(self, w: Array, s: Array) -> Array:
        return -2.0 * float(np.mean(self.b)) * (w - self.target) / self._total(s)

    def unilateral(self, w: Array, s: Array, t: Array) -> Array:
        total = np.maximum(np.sum(s) - s, 0.0) + t
        defined = total > 0.0
        return np.where(defined, self.a - self.b * self.error(w) / np.where(defined, total, 1.0), -np.inf)

    def others(self, w: Array, s: Array, t: Array) -> Array:
        a, b = np.broadcast_to(self.a, np.shape(s)), np.broadcast_to(self.b, np.shape(s))
        total = np.maximum(np.sum(s) - s, 0.0) + t
        defined = total > 0.0
        shared = (b.sum() - b) * self.error(w) / np.where(defined, total, 1.0)
        return np.where(defined, a.sum() - a - shared, -np.inf)

    def tau(self, s_max: Array, w: Array | None = None) -> Array:
        return np.zeros(np.shape(s_max))

    def optimum(self, s: Array) -> Array:
        return self.target.copy()

    def alone(self, t: Array) -> Array:
        defined = t > 0.0
        return np.where(defined, self.a - self.b * self.floor / np.where(defined, t, 1.0), -np.inf)

    def curvature(self, s: Array) -> tuple[float, float]:
        bend = 2.0 * float(np.mean(self.b)) / self._total(s)
        return bend, bend

    @staticmethod
    def _total(s: Array) -> float:
        total = float(np.sum(s))
        if total <= 0.0:
            raise GameError(
                "The contributions sum to 0, where v_i = a_i - b_i error/(s_1 + ... + s_n) is not defined: "
                "start at s0 with a positive sum, and give the valuation a positive `floor`."
            )
        return total


@dataclass(frozen=True, eq=False)
class Quadratic(Valuation):
    """A quadratic game, for which every constant of Theorems 1 and 2 is known.

        v_i = a_i + b_i s_i - k_i s_i^2 / 2 + s_i sum_{j != i} R_ij s_j + s_i <H_i, w> - (w - x_i)' Q (w - x_i) / 2

    `k` bends agent i's own value, `interaction` R (n x n, or None) couples the contributions, `coupling` H (n x m, or
    None) couples s_i and w, `stiffness` Q (m x m, positive definite) pulls w to the agents' ideals `x` (n x m).
    """

    a: Array
    b: Array
    k: Array
    x: Array
    stiffness: Array
    interaction: Array | None = None
    coupling: Array | None = None

    def __post_init__(self) -> None:
        for name in ("a", "b", "k", "x", "stiffness", "interaction", "coupling"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, vector(name, getattr(self, name)))
        q = self.stiffness
        if q.ndim != 2 or not np.allclose(q, q.T) or np.linalg.eigvalsh(q)[0] <= 0.0:
            raise GameError("stiffness must be a symmetric positive definite matrix: w would have no best value.")
        if self.interaction is not None and (self.interaction.ndim != 2 or np.any(np.diagonal(self.interaction))):
            raise GameError("interaction must be a matrix with a zero diagonal; an agent's own curvature is k.")

    def check(self, n: int, m: int) -> None:
        for name in ("a", "b", "k"):
            shaped(name, getattr(self, name), (), (n,))
        shaped("x", self.x, (n, m))
        shaped("stiffness", self.stiffness, (m, m))
        if self.interaction is not None:
            shaped("interaction", self.interaction, (n, n))
        if self.coupling is not None:
            shaped("coupling", self.coupling, (n, m))

    @property
    def concave(self) -> bool:  # type: ignore[override]
        return bool(np.all(self.k >= 0.0))

    def value(self, w: Array, s: Array) -> Array:
        return self.unilateral(w, s, s)

    def slope(self, w: Array, s: Array) -> Array:
        return self._pull(w, s) - self.k * s

    def gradient(self, w: Array, s: Array) -> Array:
        fit = -(w - self.x) @ self.stiffness
        return fit if self.coupling is None else fit + s[:, None] * self.coupling

    def second_derivatives(self) -> tuple[Array, Array]:
        """(d^2 v_i / d s_j d s_i as n x n, d^2 v_i / d w d s_i as n x m): constant, so exact everywhere."""
        n, m = self.x.shape
        within = -np.diag(np.broadcast_to(self.k, n)) + (0.0 if self.interaction is None else self.interaction)
        return within, np.zeros((n, m)) if self.coupling is None else self.coupling

    def mean_gradient(self, w: Array, s: Array) -> Array:
        fit = -self.stiffness @ (w - self.x.mean(axis=0))
        return fit if self.coupling is None else fit + s @ self.coupling / len(s)

    def unilateral(self, w: Array, s: Array, t: Array) -> Array:
        gap = w - self.x
        fit = 0.5 * np.einsum("ij,ij->i", gap @ self.stiffness, gap)
        return self.a + t * self._pull(w, s) - 0.5 * self.k * t**2 - fit

    def others(self, w: Array, s: Array, t: Array) -> Array:
        values = self.value(w, s)
        felt = 0.0 if self.interaction is None else (t - s) * (s @ self.interaction)
        return values.sum() - values + felt

    def tau(self, s_max: Array, w: Array | None = None) -> Array | None:
        if self.coupling is not None and w is None and np.any(self.coupling):
            return None  # s_i <H_i, w> has every slope once w may be anything
        least = self.b + np.minimum(-self.k * s_max, 0.0)
        if self.interaction is not None:
            least = least + np.minimum(self.interaction, 0.0) @ s_max
        if self.coupling is not None and w is not None:
            least = least + self.coupling @ w
        return np.maximum(0.0, -np.broadcast_to(least, np.shape(s_max)))

    def optimum(self, s: Array) -> Array:
        centre = self.x.mean(axis=0)
        if self.coupling is None:
            return centre
        return centre + np.linalg.solve(self.stiffness, s @ self.coupling / len(s))

    def alone(self, t: Array) -> Array:
        if self.coupling is None:
            return self.a + t * self.b - 0.5 * self.k * t**2
        ahead = np.einsum("ij,ij->i", self.coupling, self.x)
        bend = np.einsum("ij,ij->i", self.coupling, np.linalg.solve(self.stiffness, self.coupling.T).T)
        return self.a + t * (self.b + ahead) + 0.5 * (bend - self.k) * t**2  # its best w is x_i + t Q^-1 H_i

    def curvature(self, s: Array) -> tuple[float, float]:
        eigenvalues = np.linalg.eigvalsh(self.stiffness)
        return float(eigenvalues[0]), float(eigenvalues[-1])

    def _pull(self, w: Array, s: Array) -> Array:
        """The slope at s_i = 0: everything that multiplies s_i linearly."""
        pull = np.broadcast_to(self.b, np.shape(s))
        if self.interaction is not None:
            pull = pull + self.interaction @ s
        return pull if self.coupling is None else pull + self.coupling @ w


@dataclass(frozen=True, eq=False)
class DataValue(Valuation):
    """Data as a shared good: v_i = curve_i(E_i) - fit_i ||w - x_i||^2 / 2, with E_i = s_i + spill sum_{j != i} s_j.

    `curve` turns useful points into value (an accuracy curve, a logarithm, a line); `spill` in [0, 1] says how much of
    another agent's point is worth to me; `x` is each agent's ideal model (n x m) and `fit` how much it cares.

    >>> from fedincentive.game.valuations import Logarithm
    >>> DataValue(Logarithm(1.0, 1.0), x=[[0.0], [0.0]]).value(np.zeros(1), np.array([0.0, 9.0])).round(3)
    array([2.303, 2.303])
    """

    curve: Curve
    x: Array
    fit: Array = 1.0  # type: ignore[assignment]
    spill: Array = 1.0  # type: ignore[assignment]
    concave = True
    concave_alone = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", vector("x", self.x))
        object.__setattr__(self, "fit", vector("fit", self.fit, low=0.0))
        object.__setattr__(self, "spill", vector("spill", self.spill, low=0.0))
        if np.any(self.spill > 1.0):
            raise GameError("spill must be between 0 and 1: another agent's point is worth at most one of one's own.")

    def check(self, n: int, m: int) -> None:
        shaped("x", self.x, (n, m))
        shaped("fit", self.fit, (), (n,))
        shaped("spill", self.spill, (), (n,))
        self.curve.check(n)

    def value(self, w: Array, s: Array) -> Array:
        return self.unilateral(w, s, s)

    def slope(self, w: Array, s: Array) -> Array:
        return self.curve.slope(self._useful(s, s))

    def gradient(self, w: Array, s: Array) -> Array:
        return -np.reshape(self.fit, (-1, 1)) * (w - self.x)

    def mean_gradient(self, w: Array, s: Array) -> Array:
        weight = np.broadcast_to(self.fit, len(self.x))
        return (weight @ self.x - weight.sum() * w) / len(self.x)

    def unilateral(self, w: Array, s: Array, t: Array) -> Array:
        return self.curve.value(self._useful(s, t)) - 0.5 * self.fit * np.sum((w - self.x) ** 2, axis=1)

    def tau(self, s_max: Array, w: Array | None = None) -> Array:
        return np.zeros(np.shape(s_max))

    def optimum(self, s: Array) -> Array:
        weight = np.broadcast_to(self.fit, len(self.x))
        return weight @ self.x / weight.sum() if weight.sum() > 0.0 else self.x.mean(axis=0)

    def alone(self, t: Array) -> Array:
        return self.curve.value(t)

    def curvature(self, s: Array) -> tuple[float, float]:
        mean = float(np.mean(self.fit))
        return mean, mean

    def _useful(self, s: Array, t: Array) -> Array:
        return t + self.spill * (np.sum(s) - s)


@dataclass(frozen=True, eq=False)
class LossValuation(Valuation):
    """v_i(w, s) = value_per_nat (r_i - min(L_i(w'), cap)), w' the model after one round from w with contributions s.

    At a fixed w the loss ignores s, so a dependence on s needs `train(w, s, draw)`, one round of training; `draws`
    rounds are averaged and give the standard error. Without `train`, w' = w and every slope in s is 0. `losses(w)`
    returns one held-out loss per agent, in nats. Cross-entropy is unbounded, hence `cap`.

    >>> held_out = LossValuation(lambda w: np.array([0.5, 9.0]), reference=np.log(10), cap=5.0)
    >>> held_out.value(np.zeros(1), np.zeros(2)).round(3)
    array([ 1.803, -2.697])
    """

    losses: Callable[[Array], Array]
    reference: Array
    cap: float
    value_per_nat: Array = 1.0  # type: ignore[assignment]
    train: Callable[[Array, Array, int], Array] | None = None
    gradient_of: Callable[[Array, Array], Array] | None = None
    draws: int = 1
    delta: float = 1.0  # points by which the counterfactual slope moves s_i
    s_max: Array | None = None  # where the counterfactual looks backwards instead

    def __post_init__(self) -> None:
        object.__setattr__(self, "reference", vector("reference", self.reference))
        object.__setattr__(self, "value_per_nat", vector("value_per_nat", self.value_per_nat, low=0.0))
        for name in ("cap", "delta"):
            vector(name, getattr(self, name), above=0.0)
        if self.draws < 1:
            raise GameError(f"draws must be at least 1, not {self.draws}.")

    @property
    def estimated(self) -> bool:  # type: ignore[override]
        return self.train is not None

    def check(self, n: int, m: int) -> None:
        shaped("reference", self.reference, (), (n,))
        shaped("value_per_nat", self.value_per_nat, (), (n,))

    def value(self, w: Array, s: Array) -> Array:
        return self._drawn(w, s).mean(axis=0)

    def standard_error(self, w: Array, s: Array) -> Array | None:
        if self.train is None or self.draws < 2:
            return None
        return self._drawn(w, s).std(axis=0, ddof=1) / np.sqrt(self.draws)

    def slope(self, w: Array, s: Array) -> Array:
        """Counterfactual: the change of v_i per point when i alone trains on delta points more (or fewer, at s_max)."""
        if self.train is None:
            return np.zeros(np.shape(s))
        forward = np.ones(np.shape(s), dtype=bool) if self.s_max is None else s + self.delta <= self.s_max
        moved = np.where(forward, s + self.delta, np.maximum(s - self.delta, 0.0))
        width = np.where(moved == s, 1.0, moved - s)
        return (self.unilateral(w, s, moved) - self.value(w, s)) / width

    def gradient(self, w: Array, s: Array) -> Array:
        if self.gradient_of is None:
            raise GameError("This loss-based valuation was given no gradient in w: pass gradient_of(w, s).")
        return np.asarray(self.gradient_of(w, s), dtype=np.float64)

    def _drawn(self, w: Array, s: Array) -> Array:
        """One row of values per draw; draw k is the same round in every call, so differences share their noise."""
        if self.train is None:
            return self._worth(w)[None]
        return np.stack([self._worth(self.train(w, s, draw)) for draw in range(self.draws)])

    def _worth(self, w: Array) -> Array:
        loss = np.asarray(self.losses(w), dtype=np.float64)
        if np.isnan(loss).any():
            raise GameError(f"The held-out loss of agent {int(np.flatnonzero(np.isnan(loss))[0])} is NaN.")
        return self.value_per_nat * (self.reference - np.minimum(loss, self.cap))
