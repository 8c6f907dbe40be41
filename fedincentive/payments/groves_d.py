"""groves-d: payments that make the true gradient the best update, balanced exactly, without oracle or prior.

    h = eta/n,   q_i = (k_i h^2 - h)/2 |d_i|^2
    p_i = q_i - mean_{j != i} q_j + h^2 k_i sum_{l != i} <d_i, d_l>
          - h^2/(n-2) sum_{j < l, both != i} (k_j + k_l) <d_j, d_l>

k_i is the curvature of v_i in w; an absent agent counts as d_i = 0. docs/truthful.md has the derivation and what it
assumes: n >= 3, server SGD with a uniform mean, d in money, one name each, and with T rounds a weight rho^(T-1-t).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..entry import BALANCED, Entry
from ..errors import SettingError
from ..messages import Update
from ..run import Run
from ..terms import Terms
from .base import Body, Event, Memory, Payment, Problem, Promises, When, in_order
from .exact import Amounts, quantise
from .oracles import Oracles
from .pooled import pair

PRODUCTS = 10**9  # steps per unit of <d_i, d_j>
WEIGHTS = 10**12  # decimals of a round's weight


def product(a: Update, b: Update) -> float:
    return sum(
        float(np.sum(np.multiply(a[name], b[name], dtype=np.float64)))
        for name in a
        if np.asarray(a[name]).dtype.kind == "f"
    )


def too_long(gram: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Products <a, b> beyond |a| |b|, which no updates have; a unit and a millionth are left to rounding."""
    for a, row in gram.items():
        for b, inner in row.items():
            if (abs(inner) - 1) ** 2 * 10**6 > (gram[a][a] + 1) * (gram[b][b] + 1) * (10**6 + 1):
                yield f"<{a}, {b}> is {inner}"


@dataclass(frozen=True)
class GrovesUpdates(Payment):
    curvature: dict[str, Fraction] | Fraction = Fraction(0)  # k_i, of every agent or by agent
    discount: Fraction = Fraction(1)  # rho: a round t of T weighs rho^(T-1-t)
    eta: float = 1.0
    rounds: int = 1
    server_optimizer: str = "sgd"
    weights: str = "uniform"
    aggregation: str | None = None
    sampled: int | None = None

    name, kinds, rules, steers = "groves-d", ("groves-d",), ("pair/1",), False

    def check(self, n: int, oracles: Oracles) -> None:
        asked = min(self.sampled or n, n)
        if asked < 3:
            raise SettingError(
                f"incentive.payment is 'groves-d' with {asked} agent{'s' * (asked != 1)} in a round: it needs at least "
                "3, as a pair's part is charged to the others."
            )
        for key, wanted in (("server_optimizer", "sgd"), ("weights", "uniform"), ("aggregation", "mean")):
            if (getattr(self, key) or wanted) != wanted:
                raise SettingError(
                    f"incentive.{key} is {getattr(self, key)!r}: groves-d pays for w <- w + eta/n sum_i d_i, so set "
                    f"{key}: {wanted}."
                )
        if not 0 < self.discount <= 1:
            raise SettingError(
                f"incentive.options.groves-d.discount is {self.discount}: it must be above 0, at most 1."
            )

    def k(self, agent: str) -> Fraction:
        if not isinstance(self.curvature, Mapping):
            return self.curvature
        if agent not in self.curvature:
            raise SettingError(f"incentive.options.groves-d.curvature has no number for agent {agent!r}.")
        return self.curvature[agent]

    def caution(self, run: Run) -> str:
        for agent in run.agents:
            self.k(agent)  # refused before the first round
        return ""

    def weight(self, step: int) -> Fraction:
        return Fraction(round(self.discount ** (self.rounds - 1 - step) * WEIGHTS), WEIGHTS)

    def due(self, run: Run, event: Event) -> Entry | None:
        if event.phase != "train":
            return None
        agents = sorted(run.drawn or run.agents)
        sent = {agent: event.reports[agent].update for agent in agents if agent in event.reports}
        gram = {
            a: {
                b: quantise(product(sent[a], sent[b]), PRODUCTS) if a in sent and b in sent else 0
                for b in agents[: i + 1]
            }
            for i, a in enumerate(agents)
        }
        step = run.trained - 1
        inputs = {
            "gram": gram,
            "unit": PRODUCTS,
            "h": str(Fraction(str(self.eta)) / len(sent)),
            "k": {agent: str(self.k(agent)) for agent in agents},
            "weight": str(self.weight(step)),
            "step": step,
            "absent": [agent for agent in agents if agent not in sent],
        }
        return self.entry(run, inputs)

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        given = body["inputs"]
        return pair(
            given["gram"], given["unit"], given["h"], given["k"], given["weight"], minor=minor, rotation=body["round"]
        )

    @classmethod
    def replay(cls, body: Body, memory: Memory, minor: int) -> Iterator[Problem | Amounts]:
        yield from in_order(body, memory)
        yield from super().replay(body, memory, minor)

    def schedule(self) -> Mapping[str, When]:
        return {"groves-d": "step"}

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        given = body["inputs"]
        agents, absent = sorted(given["gram"]), given["absent"]
        asked = min(terms.sampled or len(terms.s_max), len(terms.s_max))
        if len(agents) != asked or not set(absent) <= set(agents) <= set(terms.s_max):
            yield f"it pays {len(agents)} agents, agreed are {asked} of those in the terms"
            return
        agreed = {
            "unit": PRODUCTS,
            "h": str(Fraction(str(self.eta)) / max(len(agents) - len(absent), 1)),
            "k": {agent: str(self.k(agent)) for agent in agents},
            "weight": str(self.weight(given["step"])),
        }
        for key, value in agreed.items():
            if given[key] != value:
                yield f"{key} is {given[key]!r}, agreed is {value!r}"
        if any(given["gram"][a][b] for a in agents for b in given["gram"][a] if a in absent or b in absent):
            yield "an absent agent has an update"
        yield from (f"{wrong}, more than the lengths of the two updates allow" for wrong in too_long(given["gram"]))

    @classmethod
    def explain(cls, entry: Entry, account: str, minor: int) -> str:
        if account not in entry.inputs["gram"]:
            return entry.rule
        own = entry.inputs["gram"][account][account] / entry.inputs["unit"]
        return f"groves-d: |d|^2 = {own:.6g}, h = {entry.inputs['h']}, k = {entry.inputs['k'][account]}"

    def promises(self, oracles: Oracles) -> Promises:
        return Promises(
            (BALANCED,),
            {
                "truthful": "updates: no gain where v_i is quadratic in w with curvature k_i, a bound elsewhere "
                "(docs/truthful.md); the points s and how many names an agent has are not covered"
            },
        )

    def notes(self, n: int) -> tuple[str, ...]:
        return ("Updates must be gradients of the valuation, in units of money; an agent with two names gains.",)
