"""fedincentive in Flower: a Strategy for the message API, and a wrapper that makes a ClientApp a strategic agent.

    server_app.py   strategy = IncentiveStrategy.from_context(context); strategy.start(grid, initial_arrays)
    client_app.py   app = strategic(ordinary_app, size=points_of_this_node, classes=10)
    pyproject.toml  [tool.flwr.app.config.incentive] mechanism = "2p-upbred", beta = "2", ...

FedTrimmedAvg, FedMedian, Krum, MultiKrum and Bulyan replace Flower's own of the same names; RobustStrategy takes any
rule by its name. Nothing here imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ...checks import nearest

if TYPE_CHECKING:
    from .client import StrategicApp, play, points, strategic
    from .robust import Bulyan, FedMedian, FedTrimmedAvg, Krum, MultiKrum, RobustStrategy
    from .strategy import IncentiveStrategy

__all__ = [
    "Bulyan",
    "FedMedian",
    "FedTrimmedAvg",
    "IncentiveStrategy",
    "Krum",
    "MultiKrum",
    "RobustStrategy",
    "StrategicApp",
    "play",
    "points",
    "strategic",
]

_MODULE_OF = {
    **dict.fromkeys(("StrategicApp", "play", "points", "strategic"), "client"),
    **dict.fromkeys(("Bulyan", "FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "RobustStrategy"), "robust"),
    "IncentiveStrategy": "strategy",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no name {name!r}.{nearest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
