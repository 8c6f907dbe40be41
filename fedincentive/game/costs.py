"""Costs: what giving s_i points costs agent i, for the whole run. A cost never contains a payment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import GameError
from .arrays import Array, vector


class Cost(ABC):
    """z_i(s) for all agents at once; every result has one entry per agent."""

    concave_utility: bool | None = True  # z_i is convex in s_i, so it never bends u_i upwards

    @abstractmethod
    def value(self, s: Array) -> Array:
        """z_i(s)."""

    @abstractmethod
    def slope(self, s: Array) -> Array:
        """d z_i / d s_i."""

    def unilateral(self, s: Array, t: Array) -> Array:
        """z_i(t_i, s_-i): each agent alone moves to its own t_i. Most costs do not look at the others."""
        return self.value(t)

    def zeta(self, s_max: Array) -> Array | None:
        """The largest slope of each agent on [0, s_max], or None where none is known."""
        return None

    def bend(self, s_max: Array) -> tuple[Array, Array] | None:
        """The least and the largest second derivative of each agent on [0, s_max], or None where none is known."""
        return None


@dataclass(frozen=True, eq=False)
class LinearCost(Cost):
    """c_i(s_i) = c_i s_i.

    >>> LinearCost([0.04, 0.02]).value(np.array([5.0, 5.0]))
    array([0.2, 0.1])
    """

    c: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "c", vector("cost", self.c, low=0.0))

    def value(self, s: Array) -> Array:
        return self.c * s

    def slope(self, s: Array) -> Array:
        return np.broadcast_to(self.c, np.shape(s)).copy()

    def zeta(self, s_max: Array) -> Array:
        return self.slope(s_max)

    def bend(self, s_max: Array) -> tuple[Array, Array]:
        return np.zeros(np.shape(s_max)), np.zeros(np.shape(s_max))


@dataclass(frozen=True, eq=False)
class ConvexCost(Cost):
    """c_i(s_i) = a_i s_i^power with power >= 1.

    >>> ConvexCost([0.5, 1.0], 2.0).slope(np.array([1.0, 3.0]))
    array([1., 6.])
    """

    a: Array
    power: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", vector("cost.a", self.a, low=0.0))
        object.__setattr__(self, "power", vector("cost.power", self.power, low=1.0))

    def value(self, s: Array) -> Array:
        return self.a * s**self.power

    def slope(self, s: Array) -> Array:
        return self.a * self.power * s ** (self.power - 1.0)

    def zeta(self, s_max: Array) -> Array:
        return self.slope(s_max)

    def bend(self, s_max: Array) -> tuple[Array, Array] | None:
        if np.any((self.power > 1.0) & (self.power < 2.0)):
            return None  # s^power with 1 < power < 2 bends without limit at 0
        power = np.broadcast_to(self.power, np.shape(s_max))
        most = self.a * power * (power - 1.0) * s_max ** np.maximum(power - 2.0, 0.0)
        return np.where(power == 2.0, most, 0.0), most


@dataclass(frozen=True, eq=False)
class EffectiveCost(Cost):
    """Any effective cost z_i(s), which may depend on everyone's contribution.

    `function(s)` and `slope_of(s)` return one entry per agent. `bound` is the largest slope of each agent where it is
    known; `convex` says whether z_i is convex in s_i; `deviate(s, t)` gives z_i(t_i, s_-i) for all agents at once
    (without it that takes one call of `function` per agent).

    >>> crowded = EffectiveCost(lambda s: 0.1 * s * s.sum(), lambda s: 0.1 * (s.sum() + s))
    >>> crowded.value(np.array([1.0, 2.0])).round(3)
    array([0.3, 0.6])
    """

    function: Callable[[Array], Array]
    slope_of: Callable[[Array], Array]
    bound: Array | None = None
    convex: bool | None = None
    deviate: Callable[[Array, Array], Array] | None = None

    @property
    def concave_utility(self) -> bool | None:  # type: ignore[override]
        return self.convex

    def value(self, s: Array) -> Array:
        return self._checked("function", self.function(s), s)

    def slope(self, s: Array) -> Array:
        return self._checked("slope_of", self.slope_of(s), s)

    def unilateral(self, s: Array, t: Array) -> Array:
        if self.deviate is not None:
            return self._checked("deviate", self.deviate(s, t), s)
        out = np.empty_like(s)
        moved = s.copy()
        for i in range(len(s)):
            moved[i] = t[i]
            out[i] = self.value(moved)[i]
            moved[i] = s[i]
        return out

    def zeta(self, s_max: Array) -> Array | None:
        return None if self.bound is None else np.broadcast_to(vector("cost.bound", self.bound), np.shape(s_max)).copy()

    @staticmethod
    def _checked(name: str, result: Array, s: Array) -> Array:
        result = np.asarray(result, dtype=np.float64)
        if result.shape != np.shape(s):
            raise GameError(
                f"{name} of the effective cost must return one number per agent, {np.shape(s)}, not {result.shape}."
            )
        return result
