"""FedAvg: every agent gives all it has.

s = s_max
for t = 0 .. T-1:
    center broadcasts w
    each agent sends d_i = grad_w v_i(w, s_max)
    w <- w + eta/n sum_i d_i
"""

from __future__ import annotations

from ..messages import Phase
from ..payments import Promises
from ..run import Run
from .base import Mechanism


class FedAvg(Mechanism):
    """The cooperative baseline: contributions are not a choice."""

    name = "fedavg"
    gives_all = True

    def start(self, run: Run) -> Phase:
        run.s = dict(run.s_max)
        return "train"

    def claims(self) -> Promises:
        return Promises(disclaimed={"equilibrium": "nobody is asked what it wants to give"})
