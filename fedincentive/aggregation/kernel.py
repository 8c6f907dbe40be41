"""One call of the compiled kernels over all entries of a batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import native
from .updates import FLOAT64, Batch, Entry, empty_like, memory_order


@dataclass
class Findings:
    """What was unusual: coordinates that keep a non-finite value and whose it was; coordinates without kept weight."""

    not_finite: int
    weightless: int
    clients: list[int]


def reduce(
    batch: Batch,
    *,
    trim: int = 0,
    weights: np.ndarray | None = None,
    divisor: float = 0.0,
    threads: int | None = None,
    wide: bool = False,
) -> tuple[list[Any], Findings]:
    """sum of w_i x_i over the kept clients / divisor, per coordinate and entry (divisor 0: the kept weight).

    `wide` gives float64 NumPy arrays instead of the clients' kind and dtype.
    """
    module, entries = native.load(), batch.floating()
    results: list[Any] = [None] * len(entries)
    found = Findings(0, 0, [])
    guilty: set[int] = set()
    groups: dict[int, list[int]] = defaultdict(list)
    for position, entry in enumerate(entries):
        groups[entry.code or 0].append(position)
    for code, positions in groups.items():
        outputs = []
        strided: list[tuple[int, int, Sequence[int], Sequence[int]]] = []
        for segment, position in enumerate(positions):
            entry = entries[position]
            order = None if wide else memory_order(entry.arrays)
            if wide:
                output = results[position] = np.empty(entry.arrays[0].shape)
            else:
                results[position], output = empty_like(entry, order)
            outputs.append(output.__array_interface__["data"][0])
            if order is None:
                strided += strides_of(segment, entry)
        not_finite, weightless, clients = module.reduce(
            addresses([entries[p].arrays for p in positions]),
            np.array([entries[p].arrays[0].size for p in positions], dtype=np.int64),
            np.array(outputs, dtype=np.uint64),
            batch.clients,
            strided,
            code,
            wide,
            trim,
            [] if weights is None else list(map(float, weights)),
            divisor,
            native.thread_count(threads),
            native.isa(),
        )
        found.not_finite += not_finite
        found.weightless += weightless
        guilty.update(clients)
    found.clients = sorted(guilty)
    return results, found


def squared_distances(
    batch: Batch, center: list[np.ndarray] | None = None, *, threads: int | None = None
) -> np.ndarray:
    """||x_i - x_j||^2 of all pairs, or ||x_i - center||^2 where a center (float64, one array per entry) is given."""
    entries = batch.floating()
    arrays = [entry.arrays + ([center[e]] if center is not None else []) for e, entry in enumerate(entries)]
    participants = batch.clients + (center is not None)
    dtypes = [code for entry in entries for code in [entry.code] * batch.clients + [FLOAT64] * (center is not None)]
    if not entries:
        return np.zeros(batch.clients if center is not None else (batch.clients, batch.clients))
    flat = native.load().squared_distances(
        addresses(arrays),
        np.array([group[0].size for group in arrays], dtype=np.int64),
        participants,
        [layout for segment, entry in enumerate(entries) for layout in strides_of(segment, entry)],
        dtypes,
        center is not None,
        native.thread_count(threads),
        native.isa(),
    )
    result = np.array(flat)
    return result if center is not None else result.reshape(batch.clients, batch.clients)


def strides_of(segment: int, entry: Entry) -> list[tuple[int, int, Sequence[int], Sequence[int]]]:
    """Shape and strides of the clients whose values are not in C order."""
    return [
        (segment, client, array.shape, array.strides)
        for client, array in enumerate(entry.arrays)
        if not array.flags.c_contiguous
    ]


def addresses(groups: list[list[np.ndarray]]) -> np.ndarray:
    """The address of every array, entry after entry."""
    return np.array([array.__array_interface__["data"][0] for group in groups for array in group], dtype=np.uint64)
