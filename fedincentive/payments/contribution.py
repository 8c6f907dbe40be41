"""The contribution payment: whoever gives more than the others' mean is paid by those who give less.

    p_i = beta (s_i - mean_{j != i} s_j) = beta (n s_i - S)/(n - 1)

It sums to 0 and adds beta to the slope of everyone's utility. Settling when phase 1 ends would make it sunk, and every
agent would gain by training on fewer points; so by default each of the T training rounds pays a T-th of it on the
points delivered in that round. With D_i the points delivered so far, the exact amount after each round is

    (beta/T) (n D_i - sum D)/(n - 1)   less what was posted before,

so that a fully delivered run ends at exactly p(s).

| rule | inputs | postings |
|---|---|---|
| contribution/1 | beta, s, scale | p(s) at once |
| tranche/1 | beta, rounds, delivered, total, scale | the payment on `total` so far, less the run's earlier tranches |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..entry import BALANCED, Entry, difference
from ..errors import PaymentError
from ..run import Run
from ..terms import Terms
from .base import Array, Body, Event, Memory, Payment, Problem, Promises, When, points_within
from .exact import MINOR, SCALE, Amounts, bounded, check_agents, rate, relative, whole
from .oracles import Oracles

SETTLEMENT, TRANCHE = "contribution/1", "tranche/1"
NAMED = 5  # agents named in a sentence before "and k more"


def amounts(
    beta: Fraction | int | str, s: Mapping[str, int], *, scale: int = SCALE, minor: int = MINOR, rotation: int = 0
) -> Amounts:
    """p(s) in minor units, for points in fixed point.

    For every input: the sum is exactly 0, each amount is less than one unit from exact, s_i < s_j implies
    p_i <= p_j, and the order of `s` does not matter.

    >>> amounts(2, {"a": 3, "b": 5, "c": 10}, scale=1, minor=1)
    {'a': -9, 'b': -3, 'c': 12}
    """
    beta = rate("beta", beta)
    check_agents(s, "s", low=0)
    factor = beta.numerator * whole("minor", minor, low=1)
    scores = {agent: factor * points for agent, points in s.items()}
    return relative(scores, beta.denominator * whole("scale", scale, low=1), rotation)


def tranche_amounts(
    beta: Fraction | int | str,
    rounds: int,
    delivered_total: Mapping[str, int],
    posted: Mapping[str, int],
    *,
    scale: int = SCALE,
    minor: int = MINOR,
    rotation: int = 0,
) -> Amounts:
    """What a training round posts: the rounded payment on all points delivered so far, minus what was posted.

    >>> first = tranche_amounts(1, 3, {"a": 1, "b": 0}, {}, scale=1, minor=1)
    >>> first, tranche_amounts(1, 3, {"a": 2, "b": 0}, first, scale=1, minor=1)
    ({'a': 0, 'b': 0}, {'a': 1, 'b': -1})
    """
    per_round = rate("beta", beta) / whole("rounds", rounds, low=1)
    check_agents(posted, "the amount posted", least=0)
    if unknown := sorted(posted.keys() - delivered_total.keys()):
        raise PaymentError(f"Agent {unknown[0]!r} was paid before but has no delivered total; give 0 if it is absent.")
    due = amounts(per_round, delivered_total, scale=scale, minor=minor, rotation=rotation)
    return bounded({agent: amount - posted.get(agent, 0) for agent, amount in due.items()})


@dataclass(frozen=True)
class Contribution(Payment):
    """p_i = beta (s_i - mean_{j != i} s_j), budget balanced.

    >>> Contribution(Fraction(2)).floats(("a", "b", "c"), np.array([3.0, 5.0, 10.0]))
    array([-9., -3., 12.])
    """

    beta: Fraction
    rounds: int = 1
    settlement: str = "tranches"
    scale: int = SCALE

    name = "contribution"
    kinds = ("tranche", "settlement")
    rules = (TRANCHE, SETTLEMENT)
    concave = True

    def __post_init__(self) -> None:
        if self.settlement not in ("tranches", "end", "commitment"):
            raise PaymentError(f"settlement is {self.settlement!r}; known: tranches, end, commitment.")

    def due(self, run: Run, event: Event) -> Entry | None:
        if event.phase == "commit" and self.settlement == "commitment":
            inputs = {"beta": str(self.beta), "s": run.s, "scale": self.scale}
            return self.entry(run, inputs, kind="settlement", rule=SETTLEMENT)
        if event.phase != "train" or self.settlement == "commitment":
            return None
        if self.settlement == "end":
            return self._pay(run, run.delivered_total, "settlement") if run.trained == self.rounds else None
        return self._pay(run, run.delivered, "tranche")

    def _pay(self, run: Run, delivered: Mapping[str, int], kind: str) -> Entry:
        terms = {"beta": str(self.beta), "rounds": self.rounds, "scale": self.scale}
        points = {"delivered": delivered, "total": run.delivered_total}
        return self.entry(run, {**terms, **points}, kind=kind, rule=TRANCHE)

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        given, rotation = body["inputs"], body["round"]
        if body["rule"] == SETTLEMENT:
            return amounts(given["beta"], given["s"], scale=given["scale"], minor=minor, rotation=rotation)
        total, posted = memory.get("total", given["total"]), memory.get("paid", {})
        return tranche_amounts(
            given["beta"], given["rounds"], total, posted, scale=given["scale"], minor=minor, rotation=rotation
        )

    @classmethod
    def replay(cls, body: Body, memory: Memory, minor: int) -> Iterator[Problem | Amounts]:
        if body["rule"] == SETTLEMENT:
            yield cls.amounts(body, memory, minor)
            return
        given = body["inputs"]
        terms = (given["beta"], given["rounds"], given["scale"])
        if memory.setdefault("terms", terms) != terms:
            yield "terms", f"(beta, rounds, scale) are {terms}, but the run's first tranche had {memory['terms']}."
        totals = memory.setdefault("total", {})
        for agent, points in given["delivered"].items():
            totals[agent] = totals.get(agent, 0) + points
        if totals != given["total"]:
            agent, told, were = difference("", given["total"], totals)
            yield "total", f"the total of {agent!r} is given as {told}, but {were} were delivered so far."
        yield from super().replay(body, memory, minor)

    def schedule(self) -> Mapping[str, When]:
        due: dict[str, dict[str, When]] = {
            "tranches": {"tranche": "step"},
            "end": {"settlement": "end"},
            "commitment": {"settlement": "commit"},
        }
        return due[self.settlement]

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        given, rule = body["inputs"], TRANCHE if self.live else SETTLEMENT
        if body["rule"] != rule:
            yield f"its rule is {body['rule']}, with settlement {self.settlement!r} it is {rule}"
            return
        told = {"beta": str(self.beta), "scale": self.scale, **({"rounds": self.rounds} if self.live else {})}
        for key, agreed in told.items():
            if given[key] != agreed:
                yield f"{key} is {given[key]!r}, agreed is {agreed!r}"
        points = given["delivered" if self.live else "s"]
        rounds = self.rounds if self.settlement == "end" else 1
        yield from points_within(points, {a: rounds * most for a, most in terms.s_max.items()}, "points")

    @classmethod
    def as_committed(cls, body: Body, terms: Terms) -> Iterator[str]:
        given = body["inputs"]
        if terms.beta is not None and given["beta"] != terms.beta:
            yield f"beta is {given['beta']!r}, committed was {terms.beta!r}"
        if terms.s_max and body["kind"] == "tranche":
            yield from points_within(given["delivered"], terms.s_max, "points")

    @classmethod
    def explain(cls, entry: Entry, account: str, minor: int) -> str:
        given, whole_run = entry.inputs, entry.rule == SETTLEMENT
        name = "s" if whole_run else "total"
        if account not in given[name]:
            return entry.rule
        others = [points for agent, points in given[name].items() if agent != account]
        mean = f"{sum(others) / len(others) / given['scale']:.6g}" if others else "0"
        own = f"{given[name][account] / given['scale']:.12g}"
        if whole_run:
            return f"beta {given['beta']} x (s {own} - others' mean {mean})"
        rounds = f"{given['rounds']} rounds"
        return f"beta {given['beta']} / {rounds} x (delivered so far {own} - others' mean {mean}) - paid before"

    @classmethod
    def told(cls, entry: Entry) -> Mapping[str, Mapping[str, int]]:
        """A tranche tells what its round delivered; a settlement at the end only the sum of all."""
        names = (
            ("s",) if entry.rule == SETTLEMENT else ("delivered", "total") if entry.kind == "tranche" else ("total",)
        )
        return {name: entry.inputs[name] for name in names}

    @property
    def live(self) -> bool:
        return self.settlement != "commitment"

    @property
    def price(self) -> Fraction:
        return self.beta

    def floats(self, agents: Sequence[str], s: Array, t: Array | None = None) -> Array:
        return float(self.beta) * ((s if t is None else t) - (np.sum(s) - s) / (len(s) - 1))

    def slopes(self, agents: Sequence[str], s: Array) -> Array:
        return np.full(len(s), float(self.beta))

    def summary(self, oracles: Oracles | None = None) -> str:
        return f"beta = {float(self.beta):g}, payment {'live' if self.live else 'sunk'} ({self.settlement})"

    def promises(self, oracles: Oracles) -> Promises:
        merging = {"merger-proof": "two agents that merge are compared with fewer others and gain"}
        sunk = {"equilibrium": "the payment is sunk when training starts: delivering less pays"}
        return Promises(("false-name-proof", BALANCED), merging if self.live else {**merging, **sunk})

    def limits(self, agents: Sequence[str], s_max: Array) -> Array:
        """It delivers nothing and everyone else everything: beta mean_{j != i} s_max_j."""
        return -self.floats(agents, s_max, np.zeros(len(s_max)))

    def notes(self, n: int) -> tuple[str, ...]:
        when = (
            "The payment stays live in training (settlement: tranches or end); under commitment it is sunk there."
            if self.live
            else "The payment is made when phase 1 ends (settlement: commitment): in training it is sunk."
        )
        return (
            when,
            "Payment is the least an agent gets while it delivers s_max; worst case: it alone delivers nothing.",
        )

    def repriced(self, price: Fraction) -> Contribution:
        return replace(self, beta=price)

    def splitting(self, agents: Sequence[str], s: Array) -> Array:
        """beta (k-1) [S (n-2) + s_i] / ((n-1) (n+k-2)) for k names, never a gain; here k = 2."""
        n, total = len(s), float(np.sum(s))
        return float(self.beta) * (total * (n - 2) + s) / ((n - 1) * n)

    def merging(self, agents: Sequence[str], s: Array) -> tuple[float, str, str] | None:
        """beta [S (n-3) + s_i + s_j] / ((n-2) (n-1)), the most for the two largest: splitting read backwards."""
        n, total = len(s), float(np.sum(s))
        if n < 3:
            return None
        first, second = (int(i) for i in np.argsort(-s, kind="stable")[:2])
        gain = float(self.beta) * (total * (n - 3) + s[first] + s[second]) / ((n - 2) * (n - 1))
        return gain, agents[first], agents[second]

    def caution(self, run: Run) -> str:
        """Where beta is known to be too small for somebody."""
        settings, bound = run.settings, beta_bound(run)
        unwilling = [agent for agent in run.agents if settings.cost_of(agent) + settings.tau >= float(self.beta)]
        if bound is None or not unwilling:
            return ""
        return (
            f"incentive.beta = {float(self.beta):g} is not above cost + tau: {named(unwilling)} not sure to give "
            f"everything. beta_dom = {bound:g}: above it every further point pays."
        )

    def advice(self, run: Run, ne: float | None = None, dom: float | None = None) -> str:
        slope = 0.0 if run.moved is None else run.moved / run.settings.scale / run.settings.gamma
        short = [agent for agent in run.short if agent not in run.lost]
        return advice(run.status, short, float(self.beta), ne, dom or beta_bound(run), run.contributed, slope)


def advice(
    ending: str,
    short: Sequence[str],
    beta: float,
    ne: float | None,
    dom: float | None,
    rounds: int,
    residual: float,
    *,
    at_least: bool = False,
) -> str:
    """What an operator reads where phase 1 ended short of s_max: who is short, and which beta would change it."""
    stop = (
        f"Phase 1 rested after {rounds} rounds short of s_max"
        if ending == "rested"
        else f"Phase 1 stopped at the round limit of {rounds}, still moving (|g| = {residual:.3g})"
    )
    sentences = [f"{stop}: {named(short)} below s_max at beta = {beta:g}."]
    if ne is not None:
        found = f"at least {ne:.6g}, by search" if at_least else f"{ne:.6g}"
        sentences.append(f"beta_NE = {found}: from there on s_max is an equilibrium at this w.")
    if dom is not None:
        sentences.append(f"beta_dom = {dom:.6g}: above it every further point pays, whatever the others do.")
    if dom is not None and beta > dom:
        sentences.append("beta is large enough: allow more rounds or a larger gamma.")
    elif ne is None and dom is None:
        sentences.append(
            "The center knows no bound of the costs and valuations here: raise beta or ask the agents named."
        )
    return " ".join(sentences)


def beta_bound(run: Run) -> float | None:
    """zeta + tau as far as the settings know them; None where no cost is given."""
    costs = [run.settings.cost_of(agent) for agent in run.agents]
    return max(costs) + run.settings.tau if any(costs) else None


def named(agents: Sequence[str]) -> str:
    """'agent a is', 'agents a, b are', or the first few and a count."""
    if len(agents) == 1:
        return f"agent {agents[0]} is"
    head = ", ".join(agents[:NAMED])
    more = f" and {len(agents) - NAMED} more" if len(agents) > NAMED else ""
    return f"agents {head}{more} are"
