"""Payments relative to the others: p_i = phi_i - mean_{j != i} phi_j, with phi the costs borne or the updates' lengths.

    costs (FedBR-BG, Murhekar et al.):      phi_i = part c_i delivered_i / T            in each of T training rounds;
                                            part = 1 - 1/n is equal sharing of all costs
    gradients (Chakarov et al.):            phi_i = -(eta / 2n) |d_i|^2

The contribution payment is the case phi = beta s. Whoever is absent has delivered nothing; where lengths are compared
it counts as the longest update of the round, so that staying away is not paid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..entry import BALANCED, Entry
from ..errors import SettingError
from ..messages import Update
from ..run import Run
from ..settings import Settings
from ..terms import Terms
from .base import Array, Body, Event, Memory, Payment, Promises, When, points_within
from .exact import SCALE, Amounts, quantise
from .oracles import Oracles
from .pooled import comparison

SQUARES = 10**9  # steps per unit of |d|^2


def square(update: Update) -> float:
    """|d|^2, over everything that training moves."""
    return sum(
        float(np.sum(np.square(a, dtype=np.float64))) for a in update.values() if np.asarray(a).dtype.kind == "f"
    )


@dataclass(frozen=True)
class Relative(Payment):
    compares: str = "costs"
    part: Fraction | None = None  # of the costs that is pooled; 1 - 1/n shares them equally
    cost: float | dict[str, float] = 0.0  # per point, as the settings declare it
    eta: float = 1.0
    rounds: int = 1
    scale: int = SCALE

    name, kinds, rules, concave = "relative", ("relative",), ("relative/1",), True

    def __post_init__(self) -> None:
        if self.compares not in ("costs", "gradients"):
            raise SettingError(f"incentive.options.relative.compares is {self.compares!r}; known: costs, gradients.")
        if self.part is not None and not 0 < self.part < 1:
            raise SettingError(f"incentive.options.relative.part is {self.part}: it must be between 0 and 1.")

    @classmethod
    def of(cls, settings: Settings) -> Relative:
        """`gradient-relative` compares updates, everything else costs, unless the options say otherwise."""
        own = dict((settings.options or {}).get(cls.name, {}))
        if settings.mechanism == "gradient-relative":
            own.setdefault("compares", "gradients")
        return super().of(replace(settings, options={**(settings.options or {}), cls.name: own}))

    def due(self, run: Run, event: Event) -> Entry | None:
        if event.phase != "train":
            return None
        if self.compares == "costs":
            rates = {agent: str(self._rate(agent, run.n)) for agent in run.agents}
            return self.entry(run, {"rates": rates, "amounts": dict(run.delivered), "unit": self.scale})
        asked = run.drawn or run.agents
        if len(asked) < 2:
            return None
        lengths = {a: quantise(square(event.reports[a].update), SQUARES) for a in asked if a in event.reports}
        longest = max(lengths.values(), default=0)
        amounts = {agent: lengths.get(agent, longest) for agent in asked}
        rates = dict.fromkeys(amounts, str(-self._per_square(len(amounts))))
        return self.entry(run, {"rates": rates, "amounts": amounts, "unit": SQUARES})

    def _rate(self, agent: str, n: int) -> Fraction:
        part = 1 - Fraction(1, n) if self.part is None else self.part
        cost = (
            self.cost.get(agent, 0.0) if isinstance(self.cost, Mapping) else self.cost
        )  # `caution` names who has none
        return part * Fraction(str(cost)) / self.rounds

    def _per_square(self, n: int) -> Fraction:
        return Fraction(str(self.eta)) / (2 * n)

    def caution(self, run: Run) -> str:
        for agent in run.agents:
            run.settings.cost_of(agent)  # refused before the first round
        return ""

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        given = body["inputs"]
        return comparison(given["rates"], given["amounts"], given["unit"], minor=minor, rotation=body["round"])

    def schedule(self) -> Mapping[str, When]:
        return {"relative": "step"}

    def every_step(self, terms: Terms) -> tuple[str, ...]:
        alone = min(terms.sampled or len(terms.s_max), len(terms.s_max)) < 2  # nobody to compare its update with
        return () if alone and self.compares != "costs" else super().every_step(terms)

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        given = body["inputs"]
        agents, unit = sorted(given["amounts"]), self.scale if self.compares == "costs" else SQUARES
        if given["unit"] != unit:
            yield f"unit is {given['unit']!r}, agreed is {unit}"
        for agent in agents:
            if agent not in terms.s_max:
                yield f"{agent!r} is compared but not in the terms"
                continue
            rate = self._rate(agent, len(terms.s_max)) if self.compares == "costs" else -self._per_square(len(agents))
            if given["rates"].get(agent) != str(rate):
                yield f"the rate of {agent!r} is {given['rates'].get(agent)!r}, agreed is '{rate}'"
        if self.compares == "costs":
            yield from points_within(given["amounts"], terms.s_max, "points")
        elif len(agents) != min(terms.sampled or len(terms.s_max), len(terms.s_max)):
            yield f"{len(agents)} agents are compared, asked are {terms.sampled or len(terms.s_max)}"

    @classmethod
    def explain(cls, entry: Entry, account: str, minor: int) -> str:
        given = entry.inputs
        if account not in given["amounts"]:
            return entry.rule
        phi = {a: float(Fraction(given["rates"][a]) * given["amounts"][a] / given["unit"]) for a in given["amounts"]}
        others = (sum(phi.values()) - phi[account]) / (len(phi) - 1)
        return f"its phi = {phi[account]:.6g}, less the others' mean {others:.6g}"

    @classmethod
    def told(cls, entry: Entry) -> Mapping[str, Mapping[str, int]]:
        return {"delivered": entry.inputs["amounts"]} if entry.inputs["unit"] != SQUARES else {}

    def floats(self, agents: Sequence[str], s: Array, t: Array | None = None) -> Array:
        if self.compares != "costs":
            return np.zeros(len(s))
        rate = np.array([float(self._rate(agent, len(agents))) for agent in agents]) * self.rounds
        return rate * (s if t is None else t) - (np.sum(rate * s) - rate * s) / (len(s) - 1)

    def slopes(self, agents: Sequence[str], s: Array) -> Array:
        return self.floats(agents, s, s + 1.0) - self.floats(agents, s)

    def limits(self, agents: Sequence[str], s_max: Array) -> Array | None:
        return -self.floats(agents, s_max, np.zeros(len(s_max))) if self.compares == "costs" else None

    def promises(self, oracles: Oracles) -> Promises:
        why = "whoever overstates its cost is paid more, without limit"
        if self.compares != "costs":
            why = "an update moves the model more than the linear view counts: the gain is bounded, not 0"
        return Promises((BALANCED,), {"truthful": why})
