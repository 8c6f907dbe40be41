"""The hash chain: each entry's hash covers its number, the hash before it and its body.

    header = {"ledger": "fedincentive", "minor": ..., "version": 1}
    h_0    = sha256("fedincentive/ledger/1\\n" canonical(header))
    b_k    = sha256("fedincentive/body/1\\n" body)
    h_k    = sha256("fedincentive/entry/1\\n" k "\\n" h_{k-1} "\\n" b_k)

Numbers are decimal, hashes lower-case hexadecimal, bodies canonical JSON. The prefixes keep a hash of one
thing from ever being read as a hash of another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from ..entry import VERSION, canonical
from ..errors import LedgerError


@dataclass(frozen=True)
class Checkpoint:
    """How long the chain was and the hash at its end. Kept outside the database it reveals a cut tail."""

    count: int
    hash: str

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """The checkpoint written as COUNT:HASH.

        >>> Checkpoint.parse("2:" + "ab" * 32).count
        2
        """
        count, _, digest = text.strip().partition(":")
        if not count.isdecimal() or len(count) > 18 or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise LedgerError(f"A checkpoint is written COUNT:HASH with 64 hexadecimal digits, not {text!r}.")
        return cls(int(count), digest)

    @classmethod
    def find(cls, text: str) -> list[Checkpoint]:
        """All checkpoints in a log, a report or a run's manifest: COUNT:HASH, or an object with "count" and "hash".

        >>> [c.count for c in Checkpoint.find('[{"count": 3, "hash": "%s"}] and 4:%s' % ("ab" * 32, "cd" * 32))]
        [4, 3]
        """
        found = [cls.parse(match) for match in re.findall(r"\b\d{1,18}:[0-9a-f]{64}\b", text)]
        for inside in re.findall(r"\{([^{}]*)\}", text):
            count, digest = (
                re.search(r'"count":\s*(\d{1,18})\b', inside),
                re.search(r'"hash":\s*"([0-9a-f]{64})"', inside),
            )
            if count and digest:
                found.append(cls(int(count[1]), digest[1]))
        return found


def header(minor: int) -> dict[str, object]:
    return {"ledger": "fedincentive", "minor": minor, "version": VERSION}


def genesis(minor: int) -> str:
    """The hash before the first entry; it fixes the unit of money."""
    return sha256(b"fedincentive/ledger/1\n" + canonical(header(minor)).encode("ascii")).hexdigest()


def link(seq: int, previous: str, body: str) -> str:
    """The hash of entry `seq`."""
    digest = sha256(b"fedincentive/body/1\n" + body.encode("ascii")).hexdigest()
    return sha256(f"fedincentive/entry/1\n{seq}\n{previous}\n{digest}".encode("ascii")).hexdigest()
