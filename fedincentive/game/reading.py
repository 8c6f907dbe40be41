"""GAME.yaml: a closed-form game and the incentive mapping that goes with it, in one file.

game:
  kind: data-value            # example | repaired | shared-error | quadratic | random-quadratic | data-value
  curve: power-law            # the kind's own settings
  each: {cost: 0.01, b: {low: 0.5, high: 1.0}}    # for every agent: a number, or a range to draw from
  agents:                     # a number of agents, or one row for each
    - {name: hospital-a, s_max: 400, s0: 100, outside_option: 1.2, budget: 5}
incentive: {beta: "0.05", gamma: 0.5}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..checks import Check, flag, integer, mapping, nearest, one_of, optional, real, setting, shown
from ..checks import read as read_settings
from ..errors import SettingError
from ..files import read_bounded
from .arrays import Array
from .certificate import outside_options
from .costs import ConvexCost, Cost, LinearCost
from .games import Game, paper_example, repaired_example
from .random_games import names, random_quadratic
from .valuations import Curve, DataValue, Line, Logarithm, PowerLaw, Quadratic, SharedError, Valuation


def numbers(name: str, value: Any) -> Array:
    """A list of finite numbers, nested for a matrix."""
    try:
        array = np.array(value if _is_flat(value) else None, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SettingError(f"{name} must be a list of numbers, not {shown(value)}.") from None
    if array.ndim == 0 or not np.isfinite(array).all():
        raise SettingError(f"{name} must be a list of finite numbers, not {shown(value)}.")
    return array


def _is_flat(value: Any, levels: int = 3) -> bool:
    """Not nested more deeply than a matrix: NumPy would follow YAML's aliases for ever."""
    return not isinstance(value, (list, tuple)) or not value or (levels > 0 and _is_flat(value[0], levels - 1))


@dataclass(frozen=True)
class Column:
    """A setting that every agent has: its check, and its value where nothing is said (None: required)."""

    check: Check
    default: Any = None


OUTSIDE = "outside_option"
MOST_POINTS = 9e12  # a ledger counts them in millionths, with 64 bits
COMMON: dict[str, Column] = {
    "s_max": Column(real(0.0, MOST_POINTS)),
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
        if not math.isfinite(high - low):
            raise SettingError(f"{where}: the range from {low:g} to {high:g} is too wide to draw from.")
        return rng.uniform(low, high, shape)
    if value is None:
        return np.full(shape, 0.0 if column.default is None else column.default)
    return np.broadcast_to(_fits(where, column.check, value, width), shape).copy()


def _fits(where: str, check: Check, value: Any, width: int | None) -> Any:
    checked = check(where, value)
    if width is not None and np.shape(checked) != (width,):
        raise SettingError(f"{where} must be a list of {width} numbers, as many as w0, not {shown(value)}.")
    return checked


def _name(i: int, row: Any, default: str, known: Mapping[str, Any]) -> str:
    where = f"game.agents[{i}]"
    if not isinstance(row, Mapping):
        raise SettingError(f"{where} must be a mapping such as {{name: a, s_max: 10}}, not {shown(row)}.")
    _refuse_unknown(row, ("name", *known), where)
    name = row.get("name", default)
    if not isinstance(name, str) or not name:
        raise SettingError(f"{where}.name must be a non-empty string, not {shown(name)}.")
    return name


def _refuse_unknown(values: Mapping[str, Any], known: Any, where: str) -> None:
    for key in values:
        if key not in known:
            raise SettingError(f"{where} has no setting {shown(key)}.{nearest(key, list(known))}")


MOST_AGENTS = 1_000_000


def who(name: str, value: Any) -> Any:
    """A number of agents, or a list with one row of settings for each."""
    if isinstance(value, list):
        if not value:
            raise SettingError(f"{name} is empty: a game needs at least one agent.")
        return value
    return integer(1, MOST_AGENTS)(name, value)


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


@dataclass(frozen=True, eq=False)
class GameFile:
    """What GAME.yaml says: the game, and the `incentive` mapping as written (its schema belongs to the mechanisms)."""

    game: Game
    incentive: Mapping[str, Any]
    rest: Mapping[str, Any]  # the further sections a caller of `load` allowed


def read(source: Mapping[str, Any] | str | Path) -> Game:
    """The game in a GAME.yaml file, or in the mapping such a file holds.

    >>> read({"game": {"kind": "repaired"}}).agents
    ('agent-1', 'agent-2')
    """
    return load(source).game


def load(source: Mapping[str, Any] | str | Path, sections: tuple[str, ...] = ()) -> GameFile:
    """The game and the incentive mapping; `sections` names the further top-level sections the caller understands."""
    values = source if isinstance(source, Mapping) else _parse(Path(source))
    known = ("game", "incentive", *sections)
    for key in values:
        if key not in known:
            raise SettingError(f"A game file has no section {shown(key)}.{nearest(key, known)}")
    if "game" not in values:
        raise SettingError("The section `game` is missing: it needs at least `game: {kind: example}`.")
    incentive = values.get("incentive") or {}
    if not isinstance(incentive, Mapping):
        raise SettingError(f"incentive must be a mapping of settings, not {shown(incentive)}.")
    return GameFile(_game(values["game"]), incentive, {key: values[key] for key in sections if key in values})


def _game(section: Any) -> Game:
    if not isinstance(section, Mapping):
        raise SettingError(f"game must be a mapping of settings, not {shown(section)}.")
    kind = section.get("kind")
    if kind is None:
        raise SettingError(f"game.kind is required: one of {', '.join(KINDS)}.")
    if not isinstance(kind, str) or kind not in KINDS:
        raise SettingError(f"game.kind is {shown(kind)}.{nearest(kind, KINDS)}")
    settings = read_settings(KINDS[kind], section, "game")
    return settings.build()


# What PyYAML raises: its own errors, and those of the types it makes (a number too long, the 99th of a month)
MOST_BYTES = 16 * 2**20  # of a game file
BROKEN_YAML = (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)


def _parse(path: Path) -> Mapping[str, Any]:
    try:
        text = read_bounded(path, MOST_BYTES).decode()
    except OSError as error:
        raise SettingError(f"The game file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise SettingError(f"The game file {path} is not UTF-8 text.") from None
    try:
        values = yaml.load(text, Loader=_Strict)
    except BROKEN_YAML as error:
        raise SettingError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(values, Mapping):
        found = "it is empty" if values is None else f"it holds {shown(values)}"
        example = "`fedincentive new game` writes an example."
        raise SettingError(f"{path} must have a section `game`, and {found}. {example}")
    return values


class _Strict(yaml.SafeLoader):
    """Refuses a key written twice, which YAML readers otherwise drop without a word, and endless nesting."""

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803
        if self.flow_level >= 100:  # every level makes each further token slower
            raise yaml.scanner.ScannerError(None, None, "brackets are nested too deeply", self.get_mark())
        super().fetch_flow_collection_start(TokenClass)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{shown(key)} is written twice", key_node.start_mark
                )
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)
