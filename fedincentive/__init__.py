"""Incentives, payments and robust aggregation for federated learning."""

from __future__ import annotations

__version__ = "0.1.0"
