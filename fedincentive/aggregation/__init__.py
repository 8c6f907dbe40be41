"""Aggregation rules over clients' updates: NumPy arrays, torch tensors, mappings of them, or files.

>>> import numpy as np
>>> rule("median")([np.float32([1]), np.float32([7]), np.float32([3])]), names()[:3]
(array([3.], dtype=float32), ['mean', 'trimmed-mean', 'median'])
"""

from __future__ import annotations

from .bounds import evidence, robustness
from .clipping import centered_clipping, norm_clipping
from .coordinatewise import median, trim_count, trimmed_mean, weighted_mean
from .distance_based import krum, multi_krum
from .finite import all_finite
from .geometric import geometric_median
from .mixing import arc, bucketing, clip_updates, nnm
from .near_median import bulyan, meamed
from .rules import Rule, names, rule, rules
from .stored import ScatteredUpdate, StoredUpdate
from .subsets import caf, mda, monna, smea
from .tiles import StoredUpdates
from .writing import store

__all__ = [
    "Rule",
    "ScatteredUpdate",
    "StoredUpdate",
    "StoredUpdates",
    "all_finite",
    "arc",
    "bucketing",
    "bulyan",
    "caf",
    "centered_clipping",
    "clip_updates",
    "evidence",
    "geometric_median",
    "krum",
    "mda",
    "meamed",
    "median",
    "monna",
    "multi_krum",
    "names",
    "nnm",
    "norm_clipping",
    "robustness",
    "rule",
    "rules",
    "smea",
    "store",
    "trim_count",
    "trimmed_mean",
    "weighted_mean",
]
