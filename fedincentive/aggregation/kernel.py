"""One call of the compiled kernels over all entries of a batch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import AggregationError
from . import cuda, native
from .updates import FLOAT64, Batch, Field, empty_like, memory_order

Settings = tuple[bool, int, list[float], float]  # wide, trim, weights, divisor


@dataclass
class Findings:
    """What was unusual: coordinates that keep a non-finite value and whose it was; coordinates without kept weight."""

    not_finite: int
    weightless: int
    clients: list[int]
    stopped: bool = False  # before all coordinates were looked at


def reduce(
    batch: Batch,
    *,
    trim: int = 0,
    weights: np.ndarray | None = None,
    divisor: float = 0.0,
    share: float = 0.0,
    threads: int | None = None,
    wide: bool = False,
    early: bool = False,
) -> tuple[list[Any], Findings]:
    """sum of w_i x_i over the kept clients / divisor, per coordinate and entry (divisor 0: the kept weight).

    `wide` gives float64 NumPy arrays instead of the clients' kind and dtype. CUDA tensors are reduced where they are.
    `share` trims that much of the weight per side, weights adding up to 1. `early` leaves the rest undone once
    something unusual was found.
    """
    entries = batch.floating()
    results: list[Any] = [None] * len(entries)
    found = Findings(0, 0, [])
    guilty: set[int] = set()
    groups: dict[tuple[int, Any], list[int]] = defaultdict(list)
    for position, entry in enumerate(entries):
        groups[entry.code or 0, entry.original.device if entry.on_device else None].append(position)
    settings = (wide, trim, [] if weights is None else list(map(float, weights)), divisor)
    for (code, device), positions in groups.items():
        chosen = [entries[position] for position in positions]
        if share > 0 and (device is not None or cuda.host_device() is not None):
            raise AggregationError("Trimming by share is done on the CPU: copy the updates with .cpu() first.")
        if device is not None:
            made, answer = cuda.reduce_tensors([entry.arrays for entry in chosen], code, *settings)
        elif (target := cuda.host_device()) is not None:
            made, answer = send_arrays(chosen, code, settings, target)
        else:
            made, answer = reduce_arrays(chosen, batch.clients, code, settings, share, threads, early)
        for position, result in zip(positions, made, strict=True):
            results[position] = result
        found.not_finite += answer[0]
        found.weightless += answer[1]
        guilty.update(answer[2])
        found.stopped |= len(answer) > 3 and answer[3]
    found.clients = sorted(guilty)
    return results, found


def reduce_arrays(
    entries: list[Field],
    clients: int,
    code: int,
    settings: Settings,
    share: float,
    threads: int | None,
    early: bool,
) -> tuple[list[Any], Any]:
    """Entries of one dtype in host memory, on the CPU."""
    wide, results, outputs = settings[0], [], []
    strided: list[tuple[int, int, Sequence[int], Sequence[int]]] = []
    for segment, entry in enumerate(entries):
        order = None if wide or entry.plain is not None else memory_order(entry.arrays)
        result, output = wide_like(entry) if wide else empty_like(entry, order)
        results.append(result)
        outputs.append(output.__array_interface__["data"][0])  # .ctypes takes three times as long
        if order is None:
            strided += strides_of(segment, entry)
    return results, native.load().reduce(
        np.concatenate([addresses_of(entry) for entry in entries]),
        np.array([math.prod(entry.shape) for entry in entries], dtype=np.int64),
        np.array(outputs, dtype=np.uint64),
        clients,
        strided,
        code,
        *settings,
        share,
        native.thread_count(threads),
        native.isa(),
        early,
    )


def send_arrays(entries: list[Field], code: int, settings: Settings, device: int) -> tuple[list[Any], cuda.Found]:
    """The same on a CUDA device, through its memory in pieces."""
    made = [wide_like(entry) if settings[0] else empty_like(entry, None) for entry in entries]
    groups, outputs = [entry.arrays for entry in entries], [output for _, output in made]
    return [result for result, _ in made], cuda.reduce_arrays(groups, outputs, code, *settings, device)


def wide_like(entry: Field) -> tuple[np.ndarray, np.ndarray]:
    array = np.empty(entry.shape)
    return array, array


def not_finite(batch: Batch, threads: int | None = None) -> list[int]:
    """The clients that sent a NaN or an infinity, wherever it is. Every client is read once, up to its first one."""
    bad: set[int] = set()
    for entry in batch.floating():
        if entry.on_device:
            tensors: list[Any] = list(entry.arrays)
            bad.update(i for i, tensor in enumerate(tensors) if not bool(tensor.isfinite().all()))
            continue
        bad.update(
            native.load().not_finite(
                addresses_of(entry),
                np.array([math.prod(entry.shape)], dtype=np.int64),
                batch.clients,
                strides_of(0, entry),
                entry.code,
                native.thread_count(threads),
                native.isa(),
            )
        )
    return sorted(bad)


def squared_distances(
    batch: Batch,
    center: list[np.ndarray] | None = None,
    *,
    around: int = -1,
    scales: Sequence[float] = (),
    threads: int | None = None,
) -> np.ndarray:
    """||x_i - x_j||^2 of all pairs, or ||x_i - center||^2 where a center (float64, one array per entry) is given.

    With `scales` they are those of (x_i - x_around) * scales[i] instead of x_i, moved in float64.
    """
    entries = batch.floating()
    if any(entry.on_device for entry in entries):
        raise AggregationError(
            f"The updates are on device {entries[0].original.device}; distances between clients are taken on the CPU. "
            "Copy the updates with .cpu() first."
        )
    pointers = [part for e, entry in enumerate(entries) for part in (addresses_of(entry), address_of(center, e))]
    participants = batch.clients + (center is not None)
    dtypes = [code for entry in entries for code in [entry.code] * batch.clients + [FLOAT64] * (center is not None)]
    if not entries:
        return np.zeros(batch.clients if center is not None else (batch.clients, batch.clients))
    flat = native.load().squared_distances(
        np.concatenate(pointers),
        np.array([math.prod(entry.shape) for entry in entries], dtype=np.int64),
        participants,
        [layout for segment, entry in enumerate(entries) for layout in strides_of(segment, entry)],
        dtypes,
        center is not None,
        around,
        list(map(float, scales)),
        native.thread_count(threads),
        native.isa(),
    )
    result = np.array(flat)
    return result if center is not None else result.reshape(batch.clients, batch.clients)


def strides_of(segment: int, entry: Field) -> list[tuple[int, int, Sequence[int], Sequence[int]]]:
    """Shape and strides of the clients whose values are not in C order."""
    if entry.plain is not None:
        return []
    return [
        (segment, client, array.shape, array.strides)
        for client, array in enumerate(entry.arrays)
        if not array.flags.c_contiguous
    ]


def addresses_of(entry: Field) -> np.ndarray:
    """The address of every client's array."""
    if entry.plain is not None:
        return entry.plain.addresses
    return np.array([array.__array_interface__["data"][0] for array in entry.arrays], dtype=np.uint64)


def address_of(center: list[np.ndarray] | None, position: int) -> np.ndarray:
    """That of the center's array, which is one more participant's, if there is one."""
    found = [] if center is None else [center[position].__array_interface__["data"][0]]
    return np.array(found, dtype=np.uint64)
