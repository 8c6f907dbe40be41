"""Agents: data owners with a strategy, and the sites their data is at."""

from __future__ import annotations

from .agent import Agent
from .identity import authentic, digest, read_keys, sign
from .sites import ClosedFormSite, LossSite, Site
from .strategies import Fixed, FreeRider, Gradient, Strategy, View, strategy

__all__ = [
    "Agent",
    "ClosedFormSite",
    "Fixed",
    "FreeRider",
    "Gradient",
    "LossSite",
    "Site",
    "Strategy",
    "View",
    "authentic",
    "digest",
    "read_keys",
    "sign",
    "strategy",
]
