"""Costs paid back (pay-what-you-contribute, Procaccia et al.): rate_i per delivered point, from the treasury."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..entry import BALANCED, Entry
from ..run import Run
from ..terms import Terms
from .base import Array, Body, Event, Memory, Payment, Promises, When, points_within
from .exact import SCALE, Amounts
from .oracles import Oracles
from .pooled import reimbursed


@dataclass(frozen=True)
class Reimburse(Payment):
    cost: float | dict[str, float] = 0.0  # per point over the whole run, as the settings declare it
    rounds: int = 1
    scale: int = SCALE

    name, kinds, rules, balanced, concave = "reimburse", ("reimburse",), ("reimburse/1",), False, True

    def due(self, run: Run, event: Event) -> Entry | None:
        if event.phase != "train":
            return None
        rates = {agent: str(self._rate(agent)) for agent in run.agents}
        return self.entry(run, {"rates": rates, "points": dict(run.delivered), "scale": self.scale})

    def _rate(self, agent: str) -> Fraction:
        cost = (
            self.cost.get(agent, 0.0) if isinstance(self.cost, Mapping) else self.cost
        )  # `caution` names who has none
        return Fraction(str(cost)) / self.rounds

    def caution(self, run: Run) -> str:
        for agent in run.agents:
            run.settings.cost_of(agent)  # refused before the first round
        return ""

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        given = body["inputs"]
        return reimbursed(given["rates"], given["points"], given["scale"], minor=minor)

    def schedule(self) -> Mapping[str, When]:
        return {"reimburse": "step"}

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        given = body["inputs"]
        if given["scale"] != self.scale:
            yield f"scale is {given['scale']!r}, agreed is {self.scale}"
        for agent in sorted(set(given["rates"]) & set(terms.s_max)):
            if given["rates"][agent] != str(self._rate(agent)):
                yield f"the rate of {agent!r} is {given['rates'][agent]!r}, agreed is '{self._rate(agent)}'"
        yield from points_within(given["points"], terms.s_max, "points")

    @classmethod
    def explain(cls, entry: Entry, account: str, minor: int) -> str:
        given = entry.inputs
        if account not in given["points"]:
            return entry.rule
        return f"{given['rates'][account]} x {given['points'][account] / given['scale']:.12g} delivered points"

    @classmethod
    def told(cls, entry: Entry) -> Mapping[str, Mapping[str, int]]:
        return {"delivered": entry.inputs["points"]}

    def floats(self, agents: Sequence[str], s: Array, t: Array | None = None) -> Array:
        return self.slopes(agents, s) * (s if t is None else t)

    def slopes(self, agents: Sequence[str], s: Array) -> Array:
        return np.array([float(self._rate(agent)) * self.rounds for agent in agents])

    def limits(self, agents: Sequence[str], s_max: Array) -> Array:
        return np.zeros(len(s_max))

    def promises(self, oracles: Oracles) -> Promises:
        why = {BALANCED: "the treasury pays all costs", "truthful": "a larger stated cost is paid as well"}
        return Promises((), why)
