"""Incentives, payments and robust aggregation for federated learning.

Every public name is listed here and loaded on first use, so that `import fedincentive` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .aggregation import (
        centered_clipping,
        geometric_median,
        krum,
        median,
        multi_krum,
        norm_clipping,
        trimmed_mean,
        weighted_mean,
    )

_MODULE_OF = {
    name: module
    for module, names in {
        "aggregation": (
            "weighted_mean",
            "trimmed_mean",
            "median",
            "krum",
            "multi_krum",
            "geometric_median",
            "centered_clipping",
            "norm_clipping",
        ),
    }.items()
    for name in names
}

__all__ = [  # noqa: F822
    "centered_clipping",
    "geometric_median",
    "krum",
    "median",
    "multi_krum",
    "norm_clipping",
    "trimmed_mean",
    "weighted_mean",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    from .checks import nearest

    raise AttributeError(f"module {__name__!r} has no name {name!r}.{nearest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
