"""Periods: a memo closes one at a signed checkpoint, whose cosigned times are its date. There is no other clock.

    run "period:NAME"  {"period": NAME, "after": SIZE, "size": SIZE, "note": [LINE, ...]}

A period has the entries after the one before it, up to its checkpoint. What is written later falls into the next, the
correction of an entry in a closed period too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import terms
from ..entry import Entry
from ..errors import LedgerError
from ..provenance import statements
from ..provenance.keys import PublicKey, check_name
from ..provenance.merkle import Tree
from ..provenance.notes import Note
from .notes import Dated, Keys, checked, newest
from .store import Ledger

KIND, RULE = "close", "close/1"
RUN = "period:"


@dataclass(frozen=True)
class Period:
    """Which entries a closed period has: those after the first `after`, up to `size`; `seq` is the memo of it."""

    name: str
    after: int
    size: int
    seq: int


def closed(book: Ledger) -> list[Period]:
    """The periods of a ledger, oldest first."""
    found = []
    for record in book.chained():
        if record.entry.rule == RULE:
            given = record.entry.inputs
            found.append(Period(given["period"], given["after"], given["size"], record.seq))
    return found


def find(book: Ledger, name: str) -> Period:
    periods = {period.name: period for period in closed(book)}
    if name not in periods:
        known = ", ".join(periods) or "none yet"
        raise LedgerError(
            f"No period {name!r} is closed in this ledger; closed are: {known}. See `ledger close-period`."
        )
    return periods[name]


def close(
    book: Ledger, name: str, notes: Iterable[Note], exchanged: Mapping[str, Sequence[PublicKey]] | None, need: int = 1
) -> tuple[Entry, Dated]:
    """The memo that closes a period at the newest of these checkpoints, and who cosigned that and when."""
    keys, hashes = Keys(), []
    for record in book.chained():
        hashes.append(record.hash)
        if record.entry.kind == terms.KIND:
            keys.take(record.entry.inputs["terms"])
        elif record.entry.rule == statements.RULE:
            keys.change(record.entry.inputs)
    note = newest(notes, len(hashes))
    dated, wrong = checked(note, Tree(hashes), hashes, keys.only(exchanged))
    if wrong:
        raise LedgerError(f"The checkpoint of {note.head.size} entries cannot close a period: {wrong[0]}.")
    if len(dated.times) < need:
        raise LedgerError(
            f"{len(dated.times)} witnesses cosigned the checkpoint of {note.head.size} entries; {need} must."
        )
    size, periods = note.head.size, closed(book)
    if again := [period for period in periods if period.name == check_name(name)]:
        after = again[0].after
        if again[0].size != size:
            raise LedgerError(
                f"Period {name!r} was closed at {again[0].size} entries already, by entry {again[0].seq}."
            )
    else:
        after = periods[-1].size if periods else 0
        if size <= after:
            raise LedgerError(
                f"The newest checkpoint has {size} entries; {after} are in closed periods: nothing is new."
            )
    inputs = {"period": name, "after": after, "size": size, "note": str(note).split("\n")}
    return Entry(f"{RUN}{name}", 0, KIND, RULE, inputs, {}), dated


def note_of(inputs: Mapping[str, Any]) -> Note:
    """The checkpoint a period was closed at."""
    note = Note.parse("\n".join(inputs["note"]))
    if note.head.size != inputs["size"]:
        raise LedgerError(f"The period is closed at {inputs['size']} entries, its checkpoint has {note.head.size}.")
    return note
