"""Oracles: how the center can check what agents say. Without them a truthful payment claims nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..game import Game
from ..messages import Update


class ValuationOracle(Protocol):
    """Knows v_i: exactly in simulation, from a public validation set otherwise."""

    def value(self, agent: str, w: Update, s: Mapping[str, float]) -> float:
        """v_i(w, s)."""


class UpdateOracle(Protocol):
    """Knows what an agent really did: in simulation, or by re-execution at the site. A validation set cannot know."""

    def points(self, agent: str) -> float:
        """The contribution the agent really makes from now on: the attested s_i."""

    def update(self, agent: str, w: Update, s: Mapping[str, float], step: int) -> Update:
        """grad_w v_i(w, s)."""


@dataclass(frozen=True)
class Oracles:
    """What the center of this run can check."""

    valuation: ValuationOracle | None = None
    update: UpdateOracle | None = None


@dataclass(frozen=True)
class GameOracle:
    """Both oracles of a closed-form game. `actual(agent)` tells what the agent really contributes."""

    game: Game
    actual: Callable[[str], float]

    def value(self, agent: str, w: Update, s: Mapping[str, float]) -> float:
        return float(self.game.values(w["w"], self._vector(s))[self.game.agents.index(agent)])

    def points(self, agent: str) -> float:
        return self.actual(agent)

    def update(self, agent: str, w: Update, s: Mapping[str, float], step: int) -> Update:
        return {"w": self.game.gradient(self.game.agents.index(agent), w["w"], self._vector(s))}

    def _vector(self, s: Mapping[str, float]) -> np.ndarray:
        return np.array([s[agent] for agent in self.game.agents])
