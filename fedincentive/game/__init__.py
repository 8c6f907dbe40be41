"""The game of contributions: valuations, costs, dynamics, step sizes, certificates and quotes."""

from __future__ import annotations

from .costs import ConvexCost, Cost, EffectiveCost, LinearCost
from .curves import Curve, Line, Logarithm, PowerLaw
from .games import Game, paper_example, repaired_example
from .valuations import DataValue, Quadratic, SharedError, Valuation

__all__ = [
    "ConvexCost",
    "Cost",
    "Curve",
    "DataValue",
    "EffectiveCost",
    "Game",
    "Line",
    "LinearCost",
    "Logarithm",
    "PowerLaw",
    "Quadratic",
    "SharedError",
    "Valuation",
    "paper_example",
    "repaired_example",
]
