"""Agents: data owners with a strategy, and the sites their data is at."""

from __future__ import annotations

from ..identity import authentic, digest, read_keys, sign
from .agent import Agent
from .sites import ClosedFormSite, GameOracle, LossSite, Site
from .slopes import View
from .softmax import SoftmaxSite
from .strategies import Away, BestResponse, Fixed, FreeRider, Gradient, Strategy, strategy

__all__ = [
    "Agent",
    "Away",
    "BestResponse",
    "ClosedFormSite",
    "Fixed",
    "FreeRider",
    "GameOracle",
    "Gradient",
    "LossSite",
    "Site",
    "SoftmaxSite",
    "Strategy",
    "View",
    "authentic",
    "digest",
    "read_keys",
    "sign",
    "strategy",
]
