"""The mechanisms: which rounds are played, which payments follow, and what each one promises."""

from __future__ import annotations

from .base import Mechanism, Run
from .registry import get, names
from .settings import Settings

__all__ = ["Mechanism", "Run", "Settings", "get", "names"]
