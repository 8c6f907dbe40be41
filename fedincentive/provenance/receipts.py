"""A receipt: the file by which anybody can be shown that an entry is in a ledger, without the ledger.

    {"body": {...}, "note": "...", "path": [BASE64, ...], "previous": HASH, "receipt": 1, "seq": N}

`body` is the entry, `previous` the hash before it in the chain, `path` leads from it to the root in `note`, which the
log signed and witnesses cosigned. The file is canonical JSON and a newline; any other writing of it is refused.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ..entry import Entry, canonical
from ..errors import FedIncentiveError, ProvenanceError
from .keys import COSIGNATURE, PublicKey, from_base64
from .merkle import Tree, check_inclusion, leaf
from .notes import Head, Note

LARGEST_RECEIPT = 2**26  # bytes
FIELDS = {"body", "note", "path", "previous", "receipt", "seq"}


@dataclass(frozen=True)
class ProvenEntry:
    """What a receipt says, once its hashes agree with its note; who signed that note is for `verify` to check."""

    entry: Entry
    seq: int
    hash: str  # of the entry, in the ledger's chain
    note: Note

    @property
    def head(self) -> Head:
        return self.note.head


def chained(seq: int, previous: str, body: str) -> str:
    """The hash of an entry in the ledger's chain."""
    digest = sha256(b"fedincentive/body/1\n" + body.encode("ascii")).hexdigest()
    return sha256(f"fedincentive/entry/1\n{seq}\n{previous}\n{digest}".encode("ascii")).hexdigest()


def make(tree: Tree, note: Note, seq: int, previous: str, body: str) -> str:
    """The receipt of entry `seq`, which the note covers."""
    path = [base64.b64encode(one).decode() for one in tree.inclusion(seq - 1, note.head.size)]
    return written(body, {"path": path, "previous": previous, "seq": seq}, note)


def written(body: str, place: Mapping[str, Any], note: Note) -> str:
    """The receipt of an entry with this canonical body; its `place` is {path, previous, seq}."""
    held = {"note": str(note), "path": place["path"], "previous": place["previous"], "receipt": 1, "seq": place["seq"]}
    return f'{{"body":{body},{canonical(held)[1:]}\n'


def read(text: str) -> ProvenEntry:
    """The receipt, when its entry is under the root of its note; ProvenanceError otherwise. No signature is checked."""
    try:
        if len(text) > LARGEST_RECEIPT:
            raise ValueError("it is too large")
        held = json.loads(text)
        if canonical(held) + "\n" != text or set(held) != FIELDS or canonical(held["receipt"]) != "1":
            raise ValueError("it is not a receipt of version 1 in canonical form")
        return prove(canonical(held["body"]), held["seq"], held["previous"], held["path"], Note.parse(held["note"]))
    except (ValueError, TypeError, AttributeError, RecursionError, FedIncentiveError) as error:
        raise ProvenanceError(f"This receipt proves nothing: {error}") from error


def prove(body: str, seq: Any, previous: Any, path: Any, note: Note) -> ProvenEntry:
    """The entry of this canonical body, when the path leads from it to the root of the note; ValueError or TypeError
    otherwise."""
    if type(seq) is not int or type(previous) is not str or not re.fullmatch("[0-9a-f]{64}", previous):
        raise ValueError("its number or the hash before it is malformed")
    if type(path) is not list:
        raise ValueError("its path is not a list")
    entry, way = Entry.from_json(body), [from_base64(one) for one in path]
    found = ProvenEntry(entry, seq, chained(seq, previous, entry.body), note)
    if not check_inclusion(leaf(found.hash), seq - 1, note.head.size, way, note.head.root):
        raise ValueError(f"entry {seq}, as it stands here, is not under the root of the note")
    return found


def verify(text: str, log_key: PublicKey, witnesses: Iterable[PublicKey] = ()) -> tuple[ProvenEntry, dict[str, int]]:
    """The receipt and when each of the witnesses cosigned it (those who did), if the log signed it.

    ProvenanceError when it proves nothing, when the log did not sign it, or when a cosignature is forged.
    """
    receipt, times = read(text), {}
    if not receipt.note.is_signed_by(log_key):
        raise ProvenanceError(f"The note of this receipt is not signed by {log_key.vkey}.")
    for witness in witnesses:
        if (time := receipt.note.cosigned_at(witness)) is not None:
            times[witness.name] = time
        elif receipt.note.lines_of(witness, COSIGNATURE):
            raise ProvenanceError(f"The cosignature of {witness.name!r} on this receipt is forged.")
    return receipt, times
