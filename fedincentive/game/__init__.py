"""The game of contributions: valuations, costs, dynamics, step sizes, certificates and quotes."""

from __future__ import annotations

from .certificate import (
    CLAIMS,
    Audits,
    Certificate,
    Claim,
    Evidence,
    Fact,
    Misreports,
    Robustness,
    Verdict,
    certify,
    outside_options,
)
from .costs import ConvexCost, Cost, EffectiveCost, LinearCost
from .dynamics import State, Stride, ascent, best_replies, best_reply, contributions, joint, last, stride
from .games import Game, paper_example, repaired_example
from .phases import PhaseOne, beta_dom, beta_ne, phase_one
from .quoting import AgentQuote, Quote, quote
from .random_games import random_data_value, random_quadratic
from .reading import GameFile, load, read
from .regret import Regret, max_regret, regrets
from .search import Search
from .valuations import Curve, DataValue, Line, Logarithm, LossValuation, PowerLaw, Quadratic, SharedError, Valuation

__all__ = [
    "AgentQuote",
    "Audits",
    "CLAIMS",
    "Certificate",
    "Claim",
    "Evidence",
    "Fact",
    "Verdict",
    "GameFile",
    "LossValuation",
    "Misreports",
    "Regret",
    "Robustness",
    "best_replies",
    "best_reply",
    "certify",
    "load",
    "max_regret",
    "read",
    "outside_options",
    "regrets",
    "ConvexCost",
    "Cost",
    "Curve",
    "DataValue",
    "EffectiveCost",
    "Game",
    "Line",
    "LinearCost",
    "Logarithm",
    "PhaseOne",
    "PowerLaw",
    "Quote",
    "Quadratic",
    "Search",
    "SharedError",
    "State",
    "Stride",
    "Valuation",
    "ascent",
    "beta_dom",
    "beta_ne",
    "contributions",
    "joint",
    "last",
    "paper_example",
    "phase_one",
    "quote",
    "random_data_value",
    "random_quadratic",
    "repaired_example",
    "stride",
]
