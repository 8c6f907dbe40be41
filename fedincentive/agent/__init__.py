"""Agents: data owners with a strategy, and the sites their data is at."""

from __future__ import annotations

from ..identity import digest, read_keys
from .agent import Agent
from .notary import Notary
from .offer import Offer
from .sites import ClosedFormSite, GameOracle, LossSite, Site, worth_alone
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
    "Notary",
    "Offer",
    "Site",
    "SoftmaxSite",
    "Strategy",
    "View",
    "digest",
    "read_keys",
    "strategy",
    "worth_alone",
]
