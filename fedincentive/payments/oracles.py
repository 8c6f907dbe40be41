"""Oracles: how the center can check what agents say. Without them a truthful payment claims nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

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
    utility: Callable[[Update], float] | None = None  # what a model is worth to all, e.g. on a validation set
    alone: Callable[[str, float], float] | None = None  # A_i(t): what an agent has by itself on t points
    labels: Callable[[str, Update], Any] | None = None  # of shared items, by an agent's own model: whole numbers from 0

    @property
    def names(self) -> tuple[str, ...]:
        """Which oracles there are."""
        return tuple(name for name in ("update", "valuation") if getattr(self, name) is not None)
