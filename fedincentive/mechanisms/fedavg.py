"""FedAvg: every agent gives all it has.

s = s_max
for t = 0 .. T-1:
    center broadcasts w
    each agent sends d_i = grad_w v_i(w, s_max)
    w <- w + eta/n sum_i d_i
"""

from __future__ import annotations

from ..messages import Phase
from .base import Mechanism, Promises, Run


class FedAvg(Mechanism):
    """The cooperative baseline: contributions are not a choice."""

    name = "fedavg"

    def start(self, run: Run) -> Phase:
        run.s = dict(run.s_max)
        return "train"

    def promises(self, phi: str) -> Promises:
        return Promises(disclaimed={"equilibrium": "nobody is asked what it wants to give"})
