"""Coordinate-wise rules over updates larger than memory: a piece of every client at a time.

Every thread reads a piece of all clients, reduces and checks it while it is in the processor's cache. Peak memory is
the result (nothing, where it goes to a file) plus one piece of every client for each thread: as much as is allowed, and
at least 16 KB of a client. What the system has in its cache is read there: as much of it is mapped at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AggregationError
from . import kernel, native
from .formats import found, open_update
from .stored import CHECKSUMS, CHUNK, Slot, StoredUpdate, Way, as_bfloat16
from .updates import Batch, Field, read_items, without_counts
from .writing import Writer, flat, store

MEMORY = 256 * 2**20  # bytes for pieces unless the caller says otherwise

# Most bytes of a client at a time, by the slowest way any is read: copies should stay in the processor's cache, and a
# disk is asked for long pieces: where the memory is small, by fewer threads rather than for less than LEAST.
PIECES = {Way.COPIED: 4 * CHUNK, Way.MAPPED: 16 * CHUNK, Way.DIRECT: 32 * CHUNK}
LEAST = 8 * CHUNK
STRETCH = 2**30  # most bytes of all clients between two reports of progress; all threads wait for the last one there
BESIDE = 2 * 2**20  # bytes a thread needs beside its pieces where a disk is read

UNREADABLE, ENDED, DAMAGED, UNWRITABLE = range(1, 5)  # Trouble of stored.hpp

Progress = Callable[[int, int], None]  # bytes read so far, bytes in all


def gather(updates: Iterable[Any]) -> Batch | StoredBatch:
    """The clients of an aggregation, wherever their updates are."""
    if isinstance(updates, StoredUpdates):
        return updates.batch()
    items, _ = without_counts(updates)
    if any(issubclass(kind, (str, Path, StoredUpdate)) for kind in set(map(type, items))):
        return StoredUpdates(items).batch()
    return read_items(items)


class StoredUpdates:
    """Updates on disk (paths or StoredUpdates), possibly mixed with some in memory, for the coordinate-wise rules.

    The result is a dict of NumPy arrays (bfloat16: torch tensors), or goes to the safetensors file `out`, with what all
    files say alike in their metadata. `memory` bounds the bytes held; `progress` is told the bytes read so far and in
    all. Afterwards `dropped` has the positions of clients that nan_policy="drop" left out.

    >>> import tempfile, numpy as np, fedincentive
    >>> from fedincentive.aggregation import store, StoredUpdates
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = [store(f"{folder}/{v}", {"w": np.float32([v, -v])}) for v in (1, 2, 3, 4, 1000)]
    ...     fedincentive.trimmed_mean(StoredUpdates(paths), trim=1)
    {'w': array([ 3., -3.], dtype=float32)}
    """

    def __init__(
        self,
        updates: Iterable[Any],
        *,
        out: str | Path | None = None,
        memory: int = MEMORY,
        progress: Progress | None = None,
    ) -> None:
        self.updates, self.out, self.memory, self.progress = list(updates), out, memory, progress
        self.dropped: list[int] = []

    def __len__(self) -> int:
        return len(self.updates)

    def whole(self, call: Callable[[list[Any]], Any]) -> Any:
        """The result of a rule that needs all updates in memory, or the path it was written to."""
        with self.batch() as batch:
            whole = [dict(source) if isinstance(source, StoredUpdate) else source.mapping for source in batch.sources]
            result = call(whole)
            return result if self.out is None else store(self.out, result, batch.metadata())

    def batch(self) -> StoredBatch:
        if not self.updates:
            raise AggregationError("There are no updates to aggregate: give at least one client's.")
        sources: list[Source] = []
        self.dropped = []
        with ExitStack() as opened:
            for index, item in enumerate(self.updates):
                sources.append(source(index, item))
                if sources[-1] is not item:
                    opened.callback(sources[-1].close)
                check_layout(sources[-1], sources[0].slots)
                if self.out is not None:
                    sources[-1].check_apart(self.out)
            check_distinct(sources)
            return StoredBatch(sources, self, opened.pop_all())


@dataclass(frozen=True)
class InMemory:
    """An update in memory, read like a stored one."""

    index: int
    slots: dict[str, Slot]
    values: dict[str, np.ndarray]
    mapping: Mapping[str, Any]
    path: Path | None = None  # it came from there

    def read_into(self, values: np.ndarray, name: str, start: int) -> None:
        values[...] = self.values[name][start : start + len(values)]

    def where(self, name: str) -> tuple[int, int, int, bool, int, int]:
        """The entry's address, and no file: for `native.reduce_files`."""
        return self.values[name].__array_interface__["data"][0], -1, -1, False, 0, 0

    def __str__(self) -> str:
        return f"The update file {self.path}" if self.path else f"The update in memory of client {self.index}"

    @property
    def label(self) -> str:
        return f"{self.index} ({self.path})" if self.path else str(self.index)

    @property
    def identity(self) -> Any:
        return self.index if self.path is None else (os.stat(self.path).st_dev, os.stat(self.path).st_ino)

    def check_apart(self, out: str | Path) -> None:
        if self.path is not None and os.path.exists(out) and os.path.samefile(self.path, out):
            raise AggregationError(f"{self} is also where the result should go: write that elsewhere.")

    def close(self) -> None:
        """Nothing to release: the arrays are the callers'."""


Source = StoredUpdate | InMemory


def source(index: int, item: Any) -> Source:
    if isinstance(item, StoredUpdate):
        if item.closed:
            raise AggregationError(f"{item} is closed: open it again.")
        return item
    path = None
    if isinstance(item, (str, Path)):
        path, item = found(Path(item)), open_update(item, str(index))
        if isinstance(item, StoredUpdate):
            return item
    if not isinstance(item, Mapping):
        raise AggregationError(
            f"Client {index}'s update is a {type(item).__name__}; beside files only mappings from name to array fit."
        )
    parts = {name: flat(name, array, index) for name, array in item.items()}
    views = {name: values.view(np.uint16) if tag == "BF16" else values for name, (tag, _, values) in parts.items()}
    slots = {name: Slot(tag, shape, 0) for name, (tag, shape, _) in parts.items()}
    return InMemory(index, slots, views, item, path)


def check_layout(other: Source, first: Mapping[str, Slot]) -> None:
    missing = [name for name in first if name not in other.slots]
    extra = [name for name in other.slots if name not in first]
    if missing or extra:
        raise AggregationError(f"{other} lacks {missing} and has {extra}, compared with client 0.")
    for name, slot in first.items():
        found = other.slots[name]
        if (found.tag, found.shape) != (slot.tag, slot.shape):
            raise AggregationError(
                f"{other} has {name!r} as {found.tag} {list(found.shape)}, but client 0's is "
                f"{slot.tag} {list(slot.shape)}."
            )


def check_distinct(sources: Sequence[Source]) -> None:
    """A file that is given twice, or is a shard of another client's update, would count as two clients."""
    seen: dict[Any, Source] = {}
    for item in sources:
        for part in getattr(item, "shards", None) or [item]:
            first = seen.setdefault(part.identity, item)
            if first is not item:
                raise AggregationError(f"{part} is the same file as that of client {first.label}: give each once.")


@dataclass(frozen=True)
class Stretch:
    """One run of an entry's coordinates."""

    name: str
    start: int
    end: int


class InMemoryResult:
    """The result as a mapping of arrays."""

    def __init__(self, slots: Mapping[str, Slot]) -> None:
        self._slots = slots
        self._values = {name: np.empty(slot.size, slot.dtype) for name, slot in slots.items()}

    def write(self, name: str, start: int, values: np.ndarray) -> None:
        self._values[name][start : start + len(values)] = values

    def where(self, name: str) -> tuple[int, int, int]:
        """The entry's address, and no file: for `native.reduce_files`."""
        return self._values[name].__array_interface__["data"][0], -1, 0

    def commit(self) -> dict[str, Any]:
        shaped = {name: values.reshape(self._slots[name].shape) for name, values in self._values.items()}
        bfloat16 = [name for name, slot in self._slots.items() if slot.tag == "BF16"]
        return {**shaped, **{name: as_bfloat16(shaped[name], f"The result's entry {name!r}") for name in bfloat16}}


class StoredBatch:
    """The clients of one aggregation; it stands where a Batch of arrays in memory would."""

    def __init__(
        self, sources: Sequence[Source], request: StoredUpdates, cleanup: ExitStack, dropped: Sequence[int] = ()
    ) -> None:
        self.sources, self.request, self._cleanup, self._dropped = list(sources), request, cleanup, list(dropped)
        self.counted = self.sources  # whose integers are looked at
        self.clients = len(self.sources)
        self.slots = self.sources[0].slots

    def __enter__(self) -> StoredBatch:
        return self

    def __exit__(self, *_: object) -> None:
        """Close what was opened here, and remove results that were not accepted."""
        self._cleanup.close()

    def select(self, clients: Sequence[int]) -> StoredBatch:
        dropped = [i for i in range(self.clients) if i not in clients]
        return StoredBatch([self.sources[i] for i in clients], self.request, self._cleanup, dropped)

    def average(self, clients: Sequence[int], **options: Any) -> Any:
        """The update that is a (weighted) mean of some clients; counters are those of all."""
        chosen = StoredBatch([self.sources[i] for i in clients], self.request, self._cleanup, self._dropped)
        chosen.counted = self.sources
        output, _ = chosen.reduce(**options)
        return chosen.assemble(output)

    def whose(self, client: int) -> str:
        """How errors call a client."""
        return self.sources[client].label

    def not_finite(self, **options: Any) -> list[int]:
        """The clients that sent a NaN or an infinity: every file is read once."""
        return sorted({client for piece in self._pieces() for client in piece.not_finite(**options)})

    def squared_distances(self, **options: Any) -> np.ndarray:
        """Those of `kernel.squared_distances`, added up over pieces: every file is read once."""
        nothing = np.zeros((self.clients, self.clients))
        return sum((kernel.squared_distances(piece, **options) for piece in self._pieces()), nothing)

    def squared_norms(self, **options: Any) -> np.ndarray:
        return sum((piece.squared_norms(**options) for piece in self._pieces()), np.zeros(self.clients))

    def _pieces(self) -> Iterator[Batch]:
        """All floating values of all clients, as many at a time as the memory holds."""
        for name, slot in self.slots.items():
            if slot.code is None:
                continue
            size = max(CHUNK, self.request.memory // self.clients // CHUNK * CHUNK) // slot.dtype.itemsize
            for start in range(0, slot.size, size):
                arrays = [np.empty(min(size, slot.size - start), slot.dtype) for _ in self.sources]
                for item, values in zip(self.sources, arrays, strict=True):
                    item.read_into(values, name, start)
                yield Batch(self.clients, [Field(name, slot.code, arrays, arrays[0])], None)

    def reduce(
        self,
        *,
        trim: int = 0,
        weights: np.ndarray | None = None,
        divisor: float = 0.0,
        share: float = 0.0,
        threads: int | None = None,
        early: bool = False,
    ) -> tuple[Any, kernel.Findings]:
        """The kernel over all entries: the same arithmetic per coordinate, so the same bits as in memory."""
        found, guilty = kernel.Findings(0, 0, []), set()
        output = self._output()
        settings = (trim, [] if weights is None else list(map(float, weights)), divisor, share)
        workers, piece, length = self._workers(native.thread_count(threads))
        done, total = 0, self.clients * sum(slot.nbytes for slot in self.slots.values())
        for stretch in self._stretches(piece, length):
            slot = self.slots[stretch.name]
            if slot.code is None:
                output.write(stretch.name, stretch.start, self._largest(stretch))
            else:
                seen = self._reduce(stretch, output, piece, settings, workers, early)
                found.not_finite += seen[0]
                found.weightless += seen[1]
                guilty.update(seen[2])
                found.stopped |= seen[3]
                if early and (found.not_finite or found.weightless):
                    found.stopped |= done + (stretch.end - stretch.start) * slot.dtype.itemsize * self.clients < total
                    break
            done += (stretch.end - stretch.start) * slot.dtype.itemsize * self.clients
            if self.request.progress is not None:
                self.request.progress(done, total)
        found.clients = sorted(guilty)
        return output, found

    def assemble(self, output: Any) -> Any:
        """Accept a result: a mapping of arrays, or the path it was written to."""
        result = output.commit()
        self.request.dropped = self._dropped
        return result

    def _output(self) -> Writer | InMemoryResult:
        if self.request.out is None:
            return InMemoryResult(self.slots)
        layout = {name: (slot.tag, slot.shape) for name, slot in self.slots.items()}
        writer = Writer(self.request.out, layout, self.metadata())
        self._cleanup.callback(writer.discard)
        return writer

    def metadata(self) -> dict[str, str]:
        """What all files say alike; programs that load models rely on "format", for one."""
        first, *others = [item.metadata for item in self.sources if isinstance(item, StoredUpdate)] or [{}]
        alike = {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}
        alike.pop(CHECKSUMS, None)
        return alike

    def _workers(self, threads: int) -> tuple[int, int, int]:
        """How many threads, the bytes of a client each has at a time, and the bytes of each between reports.

        Pieces are whole chunks, within the memory. Where a disk is read, others compute while some wait for it. What is
        mapped stays in memory for a stretch.
        """
        ways = {item.choose_way() for item in self.sources if isinstance(item, StoredUpdate)} or {Way.COPIED}
        wanted, least, beside = (4 * threads, LEAST, BESIDE) if Way.DIRECT in ways else (threads, CHUNK, 0)
        rows = self.clients + 1  # and the result
        memory = self.request.memory
        workers = max(1, min(wanted, memory // (rows * least + beside)))
        piece = (memory // workers - beside) // rows // CHUNK * CHUNK
        piece = max(CHUNK, min(piece, *(PIECES[way] for way in ways)))
        stretch = min(STRETCH, memory) if Way.MAPPED in ways else STRETCH
        return workers, piece, max(1, stretch // self.clients // (workers * piece)) * workers * piece

    def _stretches(self, piece: int, stretch: int) -> Iterator[Stretch]:
        """All coordinates, in runs of whole pieces; of integers, which are not reduced in pieces, one."""
        for name, slot in self.slots.items():
            size = (piece if slot.code is None else stretch) // slot.dtype.itemsize
            for start in range(0, slot.size, size):
                yield Stretch(name, start, min(start + size, slot.size))

    def _reduce(
        self,
        stretch: Stretch,
        output: Writer | InMemoryResult,
        piece: int,
        settings: tuple[int, list[float], float, float],
        workers: int,
        early: bool,
    ) -> tuple[int, int, list[int], bool]:
        slot = self.slots[stretch.name]
        found, trouble, client, detail = native.load().reduce_files(
            [item.where(stretch.name) for item in self.sources],
            (stretch.start, stretch.end),
            CHUNK,
            piece,
            output.where(stretch.name),
            slot.code,
            *settings,
            workers,
            native.isa(),
            early,
        )
        if trouble == UNWRITABLE:
            assert isinstance(output, Writer)
            output.refuse(detail)
        elif trouble:
            source = self.sources[client]
            assert isinstance(source, StoredUpdate)
            if trouble == UNREADABLE:
                raise source.unreadable(stretch.name, detail)
            raise source.ended(stretch.name) if trouble == ENDED else source.damaged(stretch.name, detail)
        return found

    def _largest(self, stretch: Stretch) -> np.ndarray:
        """Integer buffers: the maximum over clients; booleans: true if any is."""
        result, other = (np.empty(stretch.end - stretch.start, self.slots[stretch.name].dtype) for _ in range(2))
        self.counted[0].read_into(result, stretch.name, stretch.start)
        for item in self.counted[1:]:
            item.read_into(other, stretch.name, stretch.start)
            np.maximum(result, other, out=result)
        return result
