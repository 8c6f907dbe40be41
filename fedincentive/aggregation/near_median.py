"""Rules that average the values nearest to the median, coordinate by coordinate: Meamed and Bulyan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import AggregationError
from . import kernel
from .coordinatewise import not_finite_message, shorten
from .distance_based import check_f, krum_scores
from .subsets import infinite_for_nan
from .updates import BFLOAT16, Batch, Field, empty_like, read

VALUES = 2**20  # of all clients at a time


def meamed(updates: Iterable[Any], f: int, *, threads: int | None = None) -> Any:
    """Per coordinate the mean of the n - f values nearest to the median (Xie et al., 2018); of equally near ones the
    first clients'. n >= 2f + 1.

    >>> meamed([np.float64([v]) for v in (1.0, 2.0, 3.0, 50.0)], f=1)
    array([2.])
    """
    batch = read(updates)
    check_f("Meamed", f, batch.clients)
    return near_median(batch, batch.clients - f, threads)


def bulyan(updates: Iterable[Any], f: int, *, threads: int | None = None) -> Any:
    """Choose n - 2f clients by Krum, one after the other without those chosen before; then per coordinate the mean of
    the n - 4f of their values nearest to their median (El Mhamdi et al., 2018). n >= 4f + 3.

    >>> bulyan([np.float64([v]) for v in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 50.0)], f=1)
    array([3.])
    """
    batch = read(updates)
    n = batch.clients
    check_f("Bulyan", f, n, "4f + 3")
    if f == 0:  # everyone is chosen
        return near_median(batch, n, threads)
    squared = infinite_for_nan(batch.squared_distances(threads=threads))
    left, chosen = list(range(n)), list[int]()
    while len(chosen) < n - 2 * f:
        scores = krum_scores(squared[np.ix_(left, left)], max(1, len(left) - f - 2))
        best = int(np.argmin(scores))
        if not np.isfinite(scores[best]):
            raise AggregationError(
                f"Bulyan chooses {n - 2 * f} clients, but {shorten(left)} sent NaN, infinities or values too large to "
                "square, or are near nobody else. Leave them out."
            )
        chosen.append(left.pop(best))
    return near_median(batch.select(sorted(chosen)), n - 4 * f, threads, counters=batch)


def near_median(batch: Batch, size: int, threads: int | None, counters: Batch | None = None) -> Any:
    """Per coordinate the mean of the `size` values nearest to the median, in float64."""
    middles, _ = kernel.reduce(batch, trim=(batch.clients - 1) // 2, threads=threads, wide=True)
    results, bad, guilty = [], 0, set[int]()
    for entry, middle in zip(batch.floating(), middles, strict=True):
        if entry.on_device:
            raise AggregationError(
                "Values near the median are averaged on the CPU: copy the updates with .cpu() first."
            )
        result, output = empty_like(entry, None)
        columns, flat, centre = max(1, VALUES // batch.clients), output.reshape(-1), middle.reshape(-1)
        for at in range(0, flat.size, columns):
            values = np.stack([widened(entry, array.reshape(-1)[at : at + columns]) for array in entry.arrays])
            with np.errstate(invalid="ignore", over="ignore"):
                away = infinite_for_nan(np.abs(values - centre[at : at + columns]))
            order = np.argsort(away, axis=0, kind="stable")[:size]
            kept = np.take_along_axis(values, order, axis=0)
            wrong = ~np.isfinite(kept)
            bad += int(wrong.any(axis=0).sum())
            guilty.update(int(i) for i in np.unique(order[wrong]))
            with np.errstate(invalid="ignore", over="ignore"):
                flat[at : at + columns] = narrowed(entry, (kept / size).sum(axis=0))
        results.append(result)
    if bad:
        whose = [batch.whose(i) for i in sorted(guilty)]
        raise AggregationError(not_finite_message(bad, whose, f"among the {size} values nearest to the median", False))
    return (counters or batch).assemble(results)


def widened(entry: Field, values: np.ndarray) -> np.ndarray:
    """Values in float64; bfloat16 ones come as 16-bit integers, the upper halves of float32."""
    if entry.code != BFLOAT16:
        return values.astype(np.float64)
    return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def narrowed(entry: Field, values: np.ndarray) -> np.ndarray:
    """The other way round, to the nearest even."""
    if entry.code != BFLOAT16:
        return values.astype(entry.arrays[0].dtype)
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return rounded.astype(np.uint16).view(entry.arrays[0].dtype)
