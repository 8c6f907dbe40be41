"""What each agent's update is worth to the model, from updates that the center already has.

| name | values | evaluations of a model |
|---|---|---|
| `exact` | Shapley: the mean of what i adds to every coalition before it | 2^n, n at most 16 |
| `gtg` | Shapley, estimated over random orders, cut where nothing is left to gain | far fewer; with an interval |
| `loo` | U(N) - U(N without i) | n + 1 |
| `cgsv` | the cosine of i's update and everybody's, remembered over rounds | none |
| `agreement` | how far i's own model agrees with the others' on shared items, beyond chance | n, of labels |

U(C) is the utility of w + step times the mean update of the coalition C, U of nobody that of w.

>>> import numpy as np
>>> w, updates = {"w": np.zeros(1)}, {"a": {"w": np.ones(1)}, "b": {"w": 3.0 * np.ones(1)}}
>>> exact(Coalitions(w, updates), lambda model: float(model["w"][0])).values
{'a': 0.0, 'b': 2.0}
"""

from __future__ import annotations

from .agreement import agreement, labels_by_effort
from .coalitions import Coalitions, Utility, shapley_weights, subsets
from .estimates import METHODS, MOST_EXACT, Contributions, cgsv, exact, finite, gtg, loo

__all__ = [
    "METHODS",
    "MOST_EXACT",
    "Coalitions",
    "Contributions",
    "Utility",
    "agreement",
    "cgsv",
    "exact",
    "finite",
    "gtg",
    "labels_by_effort",
    "loo",
    "shapley_weights",
    "subsets",
]
