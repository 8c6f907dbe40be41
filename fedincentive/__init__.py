"""Incentives, payments and robust aggregation for federated learning.

    u_i(w, s) = v_i(w, s) - c_i(s) + p_i(s)        agent i gives s_i points, the model is w, and it is paid p_i

Play a game, read what came out, and check the books:

>>> from fedincentive import play
>>> outcome = play({"game": {"kind": "repaired"}}, mechanism="2p-upbred", beta="0.5", rounds=20)
>>> outcome.status, outcome.s
('complete', {'agent-1': 5.0, 'agent-2': 5.0})
>>> [verdict.claim for verdict in outcome.certificate.findings if verdict.status == "broken"]
[]

Aggregate robustly, with NumPy arrays, torch tensors, state_dicts or safetensors files:

>>> import numpy as np
>>> from fedincentive import trimmed_mean
>>> trimmed_mean([np.float32([1]), np.float32([2]), np.float32([900])], trim=1)
array([2.], dtype=float32)

    Playing      play, Settings, Agent, Center
    Knowing      certify, Evidence, quote
    Extending    mechanisms, payments, aggregation        by name, also from other packages: docs/extending.md
    Books        ledger
    Aggregating  weighted_mean, trimmed_mean, median, krum, multi_krum, geometric_median, centered_clipping,
                 norm_clipping

In FedML, Flower and on the command line (`fedincentive --help`) the same names do the same. Every name here is loaded
on first use, so that `import fedincentive` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import aggregation, ledger, mechanisms, payments
    from .agent import Agent
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
    from .center import Center, Outcome
    from .engine import play
    from .game import Certificate, Evidence, certify, quote
    from .settings import Settings

_NAMES_OF = {
    "engine": ("play",),
    "center": ("Center", "Outcome"),
    "agent": ("Agent",),
    "settings": ("Settings",),
    "game": ("Certificate", "Evidence", "certify", "quote"),
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
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}

__all__ = [  # noqa: F822
    "Agent",
    "Center",
    "Certificate",
    "Evidence",
    "Outcome",
    "Settings",
    "aggregation",
    "centered_clipping",
    "certify",
    "geometric_median",
    "krum",
    "ledger",
    "mechanisms",
    "median",
    "multi_krum",
    "norm_clipping",
    "payments",
    "play",
    "quote",
    "trimmed_mean",
    "weighted_mean",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    from .checks import nearest

    raise AttributeError(f"module {__name__!r} has no name {name!r}.{nearest(name, __all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
