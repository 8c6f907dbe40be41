"""Cosigned checkpoints as an auditor uses them: they hold the ledger to what its witnesses saw, and give entries dates.

There is no clock in an entry. It lies between the median times at which witnesses cosigned the last checkpoint without
it and the first one with it; both are as good as the clocks of more than half of those who cosigned.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from statistics import median_low
from typing import Any

from ..entry import canonical
from ..errors import LedgerError, ProvenanceError
from ..provenance.keys import COSIGNATURE, PublicKey
from ..provenance.merkle import Tree
from ..provenance.notes import Note
from ..provenance.statements import read_statement
from . import chain


def find(text: str) -> list[Note]:
    """The checkpoints in a file: a note itself, a run's notes.jsonl or manifest, or an agent's receipt.

    Of one checkpoint that is there several times, all signatures are taken together.
    """
    found: dict[str, Note] = {}
    for note in _all(text):
        known = found.get(note.text, Note(note.text))
        new = tuple(line for line in note.signatures if line not in known.signatures)
        found[note.text] = Note(note.text, (*known.signatures, *new))
    return sorted(found.values(), key=lambda note: note.head.size)


def _all(text: str) -> Iterator[Note]:
    values: list[Any] = [text]
    for part in (text, *text.splitlines()):
        try:
            values.append(json.loads(part))
        except (ValueError, RecursionError):
            continue
        if len(part) == len(text):
            break
    while values:
        value = values.pop()
        if isinstance(value, Mapping):
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)
        elif isinstance(value, str) and "\n\n" in value:
            try:
                note = Note.parse(value)
                note.head  # noqa: B018 - a note that is no checkpoint raises
                yield note
            except ProvenanceError:
                continue


@dataclass(frozen=True)
class Dated:
    """A checkpoint and when each witness cosigned it."""

    size: int
    times: Mapping[str, int]

    @property
    def time(self) -> int | None:
        """The median: half of the witnesses saw it no later."""
        return median_low(self.times.values()) if self.times else None


class Keys:
    """Everybody's public keys by name, as a ledger's terms have them: the center's sign, all others' cosign."""

    def __init__(self) -> None:
        self.centers: dict[str, PublicKey] = {}
        self.others: dict[str, PublicKey] = {}

    def take(self, terms: Mapping[str, Any]) -> None:
        for vkey, keys in [
            (terms.get("center"), self.centers),
            *((given.get("key"), self.others) for given in terms["agents"].values()),
        ]:
            if vkey is not None and vkey not in keys:
                keys[vkey] = PublicKey.parse(vkey)

    def change(self, inputs: Mapping[str, Any]) -> None:
        """The key that an agent put in the place of its own cosigns too; one that it did not sign for does not."""
        said = inputs["statement"]["said"]
        if said["change"] == "rotate" and said["old"] in self.others:
            with suppress(ProvenanceError):
                new = read_statement(canonical(inputs["statement"]) + "\n", self.others[said["old"]])["new"]
                self.others.setdefault(new, PublicKey.parse(new))

    def only(self, exchanged: Mapping[str, Sequence[PublicKey]] | None) -> Keys:
        """Those of them that were exchanged; all, where nothing is said of that."""
        if exchanged is None:
            return self
        known, fewer = {key.vkey for keys in exchanged.values() for key in keys}, Keys()
        for mine, theirs in ((fewer.centers, self.centers), (fewer.others, self.others)):
            mine.update({vkey: key for vkey, key in theirs.items() if vkey in known})
        return fewer

    def dated(self, note: Note) -> tuple[Dated, list[str]]:
        """Who cosigned a checkpoint and when, and what is wrong with its signatures."""
        wrong = []
        if not any(note.is_signed_by(key) for key in self.centers.values()):
            wrong.append("no center of this ledger's runs signed it")
        times: dict[str, int] = {}
        for key in self.others.values():
            time = note.cosigned_at(key)
            if time is not None:
                times[key.name] = min(time, times.get(key.name, time))
            elif note.lines_of(key, COSIGNATURE):
                wrong.append(f"the cosignature of {key.name!r} is forged")
        return Dated(note.head.size, times), wrong


def checked(note: Note, tree: Tree, hashes: Sequence[str], keys: Keys) -> tuple[Dated, list[str]]:
    """When a checkpoint was cosigned, and what is wrong with it, for a ledger with these hashes."""
    head, origin = note.head, chain.origin(hashes[0] if hashes else "")
    dated, wrong = keys.dated(note)
    if head.origin != origin:
        wrong = [f"it is of {head.origin!r}, this ledger is {origin!r}"]
    elif head.size > len(tree):
        wrong.append(f"it has seen {head.size} entries, {len(tree)} are here: the tail was cut")
    elif tree.root(head.size) != head.root:
        wrong.append("its root is not that of these entries: the chain was made anew")
    return dated, wrong


@dataclass(frozen=True)
class Calendar:
    """When entries were written, as far as cosigned checkpoints tell."""

    points: tuple[tuple[int, int], ...]  # size, median time

    @classmethod
    def of(cls, notes: Iterable[Dated]) -> Calendar:
        return cls(tuple(sorted((note.size, note.time) for note in notes if note.time is not None)))

    def between(self, seq: int) -> tuple[int | None, int | None]:
        """The entry was not there at the first time and was at the second; None where nobody cosigned.

        >>> Calendar(((3, 100), (5, 200))).between(4), Calendar(((3, 100),)).between(1)
        ((100, 200), (None, 100))
        """
        before = [time for size, time in self.points if size < seq]
        after = [time for size, time in self.points if size >= seq]
        return max(before, default=None), after[0] if after else None


def moment(time: int | None) -> str:
    """A cosigned time for people.

    >>> moment(0), moment(None)
    ('1970-01-01 00:00:00 UTC', '')
    """
    if time is None:
        return ""
    try:
        return datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"second {time}"


def newest(notes: Iterable[Note], size: int) -> Note:
    """The largest checkpoint that a ledger of this size covers."""
    fitting = [note for note in notes if note.head.size <= size]
    if not fitting:
        raise LedgerError("No checkpoint given is of this ledger's length or shorter: give the notes of its own runs.")
    return max(fitting, key=lambda note: note.head.size)
