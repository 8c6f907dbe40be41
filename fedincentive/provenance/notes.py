"""Signed notes and log checkpoints as C2SP writes them (signed-note, tlog-checkpoint, tlog-cosignature).

    example.org/ledger                               origin: which log
    3                                                size: how many entries
    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=     root of the Merkle tree over them
                                                     (perhaps more lines)
    — example.org/ledger Az3grlgt...                 base64(4 bytes of key id, signature)
    — clinic jWbPPwAAAABkGFDL...                     a cosignature: base64(key id, 8 bytes of time, signature)

The log signs the text without any clock, so signing again gives the same bytes. A witness signs the same text after
"cosignature/v1\\ntime SECONDS\\n": at that time this was the largest history it had seen. Unknown keys' lines are kept.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from ..errors import ProvenanceError
from .keys import COSIGNATURE, SIGNATURE, PrivateKey, PublicKey, from_base64, name_in_notes
from .merkle import LARGEST

LARGEST_NOTE = 2**22  # bytes: ten thousand cosignatures and room to spare
LARGEST_SIGNATURE = 8192  # bytes, of kinds that are not known here too
LINES_OF_ONE_KEY = 16  # each costs whoever checks them
RESERVED = re.compile(r"cosignature/.*|fedincentive/[a-z-]+/[0-9]+")  # what other signed words begin with


@dataclass(frozen=True)
class Head:
    """What a log says of itself: its origin, its size and the root of its tree."""

    origin: str
    size: int
    root: bytes
    more: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if type(self.size) is not int or not 0 <= self.size <= LARGEST:
            raise ProvenanceError(f"The log's size is {self.size!r}; it must be a whole number from 0 on.")
        if type(self.root) is not bytes or len(self.root) != 32:
            raise ProvenanceError("The root of the log's tree must have 32 bytes.")
        if any(not line or "\n" in line or _control(line) for line in (self.origin, *self.more)):
            raise ProvenanceError(f"The log's origin {self.origin[:80]!r} and what follows must be lines, none empty.")
        if RESERVED.fullmatch(self.origin):
            raise ProvenanceError(f"The log's origin {self.origin!r} is kept for other signatures; take another.")

    @cached_property
    def text(self) -> str:
        """What is signed."""
        return "\n".join([self.origin, str(self.size), base64.b64encode(self.root).decode(), *self.more, ""])

    @classmethod
    def parse(cls, text: str) -> Head:
        lines = text.split("\n")
        try:
            if len(lines) < 4 or lines.pop():
                raise ValueError("it has too few lines or does not end with one")
            origin, size, root, *more = lines
            if not re.fullmatch(r"0|[1-9][0-9]{0,18}", size):
                raise ValueError(f"its size is {size[:40]!r}")
            return cls(origin, int(size), from_base64(root), tuple(more))
        except ValueError as error:
            raise ProvenanceError(f"This is not a log's checkpoint: {error}") from error


@dataclass(frozen=True)
class SignatureLine:
    """Who signed, as the line says: nothing is known of it until it was checked."""

    name: str  # as in the note
    key_id: bytes
    blob: bytes

    def __str__(self) -> str:
        return f"— {self.name} {base64.b64encode(self.key_id + self.blob).decode()}"

    @classmethod
    def parse(cls, line: str) -> SignatureLine:
        """ValueError when it is none."""
        dash, name, text = line.split(" ")
        blob = from_base64(text)
        if dash != "—" or not name or "+" in name or re.search(r"\s", name) or not 5 <= len(blob) <= LARGEST_SIGNATURE:
            raise ValueError("it is not a signature")
        return cls(name, blob[:4], blob[4:])


@dataclass(frozen=True)
class Note:
    """A text and the lines of those who signed it."""

    text: str
    signatures: tuple[SignatureLine, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.text, *map(str, self.signatures), ""])

    @cached_property
    def head(self) -> Head:
        """The checkpoint that the text is; ProvenanceError when it is none."""
        return Head.parse(self.text)

    @classmethod
    def parse(cls, note: str | bytes) -> Note:
        """The parts of a note. Nobody's signature has been checked then."""
        try:
            if len(note) > LARGEST_NOTE:
                raise ValueError(f"it is longer than {LARGEST_NOTE} bytes")
            whole = note.decode() if isinstance(note, bytes) else note
            whole.encode()  # half a surrogate pair is no text
            if _control(whole):
                raise ValueError("it has control characters")
            text, separator, lines = whole.rpartition("\n\n")
            if not separator or not text or not lines.endswith("\n"):
                raise ValueError("it needs a text, an empty line and signatures, each line with its end")
            signatures = tuple(SignatureLine.parse(line) for line in lines[:-1].split("\n"))
            if max(Counter((line.name, line.key_id) for line in signatures).values()) > LINES_OF_ONE_KEY:
                raise ValueError("one key signed it too often")
            return cls(text + "\n", signatures)
        except (ValueError, TypeError, AttributeError) as error:
            raise ProvenanceError(f"This is not a signed note: {error}.") from error

    def signed(self, key: PrivateKey) -> Note:
        """The note with the key's signature."""
        return self._with(key, SIGNATURE, key.sign(self.text.encode()))

    def cosigned(self, key: PrivateKey, time: int) -> Note:
        """The checkpoint with the key's cosignature of that time, in seconds since 1970."""
        if type(time) is not int or not 0 <= time <= LARGEST:
            raise ProvenanceError(f"The time of a cosignature is {time!r}; it must be in whole seconds from 0 on.")
        signature = key.sign(self._cosigned_words(time))
        return self._with(key, COSIGNATURE, time.to_bytes(8, "big") + signature)

    def _with(self, key: PrivateKey, kind: int, blob: bytes) -> Note:
        line = SignatureLine(name_in_notes(key.name), key.public.key_id(kind), blob)
        return replace(self, signatures=(*self.signatures, line))

    def lines_of(self, key: PublicKey, kind: int) -> list[SignatureLine]:
        wanted = key.in_notes, key.key_id(kind)
        return [line for line in self.signatures if (line.name, line.key_id) == wanted]

    def is_signed_by(self, key: PublicKey) -> bool:
        """Whether the key signed it; a line that claims to be the key's and is not spoils the note."""
        lines = self.lines_of(key, SIGNATURE)
        return bool(lines) and all(key.verify(line.blob, self.text.encode()) for line in lines)

    def cosigned_at(self, key: PublicKey) -> int | None:
        """When the key cosigned the checkpoint first; None when it did not, or a line that claims to be its is not."""
        times = [self.time_of(line, key) for line in self.lines_of(key, COSIGNATURE)]
        known = [time for time in times if time is not None]
        return min(known, default=None) if len(known) == len(times) else None

    def time_of(self, line: SignatureLine, key: PublicKey) -> int | None:
        """When a line of this checkpoint was signed by the key as a cosignature; None when it was not."""
        time = int.from_bytes(line.blob[:8], "big")
        if (line.name, line.key_id) != (key.in_notes, key.key_id(COSIGNATURE)) or time > LARGEST:
            return None
        return time if key.verify(line.blob[8:], self._cosigned_words(time)) else None

    def _cosigned_words(self, time: int) -> bytes:
        return cosigned_words(self.head.text, time)


def cosigned_words(checkpoint: str, time: int) -> bytes:
    """What a witness signs of a checkpoint at a time."""
    return f"cosignature/v1\ntime {time}\n{checkpoint}".encode()


class Cosignatures:
    """Checks many witnesses' lines for one checkpoint, whose words are made once for each second."""

    def __init__(self, checkpoint: str) -> None:
        self._words = cache(partial(cosigned_words, checkpoint))

    def time_of(self, line: str, key: PublicKey) -> int | None:
        """When the key signed the checkpoint, by a line of its; None when it did not."""
        start = key.line_start
        if not line.startswith(start):
            return None
        try:
            blob = from_base64(line[len(start) :])
        except ValueError:
            return None
        time = int.from_bytes(blob[4:12], "big")
        if not blob.startswith(key.key_id(COSIGNATURE)) or time > LARGEST:
            return None
        return time if key.verify(blob[12:], self._words(time)) else None


def _control(text: str) -> bool:
    return any(c != "\n" and unicodedata.category(c) in ("Cc", "Cs") for c in text if not " " <= c <= "~")
