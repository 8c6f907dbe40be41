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
from ..ledger.disputes import has_words
from ..messages import PHASES, Broadcast, Enrol, Report
from ..payments import Deposit, quantise
from ..payments.deposit import lag
from ..provenance import beacon, receipts, statements
from ..provenance.keys import KeyRing, PrivateKey, PublicKey, from_base64, name_in_files, words
from ..provenance.notes import Note
from ..provenance.records import tags_digest
from ..provenance.witness import Witness
from ..sealed import read_json, write_json

log = logging.getLogger("fedincentive")
MEMORY = "notary.json"
REVEALING = ("accept", "train", "confirm")  # phases in which a link is shown
LOGS = "logs"  # what agents remember of their centers' logs from run to run
FOLLOWED = 16  # logs of one center
WAITING = 64  # receipts that wait for the others' cosignatures


class Notary:
    """The agent's key, what it knows of its center, and the run's folder for receipts and evidence (None: not kept).

    What it has seen is kept there too and survives a crash, unless `durable` is False: then whoever plays the agent
    keeps `state`. In the folder `logs`, which stays from run to run, it remembers the last checkpoint of each log of
    its center: the next run must show that its ledger extends it. It signs no terms that differ from `expected`, what
    its site's own settings say. In an audited run `chain` is its name and how many steps it has: the agent then shows a
    link of its hash chain with each of them.
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
        logs: Path | None = None,
        recovery: PublicKey | None = None,
    ) -> None:
        self.recovery = recovery
        self.key, self.center, self.durable, self.expected = key, center, durable, expected
        self.links = [] if chain is None else beacon.links_of(key, {"run": chain[0]}, chain[1])
        self.logs = None if logs is None else logs / f"{name_in_files(key.name)}-{center.key_id().hex()}.json"
        self._followed = self._earlier()
        self.folder = None if folder is None else folder / name_in_files(key.name)
        self._state: dict[str, Any] = {}
        self._witnessed: tuple[dict[str, Any], Witness | None] = {}, None  # a state, and the witness that it is of
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
        recovery = keys.public.get(statements.RECOVERY)
        return cls(keys.private[agent], keys.public[identity.CENTER], folder, **{"recovery": recovery, **options})

    # Signing

    def enrol(self, enrol: Enrol) -> Enrol:
        """With the public key, and how much of the center's last log was seen: the center is to prove from there."""
        last = self._followed.get("logs", {}).get(self._followed.get("last"))
        seen = None if last is None else Note.parse(last["notes"][-1]).head.size
        anchor = beacon.anchor(self.links) if self.links else None
        return replace(enrol, key=self.key.public.vkey, anchor=anchor, seen=seen)

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
        return self.links[self._state["agreed"].get("offer", 0) + told.step]

    def _anchor(self, told: Broadcast) -> str:
        """What its links follow from. Those that it showed with terms that were not kept are used up."""
        if not 0 <= told.round <= beacon.OFFERS:
            raise BroadcastRefused(f"The terms of run {told.run!r} are proposed {told.round + 1} times: too often.")
        return beacon.anchor(self.links[told.round :])

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
            expected: dict[str, Any] = {
                "s_max": quantise(float(enrol.s_max), scale),
                "s0": min(quantise(float(enrol.s0), scale), quantise(float(enrol.s_max), scale)),
                "key": self.key.public.vkey,
                **({} if enrol.commitment is None else {"data": enrol.commitment}),
                **({} if enrol.anchor is None else {"anchor": self._anchor(told)}),
            }
            had = expected["s_max"]
            if enrol.tags is not None:
                expected |= self._without_copies(told, mine, enrol.tags, expected)
            if "deposit" in given["payments"]:
                expected |= self._at_stake(given, mine, enrol, expected)
            if expected["s_max"] != had:
                expected["enrolled"] = had
            if mine != expected:
                raise BroadcastRefused(
                    f"The terms of run {told.run!r} say {mine} of agent {enrol.agent!r}, not {expected}."
                )
            if given["center"] != self.center.vkey or given["run"] != told.run:
                raise BroadcastRefused(f"The terms shown for run {told.run!r} are another center's or another run's.")
            if self.links and given["lag"] != lag(given["payments"]):
                raise BroadcastRefused(
                    f"By the terms of run {told.run!r} links that are withheld delay verdicts by {given['lag']} steps, "
                    f"deposits are for {lag(given['payments'])}."
                )
            own = None if self.recovery is None else self.recovery.vkey
            if given.get("recovery", own) != own:
                raise BroadcastRefused(
                    f"By the terms of run {told.run!r} {given['recovery']} may revoke keys; agent {enrol.agent!r} has "
                    f"{'no recovery.pub' if own is None else own}: it does not sign them."
                )
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
                **({"anchor": given["anchor"], "offer": told.round} if self.links else {}),
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

    def _at_stake(
        self, given: Mapping[str, Any], mine: Mapping[str, Any], enrol: Enrol, expected: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The deposit by the terms' own numbers; with a budget, for fewer points where it does not cover more."""
        deposit, had = Deposit.agreed(given["payments"]["deposit"]["terms"]), expected["s_max"]
        counted = had if enrol.budget is None else min(mine["s_max"], had)
        held = deposit.of_points(counted, len(given["agents"]))
        if enrol.budget is not None and held > quantise(float(enrol.budget), given["minor"]):
            raise BroadcastRefused(
                f"The terms ask a deposit of {held / given['minor']:g} of agent {enrol.agent!r}, its budget is "
                f"{enrol.budget:g}."
            )
        return {"s_max": counted, "deposit": held, "s0": min(expected["s0"], counted)}

    def _without_copies(
        self, told: Broadcast, mine: Mapping[str, Any], tags: str, expected: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Records that others have too count there. How many is the center's word; those it names can be asked."""
        found, scale = mine.get("duplicates", {}), told.settings["terms"]["scale"]
        left = expected["s_max"] - scale * sum(found.values())
        if any(type(count) is not int or count < 1 for count in found.values()) or left <= 0:
            raise BroadcastRefused(f"The terms of run {told.run!r} count {found} of agent {self.key.name!r} as copies.")
        if found:
            whose = ", ".join(f"{count} of {first}" for first, count in found.items())
            log.warning(
                "Agent %s counts with fewer points in run %s: %s are duplicates.", self.key.name, told.run, whose
            )
        copies = {"duplicates": dict(found)} if found else {}
        return {"tags": tags_digest(tags), "s_max": left, "s0": min(expected["s0"], left), **copies}

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
            note = Note.parse(shown["note"])
            kept = self._state.get("witness") or self._seen_in_earlier_runs(note, shown)
            if kept is not None and kept["origin"] != note.head.origin and note.is_signed_by(self.center):
                raise self._two("another ledger than before", kept["notes"][-1], note)
            known, checked = self._witnessed  # what was checked before is not checked again with every broadcast
            witness = (
                Witness(note.head.origin, self.center, kept) if checked is None or kept is not known else checked.copy()
            )
            before = witness.last.size if witness.last else 0
            if kept is not None and 0 < before < note.head.size and str(before) not in shown["proofs"]:
                unproven = self._two("no proof that it extends what was seen", kept["notes"][-1], note)
                self._keep(f"unproven-{told.round:06d}.json", canonical(unproven.evidence))
                raise ProvenanceError("there is no proof that it extends what was seen; the message may be old")
            witness.check(str(note), [from_base64(one) for one in shown["proofs"].get(str(before), [])])
            self._receive(shown, note, before, agreed)
            self._state["witness"] = seen = witness.state
            self._witnessed = seen, witness
            self._follow(seen)
        except LogForked as fork:
            self._keep(f"fork-{told.round:06d}.json", canonical(fork.evidence))
            self._state["forked"] = fork.evidence
            self._remember()
            raise
        except (FedIncentiveError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise BroadcastRefused(
                f"What round {told.round} of run {told.run!r} shows of the ledger: {error}"
            ) from error

    def _earlier(self) -> dict[str, Any]:
        """The logs of this center as they were seen in earlier runs: {"last": origin, "logs": {origin: state}}."""
        return {} if self.logs is None else read_json(self.logs) or {}

    def _seen_in_earlier_runs(self, note: Note, shown: Mapping[str, Any]) -> dict[str, Any] | None:
        kept: dict[str, Any] | None = self._followed.get("logs", {}).get(note.head.origin)
        last, origin = self._followed.get("last"), note.head.origin
        if last is not None and origin != last:
            log.warning("Agent %s is shown the ledger %s; in its last run it was %s.", self.key.name, origin, last)
            # the center was not told to prove from here, so that it does not is no sign of a fork
            if kept is not None and str(Note.parse(kept["notes"][-1]).head.size) not in shown["proofs"]:
                return None
        return kept

    def _follow(self, seen: Mapping[str, Any]) -> None:
        """Remember a log for the next run. Another run may have seen more of it meanwhile, which stays."""
        if self.logs is None:
            return
        known = self._earlier().get("logs", {})
        kept, origin = known.pop(seen["origin"], seen), seen["origin"]
        newest = max(kept, seen, key=lambda state: Note.parse(state["notes"][-1]).head.size)
        self.logs.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.logs, {"last": origin, "logs": dict([*known.items(), (origin, newest)][-FOLLOWED:])})

    def _two(self, reason: str, seen: str, shown: Note) -> LogForked:
        """Two signed checkpoints that do not go together."""
        evidence = {"evidence": "fedincentive/fork/1", "key": self.center.vkey, "reason": reason, "seen": seen}
        return LogForked(f"The center shows {reason}; keep the evidence.", {**evidence, "shown": str(shown)})

    def _receive(self, shown: Mapping[str, Any], note: Note, before: int, agreed: str) -> None:
        """Receipts for the new entries that concern this agent; when others have cosigned the last ones, with that."""
        waiting: list[list[int]] = self._state.setdefault("waiting", [])  # seq, size of the checkpoint it has
        if shown.get("cosigned"):
            waiting[:] = self._with_cosignatures(Note.parse(shown["cosigned"]), waiting)
        changed: Mapping[str, Any] = {}
        for item in shown["entries"]:
            if item["seq"] <= before:
                self._renew(item, note, waiting)
                continue
            entry = _proven(item, note)
            if entry.kind == terms.KIND and terms.digest(entry.inputs["terms"]) != agreed:
                raise self._two("terms in the ledger that nobody signed", entry.body, note)
            if self.links:
                self._read(entry)
            said = entry.inputs["statement"]["said"] if entry.rule == statements.RULE else {}
            changed = said if said.get("agent") == self.key.name else changed
            if not self._concerns(entry):
                continue
            waiting.append([item["seq"], note.head.size])
            self._keep(f"receipt-{item['seq']:08d}.json", receipts.written(entry.body, item, note))
        del waiting[:-WAITING]
        if changed and changed.get("new") != self.key.public.vkey:
            now = f"is {changed['new']} by the ledger" if "new" in changed else "was revoked in the ledger"
            raise ProvenanceError(
                f"the key of {self.key.name!r} {now}, this agent has {self.key.public.vkey}: start it with its new "
                "key, or ask the center who changed it"
            )

    def _renew(self, shown: Mapping[str, Any], note: Note, waiting: list[list[int]]) -> None:
        """A receipt whose checkpoint nobody will cosign any more, as the center stopped there and went on with another
        one (a key changed meanwhile), is kept under the one shown now, which is cosigned next."""
        for item in waiting:
            if item[0] == shown["seq"] and item[1] < note.head.size:
                self._keep(f"receipt-{item[0]:08d}.json", receipts.written(_proven(shown, note).body, shown, note))
                item[1] = note.head.size

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
        claim = said.get("claim", {})
        number = entry.round - (entry.kind == "reports-contribute")  # phase 1's last word stands in the entry after it
        withheld = claim.get("phase") == "confirm" and name in entry.inputs.get("withheld", ())
        disputed = (withheld or entry.kind == f"reports-{claim.get('phase')}") and claim["round"] == number
        if disputed and not has_words(entry.inputs, claim, said["signature"]):
            self._keep(f"dispute-{entry.round:06d}.json", canonical({"entry": entry.body, **said}))
            log.warning(
                "Agent %s answered in round %d, but the ledger calls it absent or has other words of it: its signed "
                "report is kept for a dispute. Who is right cannot be decided from it.", name, claim["round"],
            )  # fmt: skip
        audited = (*entry.inputs.get("failed", ()), *entry.inputs.get("withheld", ()))
        rekeyed = entry.inputs["statement"]["said"]["agent"] if entry.rule == statements.RULE else None
        named = {*entry.postings, *entry.inputs.get("said", {}), *audited, rekeyed}
        return name in named or entry.kind == terms.KIND

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


def _proven(shown: Mapping[str, Any], note: Note) -> Entry:
    """An entry that a broadcast shows, when it is under the root of the note."""
    body = from_base64(shown["body"]).decode("ascii")
    return receipts.prove(body, shown["seq"], shown["previous"], shown["path"], note).entry


def _digest(value: Any) -> str:
    return sha256(canonical(value).encode()).hexdigest()
