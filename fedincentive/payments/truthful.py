"""The truthful payment: everyone is paid what the others say the new model is worth to them.

    p*_i = sum_{j != i} v^_j - phi_i - h_i,   with valuations at the freshly broadcast model

As printed in the paper phi is 0 whenever the valuation fits the *reported* type, so an agent that inflates d_i and then
values honestly gains whatever Gamma is. `audited` charges Gamma unless all of these hold:

    the reported s_i equals the attested one
    ||d^_i - grad_w v_i(w^t, s^t)|| <= delta_d,  with s^t as it was broadcast
    |v^_i - v_i(w^{t+1}, s^{t+1})| <= delta_v

The gain that remains is at most epsilon = (eta/n) delta_d ||grad SW|| per round. p* does not balance: the treasury pays
or takes the sum. A center without the oracles to check all three pays nothing, unless it is told to pay on words.

With h `previous` the payments telescope to the others' values less those at the start. The start is v_j(w0, 0), the
first model and nobody's data, or 0 where that has no value or no oracle knows it: no report moves it. (In truthful/1 it
was the valuations reported at s0, which everyone moved by its own s0.) So the treasury pays (n-1) times the welfare
gain over that start.

| rule | inputs | postings |
|---|---|---|
| truthful/2 | valuations, baseline or previous, h, pivots, phi, fine, references, tolerance, failed | p*_i, treasury |
| truthful/1 | the same, where the first previous is the valuations reported of the first model | p*_i, treasury |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..draws import audited
from ..entry import BALANCED, TREASURY, Entry, difference
from ..errors import GameError, PaymentError, SettingError
from ..messages import Update
from ..run import Answer, Run
from ..terms import Terms
from .base import Array, Body, Event, Game, Memory, Payment, Problem, Promises, When
from .exact import MINOR, Amounts, bounded, check_agents, check_known, quantise, whole
from .oracles import Oracles, ValuationOracle

RULE, OLD = "truthful/2", "truthful/1"


def fines(
    phi: str,
    gamma: int,
    valuations: Mapping[str, int],
    references: Mapping[str, int],
    *,
    tolerance: int = 0,
    failed: Mapping[str, str] | None = None,
    minor: int = MINOR,
) -> Amounts:
    """phi_i of the truthful payment, in minor units; an agent without a reference is not judged on its value.

    `none`: 0. `paper`: 0 if v^_i equals the reference r_i, else gamma + (v^_i - r_i)^2 (half to even).
    `audited`: gamma unless |v^_i - r_i| <= tolerance and the agent is not in `failed`, which names the
    audits (of its points or its update) that it did not pass.

    >>> fines("paper", 5, {"a": 3, "b": 7}, {"a": 3, "b": 4}, minor=1)
    {'a': 0, 'b': 14}
    """
    if phi not in ("none", "paper", "audited"):
        raise PaymentError(f"phi is {phi!r}; known: none, paper, audited.")
    for name, value, low in (("gamma", gamma, 0), ("tolerance", tolerance, 0), ("minor", minor, 1)):
        whole(name, value, low=low)
    failed = failed or {}
    check_agents(valuations, "the valuation", least=0)
    check_known(references, valuations, "reference")
    check_known(failed, valuations, "failed audit")

    def fine(agent: str, value: int) -> int:
        gap = abs(value - whole(f"the reference of {agent!r}", references.get(agent, value)))
        if phi == "paper" and gap:
            return gamma + round(Fraction(gap * gap, minor))
        return gamma if phi == "audited" and (gap > tolerance or agent in failed) else 0

    return bounded({agent: fine(agent, valuations[agent]) for agent in sorted(valuations)})


def amounts(
    valuations: Mapping[str, int],
    previous: Mapping[str, int] | None,
    fined: Mapping[str, int],
    h: str,
    *,
    pivots: Mapping[str, int] | None = None,
) -> Amounts:
    """p*_i = sum_{j != i} v^_j - phi_i - h_i in minor units, and the treasury that pays or takes their sum.

    h `previous`: the others' valuations of the last round (0 before the first), so that the payments
    telescope to the others' improvement. `zero`: 0. `clarke`: pivots[i], the others' value without i.

    >>> amounts({"a": 5, "b": 7}, {"a": 4, "b": 4}, {"a": 2}, "previous")
    {'a': 1, 'b': 1, 'treasury': -2}
    """
    check_agents(valuations, "the valuation", least=0)
    check_agents(fined, "the fine", low=0, least=0)
    check_known(fined, valuations, "fine")
    if h not in ("previous", "zero", "clarke"):
        raise PaymentError(f"h is {h!r}; known: previous, zero, clarke.")
    before = dict(previous or {}) if h == "previous" else {}
    check_agents(before, "the previous valuation", least=0)
    if h == "clarke" and set(pivots or {}) != set(valuations):
        raise PaymentError("h 'clarke' needs one pivot (the others' value without the agent) for every valued agent.")
    total, total_before = sum(valuations.values()), sum(before.values())
    due = {}
    for agent in sorted(valuations):
        others = total - valuations[agent]
        base = pivots[agent] if h == "clarke" and pivots else total_before - before.get(agent, 0)
        due[agent] = others - fined.get(agent, 0) - whole(f"h of {agent!r}", base)
    due[TREASURY] = -sum(due.values())
    return bounded(due)


@dataclass(frozen=True)
class Truthful(Payment):
    """p*_i = sum_{j != i} v^_j - phi_i - h_i, paid by a treasury after every training round.

    The dynamics leave p* out of the slope of s, as the paper does.
    """

    phi: str = "audited"
    h: str = "previous"
    unchecked: bool = False
    fine: Fraction | None = None
    loss_cap: float = 10.0
    value_per_nat: float = 1.0
    audit: float = 1.0
    detection: float = 1.0
    delta_d: float = 1e-6
    delta_v: float = 1e-6
    eta: float = 1.0
    server_optimizer: str = "sgd"
    rounds: int = 1
    minor: int = MINOR

    name = "truthful"
    kinds = ("truthful",)
    rules = (RULE, OLD)
    balanced = False
    values = True
    steers = False

    def check(self, n: int, oracles: Oracles) -> None:
        super().check(n, oracles)
        if self.h == "clarke" and oracles.valuation is None:
            raise SettingError(
                "incentive.h is 'clarke', which needs the others' values without each agent: give the center a "
                "ValuationOracle, or set h: previous."
            )

    def made(self, oracles: Oracles) -> bool:
        return self.paid(oracles.names)

    def paid(self, known: Sequence[str]) -> bool:
        """Both oracles are needed to check s, d and v; else it is paid on words, or not at all."""
        return self.unchecked or {"update", "valuation"} <= set(known)

    def due(self, run: Run, event: Event) -> Entry | None:
        if not self.made(event.oracles):
            return None
        memory = self.memory(run)
        if event.phase == "train":
            if run.trained == 1 and self.h == "previous":
                memory["baseline"] = self.baseline(run, event)
            if self.effective(event.oracles) == "audited":
                memory["failed"] = self.failures(run, event)
            if self.h == "clarke":
                memory["pivots"] = pivots(run, event.without, event.oracles)
        return self._pay(run, event, memory) if event.phase == "value" else None

    def _pay(self, run: Run, event: Event, memory: Memory) -> Entry:
        """On the valuations that were just reported; who did not report keeps its last one."""
        phi, known = self.effective(event.oracles), event.oracles.valuation
        judged = [agent for agent in run.agents if phi != "none" and self._audited(run, agent)]
        failed = {**memory.get("failed", {}), **{agent: "absent" for agent in event.absent if agent in judged}}
        s = run.points(run.s)
        references = {} if known is None else {a: quantise(known.value(a, event.w, s), self.minor) for a in judged}
        inputs: dict[str, Any] = {
            "valuations": {agent: run.valuations.get(agent, 0) for agent in run.agents},
            "h": self.h,
            "phi": phi,
            "fine": self.gamma(run.n),
            "tolerance": quantise(self.delta_v, self.minor),
            "references": references,
            "failed": failed if phi == "audited" else {},
        }
        if self.h == "previous" and "valued" in memory:
            inputs["previous"] = memory["valued"]
        elif self.h == "previous":
            inputs["baseline"] = memory["baseline"]
        if self.h == "clarke":
            inputs["pivots"] = memory["pivots"]
        return self.entry(run, inputs)

    def baseline(self, run: Run, event: Event) -> Amounts:
        """v_j(w0, 0) as the oracle has it; nobody where no oracle knows it."""
        known, nothing = event.oracles.valuation, dict.fromkeys(run.agents, 0.0)
        return {} if known is None else {agent: self._start(known, agent, event.w, nothing) for agent in run.agents}

    def _start(self, known: ValuationOracle, agent: str, w: Update, nothing: Mapping[str, float]) -> int:
        try:
            value = known.value(agent, w, nothing)
        except GameError:  # no data has no value
            return 0
        cap = self.loss_cap * self.value_per_nat  # as everyone's reports are bounded
        return quantise(min(max(value, -cap), cap), self.minor) if math.isfinite(value) else 0

    def effective(self, oracles: Oracles) -> str:
        return self.charged(oracles.names)

    def charged(self, known: Sequence[str]) -> str:
        """Which fine can be charged: an audit needs both oracles, the paper's rule knows valuations only."""
        if self.phi == "audited" and "valuation" in known and "update" in known:
            return "audited"
        return "paper" if "valuation" in known else "none"

    def gamma(self, n: int) -> int:
        """Gamma in minor units, divided by the chance of being found: audit probability times detection power."""
        fine = self.fine
        if fine is None:
            fine = n * Fraction(str(self.loss_cap)) * Fraction(str(self.value_per_nat))
        return round(fine * self.minor / (Fraction(str(self.audit)) * Fraction(str(self.detection))))

    def _audited(self, run: Run, agent: str) -> bool:
        return audited(run.audit_seed, agent, run.step, self.audit)

    def failures(self, run: Run, event: Event) -> dict[str, str]:
        """The agents whose points or update did not pass the audit of a training round at the broadcast (w, s)."""
        return {
            agent: why
            for agent in run.asked
            if self._audited(run, agent) and (why := self._failure(run, event, agent, event.reports.get(agent)))
        }

    def _failure(self, run: Run, event: Event, agent: str, report: Answer | None) -> str:
        oracles = event.oracles
        assert oracles.update is not None
        if report is None:
            return "absent"
        if run.s[agent] != min(quantise(oracles.update.points(agent), run.settings.scale), run.s_max[agent]):
            return "points"
        if distance(report.update, oracles.update.update(agent, event.w, event.s, run.step)) > self.delta_d:
            return "update"
        return ""

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        given = body["inputs"]
        fined = fines(
            given["phi"], given["fine"], given["valuations"], given.get("references", {}),
            tolerance=given["tolerance"], failed=given.get("failed"), minor=minor,
        )  # fmt: skip
        before = given.get("previous", given.get("baseline"))
        return amounts(given["valuations"], before, fined, given["h"], pivots=given.get("pivots"))

    @classmethod
    def remember(cls, body: Body, memory: Memory) -> None:
        memory["valued"] = dict(body["inputs"]["valuations"])

    @classmethod
    def replay(cls, body: Body, memory: Memory, minor: int) -> Iterator[Problem | Amounts]:
        given, last = body["inputs"], memory.get("valued")
        before = given.get("previous", {})
        if body["rule"] == RULE and given["h"] == "previous" and ("baseline" in given) != (last is None):
            yield "previous", "the first entry of a run, and no other, is measured from a baseline."
        elif given["h"] == "previous" and last is not None and before != last:
            agent, told, was = difference("", before, last)
            yield "previous", f"the last valuation of {agent!r} is given as {told}, it was {was}."
        yield from super().replay(body, memory, minor)

    def schedule(self) -> Mapping[str, When]:
        return {"truthful": "step"}

    def every_step(self, terms: Terms) -> tuple[str, ...]:
        agreed = RULE in terms.payments.get(self.name, {}).get("rules", ())
        return super().every_step(terms) if agreed and self.paid(terms.oracles) else ()

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        given, n = body["inputs"], len(terms.s_max)
        rules = terms.payments.get(self.name, {}).get("rules", ())
        if RULE in rules and body["rule"] != RULE:
            yield f"its rule is {body['rule']}, agreed is {RULE}"
        elif RULE in rules and not self.paid(terms.oracles):
            yield "nothing is paid on words that no oracle checks, unless that was agreed (unchecked)"
        tolerance = quantise(self.delta_v, self.minor)
        agreed = {"h": self.h, "phi": self.charged(terms.oracles), "fine": self.gamma(n), "tolerance": tolerance}
        for key, value in agreed.items():
            if given[key] != value:
                yield f"{key} is {given[key]!r}, agreed is {value!r}"
        if set(given["valuations"]) != set(terms.s_max):
            stranger = sorted(set(given["valuations"]) ^ set(terms.s_max))[0]
            yield f"{stranger!r} is valued but not in the terms, or in the terms but not valued"
        cap = quantise(self.loss_cap * self.value_per_nat, self.minor)
        for agent, value in sorted(given["valuations"].items()):
            if abs(value) > cap:
                yield f"{agent!r} is valued {value}, agreed is at most {cap} either way"
        start = given.get("baseline", {})
        wanted = set(terms.s_max) if "valuation" in terms.oracles else set()
        if "baseline" in given and set(start) != wanted:
            yield "its baseline is not of the agents in the terms, or nobody could know it"
        for agent, value in sorted(start.items()):
            if type(value) is not int or abs(value) > cap:
                yield f"the baseline of {agent!r} is {value!r}, agreed is at most {cap} either way"

    @classmethod
    def explain(cls, entry: Entry, account: str, minor: int) -> str:
        given = entry.inputs
        if account not in given["valuations"]:
            return entry.rule
        value = f"{float(Fraction(given['valuations'][account], minor)):.12g}"
        failed = given.get("failed", {}).get(account)
        return f"others' values, h {given['h']}, own value {value}, fine rule {given['phi']}" + (
            f", failed: {failed}" if failed else ""
        )

    @classmethod
    def told(cls, entry: Entry) -> Mapping[str, Mapping[str, int]]:
        return {name: entry.inputs[name] for name in ("valuations", "previous") if name in entry.inputs}

    def deviations(self, game: Game, w: Array, s: Array, t: Array) -> Array:
        """The others' values, which a move of s_i changes too."""
        return game.valuation.others(w, s, t)

    def expected(self, game: Game, w: Array, s: Array) -> Array | None:
        """Honest agents are not fined, and with h `previous` the payments telescope to what the others gain over the
        start: together (n-1) times the welfare gain."""
        if self.h != "previous":
            return None
        try:
            start = game.values(game.w0, np.zeros(game.n))
        except GameError:
            start = np.zeros(game.n)
        cap = self.loss_cap * self.value_per_nat
        better = game.values(w, s) - np.clip(np.where(np.isfinite(start), start, 0.0), -cap, cap)
        return better.sum() - better

    def summary(self, oracles: Oracles | None = None) -> str:
        if oracles is not None and not self.made(oracles):
            return "p* is not paid: the center has no oracles to check s, d and v (incentive.unchecked pays on words)"
        charged = self.phi if oracles is None else self.effective(oracles)
        missing = "" if charged == self.phi else f", for lack of an oracle instead of {self.phi}"
        return f"truthful payment p* (h: {self.h}, fine: {charged}{missing})"

    def promises(self, oracles: Oracles) -> Promises:
        if not self.made(oracles):
            return Promises(
                (), {"truthful": "there is no oracle to check s, d and v against, so nothing is paid on them"}
            )
        disclaimed = {BALANCED: "p* does not balance; the treasury pays the difference"}
        phi = self.effective(oracles)
        why = {
            "paper": "phi as printed is 0 whenever the valuation fits the reported type: inflating d pays",
            "none": "there is no oracle to check reports against",
        }
        if phi in why:
            return Promises((), {**disclaimed, "truthful": why[phi]})
        if self.server_optimizer == "adam":
            adam = "with server Adam a tiny change of d already moves the model a full step"
            return Promises((), {**disclaimed, "truthful": adam})
        note = f"epsilon-EPIC per round, epsilon = (eta/n) delta_d |grad SW|, delta_d = {self.delta_d:g}"
        return Promises(("truthful",), disclaimed, {"truthful": note})

    def limits(self, agents: Sequence[str], s_max: Array) -> Array | None:
        """A fine in every round, and the others' values at their worst: each |v| is at most loss_cap value_per_nat."""
        if self.h == "clarke":
            return None
        n, cap = len(agents), self.loss_cap * self.value_per_nat
        others = (n - 1) * cap * (2.0 if self.h == "previous" else float(self.rounds))
        return np.full(n, others + self.rounds * self.gamma(n) / self.minor)

    def notes(self, n: int) -> tuple[str, ...]:
        fine, chance = self.gamma(n) / self.minor, self.audit * self.detection
        return (
            f"A misreport that an audit finds costs {fine:.6g} in each round; it is found with probability {chance:g}, "
            "where the center has an oracle to check with. The treasury pays or takes the sum of p*.",
            "Without oracles for s, d and v "
            + ("it is paid on words." if self.unchecked else "nothing is paid (incentive.unchecked)."),
            *(
                (f"The treasury pays {n - 1} times the welfare gain over the first model without data.",)
                * (self.h == "previous")
            ),
            "Worst case: fined in every round, and the others' valuations as low as loss_cap allows.",
        )

    def metrics(self, run: Run, d: Update) -> dict[str, float]:
        return {"epsilon": self.epsilon(d)} if self.server_optimizer == "sgd" else {}

    def epsilon(self, d: Update) -> float:
        """(eta/n) delta_d ||grad SW||, where the mean update d is (1/n) grad SW."""
        return self.eta * self.delta_d * math.sqrt(sum(float(np.sum(np.square(a))) for a in d.values()))


def pivots(run: Run, without: Callable[[str], Update], oracles: Oracles) -> dict[str, int]:
    """Clarke's h_i: the others' value had i not been there; `without(i)` is the model the others alone would make."""
    assert oracles.valuation is not None
    values = {}
    for agent in run.agents:
        w, s = without(agent), {**run.points(run.s), agent: 0.0}
        others = (oracles.valuation.value(other, w, s) for other in run.agents if other != agent)
        values[agent] = sum(quantise(value, run.settings.minor) for value in others)
    return values


def distance(a: Update, b: Update) -> float:
    return math.sqrt(sum(float(np.sum(np.square(np.subtract(a[name], b[name], dtype=np.float64)))) for name in b))
