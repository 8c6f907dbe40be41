"""The kinds of game a GAME.yaml can name: one settings class each, whose `build` gives the game."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import SettingError
from ..settings import flag, integer, one_of, optional, real, setting
from .arrays import Array
from .curves import Curve, Line, Logarithm, PowerLaw
from .games import Game, paper_example, repaired_example
from .random_games import random_quadratic
from .table import Column, Rows, numbers, rows
from .valuations import DataValue, Quadratic, SharedError

MOST_AGENTS = 1_000_000


def who(name: str, value: Any) -> Any:
    """A number of agents, or a list with one row of settings for each."""
    if isinstance(value, list):
        if not value:
            raise SettingError(f"{name} is empty: a game needs at least one agent.")
        return value
    return integer(1, MOST_AGENTS)(name, value)


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingError(f"{name} must be a mapping of settings, not {value!r}.")
    return value


@dataclass(frozen=True)
class Example:
    """Example 1 of the paper, as printed or repaired; only its starting point can change."""

    kind: str = setting(one_of("example", "repaired"))
    s0: Array = setting(numbers, (2.5, 2.5))
    w0: Array = setting(numbers, (0.5, 1.5))

    def build(self) -> Game:
        make: Callable[..., Game] = paper_example if self.kind == "example" else repaired_example
        return make(s0=self.s0, w0=self.w0)


@dataclass(frozen=True)
class RandomQuadratic:
    """A random quadratic game; `contracting` ones satisfy the assumptions of Theorem 1."""

    kind: str = setting(one_of("random-quadratic"))
    agents: int = setting(integer(1, 10_000), 5)
    parameters: int = setting(integer(1, 10_000), 2)
    seed: int = setting(integer(0), 0)
    contracting: bool = setting(flag, True)

    def build(self) -> Game:
        return random_quadratic(self.seed, self.agents, self.parameters, contracting=self.contracting)


@dataclass(frozen=True)
class Agents:
    """What every kind with its own agents has."""

    kind: str = setting(one_of("shared-error", "quadratic", "data-value"))
    agents: Any = setting(who)
    each: Mapping[str, Any] | None = setting(optional(mapping), None)
    seed: int = setting(integer(0), 0)

    def rows(self, own: Mapping[str, Column], vectors: Mapping[str, int] | None = None) -> Rows:
        return rows(self.agents, self.each or {}, self.seed, own, vectors or {})


@dataclass(frozen=True)
class SharedErrorGame(Agents):
    """v_i = a_i - b_i (||w - target||^2 + floor) / (s_1 + ... + s_n)."""

    target: Any = setting(numbers, (0.0,))
    floor: float = setting(real(0.0), 0.5)
    w0: Any = setting(numbers, (0.0,))

    def build(self) -> Game:
        table = self.rows({"a": Column(real(), 1.0), "b": Column(real(0.0), 1.0)})
        return table.game(SharedError(table["a"], table["b"], np.array(self.target), self.floor), np.array(self.w0))


@dataclass(frozen=True)
class QuadraticGame(Agents):
    """v_i = a_i + b_i s_i - k_i s_i^2/2 + s_i (R s)_i + s_i <H_i, w> - (w - ideal_i)' Q (w - ideal_i)/2."""

    w0: Any = setting(numbers, (0.0,))
    stiffness: Any = setting(optional(numbers), None)  # the identity
    interaction: Any = setting(optional(numbers), None)
    coupling: Any = setting(optional(numbers), None)

    def build(self) -> Game:
        own = {"a": Column(real(), 0.0), "b": Column(real(), 0.0), "k": Column(real(), 0.0)}
        m = len(self.w0)
        table = self.rows(own, {"ideal": m})
        stiffness = np.eye(m) if self.stiffness is None else self.stiffness
        valuation = Quadratic(
            table["a"], table["b"], table["k"], table["ideal"], stiffness, self.interaction, self.coupling
        )
        return table.game(valuation, np.array(self.w0))


CURVES: dict[str, tuple[type[Curve], dict[str, Column]]] = {
    "power-law": (
        PowerLaw,
        {
            "a": Column(real(), 1.0),
            "b": Column(real(0.0), 1.0),
            "power": Column(real(above=0.0), 0.5),
            "prior": Column(real(above=0.0), 1.0),
        },
    ),
    "logarithm": (Logarithm, {"b": Column(real(0.0), 1.0), "scale": Column(real(above=0.0), 1.0)}),
    "line": (Line, {"b": Column(real(0.0), 1.0)}),
}


@dataclass(frozen=True)
class DataValueGame(Agents):
    """v_i = curve_i(s_i + spill_i sum of the others' s) - fit_i ||w - ideal_i||^2 / 2."""

    curve: str = setting(one_of(*CURVES), "power-law")
    w0: Any = setting(numbers, (0.0,))

    def build(self) -> Game:
        make, own = CURVES[self.curve]
        shares = {"fit": Column(real(0.0), 1.0), "spill": Column(real(0.0, 1.0), 1.0)}
        table = self.rows({**own, **shares}, {"ideal": len(self.w0)})
        curve = make(**{name: table[name] for name in own})
        return table.game(DataValue(curve, table["ideal"], table["fit"], table["spill"]), np.array(self.w0))


KINDS: dict[str, Any] = {
    "example": Example,
    "repaired": Example,
    "shared-error": SharedErrorGame,
    "quadratic": QuadraticGame,
    "random-quadratic": RandomQuadratic,
    "data-value": DataValueGame,
}
