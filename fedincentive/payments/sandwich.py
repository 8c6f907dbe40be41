"""FACT's sandwich game and shaped levels as ledger rules; the league writes them, no center of ours does yet."""

from __future__ import annotations

from dataclasses import dataclass

from ..entry import Entry
from ..run import Run
from .base import Body, Event, Memory, Payment
from .exact import Amounts
from .pooled import levels, sandwich


@dataclass(frozen=True)
class Sandwich(Payment):
    """Fees and penalties, and in each trio a prize for the middle cost (Bornstein et al. 2024)."""

    name, kinds, rules, balanced, steers = "sandwich", ("sandwich",), ("sandwich/1",), False, False

    def due(self, run: Run, event: Event) -> Entry | None:
        return None

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        given = body["inputs"]
        return sandwich(given["fees"], given["penalties"], given["costs"], given["seed"])


@dataclass(frozen=True)
class Levels(Payment):
    """How good a model each agent was given (accuracy shaping); nothing is posted."""

    name, kinds, rules, steers = "level", ("level",), ("level/1",), False

    def due(self, run: Run, event: Event) -> Entry | None:
        return None

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        return levels(body["inputs"]["levels"])
