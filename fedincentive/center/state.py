"""The state of a run on disk: one small JSON file, replaced after every round, and the model beside it.

    state.json            everything but arrays, entries still to be appended, and which model belongs to it
    model-N.safetensors   w and the optimizer's arrays after N training rounds (not written in scalar rounds)
    agents.json           what in-process agents must remember
    manifest.json         for people and auditors (see `fedincentive.manifest`)

The model is on disk before the state that names it; the state is replaced in one step. No pickle anywhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..aggregation import StoredUpdate, store
from ..errors import AggregationError, RunError
from ..files import PARTIAL, replace
from ..ledger import Ledger
from ..run import Run
from ..settings import Settings

STATE, AGENTS = "state.json", "agents.json"
SPARE = ".spare"  # the model before, which the next one is written over
# These may differ when a run is resumed: they say where and how patiently it is played, not what is played.
FREE = ("resume", "state", "ledger", "keys", "quorum", "repeats", "spill")
Arrays = Mapping[str, Mapping[str, np.ndarray]]  # group (w, first, second, last) -> name -> array


def exists(directory: Path) -> bool:
    return (directory / STATE).exists()


def refuse_existing(run: str, directory: Path | None, ledger: Ledger | None) -> None:
    """A new run may not overwrite one that exists, nor go on in its entries."""
    if directory is not None and exists(directory):
        raise RunError(
            f"Run {run!r} exists in {directory}: set resume: true to continue it, or give the new run another name."
        )
    if ledger is not None and next(ledger.entries(run), None) is not None:
        raise RunError(
            f"The ledger has entries of run {run!r}, but its state is not here: give the new run another name, or "
            "resume it where its state is."
        )


def save(directory: Path, values: Mapping[str, Any], model: str, arrays: Arrays) -> None:
    """Replace the state; the model file is written only when it is not there yet."""
    directory.mkdir(parents=True, exist_ok=True)
    new = not (directory / model).exists()
    if new:
        flat = {f"{group}:{name}": array for group, named in arrays.items() for name, array in named.items()}
        try:
            store(directory / model, flat, durable=True, over=directory / SPARE)
        except AggregationError as error:
            raise RunError(f"{error} Remove the cause and resume; the last round that closed is safe.") from error
    write_json(directory / STATE, {**values, "model": model})
    if new:
        for old in directory.glob("model-*"):
            if old.name != model:
                os.replace(old, directory / SPARE)


def tidy(directory: Path) -> None:
    """The run is over: no further model comes."""
    (directory / SPARE).unlink(missing_ok=True)


def load(directory: Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """The saved values and arrays; anything wrong is a RunError that names the file."""
    for left in directory.glob(PARTIAL):  # by a process that was killed
        left.unlink(missing_ok=True)
    values = read_json(directory / STATE)
    if values is None:
        raise RunError(f"There is no saved run in {directory}: start it without resume.")
    path = directory / values["model"]
    groups: dict[str, dict[str, np.ndarray]] = {"w": {}, "first": {}, "second": {}, "last": {}}
    try:
        with StoredUpdate(path) as file:
            for label in file:
                group, name = label.split(":", 1)
                groups[group][name] = file[label]
    except (AggregationError, ValueError, KeyError) as error:
        raise RunError(
            f"{path} is missing or damaged ({error}): restore it from a backup or start a new run."
        ) from error
    return values, groups


def run_to_json(run: Run) -> dict[str, Any]:
    return {f.name: getattr(run, f.name) for f in fields(run) if f.name != "settings"}


def run_from_json(values: Mapping[str, Any], settings: Settings, directory: Path) -> Run:
    expected = {f.name for f in fields(Run)} - {"settings"}
    if set(values) != expected:
        odd = sorted(set(values) ^ expected)[0]
        raise RunError(
            f"The run in {directory} was saved by another version of fedincentive ({odd!r} differs): resume it with "
            "that version, or start a new run."
        )
    tuples = {name: tuple(values[name]) for name in ("agents", "asked", "short")}
    return Run(settings, **{**values, **tuples})


def lasting(settings: Settings) -> dict[str, Any]:
    """The settings that a resumed run must have again; the others, a database's password among them, are not kept."""
    return {key: value for key, value in settings.plain().items() if key not in FREE}


def same_settings(saved: Mapping[str, Any], settings: Settings, directory: Path) -> None:
    """A resumed run must be played as it was begun."""
    for key, value in lasting(settings).items():
        if key in saved and saved[key] != value:
            raise RunError(
                f"The run in {directory} was begun with {key} = {saved[key]!r}, not {value!r}: resume it with the same "
                "settings, or start a new run."
            )


def write_json(path: Path, values: Any) -> None:
    text = json.dumps(values, sort_keys=True).encode()
    replace(path, lambda file: file.write(text))


def read_json(path: Path) -> Any:
    """The file's value, or None where it is not there."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}): restore it from a backup or start a new run.") from error
