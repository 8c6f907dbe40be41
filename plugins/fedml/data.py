"""An agent's own data as FedML hands it over: a DataLoader, or a list of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from ... import draws
from ...errors import SettingError


@dataclass(frozen=True)
class LocalData:
    """`train` is indexed by point; `test` is what the agent's loss is measured on."""

    client: int  # FedML's index of the client
    train: Dataset
    test: Any
    batch_size: int
    collate: Any = None

    def __len__(self) -> int:
        return len(self.train)  # type: ignore[arg-type]

    def records(self) -> list[bytes]:
        """Each point's tensors as bytes."""
        return [
            b"".join(
                np.ascontiguousarray(part).tobytes()
                for part in (point if isinstance(point, (tuple, list)) else [point])
            )
            for point in (self.train[i] for i in range(len(self)))
        ]

    def loader(self, points: np.ndarray, seed: int) -> DataLoader:
        """Batches of these points, in an order that only the seed decides."""
        order = torch.Generator().manual_seed(seed)
        chosen = Subset(self.train, [int(i) for i in points])
        return DataLoader(chosen, batch_size=self.batch_size, shuffle=True, generator=order, collate_fn=self.collate)


def local_data(client: int, train: Any, test: Any, batch_size: int, agent: str, seed: int) -> LocalData:
    """The agent's data by point. Without test data, a fifth of its points is held out and s_max is what remains."""
    points, collate = as_dataset(train, agent)
    if test is not None and not empty(test):
        return LocalData(client, points, test, batch_size, collate)
    kept, held = (Subset(points, part.tolist()) for part in draws.held_out(seed, agent, len(points)))  # type: ignore[arg-type]
    return LocalData(client, kept, DataLoader(held, batch_size=batch_size, collate_fn=collate), batch_size, collate)


def as_dataset(data: Any, agent: str) -> tuple[Dataset, Any]:
    if isinstance(data, DataLoader):
        return data.dataset, data.collate_fn
    try:
        columns = [torch.cat([torch.as_tensor(part) for part in column]) for column in zip(*data, strict=True)]
        return TensorDataset(*columns), None
    except (TypeError, ValueError, RuntimeError) as error:
        raise SettingError(
            f"The training data of agent {agent!r} is a {type(data).__name__}: a DataLoader or a list of batches is "
            f"needed, so that its points can be counted ({error})."
        ) from None


def empty(data: Any) -> bool:
    try:
        return len(data.dataset if isinstance(data, DataLoader) else data) == 0
    except TypeError:
        return False
