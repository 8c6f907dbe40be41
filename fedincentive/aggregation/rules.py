"""Aggregation rules by the names used in configurations."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from ..errors import SettingError
from .clipping import centered_clipping, norm_clipping
from .coordinatewise import median, trimmed_mean, weighted_mean
from .distance_based import geometric_median, krum, multi_krum

RULES: dict[str, Callable[..., Any]] = {
    "mean": weighted_mean,
    "trimmed-mean": trimmed_mean,
    "median": median,
    "krum": krum,
    "multi-krum": multi_krum,
    "geometric-median": geometric_median,
    "centered-clipping": centered_clipping,
    "norm-clipping": norm_clipping,
}


def rule(name: str) -> Callable[..., Any]:
    """The aggregation rule of that name, to be called with the updates and its own settings.

    >>> import numpy as np
    >>> rule("median")([np.float32([1]), np.float32([7]), np.float32([3])])
    array([3.], dtype=float32)
    """
    if name in RULES:
        return RULES[name]
    near = get_close_matches(str(name), RULES, n=1, cutoff=0.0)
    raise SettingError(f"There is no aggregation rule {name!r}; did you mean {near[0]!r}? Known: {', '.join(RULES)}.")
