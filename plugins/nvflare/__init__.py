"""fedincentive in NVFlare: a recipe whose sites are strategic agents, and robust aggregators for NVFlare's own.

    job.py      IncentiveRecipe(mechanism="2p-upbred", beta="0.5", model=Net(), train_script="client.py", ...)
    client.py   join(size=len(train), classes=10) after flare.init(), and points(model, len(train)) in each round

TrimmedMean, Median, Krum, MultiKrum and GeometricMedian are aggregators for NVFlare's FedAvgRecipe; RobustAggregator
takes any rule by its name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ...checks import nearest

if TYPE_CHECKING:
    from .recipe import IncentiveRecipe
    from .robust import GeometricMedian, Krum, Median, MultiKrum, RobustAggregator, TrimmedMean
    from .script import join, points, seed

__all__ = [
    "GeometricMedian",
    "IncentiveRecipe",
    "Krum",
    "Median",
    "MultiKrum",
    "RobustAggregator",
    "TrimmedMean",
    "join",
    "points",
    "seed",
]

_MODULE_OF = {
    **dict.fromkeys(("GeometricMedian", "Krum", "Median", "MultiKrum", "RobustAggregator", "TrimmedMean"), "robust"),
    **dict.fromkeys(("join", "points", "seed"), "script"),
    "IncentiveRecipe": "recipe",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no name {name!r}.{nearest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
