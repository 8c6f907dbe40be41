"""What an agent with a key does beside playing: it trusts no broadcast unread, signs what it says, and keeps receipts.

A broadcast counts only when its center signed it for this run and these terms, in order, and when the ledger it shows
extends the one seen before. Anything else is a BroadcastRefused; two histories are a LogForked with the evidence, and
the agent says nothing more.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from .. import identity, terms
from ..entry import COMMITMENT, Entry, canonical
from ..errors import BroadcastRefused, FedIncentiveError, LogForked, ProvenanceError, SettingError
from ..files import replace as write_file
from ..messages import PHASES, Broadcast, Enrol, Report
from ..payments import quantise
from ..provenance import beacon, receipts
from ..provenance.keys import KeyRing, PrivateKey, PublicKey, from_base64, name_in_files, words
from ..provenance.notes import Note
from ..provenance.witness import Witness
from ..sealed import read_json, write_json

log = logging.getLogger("fedincentive")
MEMORY = "notary.json"
REVEALING = ("accept", "train", "confirm")  # phases in which a link is shown
WAITING = 64  # receipts that wait for the others' cosignatures


class Notary:
    """The agent's key, what it knows of its center, and the run's folder for receipts and evidence (None: not kept).

    What it has seen is kept there too and survives a crash, unless `durable` is False: then whoever plays the agent
    keeps `state`. It signs no terms that differ from `expected`, what its site's own settings say. In an audited run
    `chain` is its name and how many steps it has: the agent then shows a link of its hash chain with each of them.
    """

    def __init__(
        self,
        key: PrivateKey,
        center: PublicKey,
        folder: Path | None = None,
        *,
        durable: bool = True,
        expected: Mapping[str, Any] | None = None,
        chain: tuple[str, int] | None = None,
    ) -> None:
        self.key, self.center, self.durable, self.expected = key, center, durable, expected
        self.links = [] if chain is None else beacon.links_of(key, {"run": chain[0]}, chain[1])
        self.folder = None if folder is None else folder / name_in_files(key.name)
        self._state: dict[str, Any] = {}
        self._answers: dict[str, Any] = {}
        if durable and self.folder is not None and (self.folder / MEMORY).exists():
            self._state = read_json(self.folder / MEMORY)

    @classmethod
    def of(cls, keys: KeyRing, agent: str, folder: Path | None = None, **options: Any) -> Notary:
        """The notary of an agent whose private key is in this folder of keys, beside the center's public one."""
        if agent not in keys.private:
            raise SettingError(
                f"incentive.keys has no private key of agent {agent!r}: make it with `fedincentive keys new {agent!r}`."
            )
        if identity.CENTER not in keys.public:
            raise SettingError(
                f"incentive.keys has no public key of the center ({identity.CENTER}.pub): ask it for one."
            )
        return cls(keys.private[agent], keys.public[identity.CENTER], folder, **options)

    # Signing

    def enrol(self, enrol: Enrol) -> Enrol:
        return replace(enrol, key=self.key.public.vkey, anchor=beacon.anchor(self.links) if self.links else None)

    def enrolment(self, run: str, enrol: Enrol) -> str:
        """The signature of an enrolment."""
        return identity.signed(self.key, identity.enrolment(run, enrol))

    def sign(self, report: Report, told: Broadcast) -> Report:
        """The report with the agent's signature, and its cosignature of a checkpoint it had not seen before."""
        agreed = self._state["agreed"]
        place = f"{agreed['digest']}\n{report.round}\n{report.phase}".encode()
        nonce = sha256(self.key.sign(words("nonce", {"place": place.decode()}))).hexdigest()[:32]
        report = replace(report, nonce=nonce, reveal=self._reveal(told))
        said = identity.claim(report, self._answers, agreed["scale"], agreed["minor"], agreed["s_max"])
        signature = identity.signed(self.key, words("report", said))
        self._state["said"] = {"claim": said, "signature": signature}
        report = replace(report, signature=signature, cosignature=self._cosign(told))
        self._remember()
        return report

    def _reveal(self, told: Broadcast) -> str | None:
        """The link of this step. What was reported in the step before is in the ledger by now, so nobody can choose it
        after the link, which draws who is audited for it, is known."""
        if not self.links or told.phase not in REVEALING or (told.phase == "train" and told.step == 0):
            return None
        if told.step > self._state.get("shown", 0):
            began = self._state.get("began", told.round - told.step)
            if self._state.get("reported") != told.round - 1 or told.step != told.round - began:
                raise BroadcastRefused(
                    f"Round {told.round} of run {told.run!r} does not show what was reported in the step before it: "
                    f"agent {self.key.name!r} keeps the link that decides who is audited for that."
                )
            self._state["shown"] = told.step
        return self.links[told.step]

    def _cosign(self, told: Broadcast) -> str | None:
        if told.log is None:
            return None
        note = Note.parse(told.log["note"])
        if self._state.get("cosigned") != note.text:
            self._state["cosigned"] = note.text
            self._state["cosignature"] = str(note.cosigned(self.key, int(time.time())).signatures[-1])
        return str(self._state["cosignature"])

    # Checking

    def check(self, told: Broadcast, enrol: Enrol) -> None:
        """Take a broadcast in, or refuse it: BroadcastRefused, or LogForked with the evidence."""
        if forked := self._state.get("forked"):
            raise LogForked(
                f"Agent {self.key.name!r} was shown two histories and says nothing more: {forked['reason']}.",
                forked,
            )
        if self._state.get("run") not in (None, told.run):
            raise BroadcastRefused(f"A broadcast is for run {told.run!r}; agent {self.key.name!r} is in another run.")
        agreed = self._agreed(told, enrol)
        answers = identity.answers(told, agreed["digest"])
        if not identity.is_signed(self.center, identity.broadcast(told, answers), told.signature):
            raise BroadcastRefused(
                f"A broadcast for round {told.round} ({told.phase}) of run {told.run!r} is not signed by the center "
                f"that agent {self.key.name!r} knows ({self.center.vkey})."
            )
        place = [told.round, PHASES.index(told.phase)]
        if place < self._state.get("place", place):
            raise BroadcastRefused(f"A broadcast for round {told.round} ({told.phase}) comes after a later one.")
        if told.phase != "accept" and agreed["settings"] != _digest(told.settings):
            raise BroadcastRefused(
                f"Round {told.round} of run {told.run!r} is played by other settings than were agreed."
            )
        if told.log is not None:
            self._witness(told, agreed["digest"])
        elif "witness" in self._state:
            raise BroadcastRefused(f"Round {told.round} of run {told.run!r} does not show the ledger any more.")
        if self.links and told.phase == "train":
            self._draw(told, agreed)
        self._drawn(told, agreed)
        self._state.update(run=told.run, agreed=agreed, place=place)
        self._answers = answers
        self._remember()

    @property
    def order(self) -> str | None:
        """What draws the order of this agent's points in an audited run; None before it is known."""
        return self._state.get("order")

    def _draw(self, told: Broadcast, agreed: Mapping[str, Any]) -> None:
        """The center's link must be the one it anchored in the terms. Its first one and the agents' draw the order."""
        if not beacon.follows(agreed["anchor"], told.reveal or "", told.step + 1):
            raise BroadcastRefused(f"Round {told.round} of run {told.run!r} does not show the center's own link.")
        if self.order is None:
            first = self._state.get("first")
            if first is None:
                raise BroadcastRefused(f"Run {told.run!r} has not shown its terms in the ledger yet.")
            links = {**first, identity.CENTER: beacon.back(told.reveal or "", told.step)}
            self._state["order"] = beacon.mixed(agreed["digest"], 0, links)

    def _agreed(self, told: Broadcast, enrol: Enrol) -> dict[str, Any]:
        """The terms: proposed in the first phase and held against what this agent enrolled with, known afterwards."""
        if told.phase != "accept":
            if "agreed" not in self._state:
                raise BroadcastRefused(f"Run {told.run!r} has not shown its terms to agent {self.key.name!r} yet.")
            return dict(self._state["agreed"])
        try:
            given = told.settings["terms"]
            mine, scale = given["agents"][enrol.agent], given["scale"]
            expected = {
                "s_max": quantise(float(enrol.s_max), scale),
                "s0": min(quantise(float(enrol.s0), scale), quantise(float(enrol.s_max), scale)),
                "key": self.key.public.vkey,
                **({} if enrol.commitment is None else {"data": enrol.commitment}),
                **({} if enrol.anchor is None else {"anchor": enrol.anchor}),
            }
            if "deposit" in mine:  # its budget may cover fewer points than it has, never more
                expected |= {"deposit": mine["deposit"], "s_max": min(mine["s_max"], expected["s_max"])}
                if expected["s_max"] < (had := quantise(float(enrol.s_max), scale)):
                    expected |= {"enrolled": had, "s0": min(expected["s0"], expected["s_max"])}
                if enrol.budget is not None and mine["deposit"] > enrol.budget * given["minor"]:
                    raise BroadcastRefused(
                        f"The terms of run {told.run!r} ask a deposit of {mine['deposit'] / given['minor']:g} of agent "
                        f"{enrol.agent!r}, its budget is {enrol.budget:g}."
                    )
            if mine != expected:
                raise BroadcastRefused(
                    f"The terms of run {told.run!r} say {mine} of agent {enrol.agent!r}, not {expected}."
                )
            if given["center"] != self.center.vkey or given["run"] != told.run:
                raise BroadcastRefused(f"The terms shown for run {told.run!r} are another center's or another run's.")
            digest = terms.digest(given)
            known = self._state.get("agreed", {"digest": digest})
            fewer = set(given["agents"]) < set(known.get("agents", ()))  # somebody declined: all sign anew
            if known["digest"] != digest and not (fewer and self._state["place"] == [told.round - 1, 0]):
                raise BroadcastRefused(
                    f"Run {told.run!r} shows other terms than those agent {enrol.agent!r} has signed."
                )
            told_of = {key: value for key, value in told.settings.items() if key != "terms"}
            self._as_expected(told, told_of, given)
            drawn = {key: given[key] for key in ("draws", "sampled") if "draws" in given}
            return {
                **drawn,
                "digest": digest,
                "scale": scale,
                "minor": given["minor"],
                "s_max": expected["s_max"],
                "settings": _digest(told_of),
                "agents": sorted(given["agents"]),
                **({"anchor": given["anchor"]} if self.links else {}),
            }
        except BroadcastRefused:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise BroadcastRefused(f"The terms shown for run {told.run!r} are malformed: {error!r}.") from error

    def _drawn(self, told: Broadcast, agreed: Mapping[str, Any]) -> None:
        """Who is asked follows from a link that the center could neither choose nor show before, and this agent is."""
        if "draws" not in agreed or told.phase in ("accept", "contribute", "done"):
            return
        before, known = self._state.get("link", [-1, agreed["draws"]])
        link = told.reveal or ""
        if not beacon.follows(known, link, told.step - before):
            raise BroadcastRefused(
                f"Round {told.round} of run {told.run!r} shows a link that does not follow from the one before: who is "
                "asked was not drawn as agreed."
            )
        drawn = beacon.asked(link, agreed["agents"], agreed["sampled"])
        if told.phase == "train" and self.key.name not in drawn:
            raise BroadcastRefused(f"Round {told.round} of run {told.run!r} asks {self.key.name!r}, who was not drawn.")
        self._state["link"] = [told.step, link]

    def _as_expected(self, told: Broadcast, settings: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """The terms are those that agents play by, and those of this site's own settings where it has some."""
        payments = {name: agreed["terms"] for name, agreed in given["payments"].items()}
        plain = {key: value for key, value in settings.items() if key != "payments"}
        if terms.texts(settings["payments"]) != payments or terms.texts(plain) != given["settings"]:
            raise BroadcastRefused(f"The terms of run {told.run!r} are not those that its agents are to play by.")
        for key, value in (self.expected or {}).items():
            if _digest(settings.get(key)) != _digest(value):
                raise BroadcastRefused(
                    f"The terms of run {told.run!r} have {key} = {settings.get(key)!r}, the settings of agent "
                    f"{self.key.name!r} say {value!r}: it does not sign them."
                )

    def _witness(self, told: Broadcast, agreed: str) -> None:
        """The ledger that is shown must extend the one seen before, and hold the entries shown."""
        shown: Mapping[str, Any] = told.log or {}
        try:
            note, kept = Note.parse(shown["note"]), self._state.get("witness")
            if kept is not None and kept["origin"] != note.head.origin and note.is_signed_by(self.center):
                raise self._two("another ledger than before", kept["notes"][-1], note)
            witness = Witness(note.head.origin, self.center, kept)
            before = witness.last.size if witness.last else 0
            if kept is not None and 0 < before < note.head.size and str(before) not in shown["proofs"]:
                unproven = self._two("no proof that it extends what was seen", kept["notes"][-1], note)
                self._keep(f"unproven-{told.round:06d}.json", canonical(unproven.evidence))
                raise ProvenanceError("there is no proof that it extends what was seen; the message may be old")
            witness.check(str(note), [from_base64(one) for one in shown["proofs"].get(str(before), [])])
            self._receive(shown, note, before, agreed)
            self._state["witness"] = witness.state
        except LogForked as fork:
            self._keep(f"fork-{told.round:06d}.json", canonical(fork.evidence))
            self._state["forked"] = fork.evidence
            self._remember()
            raise
        except (FedIncentiveError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise BroadcastRefused(
                f"What round {told.round} of run {told.run!r} shows of the ledger: {error}"
            ) from error

    def _two(self, reason: str, seen: str, shown: Note) -> LogForked:
        """Two signed checkpoints that do not go together."""
        evidence = {"evidence": "fedincentive/fork/1", "key": self.center.vkey, "reason": reason, "seen": seen}
        return LogForked(f"The center shows {reason}; keep the evidence.", {**evidence, "shown": str(shown)})

    def _receive(self, shown: Mapping[str, Any], note: Note, before: int, agreed: str) -> None:
        """Receipts for the new entries that concern this agent; when others have cosigned the last ones, with that."""
        waiting: list[list[int]] = self._state.setdefault("waiting", [])  # seq, size of the checkpoint it has
        if shown.get("cosigned"):
            waiting[:] = self._with_cosignatures(Note.parse(shown["cosigned"]), waiting)
        for item in (item for item in shown["entries"] if item["seq"] > before):
            held = {"body": json.loads(from_base64(item["body"])), "note": str(note), "path": item["path"]}
            held = {**held, "previous": item["previous"], "receipt": 1, "seq": item["seq"]}
            entry = receipts.read(canonical(held) + "\n").entry
            if entry.kind == terms.KIND and terms.digest(entry.inputs["terms"]) != agreed:
                raise self._two("terms in the ledger that nobody signed", entry.body, note)
            if self.links:
                self._read(entry)
            if not self._concerns(entry):
                continue
            waiting.append([item["seq"], note.head.size])
            self._keep(f"receipt-{item['seq']:08d}.json", canonical(held) + "\n")
        del waiting[:-WAITING]

    def _read(self, entry: Entry) -> None:
        """What an audited run's ledger tells of the draws: everybody's first link, and the last round reported."""
        if entry.kind == COMMITMENT:
            self._state["began"] = entry.round
        elif entry.kind == terms.KIND:
            anchors = {name: given["anchor"] for name, given in entry.inputs["terms"]["agents"].items()}
            first = {name: entry.inputs["accepted"][name]["reveal"] for name in anchors}
            if not all(beacon.follows(anchors[name], link) for name, link in first.items()):
                raise ProvenanceError("somebody's first link is not the one that was anchored in the terms")
            self._state["first"] = first
        elif entry.kind == "reports-train":
            self._state["reported"] = entry.round

    def _with_cosignatures(self, cosigned: Note, waiting: list[list[int]]) -> list[list[int]]:
        """The receipts under a checkpoint get what the others signed; those that still wait are given back."""
        left = [item for item in waiting if item[1] != cosigned.head.size]
        if self.folder is None or not cosigned.is_signed_by(self.center):
            return left
        for seq, size in waiting:
            path = self.folder / f"receipt-{seq:08d}.json"
            if size == cosigned.head.size and path.exists():
                held = json.loads(path.read_text())
                if Note.parse(held["note"]).text == cosigned.text:
                    self._keep(path.name, canonical({**held, "note": str(cosigned)}) + "\n")
        return left

    def _concerns(self, entry: Entry) -> bool:
        """Whether an entry names this agent; one that has other words than its own, or none, is a dispute."""
        name, said = self.key.name, self._state.get("said", {})
        claim, written = said.get("claim", {}), entry.inputs.get("said", {}).get(name, {})
        number = entry.round - (entry.kind == "reports-contribute")  # phase 1's last word stands in the entry after it
        withheld = claim.get("phase") == "confirm" and name in entry.inputs.get("withheld", ())
        disputed = (withheld or entry.kind == f"reports-{claim.get('phase')}") and claim["round"] == number
        if disputed and written.get("signature") != said["signature"]:
            self._keep(f"dispute-{entry.round:06d}.json", canonical({"entry": entry.body, **said}))
            log.warning(
                "Agent %s answered in round %d, but the ledger calls it absent or has other words of it: its signed "
                "report is kept for a dispute. Who is right cannot be decided from it.", name, claim["round"],
            )  # fmt: skip
        audited = (*entry.inputs.get("failed", ()), *entry.inputs.get("withheld", ()))
        return name in {*entry.postings, *entry.inputs.get("said", {}), *audited} or entry.kind == terms.KIND

    def _keep(self, file: str, text: str) -> None:
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.durable:
            write_file(self.folder / file, lambda out: out.write(text.encode()))
        else:
            (self.folder / file).write_text(text)

    def _remember(self) -> None:
        if self.durable and self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / MEMORY, self._state)

    # What must survive a crash

    @property
    def state(self) -> dict[str, Any]:
        return self._state

    def restore(self, state: Mapping[str, Any]) -> None:
        """What was kept elsewhere; its own memory is newer where it has one."""
        self._state = self._state or dict(state)


def _digest(value: Any) -> str:
    return sha256(canonical(value).encode()).hexdigest()
