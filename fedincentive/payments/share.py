"""A budget divided by scores: each of the T training rounds pays a T-th of it from the treasury.

Scores are the points delivered, or what the updates were worth (`contribution: exact | gtg | loo | cgsv`); a negative
worth counts as 0, and a round in which nobody scores pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..entry import BALANCED, Entry
from ..errors import SettingError
from ..run import Run
from ..terms import Terms
from .base import Array, Body, Event, Memory, Payment, Problem, Promises, When, in_order, points_within
from .exact import MINOR, Amounts, quantise
from .oracles import Oracles
from .pooled import shares

WORTH = 10**9  # steps per unit of worth


@dataclass(frozen=True)
class Share(Payment):
    budget: Fraction = Fraction(0)
    rounds: int = 1
    minor: int = MINOR
    contribution: str | None = None  # how updates are valued; by delivered points where they are not

    name, kinds, rules, balanced = "share", ("share",), ("share/1",), False

    def check(self, n: int, oracles: Oracles) -> None:
        super().check(n, oracles)
        if self.budget <= 0:
            raise SettingError('incentive.options.share.budget is required: what is divided, such as "100".')

    def part(self, step: int) -> int:
        """What a training round divides, in minor units; all rounds together the whole budget."""
        whole = round(self.budget * self.minor)
        return whole * (step + 1) // self.rounds - whole * step // self.rounds

    def due(self, run: Run, event: Event) -> Entry | None:
        if event.phase != "train":
            return None
        if self.contribution is None:
            scores = {agent: run.delivered[agent] for agent in run.agents}
        else:
            worth = event.worth
            scores = {agent: quantise(max(worth.get(agent, 0.0), 0.0), WORTH) for agent in run.agents}
        step = run.trained - 1
        by = self.contribution or "points"
        return self.entry(run, {"budget": self.part(step), "scores": scores, "step": step, "by": by})

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        return shares(body["inputs"]["budget"], body["inputs"]["scores"], rotation=body["round"])

    @classmethod
    def replay(cls, body: Body, memory: Memory, minor: int) -> Iterator[Problem | Amounts]:
        yield from in_order(body, memory)
        yield from super().replay(body, memory, minor)

    def schedule(self) -> Mapping[str, When]:
        return {"share": "step"}

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        given = body["inputs"]
        if set(given["scores"]) != set(terms.s_max):
            odd = sorted(set(given["scores"]) ^ set(terms.s_max))[0]
            yield f"{odd!r} has a score but is not in the terms, or is in the terms and has none"
        if given["by"] != (self.contribution or "points"):
            yield f"it is divided by {given['by']!r}, agreed is {self.contribution or 'points'!r}"
        elif given["by"] == "points":
            yield from points_within(given["scores"], terms.s_max, "points")
        if not 0 <= given["step"] < self.rounds or given["budget"] != self.part(given["step"]):
            yield f"its budget is {given['budget']}, agreed is a {self.rounds}th of {self.budget}"

    @classmethod
    def explain(cls, entry: Entry, account: str, minor: int) -> str:
        scores = entry.inputs["scores"]
        if account not in scores:
            return entry.rule
        part = scores[account] / max(sum(scores.values()), 1)
        return f"{part:.4%} of {float(Fraction(entry.inputs['budget'], minor)):.6g} by its score"

    @classmethod
    def told(cls, entry: Entry) -> Mapping[str, Mapping[str, int]]:
        return {"delivered": entry.inputs["scores"]} if entry.inputs.get("by") == "points" else {}

    def floats(self, agents: Sequence[str], s: Array, t: Array | None = None) -> Array:
        if self.contribution is not None:
            return np.zeros(len(s))
        own = s if t is None else t
        total = np.sum(s) - s + own
        return float(self.budget) * own / np.where(total > 0.0, total, 1.0)

    def slopes(self, agents: Sequence[str], s: Array) -> Array:
        if self.contribution is not None:
            return np.zeros(len(s))
        total = float(np.sum(s))
        return float(self.budget) * (total - s) / total**2 if total > 0.0 else np.full(len(s), float(self.budget))

    def limits(self, agents: Sequence[str], s_max: Array) -> Array:
        return np.zeros(len(s_max))

    def promises(self, oracles: Oracles) -> Promises:
        return Promises((), {BALANCED: "the treasury pays the budget"})
