"""Curves from useful data points to value: increasing, concave, defined from 0 on, one curve per agent."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from .arrays import Array, shaped, vector


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
