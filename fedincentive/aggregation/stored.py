"""Updates that lie on disk, in the safetensors layout: an 8-byte length, a JSON header, then the raw values.

Files of the `safetensors` library are read as they are. Files that `store` writes are ordinary safetensors files too,
with a CRC-32C of every chunk in their metadata, checked as values are read: damage is found and named, not averaged.
"""

from __future__ import annotations

import base64
import json
import math
import os
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AggregationError
from . import native
from .updates import BFLOAT16, NUMPY_CODES, view

CHUNK = 16 * 1024  # bytes of an entry under one checksum: those of dozens of clients fit in a processor's cache
LARGE = 16 * 2**20  # bytes from which the way a file is read matters
MOSTLY = 0.8  # the share of a file in the system's cache from which reading it there is faster
LINE, APART = 64, 1024  # bytes, lines: large updates begin at different lines, or all would compete for the same ones
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
        self.path = Path(path)
        self.who = who
        self.way = Way.COPIED
        self._direct = -1
        try:
            self._file = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise AggregationError(f"{self} cannot be opened: {error.strerror}.") from error
        try:
            self.slots, self.metadata = self._read_header()
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return f"The update file {self.path}" + (f" of client {self.who!r}" if self.who else "")

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
                    self._direct = os.open(f"/proc/self/fd/{self._file}", os.O_RDONLY | os.O_DIRECT)  # the same file
                    self.way = Way.DIRECT
        return self.way

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
            raise AggregationError(f"{self} is not a safetensors file: its first 8 bytes are not a header's length.")
        try:
            header = json.loads(os.pread(self._file, length, 8))
            metadata = dict(header.pop("__metadata__", {}))
            checksums = json.loads(metadata[CHECKSUMS]) if CHECKSUMS in metadata else None
            slots = {
                name: self._slot(8 + length, entry, None if checksums is None else checksums[name])
                for name, entry in header.items()
            }
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise AggregationError(f"{self} is not a safetensors file: its header cannot be read ({error}).") from error
        needed = max((slot.offset + slot.nbytes for slot in slots.values()), default=8 + length)
        if needed != total:
            raise AggregationError(
                f"{self} has {total} bytes, its header describes {needed}: it is truncated or damaged."
            )
        return slots, metadata

    @staticmethod
    def _slot(base: int, entry: Mapping[str, Any], checksums: Any) -> Slot:
        begin, end = map(int, entry["data_offsets"])
        sums = None if checksums is None else np.frombuffer(base64.b64decode(checksums, validate=True), "<u4")
        slot = Slot(entry["dtype"], tuple(map(int, entry["shape"])), base + begin, sums)
        if begin < 0 or min(slot.shape, default=0) < 0 or end - begin != slot.nbytes:
            raise ValueError(f"the extent {begin}..{end} does not fit {slot.tag} {list(slot.shape)}")
        if sums is not None and sums.size != -(-(end - begin) // CHUNK):
            raise ValueError(f"its {sums.size} checksums do not fit {end - begin} bytes")
        return slot


def store(
    path: str | Path,
    update: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    *,
    durable: bool = False,
    over: Path | None = None,
) -> Path:
    """Write an update's arrays or CPU tensors to a safetensors file with checksums; complete or not at all.

    The file appears under its name only when it is whole. Only if it is to be `durable` is it forced to the disk:
    otherwise a power cut may lose it. `over` is a file that is not needed any more and may be overwritten, which is
    faster than a new one.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = store(f"{folder}/update.safetensors", {"w": np.float32([1, 2])})
    ...     with StoredUpdate(path) as kept:
    ...         print(kept["w"])
    [1. 2.]
    """
    views = {name: flat(name, array) for name, array in update.items()}
    sums = {name: checksums(values) for name, (_, _, values) in views.items()}
    extra = {**(metadata or {}), CHECKSUMS: json.dumps(sums, separators=(",", ":"))}
    layout = {name: (tag, shape) for name, (tag, shape, _) in views.items()}
    writer = Writer(path, layout, extra, over)
    try:
        for name, (_, _, values) in views.items():
            writer.write(name, 0, values)
        return writer.commit(durable)
    finally:
        writer.discard()


def checksums(values: np.ndarray) -> str:
    """The CRC-32C of every chunk: 32-bit little-endian numbers in base64."""
    return base64.b64encode(np.array(native.load().crc32c_chunks(values, CHUNK), "<u4").tobytes()).decode()


class Writer:
    """A safetensors file of a known layout, filled piece by piece; it appears under its name when it is committed."""

    def __init__(
        self,
        path: str | Path,
        layout: Mapping[str, tuple[str, tuple[int, ...]]],
        metadata: Mapping[str, str],
        over: Path | None = None,
    ) -> None:
        self.path = Path(path)
        self._partial = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        self._offsets: dict[str, int] = {}
        header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
        position = 0
        for name, (tag, shape) in layout.items():
            end = position + math.prod(shape) * np.dtype(DTYPES[tag]).itemsize
            header[name] = {"dtype": tag, "shape": list(shape), "data_offsets": [position, end]}
            self._offsets[name], position = position, end
        text = json.dumps(header, separators=(",", ":")).encode()
        self._base = -(-(8 + len(text)) // LINE) * LINE
        if position >= LARGE:
            self._base += native.load().crc32c(text) % APART * LINE
        text += b" " * (self._base - 8 - len(text))
        with self._explained():
            if over is not None and over.exists():
                os.replace(over, self._partial)
            self._file = os.open(self._partial, os.O_WRONLY | os.O_CREAT, 0o666)
        with self._explained():
            self._put(struct.pack("<Q", len(text)) + text, 0)
            os.truncate(self._file, self._base + position)

    def write(self, name: str, start: int, values: np.ndarray) -> None:
        """The entry's values from coordinate `start` on."""
        with self._explained():
            self._put(values.data.cast("B"), self._base + self._offsets[name] + start * values.itemsize)

    def where(self, name: str) -> tuple[int, int, int]:
        """No address, the file, and where the entry begins: for `native.reduce_files`."""
        return 0, self._file, self._base + self._offsets[name]

    def refuse(self, error: int) -> None:
        """Say why values could not be written, and leave nothing behind; it always raises."""
        with self._explained():
            raise OSError(error, os.strerror(error))

    def commit(self, durable: bool = False) -> Path:
        with self._explained():
            if durable:
                os.fsync(self._file)
            os.close(self._file)
            self._file = -1
            os.replace(self._partial, self.path)
            if durable:
                sync_directory(self.path.parent)
        return self.path

    def discard(self) -> None:
        """Leave nothing behind; after a commit this does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._partial.unlink(missing_ok=True)

    def _put(self, data: bytes | memoryview, offset: int) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(self._file, memoryview(data)[done:], offset + done)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if hasattr(self, "_file"):
                self.discard()
            raise AggregationError(
                f"{self.path} cannot be written: {error.strerror}. Nothing was left there."
            ) from error


def sync_directory(path: Path) -> None:
    """Force the names in a directory to the disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def flat(name: str, array: Any) -> tuple[str, tuple[int, ...], np.ndarray]:
    """Tag, shape, and the values one after the other; no copy where they lie so already."""
    values, code, _ = view(name, 0, array)
    tag = "BF16" if code == BFLOAT16 else TAGS.get(values.dtype)
    if tag is None:
        raise AggregationError(f"Entry {name!r} has dtype {values.dtype}, which a safetensors file cannot hold.")
    return tag, values.shape, np.ascontiguousarray(values).reshape(-1)


def as_bfloat16(values: np.ndarray, who: str) -> Any:
    """16-bit patterns as a torch tensor: NumPy has no bfloat16."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise AggregationError(f"{who} holds bfloat16, which NumPy lacks: import torch first, or write to a file.")
    return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
