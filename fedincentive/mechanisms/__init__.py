"""The mechanisms: which rounds are played, which payments follow, and what each one promises."""

from __future__ import annotations

from ..payments import Promises
from ..settings import Settings
from .base import Mechanism
from .registry import get, names

__all__ = ["Mechanism", "Promises", "Settings", "get", "names"]
