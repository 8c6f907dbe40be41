"""The agents of a GAME.yaml as columns: defaults for each, draws from ranges, and an agent's own row on top."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import SettingError
from ..settings import Check, nearest, real
from .arrays import Array
from .costs import ConvexCost, Cost, LinearCost
from .games import Game
from .random_games import names
from .rationality import outside_options
from .valuation import Valuation


def numbers(name: str, value: Any) -> Array:
    """A list of finite numbers, nested for a matrix."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise SettingError(f"{name} must be a list of numbers, not {value!r}.") from None
    if array.ndim == 0 or not np.isfinite(array).all():
        raise SettingError(f"{name} must be a list of finite numbers, not {value!r}.")
    return array


@dataclass(frozen=True)
class Column:
    """A setting that every agent has: its check, and its value where nothing is said (None: required)."""

    check: Check
    default: Any = None


OUTSIDE = "outside_option"
COMMON: dict[str, Column] = {
    "s_max": Column(real(0.0)),
    "s0": Column(real(0.0), math.nan),  # half of s_max
    "cost": Column(real(0.0), 0.0),
    "cost_power": Column(real(1.0), 1.0),
    OUTSIDE: Column(real(), math.nan),  # training alone, where that is defined
    "budget": Column(real(0.0), math.inf),
}


@dataclass(frozen=True, eq=False)
class Rows:
    """One array per column, one entry (or vector) per agent."""

    agents: tuple[str, ...]
    columns: Mapping[str, Array]

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def game(self, valuation: Valuation, w0: Array) -> Game:
        s_max, s0, power = self["s_max"], self["s0"], self["cost_power"]
        cost: Cost = LinearCost(self["cost"]) if np.all(power == 1.0) else ConvexCost(self["cost"], power)
        budget = self["budget"] if np.isfinite(self["budget"]).any() else None
        start = np.where(np.isnan(s0), s_max / 2.0, s0)
        game = Game(self.agents, valuation, cost, s_max, start, w0, budget=budget)
        return self._with_outside(game)

    def _with_outside(self, game: Game) -> Game:
        given = self[OUTSIDE]
        missing = np.isnan(given)
        if missing.all():
            return game
        if missing.any():
            alone = outside_options(game)
            if alone is None:
                first = self.agents[int(np.flatnonzero(missing)[0])]
                raise SettingError(
                    f"Agent {first!r} has no outside_option while others have one, and training alone is not defined "
                    "for this kind of game: give it for every agent or for none."
                )
            given = np.where(missing, alone, given)
        return replace(game, outside_option=given)


def rows(
    who: int | Sequence[Any],
    each: Mapping[str, Any],
    seed: int,
    own: Mapping[str, Column],
    vectors: Mapping[str, int],
) -> Rows:
    """`who` is a number of agents or one row for each; `each` holds for everyone unless an agent's own row differs.

    `own` are the columns of this kind of game beside the common ones, `vectors` those with several numbers per agent.
    """
    known = {**COMMON, **own, **{name: Column(numbers, 0.0) for name in vectors}}
    _refuse_unknown(each, known, "game.each")
    given = () if isinstance(who, int) else who
    n = who if isinstance(who, int) else len(who)
    agents = tuple(
        _name(i, row, name, known) for i, (row, name) in enumerate(zip(given, names(n), strict=False))
    ) or names(n)
    rng = np.random.default_rng(seed)
    columns = {}
    for name, column in known.items():
        width = vectors.get(name)
        values = _drawn(name, each.get(name), column, n, width, rng)
        for i, row in enumerate(given):
            if name in row:
                values[i] = _fits(f"game.agents[{i}] ({agents[i]}).{name}", column.check, row[name], width)
        if column.default is None and name not in each:
            _refuse_missing(name, given, agents)
        columns[name] = values
    return Rows(agents, columns)


def _refuse_missing(name: str, given: Sequence[Any], agents: Sequence[str]) -> None:
    if not given:
        raise SettingError(f"game.each.{name} is required: a number, or a range such as {{low: 1, high: 10}}.")
    for i, row in enumerate(given):
        if name not in row:
            raise SettingError(f"game.agents[{i}] ({agents[i]}).{name} is required, here or in game.each.")


def _drawn(name: str, value: Any, column: Column, n: int, width: int | None, rng: np.random.Generator) -> Array:
    shape = (n,) if width is None else (n, width)
    where = f"game.each.{name}"
    if isinstance(value, Mapping):
        _refuse_unknown(value, ("low", "high"), where)
        bound = column.check if width is None else real()
        low, high = (bound(f"{where}.{end}", value.get(end)) for end in ("low", "high"))
        if low > high:
            raise SettingError(f"{where}.low = {low:g} is above {where}.high = {high:g}.")
        return rng.uniform(low, high, shape)
    if value is None:
        return np.full(shape, 0.0 if column.default is None else column.default)
    return np.broadcast_to(_fits(where, column.check, value, width), shape).copy()


def _fits(where: str, check: Check, value: Any, width: int | None) -> Any:
    checked = check(where, value)
    if width is not None and np.shape(checked) != (width,):
        raise SettingError(f"{where} must be a list of {width} numbers, as many as w0, not {value!r}.")
    return checked


def _name(i: int, row: Any, default: str, known: Mapping[str, Any]) -> str:
    where = f"game.agents[{i}]"
    if not isinstance(row, Mapping):
        raise SettingError(f"{where} must be a mapping such as {{name: a, s_max: 10}}, not {row!r}.")
    _refuse_unknown(row, ("name", *known), where)
    name = row.get("name", default)
    if not isinstance(name, str) or not name:
        raise SettingError(f"{where}.name must be a non-empty string, not {name!r}.")
    return name


def _refuse_unknown(values: Mapping[str, Any], known: Any, where: str) -> None:
    for key in values:
        if key not in known:
            raise SettingError(f"{where} has no setting {key!r}.{nearest(str(key), list(known))}")
