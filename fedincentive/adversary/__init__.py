"""Adversaries: attacks on updates, and misreports of s, d and v."""

from __future__ import annotations

from .attacks import ATTACKS, Attack, attack, flip_labels, strongest
from .misreports import MISREPORTS, Misreport, misreport

__all__ = ["ATTACKS", "MISREPORTS", "Attack", "Misreport", "attack", "flip_labels", "misreport", "strongest"]
