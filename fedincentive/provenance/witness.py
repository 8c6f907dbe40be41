"""What an agent remembers of a log, and how it notices that the log's owner tells two stories.

One size with two signed roots convicts: both notes carry the log's signature. A longer history without a proof that it
extends the one seen only accuses: the proof may have been lost. Evidence is a plain dictionary with both notes, which
anybody checks with `convicts`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from ..errors import LogForked, ProvenanceError
from .keys import SIGNATURE, PublicKey
from .merkle import EMPTY, check_consistency, is_path
from .notes import Head, Note

REMEMBERED = 8  # notes of the past, so that an old size with another root is known too
TWO_ROOTS, NO_PROOF = "one size, two roots", "not shown to extend what was seen"


class Witness:
    """Follows one log; `state` is all it must remember, as plain JSON, and goes back in when it is made again."""

    def __init__(self, origin: str, log_key: PublicKey, state: dict[str, Any] | None = None) -> None:
        self.origin, self.log_key = origin, log_key
        self._notes: dict[int, Note] = {}  # by size, which grows
        if state is None:
            return
        if not isinstance(state, dict) or (state.get("origin"), state.get("key")) != (origin, log_key.vkey):
            raise ProvenanceError(f"What was kept of the log {origin!r} is not of this log and its key {log_key.vkey}.")
        for text in state.get("notes", ()):
            note = self._read(text)
            self._notes[note.head.size] = note

    def copy(self) -> Witness:
        """The same memory, which goes its own way from here."""
        made = Witness(self.origin, self.log_key)
        made._notes = dict(self._notes)
        return made

    @property
    def state(self) -> dict[str, Any]:
        return {"origin": self.origin, "key": self.log_key.vkey, "notes": list(map(str, self._notes.values()))}

    @property
    def last(self) -> Head | None:
        """The largest history seen so far."""
        return self._notes[max(self._notes)].head if self._notes else None

    def check(self, note: str | bytes, proof: Sequence[bytes] = ()) -> Head:
        """The note's head, remembered from now on, when it continues what was seen; the same note again is fine.

        LogForked carries the evidence against the log's owner. ProvenanceError refuses without accusing: the log did
        not sign this, or it is older than what was seen.
        """
        read = self._read(note)
        head, last = read.head, self.last
        if (known := self._notes.get(head.size)) and known.head.root != head.root:
            raise self._forked(TWO_ROOTS, known, read)
        if last and head.size < last.size:
            raise ProvenanceError(
                f"The log {self.origin!r} shows {head.size} entries, but {last.size} were seen before: this note is "
                "old. Ask for the newest. If there is none, its owner went back to an old copy and must restore it."
            )
        if last and head.size > last.size and not check_consistency(last.size, head.size, proof, last.root, head.root):
            raise self._forked(NO_PROOF, self._notes[last.size], read, proof)
        self._notes.setdefault(head.size, read)
        if len(self._notes) > REMEMBERED:
            del self._notes[min(self._notes)]
        return head

    def _read(self, text: str | bytes) -> Note:
        """A note of this log with its own signature; the cosignatures are for others to keep."""
        note = Note.parse(text)
        if note.head.origin != self.origin:
            raise ProvenanceError(f"This note is of the log {note.head.origin[:80]!r}, not of {self.origin!r}.")
        if not note.is_signed_by(self.log_key):
            raise ProvenanceError(f"The log {self.origin!r} did not sign this note with its key {self.log_key.vkey}.")
        if note.head.size == 0 and note.head.root != EMPTY:
            raise ProvenanceError(f"The log {self.origin!r} says that it is empty, with the root of another tree.")
        return Note(note.text, tuple(note.lines_of(self.log_key, SIGNATURE)))

    def _forked(self, reason: str, seen: Note, shown: Note, proof: Sequence[bytes] = ()) -> LogForked:
        evidence: dict[str, Any] = {
            "evidence": "fedincentive/fork/1",
            "key": self.log_key.vkey,
            "origin": self.origin,
            "reason": reason,
            "seen": str(seen),
            "shown": str(shown),
        }
        if is_path(proof):
            evidence["proof"] = [base64.b64encode(one).decode() for one in proof]
        return LogForked(
            f"The log {self.origin!r} showed {seen.head.size} entries before and {shown.head.size} now: {reason}. Keep "
            "the evidence, show it to the other agents, and report nothing more to this center.",
            evidence,
        )


def convicts(evidence: dict[str, Any], log_key: PublicKey) -> bool:
    """Whether evidence proves that the log's owner signed two histories; all else is an accusation at most."""
    try:
        seen, shown = Note.parse(evidence["seen"]), Note.parse(evidence["shown"])
        one, two = seen.head, shown.head
    except (ProvenanceError, KeyError, TypeError):
        return False
    same_place = one.origin == two.origin and one.size == two.size
    return same_place and one.root != two.root and seen.is_signed_by(log_key) and shown.is_signed_by(log_key)
