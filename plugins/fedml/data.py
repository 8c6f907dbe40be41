"""An agent's own data as FedML hands it over: a DataLoader, or a list of batches.

An agent trains on as many of its points as it gives, so its data are taken apart into points and put together again as
they were: with the batch size, drop_last, workers, sampler and collate_fn of its own loader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)

from ... import draws
from ...errors import SettingError

BLOCK = 2**20  # bytes of points that are put together at once
UNSAID = 32  # points in a batch of held-out data, where the user's own batches have no fixed size
KEPT = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")


@dataclass(frozen=True)
class LocalData:
    """`train` is indexed by point; `test` is what the agent's loss is measured on.

    `places` are the points' places in the user's own dataset, which its sampler speaks of, where some are held out.
    """

    client: int  # FedML's index of the client
    train: Dataset
    test: Any
    batch_size: int | None  # None: the loader does not batch, or a batch sampler of the user's own does
    collate: Any = None
    drop_last: bool = False
    sampler: Any = None  # the user's own, over its whole dataset
    batch_sampler: Any = None
    shapes: Sequence[Any] | None = None  # of each point, where not all can stand in one batch
    options: Mapping[str, Any] | None = None  # of the DataLoader
    places: Sequence[int] | None = None
    made: list[_Joined] = field(default_factory=list, init=False, compare=False)  # the last round's, to be used again

    def __len__(self) -> int:
        return len(self.train)  # type: ignore[arg-type]

    def records(self) -> list[bytes]:
        """Each point's tensors as bytes."""
        return [
            b"".join(np.ascontiguousarray(part).tobytes() for part in _parts(point))
            for point in (self.train[i] for i in range(len(self)))
        ]

    def loader(self, points: np.ndarray, seed: int) -> DataLoader:
        """Batches of these points, in an order that only the seed decides, unless the user has a sampler."""
        chosen = points.tolist()
        if self.made and self.made[0].dataset.indices == chosen:
            return self.made[0].again(seed)
        options: dict[str, Any] = {"collate_fn": self.collate, **(self.options or {})}
        if self.sampler is not None or self.batch_sampler is not None:
            places = chosen if self.places is None else [self.places[i] for i in chosen]
            among = {place: position for position, place in enumerate(places)}
            if self.batch_sampler is not None:
                return DataLoader(self._only(chosen), batch_sampler=_Within(self.batch_sampler, among), **options)
            order = {"sampler": _Within(self.sampler, among)}
        elif self.shapes is not None:
            return DataLoader(self._only(chosen), batch_sampler=self._alike(chosen, seed), **options)
        else:
            order = {"shuffle": True, "generator": torch.Generator().manual_seed(seed)}
        size = self.batch_size
        # A last batch that is too small goes, but not the only one: an agent that gave points trains on them.
        drop = {} if size is None else {"drop_last": self.drop_last and (len(chosen) >= size or len(chosen) == 1)}
        plain = isinstance(self.train, TensorDataset) and self.collate in (None, default_collate)
        if plain and "shuffle" in order and not self.options and size is not None:
            self.made[:] = [_Joined(self._only(chosen), batch_size=size, **drop, **order, **options)]
            return self.made[0]
        return DataLoader(self._only(chosen), batch_size=size, **drop, **order, **options)

    def _only(self, points: Sequence[int]) -> Dataset:
        return Subset(self.train, points)

    def _alike(self, points: Sequence[int], seed: int) -> list[list[int]]:
        """Batches of points that have the same shapes, in random order."""
        assert self.shapes is not None and self.batch_size is not None
        order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed)).tolist()
        open_: dict[Any, list[int]] = {}
        batches = []
        for position in order:
            batch = open_.setdefault(self.shapes[points[position]], [])
            batch.append(position)
            if len(batch) == self.batch_size:
                batches.append(open_.pop(self.shapes[points[position]]))
        return batches + list(open_.values())


class _Joined(DataLoader):
    """The batches of a DataLoader over tensors, taken from them at once instead of point by point.

    They are the same batches in the same order: torch draws a seed for its workers before the order of an epoch, and
    once more an order after it, which is drawn here when another epoch begins.
    """

    def __init__(self, dataset: Subset, **options: Any) -> None:
        super().__init__(dataset, **options)
        self._chosen = torch.tensor(dataset.indices)
        self._seed = torch.empty((), dtype=torch.int64)  # of the workers
        self._ended = False  # an epoch, after which an order is to be drawn
        assert self.batch_size is not None
        point = sum(column[:1].nbytes for column in dataset.dataset.tensors)  # type: ignore[attr-defined]
        # Several batches are taken at once: to take six of ten points costs six times as much as one of sixty.
        self._block = self.batch_size * max(1, BLOCK // max(1, point * self.batch_size))

    def again(self, seed: int) -> _Joined:
        """As new, for another round."""
        self.generator.manual_seed(seed)
        self._ended = False
        return self

    def __iter__(self) -> Iterator[Any]:
        n, draw, size, block = len(self._chosen), self.generator, self.batch_size, self._block
        if self._ended:
            torch.randperm(n, generator=draw)
            self._ended = False
        self._seed.random_(generator=draw)
        order = self._chosen.index_select(0, torch.randperm(n, generator=draw))
        columns = self.dataset.dataset.tensors  # type: ignore[attr-defined]
        for begin in range(0, n, block):
            some = order if n <= block else order[begin : begin + block]
            for batch in zip(*(column.index_select(0, some).split(size) for column in columns), strict=True):
                if len(batch[0]) == size or not self.drop_last:
                    yield list(batch)
        self._ended = True


class _Within(Sampler):
    """The user's sampler, or batch sampler, as far as it speaks of the chosen points."""

    def __init__(self, inner: Any, among: Mapping[int, int]) -> None:
        self.inner, self.among = inner, among

    def __iter__(self) -> Iterator[Any]:
        for drawn in self.inner:
            if not isinstance(drawn, (list, tuple)):
                if drawn in self.among:
                    yield self.among[drawn]
            elif batch := [self.among[i] for i in drawn if i in self.among]:
                yield batch


def local_data(client: int, train: Any, test: Any, count: int | None, agent: str, seed: int) -> LocalData:
    """The agent's data by point. Without test data, a fifth of its points is held out and s_max is what remains.

    `count` is what FedML says the client has: a dataset that can only be iterated is read so far.
    """
    data = (
        _of_loader(client, train, count, agent) if isinstance(train, DataLoader) else _of_batches(client, train, agent)
    )
    if test is not None and not empty(test):
        return replace(data, test=test)
    kept, held = (part.tolist() for part in draws.held_out(seed, agent, len(data)))
    trained = replace(data, train=Subset(data.train, kept), places=kept)
    if data.shapes is not None:
        shapes = [data.shapes[i] for i in kept]
        return replace(trained, test=data.loader(np.array(held), seed), shapes=shapes)
    size = UNSAID if data.batch_sampler is not None else data.batch_size
    return replace(trained, test=DataLoader(Subset(data.train, held), batch_size=size, collate_fn=data.collate))


def _of_loader(client: int, loader: DataLoader, count: int | None, agent: str) -> LocalData:
    options = {name: getattr(loader, name) for name in KEPT if getattr(loader, name, None)}
    points: Any = loader.dataset
    if isinstance(points, IterableDataset):
        if not count:
            raise SettingError(
                f"The training data of agent {agent!r} is an IterableDataset, and FedML's train_data_local_num_dict "
                "does not say how many points it has: give their number there, or a Dataset with __getitem__."
            )
        kept = list(islice(points, int(count)))
        size = loader.batch_size
        return LocalData(client, kept, None, size, loader.collate_fn, loader.drop_last, options=options)  # type: ignore[arg-type]
    if not hasattr(points, "__len__"):
        raise SettingError(
            f"The training data of agent {agent!r} is a {type(points).__name__} without __len__: its points cannot be "
            "counted. Give it __len__, or make it an IterableDataset."
        )
    given = {"collate": loader.collate_fn, "options": options}
    if loader.batch_size is None and loader.batch_sampler is not None:
        return LocalData(client, points, None, None, batch_sampler=loader.batch_sampler, **given)
    own = None if type(loader.sampler) in (RandomSampler, SequentialSampler) else loader.sampler
    return LocalData(client, points, None, loader.batch_size, drop_last=loader.drop_last, sampler=own, **given)


def _of_batches(client: int, data: Any, agent: str) -> LocalData:
    """A list of batches: tensors that can be joined become one dataset, others a list of points."""
    try:
        batches = list(data)
        size = max((_count(batch) for batch in batches), default=1)
    except (TypeError, ValueError, IndexError, StopIteration) as error:
        raise SettingError(
            f"The training data of agent {agent!r} is a {type(data).__name__}: a DataLoader or a list of batches is "
            f"needed, so that its points can be counted ({error})."
        ) from None
    if batches and not any(isinstance(batch, Mapping) for batch in batches):
        try:
            columns = [torch.cat([torch.as_tensor(part) for part in column]) for column in zip(*batches, strict=True)]
            return LocalData(client, TensorDataset(*columns), None, max(size, 1))
        except (TypeError, ValueError, RuntimeError):
            pass  # of different lengths, or not tensors: point by point
    points = [point for batch in batches for point in _points(batch, agent)]
    shapes = [tuple(getattr(part, "shape", None) for part in _parts(point)) for point in points]
    alike = len(set(shapes)) <= 1
    return LocalData(client, points, None, max(size, 1), shapes=None if alike else shapes)  # type: ignore[arg-type]


def _parts(point: Any) -> list[Any]:
    if isinstance(point, Mapping):
        return list(point.values())
    return list(point) if isinstance(point, (tuple, list)) else [point]


def _count(batch: Any) -> int:
    """How many points a batch has."""
    return len(_parts(batch)[0])


def _points(batch: Any, agent: str) -> list[Any]:
    n = _count(batch)
    if any(not hasattr(part, "__len__") or len(part) != n for part in _parts(batch)):
        raise SettingError(
            f"The training data of agent {agent!r} has a batch whose parts differ in length: the first has {n} points. "
            "Every part needs one entry for each point."
        )
    if isinstance(batch, Mapping):
        return [{name: part[i] for name, part in batch.items()} for i in range(n)]
    if isinstance(batch, (tuple, list)):
        return [tuple(part[i] for part in batch) for i in range(n)]
    return [batch[i] for i in range(n)]


def empty(data: Any) -> bool:
    try:
        return len(data.dataset if isinstance(data, DataLoader) else data) == 0
    except TypeError:
        return False
