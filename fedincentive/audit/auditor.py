"""A drawn auditor: it checks what the center tells it, examines at the sites, and signs what it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from .. import identity, terms
from ..errors import BroadcastRefused, SettingError
from ..messages import Broadcast, Enrol, Report, Update
from ..provenance import audits, beacon
from ..provenance.keys import KeyRing, PrivateKey, PublicKey, words
from ..provenance.records import Commitment
from .examination import AuditedSite, Delivery, Recognised, Valid, examine, unauditable

LONGEST = 200  # characters of a reason
SAID = ("s", "delivered", "update", "valuation", "nonce", "reveal", "terms", "model", "seen")


class Auditor:
    """One auditor with a key. `sites` gives the site of an agent, `commitments` what that site keeps of its commitment.

    It is no agent: it sees hashes and the site's records, and says pass or fail. A center that shows it another model,
    other terms or other words than the agent signed gets a BroadcastRefused, not a verdict.
    """

    omniscient = False

    def __init__(
        self,
        key: PrivateKey,
        center: PublicKey,
        sites: Callable[[str], AuditedSite],
        *,
        commitments: Callable[[str], Commitment | None] = lambda agent: None,
        valid: Valid | None = None,
        recognised: Recognised | None = None,
        tag_key: bytes | None = None,
    ) -> None:
        self.key, self.center, self.name = key, center, key.name
        self._sites, self._commitments = sites, commitments
        self._checks: dict[str, Any] = {"valid": valid, "recognised": recognised, "tag_key": tag_key}
        self._last: tuple[str | None, Report | None] = (None, None)

    @classmethod
    def of(cls, keys: KeyRing, name: str, sites: Callable[[str], AuditedSite], **options: Any) -> Auditor:
        """The auditor whose private key is in this folder of keys, beside the center's public one."""
        if name not in keys.private or identity.CENTER not in keys.public:
            lacks = f"private key of auditor {name!r}" if name not in keys.private else "public key of the center"
            raise SettingError(f"incentive.keys has no {lacks}: make it with `fedincentive keys new`, or ask for it.")
        return cls(keys.private[name], keys.public[identity.CENTER], sites, **options)

    def respond(self, told: Broadcast, honest: Sequence[Update] = ()) -> Report | None:
        """Its verdicts on those it was drawn for; None where it is not asked. Asked twice, it says the same."""
        if told.phase != "audit":
            return None
        if told.signature is None or told.signature != self._last[0]:
            self._last = told.signature, self._report(told)
        return self._last[1]

    def _report(self, told: Broadcast) -> Report | None:
        try:
            agreed = told.settings["terms"]
            answers = identity.answers(told, terms.digest(agreed))
            if agreed["center"] != self.center.vkey or not identity.is_signed(
                self.center, identity.broadcast(told, answers), told.signature
            ):
                raise BroadcastRefused(f"An audit of run {told.run!r} is not signed by the center that is known.")
            if agreed["run"] != told.run or agreed["auditors"].get(self.name) != self.key.public.vkey:
                raise BroadcastRefused(f"The terms of run {told.run!r} do not name auditor {self.name!r} with its key.")
            tasks = [task for task in told.audits if task["auditor"] == self.name]
            drawn = {what: self._mixed(told, agreed, what) for what in ("order", "draw")} if tasks else {}
            said = [self._delivery(told, agreed, answers, task, drawn) for task in tasks]
        except BroadcastRefused:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise BroadcastRefused(f"An audit of run {told.run!r} is malformed: {error!r}.") from error
        if not said:
            return None
        report = Report(told.run, told.round, "audit", self.name, verdicts=[self._verdict(one) for one in said])
        place = f"{answers['terms']}\n{told.round}\n{told.signature}"
        nonce = sha256(self.key.sign(words("nonce", {"place": place}))).hexdigest()[:32]
        report = replace(report, nonce=nonce)
        claim = identity.claim(report, answers, agreed["scale"], agreed["minor"], 0)
        return replace(report, signature=identity.signed(self.key, words("report", claim)))

    def _delivery(
        self,
        told: Broadcast,
        agreed: Mapping[str, Any],
        answers: Mapping[str, Any],
        task: Mapping[str, Any],
        drawn: Mapping[str, str],
    ) -> Delivery:
        """What the agent itself signed, for these terms and this model."""
        agent, step, given = task["agent"], task["step"], task["said"]
        mine = agreed["agents"][agent]
        claim = {key: given[key] for key in SAID if key in given}
        claim |= {"run": told.run, "round": task["round"], "phase": "train", "agent": agent}
        signed = identity.is_signed(PublicKey.parse(mine["key"]), words("report", claim), given["signature"])
        if not signed or claim["terms"] != answers["terms"] or claim["model"] != answers["model"]:
            raise BroadcastRefused(
                f"Agent {agent!r} did not sign what auditor {self.name!r} is to audit in step {step}."
            )
        return Delivery(
            agent,
            step,
            told.w or {},
            told.s,
            claim["delivered"],
            claim["update"],
            mine["s_max"],
            agreed["scale"],
            mine.get("data"),
            **drawn,
            openings=agreed["settings"]["openings"],
            tags=mine.get("tags"),
        )

    def _mixed(self, told: Broadcast, agreed: Mapping[str, Any], what: str) -> str:
        """The value that draws the order of points (step 0) or who is audited, from links that were anchored."""
        links, step = told.settings["links"][what], told.audits[0]["step"] + 1 if what == "draw" else 0
        anchors = {identity.CENTER: agreed["anchor"], **{name: a["anchor"] for name, a in agreed["agents"].items()}}
        for name, link in links.items():
            if not beacon.follows(anchors[name], link, step + 1):
                raise BroadcastRefused(f"The link of {name!r} for step {step} is not the one it anchored in the terms.")
        return beacon.mixed(terms.digest(agreed), step, links)

    def _verdict(self, said: Delivery) -> dict[str, Any]:
        try:
            at_site = self._sites(said.agent), self._commitments(said.agent)
            found = examine(said, *at_site, **self._checks)
        except Exception as error:
            found = unauditable(said, error)
        what = audits.PASS if found.passed else audits.FAIL
        return {
            "agent": said.agent,
            "step": said.step,
            "found": what,
            "why": found.why[:LONGEST],
            "opened": found.opened,
        }

    # As an agent has it, for hosts that play or reach everybody

    def enrol(self) -> Enrol:
        """Who it is; it has no points."""
        return Enrol(self.name, 0.0, 0.0, key=self.key.public.vkey)

    def enrolment(self, run: str) -> str:
        return identity.signed(self.key, identity.enrolment(run, self.enrol()))

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """It remembers nothing that it could not find out again."""
