"""The center's side of the transparency log: a Merkle tree over its ledger, whose checkpoints agents see and cosign."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import chain
from typing import Any

from ..errors import ProvenanceError
from ..ledger import Ledger
from ..ledger.chain import origin
from ..provenance.keys import PrivateKey, PublicKey
from ..provenance.merkle import Tree
from ..provenance.notes import Cosignatures, Head, Note

SHOWN, SHOWN_BYTES = 32, 3 * 2**20  # of a run's entries that a broadcast shows at most; older ones are in the ledger


def texts(proof: Iterable[bytes]) -> list[str]:
    return [base64.b64encode(one).decode() for one in proof]


class Log:
    """What a ledger's owner tells of it: signed checkpoints, proofs that it only grew, and a run's latest entries."""

    def __init__(self, ledger: Ledger, run: str, key: PrivateKey) -> None:
        self.ledger, self.run, self.key = ledger, run, key
        known = [ledger.genesis, *ledger.hashes()]
        self.tree = Tree(known[1:])
        self._known = {len(self.tree): known[-1]}  # the newest hashes, by number
        self._first: tuple[int, str, str] | None = None  # the run's terms: whoever has seen none gets them
        self._shown: deque[tuple[int, str, str]] = deque(maxlen=SHOWN)
        for row in ledger.rows(run):
            self._show(row.seq, known[row.seq - 1], row.body)

    @cached_property
    def origin(self) -> str:
        """Which log this is, by its first entry: that one never changes, and no other ledger has it."""
        first = self.ledger.row(1)
        if first is None:
            raise ProvenanceError(f"The ledger {self.ledger.address} is empty: there is nothing to show yet.")
        return origin(first.hash)

    def appended(self, seq: int, own: str, body: str) -> None:
        """An entry of this run, with its own hash; other runs may have written before it."""
        size = len(self.tree)
        if seq > size:
            new = [own] if seq == size + 1 else self.ledger.hashes(size)
            self._known = dict(enumerate([self._known[size], *new], size))
            self.tree.extend(new)
        if not self._shown or seq > self._shown[-1][0]:
            self._show(seq, self._known[seq - 1], body)

    def _show(self, seq: int, before: str, body: str) -> None:
        self._shown.append((seq, before, body))
        self._first = self._first or self._shown[-1]

    @property
    def size(self) -> int:
        """How much of the ledger is shown: up to this run's last entry, so that a restart shows the same again."""
        return self._shown[-1][0] if self._shown else 0

    @property
    def note(self) -> Note:
        """The checkpoint of now; signing again gives the same bytes."""
        size = self.size
        return Note(Head(self.origin, size, self.tree.root(size)).text).signed(self.key)

    def _latest(self, since: int) -> list[tuple[int, str, str]]:
        """The run's entries after `since`, bodies in base64, as far as they fit a message; the newest ones first in."""
        found: list[tuple[int, str, str]] = []
        room = SHOWN_BYTES
        for seq, before, body in reversed(self._shown):
            room -= len(body)
            if seq <= since or room < 0:
                break
            found.insert(0, (seq, before, body))
        if self._first is not None and since < self._first[0] and self._first not in found:
            found.insert(0, self._first)
        return [(seq, before, base64.b64encode(body.encode("ascii")).decode()) for seq, before, body in found]

    def told(self, seen: Iterable[int], cosigned: str, earlier: Iterable[int] = ()) -> dict[str, Any]:
        """What a broadcast says to agents that last reported to have seen these sizes, or `earlier` ones in other runs.
        Some may have read more since then, so the run's later sizes are proven from too."""
        note, size, seen = self.note, self.size, set(seen)
        least = min(seen, default=0)
        entries = [
            {"seq": seq, "previous": before, "body": body, "path": texts(self.tree.inclusion(seq - 1, size))}
            for seq, before, body in self._latest(least)
        ]
        later = [seq for seq, _, _ in self._shown if seq > least]
        known = sorted(old for old in {*seen, *earlier, *later} if 0 < old < size)
        spans = {str(old): self.tree.consistency_spans(old, size) for old in known}
        needed = list(dict.fromkeys(chain.from_iterable(spans.values())))
        nodes = dict(zip(needed, texts(self.tree.nodes(needed)), strict=True))
        proofs = {old: [nodes[span] for span in path] for old, path in spans.items()}
        return {"note": str(note), "cosigned": cosigned, "proofs": proofs, "entries": entries}


def with_cosignatures(note: str, given: Mapping[str, str | None], keys: Mapping[str, PublicKey]) -> str:
    """The checkpoint with the agents' cosignatures, one of each; a line that is not what it says is left out."""
    words, _, lines = note.rpartition("\n\n")
    signed = {line.split(" ")[1] for line in lines.splitlines()}
    checks = Cosignatures(f"{words}\n")
    new = [
        f"{line}\n"
        for agent, line in sorted(given.items())
        if line and (key := keys[agent]).in_notes not in signed and checks.time_of(line, key) is not None
    ]
    return note + "".join(new)
