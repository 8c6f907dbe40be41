"""Aggregation rules over clients' updates: NumPy arrays, torch tensors, mappings of them, or files.

>>> import numpy as np
>>> rule("median")([np.float32([1]), np.float32([7]), np.float32([3])]), names()[:3]
(array([3.], dtype=float32), ['mean', 'trimmed-mean', 'median'])
"""

from __future__ import annotations

from .clipping import centered_clipping, norm_clipping
from .coordinatewise import median, trim_count, trimmed_mean, weighted_mean
from .distance_based import geometric_median, krum, multi_krum
from .finite import all_finite
from .rules import Rule, names, rule, rules
from .stored import ScatteredUpdate, StoredUpdate
from .tiles import StoredUpdates
from .writing import store

__all__ = [
    "Rule",
    "ScatteredUpdate",
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
