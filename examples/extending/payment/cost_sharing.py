"""Sharing costs (Murhekar et al., NeurIPS 2023): whoever bears more than the others' mean cost is paid a part of it.

p_i = beta (c_i(s_i) - mean_{j != i} c_j(s_j)),   once, on what was delivered on average in the T training rounds
"""

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from fedincentive.payments import Payment, Promises, relative


@dataclass(frozen=True)
class CostSharing(Payment):
    beta: Fraction  # fields are filled from the settings of the same name
    rounds: int
    scale: int
    cost: float | dict[str, float]  # per point, as the settings declare it

    name, kinds, rules, concave = "cost-sharing", ("cost-sharing",), ("cost-sharing/1",), True

    def due(self, run, event):
        if event.phase != "train" or run.trained < self.rounds:
            return None
        costs = {agent: str(Fraction(str(run.settings.cost_of(agent)))) for agent in run.agents}
        terms = {"beta": str(self.beta), "rounds": self.rounds, "scale": self.scale, "cost": costs}
        return self.entry(run, {**terms, "delivered": run.delivered_total})

    @classmethod
    def amounts(cls, body, memory, minor):
        phi = {agent: minor * cost for agent, cost in shares(body["inputs"]).items()}
        whole = lcm(*(share.denominator for share in phi.values()))
        return relative({agent: int(share * whole) for agent, share in phi.items()}, whole, body["round"])

    @classmethod
    def explain(cls, entry, account, minor):
        own = {agent: float(share) for agent, share in shares(entry.inputs).items()}
        others = (sum(own.values()) - own[account]) / (len(own) - 1)
        return f"beta x its cost = {own[account]:.6g}, less the others' mean {others:.6g}"

    def floats(self, agents, s, t=None):
        c = np.array([self.cost[a] if isinstance(self.cost, dict) else self.cost for a in agents])
        return float(self.beta) * (c * (s if t is None else t) - (np.sum(c * s) - c * s) / (len(s) - 1))

    def slopes(self, agents, s):
        return self.floats(agents, s, s + 1.0) - self.floats(agents, s)

    def limits(self, agents, s_max):
        return -self.floats(agents, s_max, np.zeros(len(s_max)))

    def promises(self, oracles):
        return Promises(("budget-balanced",), {"truthful": "whoever overstates its cost is paid more"})


def shares(given) -> dict[str, Fraction]:
    per_point = Fraction(given["beta"]) / (given["rounds"] * given["scale"])
    return {agent: per_point * Fraction(given["cost"][agent]) * points for agent, points in given["delivered"].items()}
