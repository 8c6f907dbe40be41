"""Update files of other programs: torch.save's, NumPy's, and models that Hugging Face splits over several files.

Nothing in a file is executed: torch loads weights only, NumPy no pickles.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AggregationError
from .stored import StoredUpdate, Way

TORCH, NUMPY = (".pt", ".pth", ".bin", ".ckpt"), (".npz", ".npy")
INDEX = ".index.json"
MODELS = ("model.safetensors", "adapter_model.safetensors", "pytorch_model.bin", "adapter_model.bin")
KNOWN = (".safetensors", *TORCH, *NUMPY, INDEX)


class ShardedUpdate(StoredUpdate):
    """An update whose entries are in several safetensors files, as an index.json says."""

    def __init__(self, path: Path, who: str | None = None) -> None:
        self.path, self.who, self.way, self.shards = path, who, Way.COPIED, []
        self._direct = -1
        files = shard_files(path, who)
        try:
            opened: dict[Path, StoredUpdate] = {}
            for file in files.values():
                if file not in opened:
                    opened[file] = StoredUpdate(file, who)
                    self.shards.append(opened[file])
            missing = [name for name, file in files.items() if name not in opened[file].slots]
            if missing:
                raise AggregationError(f"{self} names entries that are not in their files: {missing}.")
        except BaseException:
            self.close()
            raise
        self._owner = {name: opened[file] for name, file in files.items()}
        self.slots = {name: owner.slots[name] for name, owner in self._owner.items()}
        self.metadata = self.shards[0].metadata if self.shards else {}

    @property
    def closed(self) -> bool:
        return any(shard.closed for shard in self.shards)

    @property
    def identity(self) -> tuple[object, ...]:
        status = os.stat(self.path)
        return status.st_dev, status.st_ino

    def close(self) -> None:
        for shard in self.shards:
            shard.close()

    def read_into(self, values: np.ndarray, name: str, start: int) -> None:
        self._owner[name].read_into(values, name, start)

    def where(self, name: str) -> tuple[int, int, int, bool, int, int]:
        return self._owner[name].where(name)

    def choose_way(self) -> Way:
        ways = {shard.choose_way() for shard in self.shards}
        return next((way for way in (Way.DIRECT, Way.MAPPED) if way in ways), Way.COPIED)

    def check_apart(self, out: str | Path) -> None:
        for shard in self.shards:
            shard.check_apart(out)


def open_update(path: str | Path, who: str | None = None) -> StoredUpdate | Mapping[str, Any]:
    """The update in a file or in a model's folder: read piece by piece where it is safetensors, else whole."""
    path = found(Path(path))
    if path.name.endswith(INDEX):
        return sharded(path, who)
    if path.suffix in TORCH:
        return from_torch(path, who)
    return from_numpy(path, who) if path.suffix in NUMPY else StoredUpdate(path, who)


def found(path: Path) -> Path:
    """The file that holds the update of a model's folder; a file is itself."""
    if not path.is_dir():
        return path
    indices = sorted(path.glob(f"*{INDEX}"))
    models = indices or [path / name for name in MODELS if (path / name).is_file()]
    if len(models) != 1:
        known = ", ".join(MODELS)
        raise AggregationError(
            f"The folder {path} is not one client's update: it has {len(models)} of *{INDEX}, {known}. Name the file."
        )
    return models[0]


def expanded(paths: Iterable[Path]) -> list[Path]:
    """Every client's file: a folder that is not a model's stands for the update files in it, by their names."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir() or any(path.glob(f"*{INDEX}")) or any((path / name).is_file() for name in MODELS):
            files.append(path)
            continue
        inside = sorted(p for p in path.iterdir() if p.is_dir() or p.name.endswith(KNOWN))
        if not inside:
            raise AggregationError(f"The folder {path} has no update files ({', '.join(KNOWN)}).")
        files += inside
    return files


def sharded(path: Path, who: str | None) -> StoredUpdate | Mapping[str, Any]:
    if not path.name.endswith(f".bin{INDEX}"):
        return ShardedUpdate(path, who)
    files = dict.fromkeys(shard_files(path, who).values())
    return {name: array for file in files for name, array in from_torch(file, who).items()}


def shard_files(path: Path, who: str | None) -> dict[str, Path]:
    """The file of every entry, as an index.json says. All are in its folder."""
    try:
        index = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise AggregationError(f"{called(path, who)} is not an index of shards ({error}).") from error
    entries = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(file, str) for file in entries.values()):
        raise AggregationError(
            f"{called(path, who)} is not an index of shards: it needs a weight_map, from entries to names of files."
        )
    for file in entries.values():
        if "\0" in file or any("\ud800" <= character <= "\udfff" for character in file):
            raise AggregationError(f"{called(path, who)} names the shard {file!r}, and no file can have that name.")
        if Path(file).is_absolute() or ".." in Path(file).parts:
            raise AggregationError(f"{called(path, who)} names the shard {file!r}, which is not in its own folder.")
    return {name: path.parent / file for name, file in entries.items()}


def from_torch(path: Path, who: str | None) -> Mapping[str, Any]:
    """What torch.save wrote, of tensors alone; of a training checkpoint the state_dict in it."""
    try:
        torch = import_module("torch")  # whoever has such files has it; nothing else here needs it
    except ImportError as error:
        raise AggregationError(f"{called(path, who)} is read by torch, which is not installed.") from error
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch has many, from pickle's to zip's
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise AggregationError(
            f"{called(path, who)} cannot be loaded as weights only, and nothing else is: {first[:200]}"
        ) from error
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        kinds = sorted({type(value).__name__ for value in loaded.values()}) if isinstance(loaded, Mapping) else []
        raise AggregationError(
            f"{called(path, who)} is not a state_dict but a {type(loaded).__name__} of {', '.join(kinds) or 'others'}."
        )
    return loaded


def from_numpy(path: Path, who: str | None) -> Mapping[str, Any]:
    try:
        loaded = np.load(path, allow_pickle=False)
        return {"values": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except Exception as error:
        raise AggregationError(f"{called(path, who)} cannot be read as NumPy arrays: {error}.") from error


def called(path: Path, who: str | None) -> str:
    return f"The update file {path}" + (f" of client {who!r}" if who else "")
