"""The state of a run on disk: one small JSON file per run, replaced after every round, and the model beside it.

    state.json      everything but arrays, and which model file belongs to it
    model-N.npz     w and the optimizer's arrays after N training rounds (not written in scalar rounds)
    manifest.json   for people and auditors: settings, versions, agents, ledger checkpoints

The model is on disk before the state that names it; the state is replaced in one step. No pickle anywhere.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RunError

STATE, MANIFEST = "state.json", "manifest.json"
Arrays = Mapping[str, Mapping[str, np.ndarray]]  # group (w, first, second) -> name -> array


def exists(directory: Path) -> bool:
    return (directory / STATE).exists()


def save(directory: Path, values: Mapping[str, Any], arrays: Arrays | None, model: str) -> None:
    """Replace the state. `arrays` is None when `model` names a file that is there already."""
    directory.mkdir(parents=True, exist_ok=True)
    if arrays is not None:
        flat = {f"{group}:{name}": array for group, named in arrays.items() for name, array in named.items()}
        replace(directory / model, lambda file: np.savez(file, **{f"a{k}": a for k, a in enumerate(flat.values())}))
        values = {**values, "arrays": list(flat)}
    text = json.dumps({**values, "model": model}, sort_keys=True).encode()
    replace(directory / STATE, lambda file: file.write(text))
    if arrays is not None:
        for old in directory.glob("model-*.npz"):
            if old.name != model:
                old.unlink()


def load(directory: Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """The saved values and arrays; anything wrong is a RunError that names the file."""
    path = directory / STATE
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(f"There is no saved run in {directory}: start it without resume.") from None
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}): restore it from a backup or start a new run.") from error
    path = directory / values["model"]
    groups: dict[str, dict[str, np.ndarray]] = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for k, label in enumerate(values["arrays"]):
                group, name = label.split(":", 1)
                groups.setdefault(group, {})[name] = file[f"a{k}"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise RunError(
            f"{path} is missing or damaged ({error}): restore it from a backup or start a new run."
        ) from error
    return values, groups


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    replace(path, lambda file: file.write(json.dumps(values, indent=1, sort_keys=True).encode()))


def replace(path: Path, write: Any) -> None:
    """Write a file so that after a crash either the old or the new one is there, whole."""
    temporary = path.with_name(f".{path.name}.new")
    with open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
