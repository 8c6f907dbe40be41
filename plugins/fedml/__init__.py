"""fedincentive in FedML: name a mechanism in `federated_optimizer:` and run FedML's own `FedMLRunner`.

Installing fedincentive is enough: a hook at interpreter start waits for a program to import FedML (turn it off with
FEDINCENTIVE_FEDML=0). The explicit line `import fedincentive.plugins.fedml` does the same. FedML's own optimizers are
left as they are.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from .doctor import Status, status

if TYPE_CHECKING:
    from .aggregator import IncentiveServerAggregator
    from .trainer import IncentiveClientTrainer

__all__ = ["IncentiveClientTrainer", "IncentiveServerAggregator", "Status", "activate", "status"]

_MODULE_OF = {"IncentiveClientTrainer": "trainer", "IncentiveServerAggregator": "aggregator"}


def activate() -> None:
    """Join FedML, now if it is imported already, else as soon as it is. Doing it twice changes nothing."""
    if "fedml.runner" in sys.modules:
        from .dispatch import install

        install()
    else:
        import fedincentive_hook

        if fedincentive_hook.Finder not in sys.meta_path:
            sys.meta_path.insert(0, fedincentive_hook.Finder)


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no name {name!r}")


activate()
