"""Writes updates to safetensors files that are whole or not there at all."""

from __future__ import annotations

import base64
import json
import math
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AggregationError
from ..files import open_file, reason, sync_directory, unique
from . import native
from .stored import CHECKSUMS, CHUNK, DTYPES, LARGE, TAGS
from .updates import BFLOAT16, view, whose

LINE, APART = 64, 1024  # bytes, lines: large updates begin at different lines, or all would compete for the same ones


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
    >>> from fedincentive.aggregation import StoredUpdate
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
        self._target = Path(os.path.realpath(path))  # a link stays, what it leads to is replaced
        self._partial: Path | None = None
        self._file = -1
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
            self._check_target()
            self._file = self._begin(over)
            self._put(struct.pack("<Q", len(text)) + text, 0)
            os.truncate(self._file, self._base + position)

    def _check_target(self) -> None:
        try:
            mode = os.stat(self.path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISREG(mode):
            raise AggregationError(f"{self.path} is not a file but a directory, a pipe or a device: write elsewhere.")

    def _begin(self, over: Path | None) -> int:
        """A file without a name, which vanishes with this process, where the system can."""
        partial = unique(self._target.parent)
        if over is not None and over.exists():
            os.replace(over, partial)
            self._partial = partial
            return open_file(partial, os.O_WRONLY)
        if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
            try:
                return open_file(self._target.parent, os.O_WRONLY | os.O_TMPFILE)
            except OSError:
                pass  # not every file system can; what else is wrong will be wrong with a name, too
        file = open_file(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._partial = partial
        return file

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
            if self._partial is None:
                partial = unique(self._target.parent)
                # the directory is not used, but with one Python lets the system follow the link
                os.link(f"/proc/self/fd/{self._file}", partial, src_dir_fd=self._file, follow_symlinks=True)
                self._partial = partial
                if durable:
                    os.fsync(self._file)  # that it has a name now
            self._close()  # before the file gets its name: some file systems say only now that they failed
            os.replace(self._partial, self._target)
            self._partial = None
        if durable:
            try:
                sync_directory(self._target.parent)
            except OSError as error:
                raise AggregationError(
                    f"{self.path} was written, but may be lost with the machine's power: {reason(error)}."
                ) from error
        return self.path

    def discard(self) -> None:
        """Leave nothing behind; after a commit this does nothing."""
        if self._file >= 0:
            with suppress(OSError):  # what could not be written is not wanted any more
                self._close()
        if self._partial is not None:
            with suppress(OSError):
                self._partial.unlink()
            self._partial = None

    def _close(self) -> None:
        file, self._file = self._file, -1
        os.close(file)

    def _put(self, data: bytes | memoryview, offset: int) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(self._file, memoryview(data)[done:], offset + done)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.discard()
            raise AggregationError(
                f"{self.path} cannot be written: {reason(error)}. Nothing was changed there."
            ) from error


def flat(name: str, array: Any, client: int | None = None) -> tuple[str, tuple[int, ...], np.ndarray]:
    """Tag, shape, and the values one after the other; no copy where they lie so already."""
    values, code, _ = view(name, client, array)
    tag = "BF16" if code == BFLOAT16 else TAGS.get(values.dtype)
    if tag is None:
        raise AggregationError(
            f"{whose(name, client)} has dtype {values.dtype}, which a safetensors file cannot hold: convert it."
        )
    return tag, values.shape, np.ascontiguousarray(values).reshape(-1)
