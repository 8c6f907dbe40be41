"""Readers for the layouts people have the paper's data sets in, and for two small stand-ins.

| name | expected under the data directory | where from |
|---|---|---|
| cifar10 | cifar-10-batches-py/{data_batch_1..5} | cs.toronto.edu/~kriz/cifar.html, "python version" |
| femnist | femnist/train/*.json (LEAF) | github.com/TalwalkarLab/leaf, data/femnist |
| sent140 | sent140/*.json or sent140/train/*.json (LEAF) | github.com/TalwalkarLab/leaf, data/sent140 |
| fashion-mnist | fashion-mnist/train-*-ubyte.gz | Debian's dataset-fashion-mnist, or its upstream |
| digits | nothing: it comes with scikit-learn | |
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import nearest
from ..errors import SettingError

WORDS = 25  # tokens of a tweet that are read, as in the paper's model
PADDING, UNKNOWN = 0, 1  # token ids
DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples x with labels y; `users` says whose each one is, where the source knows."""

    name: str
    x: np.ndarray  # float32 images (N, channels, height, width), or int64 tokens (N, WORDS)
    y: np.ndarray  # int64
    classes: int
    users: np.ndarray | None = None  # int64 per example
    vocabulary: int = 0  # token ids are below this; 0 for images

    def __len__(self) -> int:
        return len(self.y)


def read(name: str, directory: str | Path | None = None, **options: Any) -> Dataset:
    """The data set called `name`, from `directory` where it needs files.

    >>> read("digits").x.shape
    (1797, 1, 8, 8)
    """
    check(name, directory)
    return READERS[name](Path(directory or "."), **options)


def check(name: str, directory: str | Path | None) -> None:
    """Fail before a long run where a data set is not there; reads nothing."""
    if name not in READERS:
        raise SettingError(f"There is no data set {name!r}.{nearest(name, READERS)}")
    if name == "digits":
        return
    if directory is None and not (name == "fashion-mnist" and DEBIAN_FASHION.exists()):
        raise SettingError(f"Data set {name!r} needs files: say where they are with --data DIR. {SOURCES[name]}")
    root = Path(directory or ".")
    if name == "cifar10" and not (root / "cifar-10-batches-py" / "data_batch_1").exists():
        raise _missing(name, root / "cifar-10-batches-py")
    if name in ("femnist", "sent140"):
        _leaf_files(name, root)


def _missing(name: str, path: Path) -> SettingError:
    return SettingError(f"Data set {name!r} is not at {path}. {SOURCES[name]}")


def digits(directory: Path) -> Dataset:
    from sklearn.datasets import load_digits

    found = load_digits()
    x = (found.images / 16.0).astype(np.float32)[:, None]
    return Dataset("digits", x, found.target.astype(np.int64), 10)


def cifar10(directory: Path) -> Dataset:
    folder = directory / "cifar-10-batches-py"
    batches = [_cifar_batch(folder / f"data_batch_{b}") for b in range(1, 6)]
    rows = np.concatenate([data for data, _ in batches]).reshape(-1, 3, 32, 32)
    # The published per-channel means and deviations of the training images.
    mean = np.array([0.4914, 0.4822, 0.4465], dtype=np.float32)[:, None, None]
    deviation = np.array([0.247, 0.2435, 0.2616], dtype=np.float32)[:, None, None]
    x = (rows.astype(np.float32) / 255.0 - mean) / deviation
    return Dataset("cifar10", x, np.concatenate([labels for _, labels in batches]), 10)


def _cifar_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        raw = path.read_bytes()
    except OSError:
        raise _missing("cifar10", path) from None
    try:
        batch = _Arrays(io.BytesIO(raw), encoding="bytes").load()
        batch = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        data, labels = np.asarray(batch["data"], dtype=np.uint8), np.asarray(batch["labels"], dtype=np.int64)
    except (pickle.UnpicklingError, EOFError, KeyError, AttributeError, ValueError) as error:
        raise SettingError(f"{path} is not a CIFAR-10 python batch ({error}). {SOURCES['cifar10']}") from error
    if data.shape != (len(labels), 3072):
        raise SettingError(f"{path} holds data of shape {data.shape} for {len(labels)} labels, not (N, 3072).")
    return data, labels


class _Arrays(pickle.Unpickler):
    """Reads arrays and plain values only: a downloaded pickle must not be able to run anything."""

    ALLOWED = {
        ("_codecs", "encode"),
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it wants to load {module}.{name}")
        if name == "_reconstruct":
            return np.zeros(0).__reduce__()[0]  # wherever this NumPy keeps it
        return super().find_class(module, name)


def femnist(directory: Path) -> Dataset:
    """LEAF images are 784 numbers with white paper at 1.0; the pen is made 1 here, the paper 0."""
    users = _leaf("femnist", directory)
    x = np.concatenate([np.asarray(u["x"], dtype=np.float32) for u in users.values()]).reshape(-1, 1, 28, 28)
    y = np.concatenate([np.asarray(u["y"], dtype=np.int64) for u in users.values()])
    classes = 10 if y.max() < 10 else 62
    return Dataset("femnist", 1.0 - x, y, classes, _owners(users))


def sent140(directory: Path, vocabulary: int = 4000) -> Dataset:
    """Tweets as token ids, by frequency: 0 pads, 1 is any word beyond the `vocabulary` most frequent ones."""
    users = _leaf("sent140", directory)
    texts = [tokens(row[4]) for u in users.values() for row in u["x"]]
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: vocabulary - 2]
    ids = {word: k + 2 for k, word in enumerate(ranked)}
    x = np.full((len(texts), WORDS), PADDING, dtype=np.int64)
    for row, text in zip(x, texts, strict=True):
        kept = [ids.get(word, UNKNOWN) for word in text[:WORDS]]
        row[len(row) - len(kept) :] = kept  # padded in front: the last state has read the whole text
    y = np.array([label for u in users.values() for label in u["y"]], dtype=np.int64)
    return Dataset("sent140", x, y, 2, _owners(users), vocabulary)


def tokens(text: str) -> list[str]:
    """Words and single marks, lower case.

    >>> tokens("I'm happy :) #win")
    ["i'm", 'happy', ':', ')', '#win']
    """
    return re.findall(r"[#@]?\w+(?:'\w+)?|[^\w\s]", text.lower())


def _leaf(name: str, directory: Path) -> dict[str, Mapping[str, Any]]:
    """The users of all LEAF files, in file and user order."""
    users: dict[str, Mapping[str, Any]] = {}
    for path in _leaf_files(name, directory):
        try:
            users.update(json.loads(path.read_bytes())["user_data"])
        except (ValueError, KeyError, TypeError) as error:
            raise SettingError(f"{path} is not a LEAF file ({error!r}). {SOURCES[name]}") from error
    return users


def _leaf_files(name: str, directory: Path) -> list[Path]:
    root = directory / name
    paths = sorted((root / "train").glob("*.json")) or sorted(root.glob("*.json"))
    if not paths:
        raise _missing(name, root / "train")
    return paths


def _owners(users: Mapping[str, Mapping[str, Any]]) -> np.ndarray:
    return np.repeat(np.arange(len(users)), [len(u["y"]) for u in users.values()])


def fashion_mnist(directory: Path) -> Dataset:
    root = directory / "fashion-mnist"
    if not root.exists() and DEBIAN_FASHION.exists():
        root = DEBIAN_FASHION
    images, labels = _idx(root / "train-images-idx3-ubyte.gz"), _idx(root / "train-labels-idx1-ubyte.gz")
    return Dataset("fashion-mnist", (images / 255.0).astype(np.float32)[:, None], labels.astype(np.int64), 10)


def _idx(path: Path) -> np.ndarray:
    """An IDX file of unsigned bytes: 2 zero bytes, type 8, number of axes, sizes, values."""
    try:
        raw = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise _missing("fashion-mnist", path) from None
    except (OSError, EOFError) as error:
        raise SettingError(f"{path} cannot be unpacked ({error}). {SOURCES['fashion-mnist']}") from error
    if raw[:3] != b"\x00\x00\x08":
        raise SettingError(f"{path} is not an IDX file of bytes. {SOURCES['fashion-mnist']}")
    shape = np.frombuffer(raw, dtype=">u4", count=raw[3], offset=4).astype(int)
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


READERS: dict[str, Callable[..., Dataset]] = {
    "cifar10": cifar10,
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "femnist": femnist,
    "sent140": sent140,
}
SOURCES = {
    "cifar10": "Get the python version from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it there, so that "
    "DIR/cifar-10-batches-py/data_batch_1 exists.",
    "femnist": "Make it with https://github.com/TalwalkarLab/leaf (data/femnist, preprocess.sh -s niid --sf 0.2 -t "
    "sample) and copy its data/train/*.json to DIR/femnist/train/.",
    "sent140": "Make it with https://github.com/TalwalkarLab/leaf (data/sent140, preprocess.sh -s niid --sf 0.15) and "
    "copy its *.json to DIR/sent140/train/.",
    "fashion-mnist": "Install Debian's dataset-fashion-mnist, or put train-images-idx3-ubyte.gz and "
    "train-labels-idx1-ubyte.gz in DIR/fashion-mnist/.",
}
