"""The center: a plain state machine that broadcasts, collects reports, aggregates, pays and records."""

from __future__ import annotations

from .center import Center
from .outcome import Outcome

__all__ = ["Center", "Outcome"]
