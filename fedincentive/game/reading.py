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

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..errors import SettingError
from ..settings import nearest
from ..settings import read as read_settings
from .games import Game
from .kinds import KINDS


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
            raise SettingError(f"A game file has no section {key!r}.{nearest(str(key), known)}")
    if "game" not in values:
        raise SettingError("The section `game` is missing: it needs at least `game: {kind: example}`.")
    incentive = values.get("incentive") or {}
    if not isinstance(incentive, Mapping):
        raise SettingError(f"incentive must be a mapping of settings, not {incentive!r}.")
    return GameFile(_game(values["game"]), incentive, {key: values[key] for key in sections if key in values})


def _game(section: Any) -> Game:
    if not isinstance(section, Mapping):
        raise SettingError(f"game must be a mapping of settings, not {section!r}.")
    kind = section.get("kind")
    if kind is None:
        raise SettingError(f"game.kind is required: one of {', '.join(KINDS)}.")
    if kind not in KINDS:
        raise SettingError(f"game.kind is {kind!r}.{nearest(str(kind), KINDS)}")
    settings = read_settings(KINDS[kind], section, "game")
    return settings.build()


def _parse(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingError(f"The game file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise SettingError(f"The game file {path} is not UTF-8 text.") from None
    try:
        values = yaml.load(text, Loader=_Strict)
    except yaml.YAMLError as error:
        raise SettingError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(values, Mapping):
        raise SettingError(f"{path} must hold a mapping with the section `game`, not {type(values).__name__}.")
    return values


class _Strict(yaml.SafeLoader):
    """Refuses a key written twice, which YAML readers otherwise drop without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is written twice", key_node.start_mark)
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)
