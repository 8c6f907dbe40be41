"""The audits of a signed run, derived again: who was drawn, by whom each was looked at, and what follows.

An `audit-STEP` entry (rule audit/3, in older runs audit/2 or audit/1) keeps what auditors found of a training round.

    {"terms", "step", "withheld": [agents without a link], "suspected": [agents], "failed": [agents],
     "late": [agents whose link was not waited for], "next": the center's link after those that drew (audit/3),
     "heard": [{"auditor", "nonce", "seen", "verdicts": [...], "signature"} or {"auditor", "silent": [agents]}, ...],
     "links": {name: link}}

The links of the agents are in their reports, those of the last exchange in `links`. They draw who is audited, so a step
for which somebody was drawn and that has no such entry was skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from typing import Any

from ..errors import ProvenanceError
from ..payments.base import Body, Problem
from ..provenance import audits, beacon
from ..provenance.keys import PublicKey, from_base64, words
from ..terms import CENTER, Terms

Points = Mapping[str, int]


class AuditTrail:
    """The links that were shown, and the steps that are not settled."""

    def __init__(self, run: str, terms: Terms) -> None:
        self.run, self.terms = run, terms
        self.rule = terms.audit_rule
        self.keys: dict[str, PublicKey] = {}
        for auditor, text in terms.auditors.items():
            try:
                self.keys[auditor] = PublicKey.parse(text)
            except ProvenanceError:
                continue
        self.links = {name: (-1, anchor) for name, anchor in terms.anchors.items()}
        self.open: list[dict[str, Any]] = []
        self.trained, self.ended = 0, False
        self.failed: dict[str, int] = {}

    @property
    def settled(self) -> bool:
        """Whether every step of the run was audited as far as it was drawn."""
        return self.ended and not self.open

    def show(self, step: int, links: Mapping[str, Any]) -> Iterator[Problem]:
        """Everybody's links of a step must be those that were anchored."""
        for name, link in links.items():
            number, before = self.links.get(name, (-1, ""))
            if not isinstance(link, str) or number > step or not beacon.follows(before, link, step - number):
                yield "beacon", f"the link of {name!r} for step {step} is not the one that was anchored in the terms."
            else:
                self.links[name] = (step, link)

    def reported(self, body: Body, delivered: Points, first: int) -> Iterator[Problem]:
        """A training round: what was drawn before it is audited by now, and its own links draw what comes next."""
        yield from self._skipped()
        given, step = body["inputs"], body["round"] - first
        self.trained = step + 1
        if self.ended:
            yield "audit", "it trains on after the audits of the run had ended."
        said = given["said"]
        shown = {CENTER: given.get("reveal"), **({a: w.get("reveal") for a, w in said.items()} if step else {})}
        yield from self.show(step, shown)
        self.open.append(
            {
                "step": step,
                "asked": sorted({*said, *given.get("absent", ())}),
                "delivered": dict(delivered),
                "updates": {agent: words["update"] for agent, words in said.items() if agent not in self.failed},
                "model": given.get("model"),
            }
        )

    def _skipped(self) -> Iterator[Problem]:
        while self.open and (drawn := self._drawn(self.open[0], ended=False)) is not None:
            if drawn[1]:
                who = ", ".join(sorted(drawn[1]))
                yield "audit", f"in step {self.open[0]['step']} {who} were drawn to be audited, and were not."
            self.open.pop(0)

    def _drawn(self, step: Mapping[str, Any], *, ended: bool) -> tuple[str, set[str], list[str], list[str]] | None:
        """The value that draws, who is drawn, who withheld the link to the end, and whose link was not waited for;
        None while links are missing."""
        later = [other for other in self.open if other["step"] == step["step"] + 1]
        asked = later[0]["asked"] if later else sorted(self.terms.s_max) if ended else None
        if asked is None:
            return None
        number = step["step"] + 1
        known = {name: self._link(name, number) for name in (CENTER, *asked)}
        hidden = [name for name in asked if known[name] is None and name not in self.failed]
        late = self.terms.lag is not None and self.trained - number >= self.terms.lag
        if known[CENTER] is None or (hidden and not (ended or late)):
            return None
        value = beacon.mixed(self.terms.digest, number, {name: link for name, link in known.items() if link})
        updates = {agent: update for agent, update in step["updates"].items() if agent not in self.failed}
        drawn = set(updates) if hidden else audits.coins(value, updates, self.terms.chance)
        drawn |= audits.copies(updates)
        return (value, drawn - set(hidden), hidden, []) if ended else (value, drawn, [], hidden)

    def _link(self, name: str, step: int) -> str | None:
        number, link = self.links[name]
        return None if number < step else beacon.back(link, number - step)

    def take(self, body: Body) -> Generator[Problem, None, list[Points]]:
        """The memo of a step. Returns what was delivered in it and after it, by step."""
        given, number = body["inputs"], body["inputs"]["step"]
        ended = "links" in given
        if body["kind"] != f"{audits.PREFIX}{number}" or given["terms"] != self.terms.digest:
            yield "audit", "it is of another step, or for other terms."
        if body["rule"] != self.rule:
            yield "audit", f"its rule is {body['rule']}, by the terms it is {self.rule}."
        if ended and not (self.trained == self.terms.rounds or self.failed):  # too few may be left to train on
            yield "audit", "it ends the audits of a run that still trains."
        if ended:
            yield from self.show(self.trained, given["links"])
            self.ended = True
        while self.open and self.open[0]["step"] < number:
            drawn = self._drawn(self.open[0], ended=ended)
            if drawn is None or drawn[1] or drawn[2]:
                yield "audit", f"step {self.open[0]['step']} was to be audited before step {number}."
            self.open.pop(0)
        drawn = self._drawn(self.open[0], ended=ended) if self.open and self.open[0]["step"] == number else None
        if drawn is None:
            yield "audit", f"step {number} was audited before, or nobody knows yet who is drawn."
            return []
        value, agents, withheld, late = drawn
        if given["withheld"] != withheld or given.get("late", []) != late:
            yield "audit", f"{given['withheld']} are said to have withheld a link, {withheld} did, late are {late}."
        agents |= set(given["suspected"]) & (set(self.open[0]["updates"]) - set(self.failed))
        again = yield from self._again(given, value, sorted(agents))
        found = yield from self._heard(body, value, {agent: [] for agent in sorted(agents)}, again)
        failed = [agent for agent, verdict in found.items() if verdict == audits.FAIL]
        for agent in (agent for agent, verdict in found.items() if verdict is None):
            yield "audit", f"{agent!r} was drawn to be audited in step {number}, and that was not decided."
        if given["failed"] != failed:
            yield "audit", f"{given['failed']} are said to have failed, by the verdicts {failed} did."
        self.failed.update(dict.fromkeys([*failed, *withheld], number))
        taken = [step["delivered"] for step in self.open]
        self.open.pop(0)
        return taken

    def _again(self, given: Mapping[str, Any], value: str, agents: list[str]) -> Generator[Problem, None, set[str]]:
        """The agents of whom a pass is checked again."""
        if self.rule == audits.RULE:
            number = given["step"] + 2
            if self._link(CENTER, number) is None:
                yield from self.show(number, {CENTER: given["next"]})
            elif given["next"] != self._link(CENTER, number):
                yield "beacon", f"the link of {CENTER!r} for step {number} is not the one it showed."
            value = beacon.mixed(value, number, {CENTER: given["next"]})
        return {agent for agent in agents if audits.repeated(value, agent, self.terms.rechecks)}

    def _heard(
        self, body: Body, value: str, heard: dict[str, list[tuple[str, str]]], again: Collection[str]
    ) -> Generator[Problem, None, dict[str, str | None]]:
        """Each verdict is signed, and from the auditor whose turn it was."""
        for item in body["inputs"]["heard"]:
            auditor = item["auditor"]
            if "silent" in item:
                said = dict.fromkeys(item["silent"], audits.SILENT)
            else:
                said = {one["agent"]: one["found"] for one in item["verdicts"]}
                if not self._signed(body, item):
                    yield "signature", f"auditor {auditor!r} did not sign what is said in its name."
            for agent, what in said.items():
                if agent not in heard or audits.decision(heard[agent], self.rule, repeat=agent in again) is not None:
                    yield "audit", f"{auditor!r} was asked about {agent!r}, who was not drawn or was decided on."
                    continue
                order = audits.order(value, agent, self.terms.auditors)
                if audits.next_auditor(order, heard[agent]) != auditor:
                    yield "audit", f"{auditor!r} looked at {agent!r}, it was another auditor's turn."
                heard[agent].append((auditor, what))
        return {agent: audits.decision(of, self.rule, repeat=agent in again) for agent, of in heard.items()}

    def _signed(self, body: Body, item: Mapping[str, Any]) -> bool:
        claim = {key: item[key] for key in ("nonce", "seen", "verdicts") if key in item}
        claim |= {"run": self.run, "terms": self.terms.digest, "model": self.open[0]["model"]}
        claim |= {"round": body["round"], "phase": "audit", "agent": item["auditor"]}
        right = all(one["step"] == body["inputs"]["step"] for one in item["verdicts"])
        try:
            key = self.keys[item["auditor"]]
            return right and key.verify(from_base64(item["signature"]), words("report", claim))
        except (ValueError, TypeError, KeyError):
            return False
