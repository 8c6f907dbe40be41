"""Signed claims: that every input of every payment of a signed run was said by its agent.

A `reports-PHASE` entry (rule reports/1) keeps what the agents said in a round with their signatures, and comes before
the payments that follow from it. `reports-contribute` keeps the last word of each agent on its s.

    {"terms", "model", "seen", "reveal", "absent": [...],
     "said": {agent: {"s", "delivered", "update", "valuation", "nonce", "signature"}}}
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from ..errors import ProvenanceError
from ..payments.base import Body, Problem
from ..payments.contribution import SCORED, scored
from ..provenance import statements
from ..provenance.keys import from_base64, words
from ..provenance.statements import KeysInForce
from ..terms import Terms
from .audits import AuditTrail

RULE = "reports/1"
PREFIX = "reports-"
OWN = ("s", "delivered", "update", "valuation", "nonce", "reveal", "declined")


class Claims:
    """What the agents of one signed run have said so far, every word of it checked."""

    def __init__(self, run: str, terms: Terms) -> None:
        self.run, self.terms = run, terms
        self.keys = KeysInForce(terms.keys or {}, terms.recovery)
        self.changes = 0  # of keys
        self.s = dict(terms.s0)
        self.delivered: dict[str, int] = {}
        self.total = dict.fromkeys(terms.s_max, 0)
        self.valuations: dict[str, int] = {}
        self.previous: dict[str, int] = {}  # the valuations before those of the round
        self.round = -1  # of the last training round that was reported
        self.signatures = 0
        self.first: int | None = None  # the first training round
        self.failed: dict[str, int] = {}  # who failed an audit counts 0 from then on
        self.drawn = set(terms.s_max)  # for the last training round
        self.answered: dict[str, int] = {}  # what they delivered in it
        self.scores = dict.fromkeys(terms.s_max, 0)  # where a round compares the asked with the asked
        self.audits = AuditTrail(run, terms) if terms.auditors else None
        self.shown: tuple[int, str] | None = None  # the last step and link of the center's chain

    def accepted(self, body: Body) -> Iterator[Problem]:
        """Everybody signed the terms, or there is no run."""
        given = body["inputs"].get("accepted", {})
        for agent in self.terms.s_max:
            if agent not in given or not self._signed(agent, given[agent], body["round"], "accept", {}):
                yield "signature", f"{agent!r} did not sign the terms."
        if self.audits is not None:
            yield from self.audits.show(0, {agent: said.get("reveal") for agent, said in given.items()})

    def take(self, body: Body) -> Iterator[Problem]:
        """A round's reports: each must be signed for this run, these terms and this round."""
        given, phase = body["inputs"], body["kind"].removeprefix(PREFIX)
        if given["terms"] != self.terms.digest:
            yield "signature", "the reports are for other terms."
        if phase not in ("contribute", "train", "value"):
            yield "kind", f"there are no reports of a phase {phase!r}."
            return
        shared = {key: given[key] for key in ("model", "seen") if key in given}
        for agent, said in given["said"].items():
            number = said["round"] if phase == "contribute" else body["round"]
            if not self._signed(agent, said, number, phase, shared):
                yield "signature", f"{agent!r} did not sign what is said in its name."
        yield from self._everybody(body, phase)
        if phase == "train":
            self._deliver(given, body["round"])
            if self.audits is not None:
                yield from self.audits.reported(body, self.delivered, self.first or 0)
        if phase != "value":
            self.s.update(_said(given, "s"))
        if phase != "contribute":
            self.valuations.update(_said(given, "valuation"))
        if phase == "train":
            self.previous = dict(self.valuations)

    def _everybody(self, body: Body, phase: str) -> Iterator[Problem]:
        """Whoever is asked has answered or is called absent: nobody's report is passed over in silence.

        Of phase 1 the last round counts; an agent that was absent then stands with an earlier word, or with none.
        """
        given, absent, said = body["inputs"], body["inputs"].get("absent", ()), body["inputs"]["said"]
        if phase == "contribute":
            said = [agent for agent in said if said[agent]["round"] == body["round"] - 1]
            if any(given["said"][agent]["round"] >= body["round"] for agent in given["said"]):
                yield "claims", "it has words of a round that was still to come."
        elif phase == "train":
            self.first = body["round"] if self.first is None else self.first
        asked = set(self.total)
        if phase == "train":
            step, link = body["round"] - (self.first or 0), given.get("reveal")
            drawn = self.terms.asked(link, step, self.shown)
            if drawn is None:
                yield (
                    "claims",
                    f"{link!r} is not the link of step {step} that the terms anchor: nobody knows who was asked.",
                )
                return
            self.drawn, self.shown = set(drawn), (step, link) if link and self.terms.draws else None
            asked = self.drawn - set(self.failed)  # who failed an audit is not asked again
        if sorted([*said, *absent]) != sorted(asked):
            odd = sorted({*said, *absent} ^ asked) or sorted(set(said) & set(absent))
            yield "claims", f"{odd[0]!r} was asked and is not accounted for, or was not asked and is."

    def _deliver(self, given: Mapping[str, Any], number: int) -> None:
        """The absent delivered nothing; who was not asked counts as before, at first with what it committed."""
        said = {agent: points for agent, points in _said(given, "delivered").items() if agent not in self.failed}
        self.delivered.update({**dict.fromkeys((*given.get("absent", ()), *self.failed), 0), **said})
        self.answered = {**dict.fromkeys(self.drawn, 0), **said}
        for agent, score in scored(self.answered).items():
            self.scores[agent] = self.scores.get(agent, 0) + score
        for agent in self.total:
            self.total[agent] += self.delivered.get(agent, 0)
        self.round = number

    def audited(self, body: Body) -> Generator[Problem, None, dict[str, int]]:
        """The audits of a step: who failed counts nothing from that step on. Returns who did, and in which step."""
        if self.audits is None:
            yield "audit", "there are audits, but the run's terms name no auditors."
            return {}
        before = set(self.audits.failed)
        taken = yield from self.audits.take(body)
        self.signatures += len(body["inputs"]["heard"])
        for agent in set(self.audits.failed) - before:
            self.total[agent] -= sum(delivered[agent] for delivered in taken)
            self.delivered[agent] = 0
        self.round = body["round"]
        return {agent: step for agent, step in self.audits.failed.items() if agent not in before}

    def changed(self, body: Body) -> Iterator[Problem]:
        """A key's owner replaces it, or the recovery key revokes it, from this round on."""
        given, self.changes = body["inputs"], self.changes + 1
        if body["kind"] != f"{statements.PREFIX}{self.changes}":
            yield "kind", f"it is change {self.changes} of a key, and its kind is {body['kind']}."
        if given["terms"] != self.terms.digest or self.audits is not None:
            yield "signature", "it is for other terms, or for an audited run, whose hash chains come from the keys."
            return
        self.signatures += len(given["statement"]["signatures"])
        try:
            self.keys.change(given["statement"], body["round"])
        except ProvenanceError as error:
            yield "signature", str(error)

    def committed(self, body: Body) -> Iterator[Problem]:
        yield from self._compare("s", body["inputs"]["s"], self.s)
        self.delivered = dict(self.s)

    def against(self, body: Body, told: Mapping[str, Mapping[str, int]]) -> Iterator[Problem]:
        """In what a payment's inputs differ from what the agents said."""
        if "s" not in told and body["round"] != self.round:
            yield "claims", f"no signed reports of round {body['round']} come before it."
        known = {
            "s": self.s,
            "delivered": self.answered if body["rule"] == SCORED else self.delivered,
            "scores": self.scores,
            "total": self.total,
            "valuations": self.valuations,
            "previous": self.previous,
        }
        for what, given in told.items():
            if what in known:
                yield from self._compare(what, given, known[what])
        if "previous" in told:
            self.previous = dict(self.valuations)

    def _compare(self, what: str, given: Mapping[str, int], said: Mapping[str, int]) -> Iterator[Problem]:
        for agent in sorted({*given, *said}):
            if given.get(agent, 0) != said.get(agent, 0):
                yield "claims", f"{what} of {agent!r} is {given.get(agent, 0)}, it said {said.get(agent, 0)}."

    def _signed(self, agent: str, said: Mapping[str, Any], number: int, phase: str, shared: Mapping[str, Any]) -> bool:
        """Whether the agent signed all that is said in its name, and nothing else stands there."""
        if set(said) - {*OWN, "seen", "signature", *(["round"] if phase == "contribute" else [])}:
            return False
        own = {key: said[key] for key in OWN if key in said}
        seen = {"seen": said["seen"]} if "seen" in said else {}
        place = {"run": self.run, "terms": self.terms.digest, "round": number, "phase": phase, "agent": agent}
        self.signatures += 1
        try:
            key = self.keys.at(agent, number)
            words_said = words("report", {**shared, **seen, **place, **own})
            return key is not None and key.verify(from_base64(said["signature"]), words_said)
        except (ValueError, TypeError, KeyError):
            return False


def _said(given: Mapping[str, Any], what: str) -> dict[str, int]:
    return {agent: said[what] for agent, said in given["said"].items() if what in said}
