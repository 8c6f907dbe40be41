"""Aggregation rules over clients' updates: NumPy arrays, CPU torch tensors, or mappings of them."""

from __future__ import annotations

from .clipping import centered_clipping, norm_clipping
from .coordinatewise import median, trim_count, trimmed_mean, weighted_mean
from .distance_based import geometric_median, krum, multi_krum
from .finite import all_finite
from .rules import Rule, names, rule, rules
from .stored import StoredUpdate
from .tiles import StoredUpdates
from .writing import store

__all__ = [
    "Rule",
    "StoredUpdate",
    "StoredUpdates",
    "all_finite",
    "centered_clipping",
    "geometric_median",
    "krum",
    "median",
    "multi_krum",
    "names",
    "norm_clipping",
    "rule",
    "rules",
    "store",
    "trim_count",
    "trimmed_mean",
    "weighted_mean",
]
