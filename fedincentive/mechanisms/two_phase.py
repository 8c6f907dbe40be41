"""2P-UPBReD: first everyone is brought to s_max by the payment, then the model is trained (Algorithm 2).

    while s != s_max:                                                       phase 1, w stays at w0
        center broadcasts s
        each agent sends s_i <- clip(s_i + gamma g_i(w0, s), 0, s_max_i)
    for t = 0 .. T-1:                                                       phase 2, FedAvg
        center broadcasts w
        each agent sends d_i = grad_w v_i(w, s_max)
        w <- w + eta/n sum_i d_i

With p_i(s) = beta (s_i - mean_{j != i} s_j) and beta > zeta + tau every utility increases in s_i, so phase 1 ends.
Nobody can hold it up: an agent that is absent too often stays where it is, and where all rest within the slack of s_max
they count as full.
"""

from __future__ import annotations

from ..messages import Phase
from ..payments import Contribution, Promises
from ..run import Run
from .base import Mechanism


class TwoPhase(Mechanism):
    """Full contribution in equilibrium, paid for by the agents among themselves."""

    name = "2p-upbred"
    two_phases = True
    gives_all = True
    pays = (Contribution,)

    def start(self, run: Run) -> Phase:
        return "train" if run.full else "contribute"

    def after_contribute(self, run: Run) -> Phase:
        if not (run.full or run.resting or run.at_limit):
            return "contribute"
        run.short = tuple(agent for agent in run.agents if run.s[agent] < run.s_max[agent])
        if run.full or run.nearly_full:
            return "train"
        run.status = "rested" if run.resting else "round limit"
        return "train" if self.settings.when_short == "train" else "done"

    def claims(self) -> Promises:
        return Promises(("full-contribution", "equilibrium"))


class TrimmedTwoPhase(TwoPhase):
    """2P-UPBReD whose phase 2 takes the coordinate-wise trimmed mean, against adversarial updates."""

    name = "trim-2p-upbred"
    aggregation = "trimmed-mean"
