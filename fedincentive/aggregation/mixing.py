"""What is done to updates before a rule: NNM, Bucketing, ARC and clipping. Each gives new updates, one for each it has.

A rule's name may begin with any of them, joined by +, as in clipping+nnm+median.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from . import kernel
from .clipping import check_positive, norms, shrink
from .distance_based import check_count, check_f
from .subsets import infinite_for_nan
from .updates import Batch, read


def nnm(updates: Iterable[Any], f: int, *, threads: int | None = None) -> list[Any]:
    """Nearest neighbour mixing (Allouah et al., 2023): every update becomes the mean of the n - f nearest to it, itself
    among them. Of equally near ones the first count. A client with NaN or infinities is far from all, and mixes to NaN.

    >>> nnm([np.float64([v]) for v in (1.0, 2.0, 3.0, 50.0)], f=1)
    [array([2.]), array([2.]), array([2.]), array([18.33333333])]
    """
    batch = read(updates)
    n = batch.clients
    check_f("NNM", f, n)
    squared = infinite_for_nan(batch.squared_distances(threads=threads))
    np.fill_diagonal(squared, -1.0)
    nearest = [sorted(int(i) for i in np.argsort(row, kind="stable")[: n - f]) for row in squared]
    return [mean_of(batch, chosen, threads) for chosen in nearest]


def bucketing(updates: Iterable[Any], bucket: int = 2, *, seed: int = 0, threads: int | None = None) -> list[Any]:
    """The means of buckets of clients, drawn at random (Karimireddy et al., 2022); the last may be smaller.

    >>> bucketing([np.float64([v]) for v in (1.0, 1.0, 1.0)], bucket=2)
    [array([1.]), array([1.])]
    """
    batch = read(updates)
    check_count("bucket", bucket, 1, batch.clients)
    check_count("seed", seed, 0, 2**63 - 1)
    drawn = np.random.default_rng(seed).permutation(batch.clients)
    buckets = [sorted(map(int, drawn[at : at + bucket])) for at in range(0, batch.clients, bucket)]
    return [mean_of(batch, chosen, threads) for chosen in buckets]


def arc(updates: Iterable[Any], f: int, *, threads: int | None = None) -> list[Any]:
    """Adaptive robust clipping (Allouah et al., 2025): the floor(2 f (n - f) / n) longest updates are shortened to the
    length of the longest of the others. NaN and infinities count as the longest, and stay what they are.

    >>> arc([np.float64([v]) for v in (1.0, -2.0, 50.0)], f=1)
    [array([1.]), array([-2.]), array([2.])]
    """
    batch = read(updates)
    n = batch.clients
    check_f("ARC", f, n)
    found = infinite_for_nan(norms(batch, 1.0, threads))
    limit = np.sort(found)[n - 2 * f * (n - f) // n - 1]
    return shortened(batch, found, float(limit), threads)


def clip_updates(updates: Iterable[Any], clip: float, *, threads: int | None = None) -> list[Any]:
    """Every update longer than `clip` is shortened to it. NaN and infinities stay what they are.

    >>> clip_updates([np.float64([1.0]), np.float64([-50.0])], clip=2.0)
    [array([1.]), array([-2.])]
    """
    check_positive("clip", clip)
    batch = read(updates)
    return shortened(batch, infinite_for_nan(norms(batch, clip, threads)), float(clip), threads)


def mean_of(batch: Batch, clients: Sequence[int], threads: int | None) -> Any:
    chosen = batch.select(clients)
    results, _ = kernel.reduce(chosen, threads=threads)
    return chosen.assemble(results)


def shortened(batch: Batch, found: np.ndarray, limit: float, threads: int | None) -> list[Any]:
    """The updates, those longer than the limit shortened to it; of the others nothing changes, but all are new."""
    made = []
    for client, factor in enumerate(shrink(found, limit) if limit > 0 else np.where(found > 0, 0.0, 1.0)):
        own = batch.select([client])
        factor = factor if np.isfinite(found[client]) else 1.0
        results, _ = kernel.reduce(own, weights=np.array([factor]), divisor=1.0, threads=threads)
        made.append(own.assemble(results))
    return made
