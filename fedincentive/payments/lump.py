"""Lump sums: constants in the terms that make joining worth while for everyone, and move nobody's choice.

    p_i = L_i,  sum_i L_i = 0,  whatever anyone contributes

An agent's best reply does not depend on a constant, so full contribution stays an equilibrium. Where somebody declined,
what it would have got or given is spread equally over those who take part.

| rule | inputs | postings |
|---|---|---|
| lump/1 | amounts (exact) | each in whole minor units, with the exact sum 0 |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from ..checks import nearest
from ..entry import Entry
from ..errors import SettingError
from ..run import Run
from ..terms import Terms
from .base import Array, Body, Event, Memory, Payment, Promises, When
from .exact import Amounts, apportion, bounded, check_agents
from .oracles import Oracles

RULE = "lump/1"


def spread(lump_sums: Mapping[str, Fraction], agents: Sequence[str]) -> dict[str, Fraction]:
    """The lump sums of these agents; who is not named gets 0, and those who are not here are shared out.

    >>> {agent: str(money) for agent, money in spread({"a": Fraction(3), "b": Fraction(-3)}, ("b", "c")).items()}
    {'b': '-3/2', 'c': '3/2'}
    """
    excess = sum((lump_sums.get(agent, Fraction(0)) for agent in agents), start=Fraction(0)) / len(agents)
    return {agent: lump_sums.get(agent, Fraction(0)) - excess for agent in agents}


@dataclass(frozen=True)
class LumpSum(Payment):
    """L_i at the beginning of training, budget balanced.

    >>> LumpSum({"a": Fraction(1, 2), "b": Fraction(-1, 2)}).floats(("a", "b"), np.array([3.0, 5.0]))
    array([ 0.5, -0.5])
    """

    lump_sums: Mapping[str, Fraction]

    name = "lump"
    kinds = ("lump",)
    rules = (RULE,)
    steers = False
    fixed = True

    def named(self, agents: Sequence[str]) -> None:
        """Refuse a lump sum of somebody who is not there."""
        for agent in self.lump_sums:
            if agent not in agents:
                raise SettingError(
                    f"incentive.lump_sums names {agent!r}, who is not among the agents.{nearest(agent, agents)}"
                )

    def due(self, run: Run, event: Event) -> Entry | None:
        if event.phase != "commit":
            return None
        return self.entry(run, {"amounts": {a: str(money) for a, money in spread(self.lump_sums, run.agents).items()}})

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        given = {agent: Fraction(money) for agent, money in body["inputs"]["amounts"].items()}
        check_agents(dict.fromkeys(given, 0), "the lump sum")
        parts = lcm(*(money.denominator for money in given.values()))
        return bounded(apportion({agent: int(money * parts) * minor for agent, money in given.items()}, parts))

    def schedule(self) -> Mapping[str, When]:
        return {"lump": "commit"}

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        given, agreed = body["inputs"]["amounts"], spread(self.lump_sums, sorted(terms.s_max))
        for agent in sorted({*given, *agreed}):
            if given.get(agent) != str(agreed.get(agent)):
                yield f"the lump sum of {agent!r} is {given.get(agent)}, agreed is {agreed.get(agent)}"

    @classmethod
    def explain(cls, entry: Entry, account: str, minor: int) -> str:
        return f"lump sum of {entry.inputs['amounts'].get(account, '0')}, whatever is contributed"

    def floats(self, agents: Sequence[str], s: Array, t: Array | None = None) -> Array:
        return np.array([float(money) for money in spread(self.lump_sums, agents).values()])

    def promises(self, oracles: Oracles) -> Promises:
        return Promises(("individually-rational",))

    def summary(self, oracles: Oracles | None = None) -> str:
        return "lump sums " + ", ".join(f"{agent} {float(money):+g}" for agent, money in self.lump_sums.items())

    def limits(self, agents: Sequence[str], s_max: Array) -> Array:
        return -self.floats(agents, s_max)
