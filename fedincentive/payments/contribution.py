"""The contribution payment: whoever gives more than the others' mean is paid by those who give less.

    p_i = beta (s_i - mean_{j != i} s_j) = beta (n s_i - S)/(n - 1)

It sums to 0 and adds beta to the slope of everyone's utility. Settling when phase 1 ends would make it sunk, and every
agent would gain by training on fewer points; so by default each of the T training rounds pays a T-th of it on the
points delivered in that round. With D_i the points delivered so far, the exact amount after each round is

    (beta/T) (n D_i - sum D)/(n - 1)   less what was posted before,

so that a fully delivered run ends at exactly p(s).

Where agents are sampled, a round compares the asked with the asked, and its amounts are larger by n/asked, so that on
average over who is asked they are those above. Who is not asked is neither paid nor charged. With a agents asked,

    C_i = sum over the rounds that asked i of (a d_i - what all asked delivered),   (beta/T) (n/a) C_i/(a - 1) is due.

Where an audit fails, the agent has delivered nothing from that round on: the points are taken out of those rounds.

| rule | inputs | postings |
|---|---|---|
| contribution/1 | beta, s, scale | p(s) at once |
| tranche/1 | beta, rounds, delivered, total, scale | the payment on `total` so far, less the run's earlier tranches |
| tranche/2 | beta, rounds, scale, asked, delivered, scores, step | the payment on `scores` C, less earlier ones |
| clawback/1 | beta, rounds, scale, asked, failed, taken, scores | the same without points from the failed step on |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from ..entry import BALANCED, Entry, difference
from ..errors import PaymentError, SettingError
from ..run import Run
from ..terms import Terms
from .base import Array, Body, Event, Memory, Payment, Problem, Promises, When, points_within
from .exact import MINOR, SCALE, Amounts, apportion, bounded, check_agents, rate, relative, whole, written
from .oracles import Oracles

SETTLEMENT, TRANCHE, SCORED, CLAWBACK = "contribution/1", "tranche/1", "tranche/2", "clawback/1"
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


def scored(delivered: Mapping[str, int]) -> Amounts:
    """a d_i - sum_j d_j over the asked: they sum to 0.

    >>> scored({"a": 3, "b": 5})
    {'a': -2, 'b': 2}
    """
    total = sum(delivered.values())
    return {agent: len(delivered) * points - total for agent, points in delivered.items()}


def score_amounts(
    beta: Fraction | int | str,
    rounds: int,
    asked: int,
    scores: Mapping[str, int],
    posted: Mapping[str, int],
    among: Iterable[str],
    *,
    scale: int = SCALE,
    minor: int = MINOR,
    rotation: int = 0,
) -> Amounts:
    """What is due to those `among` the agents on the scores so far, less what was posted: whole units that sum to 0.

    Rounding of earlier rounds is settled between those who meet again, so nobody else is touched by it.

    >>> score_amounts(1, 1, 2, {"a": -2, "b": 2, "c": 0}, {}, ("a", "b"), scale=1, minor=1)
    {'a': -3, 'b': 3}
    """
    price = rate("beta", beta) * len(scores) / (whole("rounds", rounds, low=1) * asked * (asked - 1))
    check_agents(scores, "the score")
    parts = price.denominator * whole("scale", scale, low=1)
    factor = price.numerator * whole("minor", minor, low=1)
    owed = {agent: factor * scores[agent] - posted.get(agent, 0) * parts for agent in among}
    n, left = len(owed), sum(owed.values())
    return bounded(apportion({a: n * part - left for a, part in owed.items()}, n * parts, whole("rotation", rotation)))


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
    sampled: int | None = None
    auditors: tuple[str, ...] | None = None

    name = "contribution"
    kinds = ("tranche", "settlement", "clawback")
    rules = (TRANCHE, SETTLEMENT, SCORED, CLAWBACK)
    concave = True

    def __post_init__(self) -> None:
        if self.settlement not in ("tranches", "end", "commitment"):
            raise PaymentError(f"settlement is {self.settlement!r}; known: tranches, end, commitment.")

    @property
    def by_scores(self) -> bool:
        """Whether each round's points are kept apart: they were given by a sample, or may be taken back."""
        return self.live and (self.sampled is not None or self.auditors is not None)

    def used(self) -> tuple[str, ...]:
        if not self.by_scores:
            return TRANCHE, SETTLEMENT
        return (SCORED,) if self.auditors is None else (SCORED, CLAWBACK)

    def check(self, n: int, oracles: Oracles) -> None:
        super().check(n, oracles)
        if self.sampled == 1 and self.live:
            raise SettingError(
                "incentive.sampled is 1 with the contribution payment, which compares those who are asked with each "
                "other: ask at least 2, or set payment: none."
            )

    def due(self, run: Run, event: Event) -> Entry | None:
        if event.phase == "commit" and self.settlement == "commitment":
            inputs = {"beta": str(self.beta), "s": run.s, "scale": self.scale}
            return self.entry(run, inputs, kind="settlement", rule=SETTLEMENT)
        if event.phase == "audit" and self.by_scores:
            return self._take_back(run)
        if event.phase != "train" or not self.live:
            return None
        if self.by_scores:
            return self._pay_scores(run)
        if self.settlement == "end":
            return self._pay(run, run.delivered_total, "settlement") if run.trained == self.rounds else None
        return self._pay(run, run.delivered, "tranche")

    def _pay(self, run: Run, delivered: Mapping[str, int], kind: str) -> Entry:
        points = {"delivered": delivered, "total": run.delivered_total}
        return self.entry(run, {**self._agreed(), **points}, kind=kind, rule=TRANCHE)

    def _agreed(self) -> dict[str, Any]:
        return {"beta": str(self.beta), "rounds": self.rounds, "scale": self.scale}

    def _pay_scores(self, run: Run) -> Entry | None:
        memory, delivered = self.memory(run), {agent: run.delivered[agent] for agent in run.drawn}
        scores = _added(memory.get("scores", dict.fromkeys(run.agents, 0)), scored(delivered))
        terms = {**self._agreed(), "asked": len(delivered), "scores": scores}
        if self.settlement == "end":
            memory["scores"] = scores
            return self.entry(run, terms, kind="settlement", rule=SCORED) if run.trained == self.rounds else None
        step = {} if self.auditors is None else {"step": run.step}
        first = run.audits[0]["step"] if run.audits else run.step  # what is settled cannot be taken back any more
        for settled in [at for at in memory.get("steps", {}) if int(at) < first]:
            del memory["steps"][settled]
        return self.entry(run, {**terms, "delivered": delivered, **step}, kind="tranche", rule=SCORED)

    def _take_back(self, run: Run) -> Entry | None:
        memory = self.memory(run)
        known = memory.get("failed", {})
        failed = {agent: step for agent, step in sorted(run.failed.items()) if step < known.get(agent, step + 1)}
        if not failed or "scores" not in memory:
            return None
        taken, scores, _ = taken_back(failed, memory)
        asked = {"asked": min(self.sampled or run.n, run.n)}
        inputs = {**self._agreed(), **asked, "failed": failed, "taken": taken, "scores": scores}
        return self.entry(run, inputs, kind=f"clawback-{min(failed.values())}", rule=CLAWBACK)

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        given, rotation = body["inputs"], body["round"]
        if body["rule"] == SETTLEMENT:
            return amounts(given["beta"], given["s"], scale=given["scale"], minor=minor, rotation=rotation)
        options = {"scale": given["scale"], "minor": minor, "rotation": rotation}
        posted = memory.get("paid", {})
        if body["rule"] == TRANCHE:
            total = memory.get("total", given["total"])
            return tranche_amounts(given["beta"], given["rounds"], total, posted, **options)
        among = given.get("delivered", given["scores"])
        if body["rule"] == CLAWBACK:
            among = taken_back(given["failed"], memory)[2]
        return score_amounts(
            given["beta"], given["rounds"], given["asked"], given["scores"], posted, sorted(among), **options
        )

    @classmethod
    def remember(cls, body: Body, memory: Memory) -> None:
        super().remember(body, memory)
        given = body["inputs"]
        if body["rule"] == CLAWBACK:
            for agent, step in given["failed"].items():
                memory.setdefault("failed", {})[agent] = step
                for at, points in memory.get("steps", {}).items():
                    if int(at) >= step and agent in points:
                        points[agent] = 0
        if "step" in given:
            memory["next"] = given["step"] + 1
            memory.setdefault("steps", {})[str(given["step"])] = dict(given["delivered"])
        if body["rule"] in (SCORED, CLAWBACK):
            memory["scores"] = dict(given["scores"])

    @classmethod
    def replay(cls, body: Body, memory: Memory, minor: int) -> Iterator[Problem | Amounts]:
        given = body["inputs"]
        if body["rule"] == SETTLEMENT:
            yield cls.amounts(body, memory, minor)
            return
        terms = [given["beta"], given["rounds"], given["scale"]]
        if memory.setdefault("terms", terms) != terms:
            yield "terms", f"(beta, rounds, scale) are {terms}, but the run's first tranche had {memory['terms']}."
        if body["rule"] in (SCORED, CLAWBACK):
            yield from cls._replay_scores(body, memory)
        else:
            totals = memory.setdefault("total", {})
            for agent, points in given["delivered"].items():
                totals[agent] = totals.get(agent, 0) + points
            if totals != given["total"]:
                agent, told, were = difference("", given["total"], totals)
                yield "total", f"the total of {agent!r} is given as {told}, but {were} were delivered so far."
        yield from super().replay(body, memory, minor)

    @classmethod
    def _replay_scores(cls, body: Body, memory: Memory) -> Iterator[Problem]:
        given = body["inputs"]
        before, scores = memory.get("scores", dict.fromkeys(given["scores"], 0)), given["scores"]
        if body["rule"] == CLAWBACK:
            taken, scores, _ = taken_back(given["failed"], memory)
            if taken != given["taken"]:
                yield "total", f"the points taken back are given as {given['taken']}, delivered were {taken}."
        elif "delivered" in given:
            scores = _added(before, scored(given["delivered"]))
            if "step" in given and given["step"] != memory.get("next", 0):
                yield "total", f"it says step {given['step']}, the next one is {memory.get('next', 0)}."
            if len(given["delivered"]) != given["asked"]:
                yield "total", f"{len(given['delivered'])} agents delivered, asked were {given['asked']}."
        if scores != given["scores"]:
            agent, told, were = difference("", given["scores"], scores)
            yield "total", f"the score of {agent!r} is given as {told}, what was delivered gives {were}."

    def schedule(self) -> Mapping[str, When]:
        due: dict[str, dict[str, When]] = {
            "tranches": {"tranche": "step", **({} if self.auditors is None else {"clawback": "audit"})},
            "end": {"settlement": "end"},
            "commitment": {"settlement": "commit"},
        }
        return due[self.settlement]

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        given, rule = body["inputs"], SCORED if self.by_scores else TRANCHE if self.live else SETTLEMENT
        rule = CLAWBACK if self.auditors is not None and body["kind"] != "tranche" else rule
        if body["rule"] != rule:
            yield f"its rule is {body['rule']}, with settlement {self.settlement!r} it is {rule}"
            return
        n = len(terms.s_max)
        told = {"beta": str(self.beta), "scale": self.scale, **({"rounds": self.rounds} if self.live else {})}
        if self.by_scores:
            told["asked"] = min(self.sampled or n, n)
            if set(given["scores"]) != set(terms.s_max):
                yield "other agents have scores than those in the terms"
            if ("step" in given) != (self.auditors is not None and body["kind"] == "tranche"):
                yield "a tranche names its step in audited runs, and in no others"
        for key, agreed in told.items():
            if given[key] != agreed:
                yield f"{key} is {given[key]!r}, agreed is {agreed!r}"
        points = given.get("delivered" if self.live else "s")
        if points is not None:
            rounds = self.rounds if self.settlement == "end" else 1
            most = {a: rounds * s for a, s in terms.s_max.items() if not self.by_scores or a in points}
            yield from points_within(points, most, "points")

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
        if entry.rule in (SCORED, CLAWBACK):
            return cls._explain_scores(given, account)
        name = "s" if whole_run else "total"
        if account not in given[name]:
            return entry.rule
        others = [points for agent, points in given[name].items() if agent != account]
        mean = f"{sum(others) / len(others) / given['scale']:.6g}" if others else "0"
        own = f"{given[name][account] / given['scale']:.12g}"
        if whole_run:
            return f"{written(given['beta'])} per point x ({own} points - {mean}, the others' mean)"
        price = f"{written(given['beta'])} per point / {given['rounds']} rounds"
        return f"{price} x ({own} points so far - {mean}, the others' mean), less what was paid before"

    @classmethod
    def _explain_scores(cls, given: Mapping[str, Any], account: str) -> str:
        n, asked, scale = len(given["scores"]), given["asked"], given["scale"]
        price = f"{written(given['beta'])} per point / {given['rounds']} rounds" + (
            f" x {n}/{asked}" if asked < n else ""
        )
        if account in given.get("failed", {}):
            points = f"{given['taken'][account] / scale:.12g}"
            return f"failed the audit of training round {given['failed'][account]}: {points} points are taken back"
        if "failed" in given:
            return f"{', '.join(given['failed'])} failed an audit: compared again without the points taken back"
        if "delivered" not in given:
            mean = given["scores"].get(account, 0) / (asked - 1) / scale
            return f"{price} x (delivered less the mean of the others asked, {mean:.6g} over all rounds)"
        if account not in given["delivered"]:
            return "not asked in this round"
        own = given["delivered"][account]
        mean = (sum(given["delivered"].values()) - own) / (asked - 1) / scale
        who = "others asked" if asked < n else "others"
        return f"{price} x (delivered {own / scale:.12g} - mean of the {who} {mean:.6g}), rounding carried over"

    @classmethod
    def told(cls, entry: Entry) -> Mapping[str, Mapping[str, int]]:
        """A tranche tells what its round delivered; a settlement at the end only the sum of all."""
        if entry.rule in (SCORED, CLAWBACK):
            names: tuple[str, ...] = {"tranche": ("delivered",), "settlement": ("scores",)}.get(entry.kind, ())
        else:
            last = ("delivered", "total") if entry.kind == "tranche" else ("total",)
            names = ("s",) if entry.rule == SETTLEMENT else last
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
        """It delivers nothing and everyone else everything: beta mean_{j != i} s_max_j. Where agents are sampled, it
        may be asked in every round, and always with the largest others."""
        n = len(s_max)
        asked = min(self.sampled or n, n)
        if asked == n or not self.live:
            return -self.floats(agents, s_max, np.zeros(n))
        largest = np.argsort(-s_max, kind="stable")[:asked]
        among = np.isin(np.arange(n), largest)
        others = s_max[largest].sum() - np.where(among, s_max, s_max[largest[-1]])
        return float(self.beta) * n / asked * others / (asked - 1)

    def notes(self, n: int) -> tuple[str, ...]:
        when = (
            "The payment follows what is delivered in training (settlement: tranches or end)."
            if self.live
            else "The payment is made when phase 1 ends (settlement: commitment): in training delivering earns nothing."
        )
        return (
            when,
            "Payment: the least an agent gets while it delivers everything. Worst case: it alone delivers nothing.",
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
            f"incentive.beta = {float(self.beta):g} is not above what a point costs (incentive.cost + incentive.tau): "
            f"{named(unwilling)} not sure to give everything. Above {bound:g} every further point pays (beta_dom)."
        )

    def advice(self, run: Run, ne: float | None = None, dom: float | None = None) -> str:
        short = [agent for agent in run.short if agent not in run.lost]
        return advice(run.status, short, float(self.beta), ne, dom or beta_bound(run), run.contributed, run.speed)


def advice(
    ending: str,
    short: Sequence[str],
    beta: float,
    ne: float | None,
    dom: float | None,
    rounds: int,
    speed: str,
    *,
    at_least: bool = False,
) -> str:
    """What an operator reads where phase 1 ended short of s_max: who is short, and which price would change it."""
    stop = (
        f"Phase 1 settled after {rounds} rounds"
        if ending == "rested"
        else f"Phase 1 stopped at the round limit of {rounds}, still moving ({speed})"
    )
    sentences = [f"{stop}: {named(short)} giving less than everything at a price of {beta:g} per point (beta)."]
    if ne is not None:
        found = f"at least {ne:.6g} (by search)" if at_least else f"{ne:.6g}"
        sentences.append(f"From {found} on everyone giving everything is an equilibrium at this model (beta_NE).")
    if dom is not None:
        sentences.append(f"Above {dom:.6g} every further point pays, whatever the others do (beta_dom).")
    if dom is not None and beta > dom:
        sentences.append("The price is large enough: allow more rounds or a larger gamma.")
    elif ne is None and dom is None:
        sentences.append(
            "The center knows no bound of the costs and valuations here: raise the price or ask the agents named."
        )
    return " ".join(sentences)


def taken_back(failed: Mapping[str, int], memory: Memory) -> tuple[Amounts, Amounts, set[str]]:
    """What agents that failed had delivered from that step on, the scores without it, and whom that touches."""
    scores, taken = dict(memory["scores"]), dict.fromkeys(failed, 0)
    touched: set[str] = set(failed)
    for agent, first in failed.items():
        for at, points in memory.get("steps", {}).items():
            if int(at) >= first and points.get(agent):
                taken[agent] += points[agent]
                scores = _added(scores, scored({one: -points[one] if one == agent else 0 for one in points}))
                touched |= set(points)
    return taken, scores, touched


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    return {agent: points + other.get(agent, 0) for agent, points in one.items()}


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
