"""2P-UPBReD: first everyone is brought to s_max by the payment, then the model is trained (Algorithm 2).

    while s != s_max:                                                       phase 1, w stays at w0
        center broadcasts s
        each agent sends s_i <- clip(s_i + gamma g_i(w0, s), 0, s_max_i)
    for t = 0 .. T-1:                                                       phase 2, FedAvg
        center broadcasts w
        each agent sends d_i = grad_w v_i(w, s_max)
        w <- w + eta/n sum_i d_i

With p_i(s) = beta (s_i - mean_{j != i} s_j) and beta > zeta + tau every utility increases in s_i, so phase 1 ends.
"""

from __future__ import annotations

from ..messages import Phase
from .base import Mechanism, Promises, Run
from .truthful import promise


class TwoPhase(Mechanism):
    """Full contribution in equilibrium, paid for by the agents among themselves."""

    name = "2p-upbred"
    two_phases = True
    pays = "contribution"

    def start(self, run: Run) -> Phase:
        return "train" if run.full else "contribute"

    def after_contribute(self, run: Run) -> Phase:
        if run.full:
            return "train"
        if not (run.resting or run.at_limit):
            return "contribute"
        run.status = "rested" if run.resting else "round limit"
        run.short = tuple(agent for agent in run.agents if run.s[agent] < run.s_max[agent])
        return "train" if self.settings.when_short == "train" else "done"

    def promises(self, phi: str) -> Promises:
        claims = ["full-contribution"]
        disclaimed = {"merger-proof": "two agents that merge are compared with fewer others and gain"}
        if self.contribution:
            claims.append("false-name-proof")
        if self.payment == "contribution":
            claims.append("budget-balanced")
        if self.settings.settlement == "commitment":
            disclaimed["equilibrium"] = "the payment is sunk when training starts: delivering less pays"
        else:
            claims.append("equilibrium")
        made = Promises(tuple(claims), disclaimed)
        return promise(made, self.settings, phi) if self.truthful else made


class TrimmedTwoPhase(TwoPhase):
    """2P-UPBReD whose phase 2 takes the coordinate-wise trimmed mean, against adversarial updates."""

    name = "trim-2p-upbred"
    aggregation = "trimmed-mean"
