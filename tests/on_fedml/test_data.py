"""The users' own data taken apart into points and put together again, compared with torch's loaders and by hand."""

from __future__ import annotations

import math
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fedincentive.plugins.fedml import data
from fedincentive.plugins.fedml.data import local_data
from fedincentive.plugins.fedml.defenses import trimmed
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, Subset, TensorDataset

from fedincentive.errors import SettingError

POINTS = TensorDataset(torch.arange(23), torch.arange(23) * 10)
HELD: list[Any] = [(torch.zeros(1), torch.zeros(1))]


class Numbers(Dataset):
    """Points that are no tensors of one dataset."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, i: int) -> int:
        return i


class Backwards(SequentialSampler):
    def __iter__(self) -> Any:
        return iter(range(len(self.data_source) - 1, -1, -1))


def batches(loader: Any) -> list[list[int]]:
    return [list(map(int, batch[0] if isinstance(batch, (list, tuple)) else batch)) for batch in loader]


@pytest.mark.parametrize("together", [1, 2**20])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("given", [23, 17, 8, 5, 1])
def test_tensors_come_in_torchs_own_batches(
    monkeypatch: pytest.MonkeyPatch, drop_last: bool, given: int, together: int
) -> None:
    """Three epochs, the same batches in the same order as a DataLoader would make from point after point, whether
    batches are put together one by one or many at once."""
    monkeypatch.setattr(data, "BLOCK", together)
    points = np.random.default_rng(1).permutation(23)[:given]
    loader = DataLoader(POINTS, batch_size=8, drop_last=drop_last)
    ours = local_data(0, loader, HELD, 23, "a", 0).loader(points, seed=5)
    dropped = drop_last and given >= 8 or (drop_last and given == 1)
    order = torch.Generator().manual_seed(5)
    theirs = DataLoader(Subset(POINTS, points.tolist()), batch_size=8, shuffle=True, generator=order, drop_last=dropped)
    assert len(ours) == len(theirs)
    for _ in range(3):
        mine, other = list(ours), list(theirs)
        assert all(torch.equal(a, b) for x, y in zip(mine, other, strict=True) for a, b in zip(x, y, strict=True))


def test_the_loader_of_the_round_before_begins_as_new() -> None:
    """An agent that gives as many points again gets the loader that it had, wherever it stopped reading."""
    own, points = local_data(0, DataLoader(POINTS, batch_size=8), HELD, 23, "a", 0), np.arange(20)
    expected = {seed: batches(local_data(0, DataLoader(POINTS, batch_size=8), HELD, 23, "a", 0).loader(points, seed))
                for seed in (1, 2)}  # fmt: skip
    first = own.loader(points, 1)
    assert batches(first) == expected[1] and batches(first) != expected[1]
    next(iter(first))
    assert own.loader(points, 2) is first and batches(first) == expected[2]
    assert own.loader(np.arange(19), 2) is not first


def test_points_that_were_given_are_trained_on_though_they_fill_no_batch() -> None:
    data = local_data(0, DataLoader(POINTS, batch_size=8, drop_last=True), HELD, 23, "a", 0)
    assert sorted(batches(data.loader(np.arange(5), 0))[0]) == [0, 1, 2, 3, 4]
    assert batches(data.loader(np.arange(1), 0)) == []  # one point, which BatchNorm cannot take


def test_the_users_sampler_is_kept_on_the_chosen_points() -> None:
    data = local_data(0, DataLoader(Numbers(), batch_size=3, sampler=Backwards(Numbers())), HELD, 23, "a", 0)
    assert batches(data.loader(np.array([4, 20, 7, 1]), 0)) == [[20, 7, 4], [1]]
    grouped = DataLoader(Numbers(), batch_sampler=BatchSampler(Backwards(Numbers()), 10, False))
    data = local_data(0, grouped, HELD, 23, "a", 0)
    assert batches(data.loader(np.array([4, 20, 7, 1, 13]), 0)) == [[20, 13], [7, 4], [1]]


def test_without_test_data_the_sampler_still_means_the_users_own_points() -> None:
    data = local_data(0, DataLoader(Numbers(), batch_size=3, sampler=Backwards(Numbers())), None, 23, "a", 0)
    held = [i for batch in batches(data.test) for i in batch]
    trained = [i for batch in batches(data.loader(np.arange(len(data)), 0)) for i in batch]
    assert trained == sorted(trained, reverse=True) and sorted(held + trained) == list(range(23))


def test_workers_and_collate_are_kept() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=1, collate_fn=sum, shuffle=True)
    made = local_data(0, loader, HELD, 23, "a", 0).loader(np.arange(8), 0)
    assert (made.num_workers, made.batch_size, made.collate_fn) == (1, 4, sum)


def test_batches_of_different_lengths_hold_points_of_one_length() -> None:
    ragged = [(torch.full((4, 5 + k % 2), k), torch.full((4,), k)) for k in range(4)]
    data = local_data(0, ragged, HELD, None, "a", 0)
    made = list(data.loader(np.arange(16), 3))
    assert len(data) == 16 and all(len(x) <= 4 for x, _ in made)
    assert sorted(torch.cat([y for _, y in made]).tolist()) == sorted([0, 1, 2, 3] * 4)
    assert {x.shape[1] for x, _ in made} == {5, 6}


def test_a_list_of_dicts() -> None:
    dicts = [{"x": torch.ones(3, 2) * k, "y": torch.arange(3)} for k in range(2)]
    made = list(local_data(0, dicts, HELD, None, "a", 0).loader(np.arange(6), 0))
    assert [sorted(batch) for batch in made] == [["x", "y"], ["x", "y"]]
    assert sum(float(batch["x"].sum()) for batch in made) == 6.0
    assert len(local_data(0, dicts, HELD, None, "a", 0).records()) == 6


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (7, "is a int: a DataLoader or a list of batches is needed"),
        ([(torch.zeros(3), torch.zeros(2, 2)), (torch.zeros(3, 3), torch.zeros(3))], "whose parts differ in length"),
    ],
)
def test_data_that_cannot_be_counted_is_named(data: Any, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        local_data(0, data, HELD, None, "hospital", 0)


def test_beta_counts_whole_clients_as_fedml_does() -> None:
    """int(beta * n), where the product is exact: FedML's own is one less for 0.29 of 100."""
    for n in range(1, 60):
        for hundredths in range(50):
            beta, k = hundredths / 100, math.floor(Decimal(hundredths) * n / 100)
            if 2 * k < n:
                assert trimmed(SimpleNamespace(beta=beta), n) == k / n
    assert trimmed(SimpleNamespace(beta=0.29), 100) == 0.29 and trimmed(SimpleNamespace(beta=0.5), 5) == 0.4
    with pytest.raises(SettingError, match="beta is 0.5: of 4 clients 2 trimmed per side leave none"):
        trimmed(SimpleNamespace(beta=0.5), 4)
