"""Readers: the layouts people have, on small files written here, and on real data where it is at hand."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from fedincentive.errors import SettingError
from fedincentive.experiments.data import PADDING, UNKNOWN, read


def cifar_folder(root: Path, keys: type) -> np.ndarray:
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    rng = np.random.default_rng(0)
    name = (lambda text: text.encode()) if keys is bytes else (lambda text: text)
    rows = rng.integers(0, 256, (5, 4, 3072), dtype=np.uint8)
    for b in range(5):
        batch = {name("data"): rows[b], name("labels"): [b, 1, 2, 9], name("filenames"): [name("x.png")] * 4}
        (folder / f"data_batch_{b + 1}").write_bytes(pickle.dumps(batch, protocol=2))
    return rows


@pytest.mark.parametrize("keys", [bytes, str])
def test_cifar_batches_with_either_kind_of_keys(tmp_path: Path, keys: type) -> None:
    rows = cifar_folder(tmp_path, keys)
    data = read("cifar10", tmp_path)
    assert data.x.shape == (20, 3, 32, 32) and data.x.dtype == np.float32
    assert data.y.tolist()[:5] == [0, 1, 2, 9, 1] and data.classes == 10
    red = rows[1, 2, 5] / 255  # the sixth pixel of the first row, red
    assert data.x[6, 0, 0, 5] == pytest.approx((red - 0.4914) / 0.247, abs=1e-5)


def test_a_pickle_that_runs_something_is_refused(tmp_path: Path) -> None:
    cifar_folder(tmp_path, str)

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(pickle.dumps({"data": Evil()}))
    with pytest.raises(SettingError, match="data_batch_3.*mkdir"):
        read("cifar10", tmp_path)
    assert not (tmp_path / "ran").exists()


def leaf(path: Path, users: dict[str, dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = [len(u["y"]) for u in users.values()]
    path.write_text(json.dumps({"users": list(users), "num_samples": counts, "user_data": users}))


def test_femnist_reads_every_leaf_file_and_turns_paper_to_zero(tmp_path: Path) -> None:
    leaf(tmp_path / "femnist/train/all_data_0.json", {"a": {"x": [[1.0] * 784, [0.0] * 784], "y": [3, 4]}})
    leaf(tmp_path / "femnist/train/all_data_1.json", {"b": {"x": [[0.25] * 784], "y": [61]}})
    data = read("femnist", tmp_path)
    assert data.x.shape == (3, 1, 28, 28) and data.classes == 62
    assert data.x[:, 0, 0, 0].tolist() == [0.0, 1.0, 0.75]
    assert data.users is not None and data.users.tolist() == [0, 0, 1]


def test_sent140_keeps_frequent_words_and_pads_in_front(tmp_path: Path) -> None:
    row = lambda text: ["1", "", "NO_QUERY", "u", text]  # noqa: E731
    leaf(tmp_path / "sent140/all_data_0.json", {"u": {"x": [row("Good good day"), row("bad day")], "y": [1, 0]}})
    data = read("sent140", tmp_path, vocabulary=4)  # two words besides padding and unknown
    assert data.x.shape == (2, 25) and data.vocabulary == 4
    good, day = 3, 2  # equal counts: alphabetical
    assert data.x[0, -3:].tolist() == [good, good, day] and set(data.x[0, :-3]) == {PADDING}
    assert data.x[1, -2:].tolist() == [UNKNOWN, day]


def test_fashion_mnist_idx(tmp_path: Path) -> None:
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    sizes = np.array([2, 28, 28], dtype=">u4").tobytes()
    pixels = bytes([0] * 783 + [51] + [255] * 784)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"\x00\x00\x08\x03" + sizes + pixels))
    labels = b"\x00\x00\x08\x01" + np.array([2], dtype=">u4").tobytes() + bytes([7, 9])
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    data = read("fashion-mnist", tmp_path)
    assert data.y.tolist() == [7, 9]
    assert data.x[0, 0, -1, -1] == pytest.approx(0.2) and data.x[1].min() == 1.0


@pytest.mark.parametrize("name", ["cifar10", "femnist", "sent140"])
def test_missing_data_says_where_to_get_it_and_where_to_put_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingError, match=r"is not at .*https://.*DIR/"):
        read(name, tmp_path)
    with pytest.raises(SettingError, match="--data DIR.*https://"):
        read(name)


def test_unknown_data_set_points_to_the_nearest() -> None:
    with pytest.raises(SettingError, match="Did you mean 'cifar10'"):
        read("cifar-10")


def test_damaged_leaf_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "femnist/train").mkdir(parents=True)
    (tmp_path / "femnist/train/x.json").write_text('{"users": []}')
    with pytest.raises(SettingError, match=r"x\.json is not a LEAF file.*user_data"):
        read("femnist", tmp_path)


def test_digits_are_at_hand() -> None:
    data = read("digits")
    assert data.x.min() == 0.0 and data.x.max() == 1.0 and np.bincount(data.y).min() > 170
