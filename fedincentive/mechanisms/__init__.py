"""The mechanisms: which rounds are played, which payments follow, and what each one promises.

>>> names()[:4]
['fedavg', 'upbred', 't-upbred', '2p-upbred']
>>> get("2p-upbred", Settings()).promises().claims
('full-contribution', 'equilibrium', 'false-name-proof', 'budget-balanced')
"""

from __future__ import annotations

from ..payments import Promises
from ..settings import Settings
from .base import Mechanism
from .registry import get, names, prepared, strategy

__all__ = ["Mechanism", "Promises", "Settings", "get", "names", "prepared", "strategy"]
