"""The mechanisms: which rounds are played, which payments follow, and what each one promises."""

from __future__ import annotations

from ..draws import generator
from ..settings import Settings
from .base import Answer, Mechanism, Promises, Run
from .oracles import GameOracle, Oracles, UpdateOracle, ValuationOracle
from .registry import get, names

__all__ = [
    "Answer",
    "GameOracle",
    "Mechanism",
    "Oracles",
    "Promises",
    "Run",
    "Settings",
    "UpdateOracle",
    "ValuationOracle",
    "generator",
    "get",
    "names",
]
