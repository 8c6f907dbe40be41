"""Updates that lie on disk, in the safetensors layout: an 8-byte length, a JSON header, then the raw values.

Files of the `safetensors` library are read as they are. Those of ours (writing.py) have a CRC-32C of every chunk in
their metadata, checked as values are read: damage is found and named, not averaged.
"""

from __future__ import annotations

import base64
import json
import math
import os
import stat
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AggregationError
from ..files import is_among_the_last, open_file, reason
from . import native
from .updates import BFLOAT16, NUMPY_CODES

CHUNK = 16 * 1024  # bytes of an entry under one checksum: those of dozens of clients fit in a processor's cache
LARGE = 16 * 2**20  # bytes from which the way a file is read matters
MOSTLY = 0.8  # the share of a file in the system's cache from which reading it there is faster
MOST_HEADER = 100 * 2**20  # the safetensors library's own limit
CHECKSUMS = "fedincentive.crc32c.16k"
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
TAGS = {np.dtype(text): tag for tag, text in DTYPES.items() if tag != "BF16"}


class Way(Enum):
    """How the values of a file come to the kernels."""

    COPIED = auto()
    MAPPED = auto()  # they stay where they are in the system's cache
    DIRECT = auto()  # straight from the disk, past that cache


@dataclass(frozen=True)
class Slot:
    """Where an entry's values are in a file."""

    tag: str
    shape: tuple[int, ...]
    offset: int  # from the start of the file
    checksums: np.ndarray | None = field(default=None, compare=False)  # of every chunk; None: none were written

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(DTYPES[self.tag])

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def code(self) -> int | None:
        """The kernels' dtype code; None for integers."""
        return BFLOAT16 if self.tag == "BF16" else NUMPY_CODES.get(self.dtype)


class StoredUpdate(Mapping[str, Any]):
    """A safetensors file as a mapping from name to array; an entry is read when it is asked for.

    `who` names the client in errors. Close it, or use it in a `with` block.
    """

    def __init__(self, path: str | Path, who: str | None = None) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self.who = who
        self.way = Way.COPIED
        self._direct = -1
        try:
            self._file = open_file(self.path, os.O_RDONLY | os.O_NONBLOCK)  # or it would wait for a pipe's other end
        except OSError as error:
            raise AggregationError(f"{self} cannot be opened: {reason(error)}.") from error
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise AggregationError(f"{self} is not a file but a directory, a pipe or a device.")
            self.slots, self.metadata = self._read_header()
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return f"The update file {self.path}" + (f" of client {self.who!r}" if self.who else "")

    @property
    def label(self) -> str:
        """The client and its file, for lists of them."""
        return f"{self.who} ({self.path})" if self.who else str(self.path)

    def __getitem__(self, name: str) -> Any:
        slot = self.slots[name]
        values = np.empty(slot.size, slot.dtype)
        self.read_into(values, name, 0)
        array = values.reshape(slot.shape)
        return array if slot.tag != "BF16" else as_bfloat16(array, str(self))

    def __iter__(self) -> Iterator[str]:
        return iter(self.slots)

    def __len__(self) -> int:
        return len(self.slots)

    def __enter__(self) -> StoredUpdate:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._file < 0

    @property
    def identity(self) -> tuple[object, ...]:
        """Which file it is, whatever it is called."""
        status = os.fstat(self._file)
        return status.st_dev, status.st_ino

    def digest(self) -> str:
        """Of the header. With checksums in it, it stands for the values too: each chunk is checked when it is read."""
        length = struct.unpack("<Q", os.pread(self._file, 8, 0))[0]
        return sha256(os.pread(self._file, length, 8)).hexdigest()

    def close(self) -> None:
        for file in (self._file, self._direct):
            if file >= 0:
                os.close(file)
        self._file = self._direct = -1

    def read_into(self, values: np.ndarray, name: str, start: int) -> None:
        """Fill `values` with the entry's from coordinate `start` on; chunks are checked where it starts with one."""
        slot = self.slots[name]
        begin = start * slot.dtype.itemsize
        address = values.__array_interface__["data"][0]
        count, error, found = native.load().read_file(self._file, slot.offset + begin, address, values.nbytes, CHUNK)
        if error:
            raise self.unreadable(name, error)
        if count < values.nbytes:
            raise self.ended(name)
        if slot.checksums is not None and begin % CHUNK == 0:
            last = begin + count == slot.nbytes
            whole = np.array(found if last or count % CHUNK == 0 else found[:-1], np.uint32)
            wrong = np.flatnonzero(whole != slot.checksums[begin // CHUNK :][: whole.size])
            if wrong.size:
                raise self.damaged(name, begin // CHUNK + int(wrong[0]))

    def where(self, name: str) -> tuple[int, int, int, bool, int, int]:
        """No address; the file, how to read it, where the entry begins, its checksums: for `native.reduce_files`."""
        slot = self.slots[name]
        checksums = 0 if slot.checksums is None else slot.checksums.__array_interface__["data"][0]
        return 0, self._file, self._direct, self.way is Way.MAPPED, slot.offset, checksums

    def choose_way(self) -> Way:
        """How `native.reduce_files` is to read it; what is small or cannot be read so is copied from the cache."""
        size = os.fstat(self._file).st_size
        if size >= LARGE and self.way is Way.COPIED:
            if native.load().cached_share(self._file, size) >= MOSTLY:
                self.way = Way.MAPPED
            else:
                with suppress(OSError, AttributeError):  # not every file system can, nor every system
                    same = open_file(f"/proc/self/fd/{self._file}", os.O_RDONLY | os.O_DIRECT)
                    if is_among_the_last(same):
                        os.close(same)
                    else:
                        self._direct, self.way = same, Way.DIRECT
        return self.way

    def check_apart(self, out: str | Path) -> None:
        """A result must not replace it, nor be taken for an update when the same command is given again."""
        try:
            same = os.path.samestat(os.stat(out), os.fstat(self._file))
        except OSError:
            return  # nothing is there
        if same:
            raise AggregationError(f"{self} is also where the result should go: write that elsewhere.")

    def unreadable(self, name: str, error: int) -> AggregationError:
        return AggregationError(f"{self} cannot be read in entry {name!r}: {os.strerror(error)}.")

    def ended(self, name: str) -> AggregationError:
        return AggregationError(f"{self} ends inside entry {name!r}: it was cut while it was being read.")

    def damaged(self, name: str, chunk: int) -> AggregationError:
        return AggregationError(f"{self} is damaged in entry {name!r} (chunk {chunk}): have it sent again.")

    def _read_header(self) -> tuple[dict[str, Slot], dict[str, str]]:
        total = os.fstat(self._file).st_size
        prefix = os.pread(self._file, 8, 0)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= length <= min(MOST_HEADER, total - 8):
            raise AggregationError(
                f"{self} is not a safetensors file: its first 8 bytes are not a header's length. Files of torch.save "
                "are known by .pt, .pth or .bin, NumPy's by .npz or .npy."
            )
        try:
            header = json.loads(os.pread(self._file, length, 8))
            if not isinstance(header, dict):
                raise ValueError("it is not a JSON object")
            metadata = dict(header.pop("__metadata__", None) or {})
            checksums = json.loads(metadata[CHECKSUMS]) if CHECKSUMS in metadata else None
            slots = {
                name: self._slot(name, 8 + length, entry, None if checksums is None else checksums[name])
                for name, entry in header.items()
            }
            needed = end_of(8 + length, slots)
        except AggregationError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise AggregationError(f"{self} is not a safetensors file: its header cannot be read ({error}).") from error
        if needed != total:
            raise AggregationError(
                f"{self} has {total} bytes, its header describes {needed}: it is truncated or damaged."
            )
        return slots, metadata

    def _slot(self, name: str, base: int, entry: Mapping[str, Any], checksums: Any) -> Slot:
        if entry["dtype"] not in DTYPES:
            known = ", ".join(DTYPES)
            raise AggregationError(f"{self} has entry {name!r} as {entry['dtype']!r}: convert it to one of {known}.")
        begin, end = map(int, entry["data_offsets"])
        sums = None if checksums is None else np.frombuffer(base64.b64decode(checksums, validate=True), "<u4")
        slot = Slot(entry["dtype"], tuple(map(int, entry["shape"])), base + begin, sums)
        if begin < 0 or min(slot.shape, default=0) < 0 or end - begin != slot.nbytes:
            raise ValueError(f"the extent {begin}..{end} does not fit {slot.tag} {list(slot.shape)}")
        if sums is not None and sums.size != -(-(end - begin) // CHUNK):
            raise ValueError(f"its {sums.size} checksums do not fit {end - begin} bytes")
        return slot


class ScatteredUpdate(StoredUpdate):
    """An update whose entries are in many files, under other names: `places` says which entry of which file each is.

    One file is open at a time, so that a thousand entries of a hundred clients do not use up the system's files.

    >>> import tempfile
    >>> from fedincentive.aggregation import store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = store(f"{folder}/part", {"T0": np.float32([1, 2])})
    ...     with ScatteredUpdate({"layer.weight": (path, "T0")}, "site-1") as update:
    ...         dict(update)
    {'layer.weight': array([1., 2.], dtype=float32)}
    """

    def __init__(self, places: Mapping[str, tuple[str | Path, str]], who: str | None = None) -> None:
        self.places = {name: (Path(path), key) for name, (path, key) in places.items()}
        self.who, self.metadata, self.way = who, {}, Way.COPIED
        self._open: tuple[str, StoredUpdate] | None = None
        self.slots = {}
        self._files: dict[Path, tuple[object, ...]] = {}
        read: dict[Path, dict[str, Slot]] = {}
        for name, (path, key) in self.places.items():
            if path not in read:
                with StoredUpdate(path, who) as part:
                    read[path], self._files[path] = part.slots, part.identity
            if key not in read[path]:
                raise AggregationError(f"{self} should have {name!r} as {key!r} of {path}, which has no such entry.")
            self.slots[name] = read[path][key]
        self._closed = False

    def __str__(self) -> str:
        return f"The update in {len(self.places)} entries of files" + (f" of client {self.who!r}" if self.who else "")

    @property
    def label(self) -> str:
        return self.who or str(self)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def identity(self) -> tuple[object, ...]:
        """Which entries of which files it is made of."""
        return tuple(sorted((name, *self._files[path], key) for name, (path, key) in self.places.items()))

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
        self._open, self._closed = None, True

    def digest(self) -> str:
        """Of the headers of all files, by the names of the entries."""
        return sha256(repr([(name, self._part(name).digest()) for name in sorted(self.places)]).encode()).hexdigest()

    def read_into(self, values: np.ndarray, name: str, start: int) -> None:
        self._part(name).read_into(values, self.places[name][1], start)

    def where(self, name: str) -> tuple[int, int, int, bool, int, int]:
        part = self._part(name)
        part.choose_way()
        return part.where(self.places[name][1])

    def choose_way(self) -> Way:
        """That of its largest entry, by which threads and pieces are planned; each file is then read in its own."""
        if self.slots:
            largest = max(self.slots, key=lambda name: self.slots[name].nbytes)
            self.way = self._part(largest).choose_way()
        return self.way

    def check_apart(self, out: str | Path) -> None:
        for name in self.places:
            self._part(name).check_apart(out)

    def _part(self, name: str) -> StoredUpdate:
        """The file of an entry, open; the one before it is closed."""
        path, key = self.places[name]
        if self._open is None or self._open[0] != name:
            if self._open is not None:
                self._open[1].close()
                self._open = None
            part = StoredUpdate(path, self.who)
            self._open = name, part
            if part.slots.get(key) != self.slots[name]:
                raise AggregationError(f"{part} was changed while it was being read: have it sent again.")
        return self._open[1]


def end_of(base: int, slots: Mapping[str, Slot]) -> int:
    """Where the last entry ends; each must begin where the one before it does, as the safetensors library demands."""
    position = base
    for name, slot in sorted(slots.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if slot.offset != position:
            raise ValueError(f"entry {name!r} begins at {slot.offset - base} instead of {position - base}")
        position += slot.nbytes
    return position


def as_bfloat16(values: np.ndarray, who: str) -> Any:
    """16-bit patterns as a torch tensor: NumPy has no bfloat16."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise AggregationError(
            f"{who} holds bfloat16, which NumPy lacks: import torch first, or write to a file "
            "by a rule that reads piece by piece."
        )
    return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
