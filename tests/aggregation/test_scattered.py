"""Updates whose entries are in many files, under other names than the model's."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from fedincentive.aggregation import ScatteredUpdate, StoredUpdates, median, rule, store, trimmed_mean
from fedincentive.errors import AggregationError

LAYOUT = {"conv.weight": (3, 5), "conv.bias": (5,), "bn.count": (), "fc.weight": (2000,)}


def models(n: int, seed: int = 1) -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(seed)
    made = [{name: draw.normal(size=shape).astype("f4") for name, shape in LAYOUT.items()} for _ in range(n)]
    for index, model in enumerate(made):
        model["bn.count"] = np.array(index, "i8")
    return made


def scattered(model: dict[str, np.ndarray], folder: Path, who: str, order=None) -> ScatteredUpdate:
    """A file for each entry, as NVFlare offloads them; the keys say nothing."""
    folder.mkdir(parents=True)
    places = {}
    for index, name in enumerate(order or model):
        places[name] = store(folder / f"{index}.safetensors", {f"T{index}": model[name]}), f"T{index}"
    return ScatteredUpdate({name: places[name] for name in model}, who)


def same(one, other) -> bool:
    return list(one) == list(other) and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "name, options", [("mean", {}), ("trimmed-mean", {"trim": 2}), ("median", {}), ("krum", {"f": 1})]
)
def test_rules_give_the_bits_they_give_in_memory(tmp_path, name, options) -> None:
    made = models(7)
    updates = [scattered(model, tmp_path / str(i), str(i)) for i, model in enumerate(made)]
    assert same(rule(name).use(StoredUpdates(updates), **options), rule(name).use(made, **options))


def test_it_is_the_model_whichever_file_an_entry_is_in(tmp_path) -> None:
    (model,) = models(1)
    update = scattered(model, tmp_path / "a", "site-1", order=list(reversed(model)))
    assert same(dict(update), model) and len(update) == 4
    together = store(tmp_path / "one", {"T1": model["conv.bias"], "T0": model["conv.weight"]})
    two = ScatteredUpdate({"conv.weight": (together, "T0"), "conv.bias": (together, "T1")})
    assert same(dict(two), {name: model[name] for name in ("conv.weight", "conv.bias")})


def test_a_large_entry_is_read_where_it_is(tmp_path) -> None:
    draw = np.random.default_rng(2)
    made = [{"w": draw.normal(size=5_000_000).astype("f4"), "b": draw.normal(size=3).astype("f4")} for _ in range(3)]
    updates = [scattered(model, tmp_path / str(i), str(i)) for i, model in enumerate(made)]
    assert same(median(StoredUpdates(updates)), median(made))


def test_few_files_are_open_at_a_time(tmp_path) -> None:
    model = {f"layer-{i}": np.float32([i]) for i in range(300)}
    updates = [scattered(model, tmp_path / str(i), str(i)) for i in range(3)]
    seen = []
    request = StoredUpdates(updates, progress=lambda done, total: seen.append(len(os.listdir("/proc/self/fd"))))
    before = len(os.listdir("/proc/self/fd"))
    assert same(trimmed_mean(request, trim=1), model)
    assert max(seen) <= before + 2 * len(updates) + 1 < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for update in updates:
        update.close()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("damage", ["missing", "other key", "cut", "replaced"])
def test_what_is_wrong_is_said_with_client_and_file(tmp_path, damage) -> None:
    (model,) = models(1)
    update = scattered(model, tmp_path / "a", "site-1")
    path = tmp_path / "a" / "0.safetensors"
    if damage == "missing":
        path.unlink()
    elif damage == "other key":
        with pytest.raises(AggregationError, match="site-1.*'T9' of .*0.safetensors"):
            ScatteredUpdate({"conv.weight": (path, "T9")}, "site-1")
        return
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-4])
    else:
        store(path, {"T0": np.zeros(3, "f4")})
    with pytest.raises(AggregationError, match="0.safetensors of client 'site-1'"):
        dict(update)


def test_the_same_entries_under_another_path_are_one_client(tmp_path) -> None:
    (model,) = models(1)
    update = scattered(model, tmp_path / "a", "site-1")
    linked = {}
    for name, (path, key) in update.places.items():
        os.link(path, other := tmp_path / f"{key}.linked")
        linked[name] = other, key
    again = ScatteredUpdate(linked, "site-2")
    with pytest.raises(AggregationError, match="site-2.* is the same file as that of client site-1"):
        median(StoredUpdates([update, again]))


def test_it_is_closed_once_and_says_so(tmp_path) -> None:
    (model,) = models(1)
    with scattered(model, tmp_path / "a", "site-1") as update:
        assert update.digest() == update.digest() and not update.closed
    assert update.closed
    with pytest.raises(AggregationError, match="site-1.* is closed"):
        median(StoredUpdates([update]))
