"""Coordinate-wise rules over updates larger than memory: tile by tile, the next one read while this one is reduced.

Peak memory is the result (nothing, where it goes to a file) plus two tiles of every client, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AggregationError
from . import kernel, native
from .stored import CHUNK, Slot, StoredUpdate, Writer, as_bfloat16, flat
from .updates import Batch, Entry, read

MEMORY = 128 * 2**20  # bytes for tiles unless the caller says otherwise
READERS = 2

Progress = Callable[[int, int], None]  # bytes read so far, bytes in all


def gather(updates: Iterable[Any]) -> Batch | StoredBatch:
    """The clients of an aggregation, wherever their updates are."""
    if isinstance(updates, StoredUpdates):
        return updates.batch()
    items = list(updates)
    if any(isinstance(item, (str, Path, StoredUpdate)) for item in items):
        return StoredUpdates(items).batch()
    return read(items)


class StoredUpdates:
    """Updates on disk (paths or StoredUpdates), possibly mixed with some in memory, for the coordinate-wise rules.

    `out` sends the result to a safetensors file instead of memory; `memory` bounds the bytes held in tiles; `progress`
    is told the bytes read so far and in all.

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

    def batch(self) -> StoredBatch:
        if not self.updates:
            raise AggregationError("There are no updates to aggregate: give at least one client's.")
        sources: list[Source] = []
        with ExitStack() as opened:
            for index, item in enumerate(self.updates):
                sources.append(source(index, item))
                if sources[-1] is not item:
                    opened.callback(sources[-1].close)
                check_layout(index, sources[-1], sources[0].slots)
            return StoredBatch(sources, self, opened.pop_all())


@dataclass(frozen=True)
class InMemory:
    """An update in memory, read like a stored one."""

    slots: dict[str, Slot]
    values: dict[str, np.ndarray]

    def read_into(self, values: np.ndarray, name: str, start: int) -> None:
        values[...] = self.values[name][start : start + len(values)]

    def __str__(self) -> str:
        return "The update in memory"

    def close(self) -> None:
        """Nothing to release: the arrays are the callers'."""


Source = StoredUpdate | InMemory


def source(index: int, item: Any) -> Source:
    if isinstance(item, StoredUpdate):
        return item
    if isinstance(item, (str, Path)):
        return StoredUpdate(item, str(index))
    if not isinstance(item, Mapping):
        raise AggregationError(
            f"Client {index}'s update is a {type(item).__name__}; beside files only mappings from name to array fit."
        )
    parts = {name: flat(name, array) for name, array in item.items()}
    views = {name: values.view(np.uint16) if tag == "BF16" else values for name, (tag, _, values) in parts.items()}
    return InMemory({name: Slot(tag, shape, 0) for name, (tag, shape, _) in parts.items()}, views)


def check_layout(index: int, other: Source, first: Mapping[str, Slot]) -> None:
    missing = [name for name in first if name not in other.slots]
    extra = [name for name in other.slots if name not in first]
    if missing or extra:
        raise AggregationError(f"{other} (client {index}) lacks {missing} and has {extra}, compared with client 0.")
    for name, slot in first.items():
        found = other.slots[name]
        if (found.tag, found.shape) != (slot.tag, slot.shape):
            raise AggregationError(
                f"{other} (client {index}) has {name!r} as {found.tag} {list(found.shape)}, but client 0's is "
                f"{slot.tag} {list(slot.shape)}."
            )


@dataclass(frozen=True)
class Tile:
    """One run of an entry's coordinates."""

    name: str
    start: int
    size: int


class InMemoryResult:
    """The result as a mapping of arrays."""

    def __init__(self, slots: Mapping[str, Slot]) -> None:
        self._slots = slots
        self._values = {name: np.empty(slot.size, slot.dtype) for name, slot in slots.items()}

    def write(self, name: str, start: int, values: np.ndarray) -> None:
        self._values[name][start : start + len(values)] = values

    def commit(self) -> dict[str, Any]:
        shaped = {name: values.reshape(self._slots[name].shape) for name, values in self._values.items()}
        bfloat16 = [name for name, slot in self._slots.items() if slot.tag == "BF16"]
        return {**shaped, **{name: as_bfloat16(shaped[name], f"The result's entry {name!r}") for name in bfloat16}}


class StoredBatch:
    """The clients of one aggregation; it stands where a Batch of arrays in memory would."""

    def __init__(self, sources: Sequence[Source], request: StoredUpdates, cleanup: ExitStack) -> None:
        self.sources, self.request, self._cleanup = list(sources), request, cleanup
        self.clients = len(self.sources)
        self.slots = self.sources[0].slots

    def __enter__(self) -> StoredBatch:
        return self

    def __exit__(self, *_: object) -> None:
        """Close what was opened here, and remove results that were not accepted."""
        self._cleanup.close()

    def select(self, clients: Sequence[int]) -> StoredBatch:
        return StoredBatch([self.sources[i] for i in clients], self.request, self._cleanup)

    def reduce(self, **options: Any) -> tuple[Any, kernel.Findings]:
        """The kernel over all tiles: the same arithmetic per coordinate, so the same bits as in memory."""
        found, guilty = kernel.Findings(0, 0, []), set()
        output = self._output()
        for tile, arrays in self._read_ahead():
            entry = Entry(tile.name, self.slots[tile.name].code, arrays, arrays[0])
            batch = Batch(self.clients, [entry], dict)
            if entry.code is None:
                result = batch.assemble([])[tile.name]
            else:
                (result,), seen = kernel.reduce(batch, **options)
                found.not_finite += seen.not_finite
                found.weightless += seen.weightless
                guilty.update(seen.clients)
            output.write(tile.name, tile.start, result)
        found.clients = sorted(guilty)
        return output, found

    def assemble(self, output: Any) -> Any:
        """Accept a result: a mapping of arrays, or the path it was written to."""
        return output.commit()

    def _output(self) -> Writer | InMemoryResult:
        if self.request.out is None:
            return InMemoryResult(self.slots)
        writer = Writer(self.request.out, {name: (slot.tag, slot.shape) for name, slot in self.slots.items()}, {})
        self._cleanup.callback(writer.discard)
        return writer

    def _tiles(self) -> Iterator[Tile]:
        """Tiles of whole chunks, so that every checksum is checked; two tiles of all clients fit the memory."""
        share = self.request.memory // (2 * self.clients) // CHUNK * CHUNK or CHUNK
        for name, slot in self.slots.items():
            size = share // slot.dtype.itemsize
            for start in range(0, slot.size, size):
                yield Tile(name, start, min(size, slot.size - start))

    def _read_ahead(self) -> Iterator[tuple[Tile, list[np.ndarray]]]:
        """Every tile with its values; while one is used the next is being read."""
        tiles = list(self._tiles())
        for item in self.sources:
            if isinstance(item, StoredUpdate):
                item.read_past_cache()
        largest = max((t.size * self.slots[t.name].dtype.itemsize for t in tiles), default=0)
        buffers = [[np.empty(largest, np.uint8) for _ in self.sources] for _ in range(2)]
        total = sum(slot.size * slot.dtype.itemsize for slot in self.slots.values()) * self.clients
        done = 0
        with ThreadPoolExecutor(1) as reader:
            waiting = reader.submit(self._read, tiles[0], buffers[0]) if tiles else None
            for number, tile in enumerate(tiles):
                assert waiting is not None
                arrays = waiting.result()
                if number + 1 < len(tiles):
                    waiting = reader.submit(self._read, tiles[number + 1], buffers[(number + 1) % 2])
                yield tile, arrays
                done += sum(array.nbytes for array in arrays)
                if self.request.progress is not None:
                    self.request.progress(done, total)

    def _read(self, tile: Tile, buffers: list[np.ndarray]) -> list[np.ndarray]:
        """One tile of every client, from several files at a time."""
        dtype = self.slots[tile.name].dtype
        arrays = [buffer[: tile.size * dtype.itemsize].view(dtype) for buffer in buffers]
        stored = []
        for item, values in zip(self.sources, arrays, strict=True):
            if isinstance(item, StoredUpdate):
                stored.append((item, item.wanted(values, tile.name, tile.start)))
            else:
                item.read_into(values, tile.name, tile.start)
        answers = native.load().read_files([wanted for _, wanted in stored], CHUNK, READERS)
        for (item, wanted), answer in zip(stored, answers, strict=True):
            item.check(answer, wanted, tile.name, tile.start)
        return arrays
