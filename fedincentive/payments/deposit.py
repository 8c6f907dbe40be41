"""The deposit of an audited run: large enough that cheating loses on average, whoever is audited.

    g = beta s/T (n/asked where agents are sampled)    what a round's s points earn
    rho = 1 - (1 - delta)^min(k, s)                    an audit knows s invented points by k opened records
    kappa = (n - 1)/(n - m)                            m agents together get the forfeits' shares of m - 1 of them
    D = ceil(max{ g (1/(q rho) - 1), g (1/q - 1) + kappa V (1/q + L) })

q is the chance of an audit (`audit`/(1 + `rechecks`), as second looks at passes are part of `audit`), V what one round
of steering the model can gain, L the rounds from a bad one to its verdict. A round of invented points gains g with
chance 1 - q rho and costs D otherwise; what touches the update or the count is found by re-execution with chance q, and
may steer until the verdict. Shares of a forfeit go to all the others, failed or not: were the failed left out, an
accomplice's share would grow.

Of all that a point earns and of every forfeit, m agents together feel the same part, 1/kappa: the others' payments
give the rest back to them. So what lies about points needs the same D of one agent and of many; only V, which is no
payment, has to be weighed by kappa. (deposit/1 weighed everything, which was more than needed.) Training that is saved
is worth less than g where no group gains by openly giving less; where one does, lying gains it nothing on top.

| rule | inputs | postings |
|---|---|---|
| deposit/2 | deposits | each agent -D, the escrow their sum |
| deposit/1 | the same, with D = ceil(kappa max{ g (1/(q rho) - 1), g (1/q - 1) + V (1/q + L) }) | |
| forfeit/1 | failed, deposits | the escrow -D of each that failed, equal shares to all others |
| refund/1 | deposits | the escrow gives back what it still holds |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from ..entry import ESCROW, Entry
from ..errors import PaymentError, SettingError
from ..provenance.audits import chance
from ..run import Run
from ..terms import Terms
from .base import Array, Body, Event, Memory, Payment, Problem, When
from .exact import MINOR, SCALE, Amounts, apportion, bounded, check_agents, quantise, whole
from .oracles import Oracles

DEPOSIT, OLD, FORFEIT, REFUND = "deposit/2", "deposit/1", "forfeit/1", "refund/1"
LAG = 3  # a bad agent counts in the round after the audited one too; two more where links are withheld


def lag(agreed: Mapping[str, Mapping[str, Any]]) -> int:
    """How many steps after a bad one its verdict comes at the latest, by the payments in a run's terms."""
    deposit = agreed.get("deposit")
    return LAG if deposit is None else max(1, int(deposit["terms"]["lag"]))


def least(
    points: int,
    n: int,
    *,
    beta: Fraction,
    rounds: int,
    audit: Fraction,
    detection: Fraction,
    openings: int,
    steering: Fraction = Fraction(0),
    colluding: int = 2,
    lag: int = LAG,
    asked: int | None = None,
    older: bool = False,
) -> Fraction:
    """The least deposit for this many whole points, in units of money, before it is rounded up.

    With no openings invented records are not looked for, and the deposit covers the rest only. `older` is by deposit/1.

    >>> least(60, 2, beta=Fraction(1), rounds=10, audit=Fraction(1, 2), detection=Fraction(1), openings=5)
    Fraction(6, 1)
    """
    gain = beta * points / rounds * Fraction(n, min(asked or n, n))
    kappa = Fraction(n - 1, n - min(colluding, n - 1))
    rho = 1 - (1 - detection) ** min(openings, points)
    invented = gain * (1 / (audit * rho) - 1) if rho else Fraction(0)
    trained, steered = gain * (1 / audit - 1), steering * (1 / audit + lag)
    return kappa * max(invented, trained + steered) if older else max(invented, trained + kappa * steered)


def shared(deposits: Mapping[str, int], agents: Sequence[str], rotation: int = 0) -> Amounts:
    """The deposits of those that failed, each in equal shares to all other agents, in whole minor units.

    >>> shared({"a": 10, "b": 4}, ("a", "b", "c"))
    {'a': 2, 'b': 5, 'c': 7}
    """
    total = sum(deposits.values())
    return apportion({agent: total - deposits.get(agent, 0) for agent in agents}, len(agents) - 1, rotation)


def within_budget(
    made: Sequence[Payment], s_max: Mapping[str, int], agent: str, budget: int, scale: int, minor: int
) -> int:
    """The most points of an agent whose deposit, and what it owes while it delivers them, fit its budget.

    All its points where they fit; without deposits these or none. What it owes falls with its points until it has as
    many as the others on average, so the search begins there.
    """
    deposit = next((payment for payment in made if isinstance(payment, Deposit)), None)
    agents, points = tuple(s_max), s_max[agent]
    i = agents.index(agent)

    def fits(s: int) -> bool:
        held = 0 if deposit is None else deposit.of_points(s, len(agents))
        return held + owed(made, {**s_max, agent: s}, scale, minor)[i] <= budget

    if fits(points):
        return points
    if deposit is None:
        return 0
    whole_points = -(-points // scale)
    mean = min(whole_points, -(-(sum(s_max.values()) - points) // ((len(agents) - 1) * scale)))
    for low, high in ((mean, whole_points), (1, mean)):
        if low >= high or not fits(low * scale):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle * scale) else (low, middle)
        return low * scale
    return 0


def owed(made: Sequence[Payment], s_max: Mapping[str, int], scale: int, minor: int) -> list[int]:
    """The most each agent owes as long as everyone delivers these points, in minor units."""
    agents, s = tuple(s_max), np.array([points / scale for points in s_max.values()])
    paid = sum((payment.floats(agents, s) for payment in made), start=np.zeros(len(agents)))
    return [quantise(max(0.0, -float(money)), minor) for money in paid]


@dataclass(frozen=True)
class Deposit(Payment):
    """What each agent leaves with the center before training, and loses where it fails an audit.

    >>> deposit = Deposit(Fraction(1), rounds=10, audit=0.5)
    >>> deposit.of_points(60 * SCALE, 2), deposit.covered(3 * MINOR, 60 * SCALE, 2) // SCALE
    (6000000, 30)
    """

    beta: Fraction
    rounds: int = 1
    audit: float = 1.0
    detection: float = 1.0
    openings: int = 10
    steering: Fraction = Fraction(0)
    colluding: int = 2
    sampled: int | None = None
    settlement: str = "tranches"
    scale: int = SCALE
    minor: int = MINOR
    lag: int = LAG
    rechecks: float = 0.0  # as in older terms, whose second looks came on top of `audit`

    name = "deposit"
    kinds = ("deposit", "forfeit", "refund")
    rules = (DEPOSIT, FORFEIT, REFUND, OLD)
    steers = False
    fixed = True

    def check(self, n: int, oracles: Oracles) -> None:
        super().check(n, oracles)
        if self.settlement != "tranches":
            raise SettingError(
                f"incentive.settlement is {self.settlement!r} in a run with auditors: what fails an audit is taken "
                "back round by round; use tranches."
            )

    # How much

    @property
    def chance(self) -> Fraction:
        """That an agent is audited in a step."""
        return chance(self.audit, self.rechecks)

    def of_points(self, s: int, n: int, *, older: bool = False) -> int:
        """D for s points in fixed point, in minor units; it never falls with s."""
        money = least(
            -(-s // self.scale),
            n,
            beta=self.beta,
            rounds=self.rounds,
            audit=self.chance,
            detection=Fraction(str(self.detection)),
            openings=self.openings,
            steering=self.steering,
            colluding=self.colluding,
            lag=self.lag,
            asked=self.sampled,
            older=older,
        )
        return ceil(money * self.minor)

    def covered(self, budget: int, s: int, n: int) -> int:
        """The most of s points whose deposit fits a budget in minor units: all of them, or the most whole ones."""
        if self.of_points(s, n) <= budget:
            return s
        low, high = 0, -(-s // self.scale)  # of_points(high) is too much
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.of_points(middle * self.scale, n) <= budget else (low, middle)
        return low * self.scale

    def deposits(self, s_max: Mapping[str, int], *, older: bool = False) -> dict[str, int]:
        return {agent: self.of_points(points, len(s_max), older=older) for agent, points in s_max.items()}

    def used(self) -> tuple[str, ...]:
        return DEPOSIT, FORFEIT, REFUND

    # The center

    def due(self, run: Run, event: Event) -> Entry | None:
        held = self.memory(run).get("held", {})
        if event.phase == "commit":
            agreed = {agent: int(run.terms["agents"][agent]["deposit"]) for agent in run.agents}  # maybe by older rules
            return self.entry(run, {"deposits": agreed})
        failed = {agent: run.failed[agent] for agent in run.agents if agent in run.failed and agent in held}
        if event.phase == "audit" and failed:
            inputs = {"failed": failed, "deposits": {agent: held[agent] for agent in failed}}
            return self.entry(run, inputs, kind=f"forfeit-{min(failed.values())}", rule=FORFEIT)
        if event.phase == "end" and (kept := {agent: money for agent, money in held.items() if agent not in failed}):
            return self.entry(run, {"deposits": kept}, kind="refund", rule=REFUND)
        return None

    # Auditors

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        deposits, agents = body["inputs"]["deposits"], memory.get("agents", ())
        check_agents(deposits, "the deposit", low=0, least=1)
        if body["rule"] in (DEPOSIT, OLD):
            return bounded({ESCROW: sum(deposits.values()), **{agent: -money for agent, money in deposits.items()}})
        for agent, money in deposits.items():
            if memory.get("held", {}).get(agent) != money:
                raise PaymentError(f"The escrow holds {memory.get('held', {}).get(agent)} of {agent!r}, not {money}.")
        back = deposits if body["rule"] == REFUND else shared(deposits, agents, whole("round", body["round"]))
        return bounded({ESCROW: -sum(deposits.values()), **back})

    @classmethod
    def remember(cls, body: Body, memory: Memory) -> None:
        deposits = body["inputs"]["deposits"]
        if body["rule"] in (DEPOSIT, OLD):
            memory.update(agents=sorted(deposits), held=dict(deposits))
        else:
            memory["held"] = {agent: m for agent, m in memory.get("held", {}).items() if agent not in deposits}

    @classmethod
    def replay(cls, body: Body, memory: Memory, minor: int) -> Iterator[Problem | Amounts]:
        if body["rule"] == REFUND and body["inputs"]["deposits"] != memory.get("held"):
            yield "terms", "it does not give back all that the escrow still holds."
        yield from super().replay(body, memory, minor)

    def schedule(self) -> Mapping[str, When]:
        return {"deposit": "commit", "forfeit": "audit", "refund": "over"}

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        rules = terms.payments.get(self.name, {}).get("rules", ())
        first = DEPOSIT if DEPOSIT in rules else OLD
        agreed, given = self.deposits(terms.s_max, older=first == OLD), body["inputs"]["deposits"]
        if body["rule"] in {DEPOSIT, OLD} - {first}:
            yield f"its rule is {body['rule']}, agreed is {first}"
        if terms.deposits != agreed:
            yield "the deposits in the terms are not those that its numbers ask for"
        for agent in sorted(set(given) | (set(agreed) if body["rule"] == first else set())):
            if given.get(agent) != agreed.get(agent):
                yield f"the deposit of {agent!r} is {given.get(agent)}, agreed is {agreed.get(agent)}"
        if body["rule"] == FORFEIT and set(given) != set(body["inputs"]["failed"]):
            yield "other deposits are forfeited than of those that failed"

    @classmethod
    def explain(cls, entry: Entry, account: str, minor: int) -> str:
        given, failed = entry.inputs["deposits"], entry.inputs.get("failed", {})
        if entry.rule in (DEPOSIT, OLD):
            return "deposit, held until the last audit"
        if entry.rule == REFUND:
            return "deposit given back"
        others = ", ".join(f"{agent} (training round {step})" for agent, step in failed.items() if agent != account)
        share = f"its share of the deposits of {others}, which failed an audit" if others else ""
        if account not in failed:
            return share
        lost = f"its deposit of {given[account] / minor:.12g} is lost: it failed the audit of training round "
        return f"{lost}{failed[account]}" + (f"; {share}" if share else "")

    # What is said of it

    def limits(self, agents: Sequence[str], s_max: Array) -> Array:
        whole_points = [round(float(s) * self.scale) for s in s_max]
        return np.array([self.of_points(s, len(agents)) / self.minor for s in whole_points])

    def repriced(self, price: Fraction) -> Deposit:
        return replace(self, beta=price)

    def summary(self, oracles: Oracles | None = None) -> str:
        return f"deposits, audited with probability {float(self.chance):.3g}, {self.openings} records opened"

    def notes(self, n: int) -> tuple[str, ...]:
        together = min(self.colluding, n - 1)
        return (
            f"A deposit is lost where an audit fails and given back after the last one. It covers up to {together} "
            f"agents acting together, audits with probability {float(self.chance):.3g}, {self.openings} opened "
            f"records each known with probability {self.detection:g}, and {float(self.steering):g} gained by a round "
            "of steering."
            + ("" if self.openings else " Invented records are not looked for and not covered (openings: 0)."),
        )
