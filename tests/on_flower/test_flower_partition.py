"""Our partitions beside those of flwr-datasets, on the same labels."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import Dataset
from flwr_datasets.partitioner import DirichletPartitioner, IidPartitioner, Partitioner, PathologicalPartitioner

from fedincentive.experiments.partition import counts, dirichlet, iid, pathological

LABELS = np.random.default_rng(11).integers(0, 10, 3000)


def parts_of(partitioner: Partitioner, agents: int) -> list[np.ndarray]:
    """The indices each of Flower's partitions holds, of a data set that is nothing but labels and indices."""
    partitioner.dataset = Dataset.from_dict({"label": LABELS.tolist(), "index": list(range(len(LABELS)))})
    return [np.array(partitioner.load_partition(i)["index"]) for i in range(agents)]


def same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> bool:
    return len(ours) == len(theirs) and all(
        np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("balance", [True, False])
@pytest.mark.parametrize("alpha", [0.1, 1.0, 100.0])
def test_dirichlet_is_flowers_for_the_same_seed(alpha: float, balance: bool, seed: int) -> None:
    options = {"alpha": alpha, "min_partition_size": 1, "self_balancing": balance, "seed": seed}
    theirs = parts_of(DirichletPartitioner(num_partitions=8, partition_by="label", **options), 8)
    assert same(dirichlet(LABELS, 8, alpha, balance=balance, least=1, seed=seed), theirs)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("classes", [1, 3, 10])
def test_pathological_is_flowers_for_the_same_seed(classes: int, seed: int) -> None:
    theirs = PathologicalPartitioner(
        num_partitions=12, partition_by="label", num_classes_per_partition=classes,
        class_assignment_mode="random", seed=seed,
    )  # fmt: skip
    assert same(pathological(LABELS, 12, classes, seed=seed), parts_of(theirs, 12))


def test_iid_has_flowers_sizes_and_every_class_in_proportion() -> None:
    theirs = parts_of(IidPartitioner(num_partitions=7), 7)
    ours = iid(len(LABELS), 7, seed=1)
    assert [len(part) for part in ours] == [len(part) for part in theirs]
    share = counts(LABELS, ours, 10) / np.array([[len(part)] for part in ours])
    overall = np.bincount(LABELS, minlength=10) / len(LABELS)
    spread = np.sqrt(overall * (1 - overall) / (len(LABELS) / 7))
    assert np.all(np.abs(share - overall) < 5 * spread)
