"""Large frames in parts: the receiver holds few of them at a time, and asks the other senders to wait.

    b"FPRT" | which frame (16 random bytes) | offset | size of the whole | the bytes from there on

Parts of a frame come in order, all but the last of the same size. A part that comes twice (its answer was lost) is
taken once; one whose beginning is not here (the receiver was restarted, or gave the frame's place to another) must be
sent again from the first. A sender has one place at most, and keeps it from others who wait only while it is quick
enough; where nobody waits it may be as slow as it is.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..wire import Buffer

PART = 8 * 2**20
FRAMES = 2  # large frames held at a time: one being used, one on its way
SILENCE = 30.0  # seconds without a new part after which an unfinished frame gives way to another
RATE = 2**20  # bytes a second, after as many seconds, below which it gives way too
LARGEST = 2**40
HEAD = struct.Struct("<4s16sQQ")
MAGIC = b"FPRT"


class Busy(Exception):
    """No place for another large frame now."""


class Lost(Exception):
    """A part whose beginning is not here."""


class Oversized(Exception):
    """A frame that is larger than any of this run."""


def divide(frame: bytes) -> Sequence[bytes]:
    """The messages that carry a frame; a small one is its own."""
    return [frame] if len(frame) <= PART else Parts(frame)


class Parts(Sequence[bytes]):
    """Made one by one, as they are sent: they never exist all at once."""

    def __init__(self, frame: bytes) -> None:
        self._frame, self._name = memoryview(frame), os.urandom(16)

    def __len__(self) -> int:
        return -(-len(self._frame) // PART)

    def __getitem__(self, number: int) -> bytes:  # type: ignore[override]
        start = range(len(self))[number] * PART
        return HEAD.pack(MAGIC, self._name, start, len(self._frame)) + self._frame[start : start + PART]


@dataclass
class Incoming:
    """A frame of which the first `filled` bytes have come."""

    values: np.ndarray
    sender: str
    begun: float
    heard: float  # when its last new part came
    filled: int = 0

    def gives_way(self, now: float, rate: float) -> bool:
        """Whether another may have its place: it fell silent, or could hold it for hours."""
        return now - self.heard >= SILENCE or self.filled < rate * (now - self.begun - SILENCE)


class Assembly:
    """Puts frames of at most `limit` bytes together. A large frame keeps its place until the receiver releases it."""

    def __init__(self, limit: int = LARGEST) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._incoming: dict[bytes, Incoming] = {}
        self._rate: float = RATE  # what is asked of them now
        self._held = 0  # complete, not released
        self._recent: deque[bytes] = deque(maxlen=64)  # the last ones that were complete

    def add(self, message: bytes, sender: str) -> Buffer | None:
        """A small frame as it is, a large one when its last part has come, else None. `sender` is who it really is."""
        if message[:4] != MAGIC:
            return message
        if len(message) <= HEAD.size:
            raise Lost
        _, name, start, total = HEAD.unpack_from(message)
        part = np.frombuffer(message, np.uint8, offset=HEAD.size)
        if total > self._limit:
            raise Oversized
        if len(part) != min(PART, total - start):  # a sender of crumbs would keep its place for ever
            raise Lost
        with self._lock:
            if name in self._recent:
                return None
            frame = self._incoming.get(name) or self._begin(name, start, total, sender)
            if start > frame.filled or total != len(frame.values):
                raise Lost
            if start + len(part) > frame.filled:
                frame.filled = start + len(part)
                frame.values[start : frame.filled] = part
                frame.heard = time.monotonic()
            if frame.filled < len(frame.values):
                return None
            del self._incoming[name]
            self._recent.append(name)
            self._rate = RATE
            self._held += 1
            return frame.values

    def release(self) -> None:
        """One large frame that was complete is not needed any more."""
        with self._lock:
            self._held -= 1

    def _begin(self, name: bytes, start: int, total: int, sender: str) -> Incoming:
        if start:
            raise Lost
        now = time.monotonic()
        self._make_room(sender, now)
        try:
            frame = Incoming(np.empty(total, np.uint8), sender, now, now)  # the system gives memory as parts come
        except (MemoryError, ValueError):
            raise Busy from None
        self._incoming[name] = frame
        return frame

    def _make_room(self, sender: str, now: float) -> None:
        """One who is silent or slow gives way, of all where every place is taken, else of the sender's own."""
        own = [name for name, one in self._incoming.items() if one.sender == sender]
        full = len(self._incoming) + self._held >= FRAMES
        rivals = own or (list(self._incoming) if full else [])
        if rivals:
            slow = next((name for name in rivals if self._incoming[name].gives_way(now, self._rate)), None)
            if slow is None:
                raise Busy
            del self._incoming[slow]
            self._rate /= 2  # where all are slow, less is asked until one gets through
        if len(self._incoming) + self._held >= FRAMES:
            raise Busy
