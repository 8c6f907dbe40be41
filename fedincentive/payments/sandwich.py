"""FACT's payments (Bornstein et al. 2024): a fee, a penalty around what was agreed, and a prize for the middle cost.

    fee_i        D_i = V_i - A_i, what the federation is worth to i beyond training alone
    penalty_i    lam_i (K_i + m_i - s_i)^2,   K_i = gap_i / (2 lam_i),   lam_i = gap_i^2 / (4 (1 - lenience/2) D_i)
    prize        agents are drawn into threes; the strictly middle stated cost wins (3/n) sum_{j != i} D_j

m_i is what i would train on alone at its stated cost, and gap_i = c_i - V_i' there: the penalty's slope fills the gap,
so that s_i = m_i is best. Each of T training rounds draws new trios and charges and pays a T-th, on what was delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..entry import BALANCED, LIMIT, Entry
from ..errors import SettingError
from ..run import Run
from ..terms import Terms
from .base import Array, Body, Event, Memory, Payment, Problem, Promises, When, in_order, points_within
from .exact import MINOR, SCALE, Amounts
from .oracles import Oracles
from .pooled import sandwich

COST_UNIT = 10**12  # costs per point are small; the trios compare whole numbers
ASKED = ("targets", "fees", "gaps")


@dataclass(frozen=True)
class Sandwich(Payment):
    targets: dict[str, Fraction] | None = None  # m_i, in points
    fees: dict[str, Fraction] | None = None  # D_i, over the whole run
    gaps: dict[str, Fraction] | None = None  # c_i - V_i' at m_i, at least 0
    lenience: Fraction = Fraction(19, 10)  # below 2: the larger, the smaller the penalty that is left at m_i
    cost: float | dict[str, float] = 0.0  # per point, as the settings state it
    seed: int = 0
    rounds: int = 1
    scale: int = SCALE
    minor: int = MINOR

    name, kinds, rules, balanced, concave = "sandwich", ("sandwich",), ("sandwich/1",), False, True

    def __post_init__(self) -> None:
        if not 0 < self.lenience < 2:
            raise SettingError(f"incentive.options.sandwich.lenience is {self.lenience}: it must be between 0 and 2.")
        for name in ASKED:
            for agent, number in (getattr(self, name) or {}).items():
                if number < 0:
                    raise SettingError(f"incentive.options.sandwich.{name} of {agent!r} is {number}: at least 0.")

    def check(self, n: int, oracles: Oracles) -> None:
        super().check(n, oracles)
        if n < 3:
            raise SettingError(f"incentive.payment is 'sandwich' with {n} agents: trios need three; enrol more.")
        for name in ASKED:
            if getattr(self, name) is None:
                raise SettingError(
                    f"incentive.options.sandwich.{name} is required, a number for each agent: only in a closed-form "
                    "game it is known. targets: the points each would train on alone; fees: what the model is worth "
                    "to it beyond that; gaps: its cost of a point less what one more is worth to it there."
                )

    def caution(self, run: Run) -> str:
        for agent in run.agents:
            if self._cost(agent) is None:
                run.settings.cost_of(agent)  # refused before the first round, by name
            if (self._cost(agent) or 0) * COST_UNIT > LIMIT:
                raise SettingError(f"incentive.cost of {agent!r} is too large: state it in larger units of money.")
            for name in ASKED:
                if agent not in getattr(self, name):
                    raise SettingError(f"incentive.options.sandwich.{name} has no number for agent {agent!r}.")
        return ""

    def _cost(self, agent: str) -> Fraction | None:
        cost = self.cost.get(agent) if isinstance(self.cost, Mapping) else self.cost
        return None if cost is None else Fraction(str(cost))

    def _of(self, name: str, agent: str) -> Fraction:
        return Fraction((getattr(self, name) or {}).get(agent, 0))

    def shape(self, agent: str) -> tuple[Fraction, Fraction]:
        """(lam, K + m): the penalty is lam (K + m - s)^2; nobody without a fee or a gap is charged one."""
        fee, gap = self._of("fees", agent), self._of("gaps", agent)
        left = 2 * (1 - self.lenience / 2) * fee
        if not (fee and gap):
            return Fraction(0), Fraction(0)
        return gap**2 / (2 * left), left / gap + self._of("targets", agent)

    def fee(self, agent: str, step: int) -> int:
        """What a training round charges, in minor units; all rounds together the whole fee."""
        whole = round(self._of("fees", agent) * self.minor)
        return whole * (step + 1) // self.rounds - whole * step // self.rounds

    def penalty(self, agent: str, points: int) -> int:
        lam, top = self.shape(agent)
        return round(lam * (top - Fraction(points, self.scale)) ** 2 * self.minor / self.rounds)

    def inputs(self, points: Mapping[str, int], step: int) -> dict[str, object]:
        return {
            "fees": {agent: self.fee(agent, step) for agent in points},
            "penalties": {agent: self.penalty(agent, amount) for agent, amount in points.items()},
            "costs": {agent: round((self._cost(agent) or 0) * COST_UNIT) for agent in points},
            "seed": f"{self.seed}/{step}",
            "points": dict(points),
            "step": step,
        }

    def due(self, run: Run, event: Event) -> Entry | None:
        if event.phase != "train":
            return None
        return self.entry(run, self.inputs({a: run.delivered[a] for a in run.agents}, run.trained - 1))

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        given = body["inputs"]
        return sandwich(given["fees"], given["penalties"], given["costs"], given["seed"])

    @classmethod
    def replay(cls, body: Body, memory: Memory, minor: int) -> Iterator[Problem | Amounts]:
        yield from in_order(body, memory)
        yield from super().replay(body, memory, minor)

    def schedule(self) -> Mapping[str, When]:
        return {"sandwich": "step"}

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        given = body["inputs"]
        wrong = list(points_within(given["points"], terms.s_max, "points"))
        yield from wrong
        if wrong:
            return
        for name, agreed in self.inputs(given["points"], given["step"]).items():
            if given[name] != agreed:
                yield f"its {name} are not those that follow from the terms and what was delivered"

    @classmethod
    def explain(cls, entry: Entry, account: str, minor: int) -> str:
        given = entry.inputs
        if account not in given["fees"]:
            return entry.rule
        fee, penalty = (float(Fraction(given[name][account], minor)) for name in ("fees", "penalties"))
        won = entry.postings[account] + given["fees"][account] + given["penalties"][account] > 0
        prize = "the middle cost of its trio wins" if won else "no prize"
        return f"fee {fee:.6g}, penalty {penalty:.6g}, {prize}"

    @classmethod
    def told(cls, entry: Entry) -> Mapping[str, Mapping[str, int]]:
        return {"delivered": entry.inputs["points"]} if "points" in entry.inputs else {}

    def floats(self, agents: Sequence[str], s: Array, t: Array | None = None) -> Array:
        """In expectation over the trios."""
        fee, (lam, top) = np.array([float(self._of("fees", a)) for a in agents]), self._shapes(agents)
        prize = 3.0 / len(agents) * (fee.sum() - fee) * self.chances(agents)
        return prize - fee - lam * (top - (s if t is None else t)) ** 2

    def slopes(self, agents: Sequence[str], s: Array) -> Array:
        lam, top = self._shapes(agents)
        return 2.0 * lam * (top - s)

    def _shapes(self, agents: Sequence[str]) -> tuple[Array, Array]:
        lam, top = np.array([[float(x) for x in self.shape(agent)] for agent in agents]).T
        return lam, top

    def chances(self, agents: Sequence[str]) -> Array:
        """P(i's cost is strictly between those of two others that are drawn with it)."""
        n, cost = len(agents), np.array([float(self._cost(agent) or 0) for agent in agents])
        lower, higher = (cost[None, :] < cost[:, None]).sum(axis=1), (cost[None, :] > cost[:, None]).sum(axis=1)
        return (n // 3) * 3 / n * lower * higher / max((n - 1) * (n - 2) / 2.0, 1.0)

    def limits(self, agents: Sequence[str], s_max: Array) -> Array:
        lam, top = self._shapes(agents)
        fee = np.array([float(self._of("fees", agent)) for agent in agents])
        return fee + lam * np.maximum(top**2, (top - s_max) ** 2)

    def summary(self, oracles: Oracles | None = None) -> str:
        return f"fee, penalty and sandwich game (FACT), lenience {float(self.lenience):g}"

    def promises(self, oracles: Oracles) -> Promises:
        why = {
            BALANCED: "fees and penalties that no trio wins stay with the treasury",
            "truthful": "a stated cost nearer to the median wins the sandwich game more often",
        }
        return Promises((), why)

    def notes(self, n: int) -> tuple[str, ...]:
        return (
            "Prizes are in expectation: the trios are drawn anew in each training round, by the seed in the terms.",
        )
