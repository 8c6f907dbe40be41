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
from dataclasses import dataclass, field
from hashlib import sha256

from ..entry import VERSION, canonical
from ..errors import LedgerError

IDENTITY = 16  # digits of the first entry's hash that name a ledger
WRITTEN = r"(\d{1,18}):([0-9a-f]{64})(?:@([0-9a-f]{16}))?"


@dataclass(frozen=True)
class Checkpoint:
    """How long the chain was and the hash at its end. Kept outside the database it reveals a cut tail.

    `ledger` names the ledger by the beginning of its first entry's hash, so that a log may hold the heads of several;
    empty where it is unknown, as in what older releases wrote. The hash alone says which chain it is.
    """

    count: int
    hash: str
    ledger: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}" + (f"@{self.ledger}" if self.ledger else "")

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """The checkpoint written as COUNT:HASH or COUNT:HASH@LEDGER.

        >>> Checkpoint.parse("2:" + "ab" * 32).count
        2
        """
        found = re.fullmatch(WRITTEN, text.strip(), re.ASCII)
        if not found:
            raise LedgerError(
                "A checkpoint is written COUNT:HASH or COUNT:HASH@LEDGER, with 64 and 16 hexadecimal digits, not "
                f"{text!r}."
            )
        return cls(int(found[1]), found[2], found[3] or "")

    @classmethod
    def find(cls, text: str) -> list[Checkpoint]:
        """All checkpoints in a log, a report or a run's manifest: as `parse` takes them, or an object with "count",
        "hash" and perhaps "ledger".

        >>> [c.count for c in Checkpoint.find('[{"count": 3, "hash": "%s"}] and 4:%s' % ("ab" * 32, "cd" * 32))]
        [4, 3]
        """
        found = [cls(int(m[1]), m[2], m[3] or "") for m in re.finditer(rf"\b{WRITTEN}\b", text, re.ASCII)]
        for inside in re.findall(r"\{([^{}]*)\}", text):
            count, digest = (
                re.search(r'"count":\s*(\d{1,18})\b', inside),
                re.search(r'"hash":\s*"([0-9a-f]{64})"', inside),
            )
            ledger = re.search(r'"ledger":\s*"([0-9a-f]{16})"', inside)
            if count and digest:
                found.append(cls(int(count[1]), digest[1], ledger[1] if ledger else ""))
        return found


def header(minor: int) -> dict[str, object]:
    return {"ledger": "fedincentive", "minor": minor, "version": VERSION}


def genesis(minor: int) -> str:
    """The hash before the first entry; it fixes the unit of money."""
    return sha256(b"fedincentive/ledger/1\n" + canonical(header(minor)).encode("ascii")).hexdigest()


def origin(first: str) -> str:
    """What checkpoints call a ledger, by its first entry's hash: that never changes, and no other ledger has it."""
    return f"fedincentive-ledger/{first[:32]}"


def link(seq: int, previous: str, body: str) -> str:
    """The hash of entry `seq`."""
    digest = sha256(b"fedincentive/body/1\n" + body.encode("ascii")).hexdigest()
    return sha256(f"fedincentive/entry/1\n{seq}\n{previous}\n{digest}".encode("ascii")).hexdigest()
