"""The state of a run on disk: one small JSON file, replaced after every round, and the model beside it.

    state.json            everything but arrays, entries still to be appended, and which model belongs to it
    model-N.safetensors   w and the optimizer's arrays after N training rounds (not written in scalar rounds)
    checkpoints.jsonl     the ledger after each entry, and manifest.json, for auditors (see `fedincentive.manifest`)
    lock                  who plays the run (see `lock.py`)

The model is on disk before the state that names it; the state is replaced in one step. Its own digest and those of the
files it rests on are in it: what is damaged, stale or not there is named, never played on. No pickle anywhere.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import manifest
from ..aggregation import StoredUpdate, store
from ..errors import AggregationError, RunError
from ..files import PARTIAL
from ..ledger import Ledger
from ..run import Run
from ..sealed import read_json, write_text, written
from ..settings import Settings

STATE = "state.json"
FORMAT = 2
SPARE = ".spare"  # the model before, which the next one is written over
# These may differ when a run is resumed: they say where and how patiently it is played, not what is played.
FREE = ("resume", "state", "ledger", "keys", "tags", "quorum", "repeats", "spill")
Arrays = Mapping[str, Mapping[str, np.ndarray]]  # group (w, first, second, last) -> name -> array
Model = Mapping[str, str]  # the name of its file, and its digest


def exists(directory: Path) -> bool:
    """Also where the state itself was lost: the manifest is written after it."""
    return any((directory / name).exists() for name in (STATE, manifest.FILE))


def refuse_existing(run: str, directory: Path | None, ledger: Ledger | None) -> None:
    """A new run may not overwrite one that exists, nor go on in its entries."""
    if directory is not None and exists(directory):
        raise RunError(
            f"Run {run!r} exists in {directory}: set resume: true to continue it (--resume in `fedincentive play`), or "
            "give the new run another name."
        )
    if ledger is not None and next(ledger.entries(run), None) is not None:
        raise RunError(
            f"The ledger has entries of run {run!r}, but its state is not here: give the new run another name, or "
            "resume it where its state is."
        )


def save_model(directory: Path, trained: int, arrays: Arrays) -> Model:
    """Write the model of a state that is to be saved next; one that an interrupted save left is replaced."""
    path = directory / f"model-{trained}.safetensors"
    flat = {f"{group}:{name}": array for group, named in arrays.items() for name, array in named.items()}
    try:
        store(path, flat, durable=True, over=directory / SPARE)
        with StoredUpdate(path) as file:
            return {"file": path.name, "digest": file.digest()}
    except AggregationError as error:
        raise RunError(f"{error} Remove the cause and resume; the last round that closed is safe.") from error


class Texts:
    """A state as JSON. What seldom changes is most of it, and is written once and not again with every round."""

    STEADY = frozenset(
        ("agents", "anchors", "commitments", "duplicates", "enrolled", "limits", "manifest", "s0", "s_max")
        + ("settings", "terms")
    )

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, str]] = {}

    def state(self, values: Mapping[str, Any]) -> str:
        """The bytes of `json.dumps(values, sort_keys=True)`."""
        return self._mapping(values, "")

    def _mapping(self, values: Mapping[str, Any], path: str) -> str:
        parts = []
        for name, value in sorted(values.items()):
            place = f"{path}{name}"
            text = self._mapping(value, "run.") if place == "run" else self._text(place, name, value)
            parts.append(f"{written(name)}: {text}")
        return f"{{{', '.join(parts)}}}"

    def _text(self, place: str, name: str, value: Any) -> str:
        if name not in self.STEADY:
            return written(value)
        if place not in self._known or self._known[place][0] != value:
            self._known[place] = copy.deepcopy(value), written(value)
        return self._known[place][1]


def save(directory: Path, values: Mapping[str, Any], model: Model, texts: Texts, kept: Collection[str] = ()) -> None:
    """Replace the state; models of other states are not needed any more, except those that are to be kept."""
    write_text(directory / STATE, texts.state({**values, "model": model, "format": FORMAT}))
    for old in directory.glob("model-*"):
        if old.name != model["file"] and old.name not in kept:
            os.replace(old, directory / SPARE)


def tidy(directory: Path) -> None:
    """The run is over: no further model comes."""
    (directory / SPARE).unlink(missing_ok=True)


def load(directory: Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """The saved values and arrays; anything wrong is a RunError that names the file."""
    if not exists(directory):
        raise RunError(f"There is no saved run in {directory}: start it without resume.")
    for left in directory.glob(PARTIAL):  # by a process that was killed
        left.unlink(missing_ok=True)
    values = read_json(directory / STATE)
    if values is None:
        raise RunError(f"{directory / STATE} is missing: restore it from a backup or start a new run elsewhere.")
    if values.get("format") != FORMAT:
        raise _other_version(directory, "format")
    return values, load_model(directory, values["model"])


def load_model(directory: Path, model: Model) -> dict[str, dict[str, np.ndarray]]:
    """The arrays of a saved model by group."""
    path = directory / model["file"]
    groups: dict[str, dict[str, np.ndarray]] = {"w": {}, "first": {}, "second": {}, "last": {}, "begun": {}, "own": {}}
    try:
        with StoredUpdate(path) as file:
            if file.digest() != model["digest"]:
                raise ValueError("it is not the model that was saved with the state")
            for label in file:
                group, name = label.split(":", 1)
                groups[group][name] = file[label]
    except (AggregationError, ValueError, KeyError, OSError) as error:
        raise RunError(
            f"{path} is missing or damaged ({error}): restore it from a backup or start a new run."
        ) from error
    return groups


def run_to_json(run: Run) -> dict[str, Any]:
    return {f.name: getattr(run, f.name) for f in fields(run) if f.name != "settings"}


def run_from_json(values: Mapping[str, Any], settings: Settings, directory: Path) -> Run:
    expected = {f.name for f in fields(Run)} - {"settings"}
    if set(values) != expected:
        odd = sorted(set(values) ^ expected)[0]
        raise _other_version(directory, odd)
    tuples = {name: tuple(values[name]) for name in ("agents", "asked", "drawn", "short")}
    return Run(settings, **{**values, **tuples})


def lasting(settings: Settings) -> dict[str, Any]:
    """The settings that a resumed run must have again; the others, a database's password among them, are not kept."""
    return {key: value for key, value in settings.plain().items() if key not in FREE}


def as_begun(settings: Settings, directory: Path | None) -> Settings:
    """The settings of a run to resume: one that was begun with a step size, as all once were, keeps it."""
    if directory is None or settings.gamma is not None or not (settings.resume and (directory / STATE).exists()):
        return settings
    saved = (read_json(directory / STATE) or {}).get("settings", {}).get("gamma")
    return settings if saved is None else replace(settings, gamma=saved)


def same_settings(saved: Mapping[str, Any], settings: Settings, directory: Path) -> None:
    """A resumed run must be played as it was begun."""
    for key, value in lasting(settings).items():
        if key in saved and saved[key] != value:
            raise RunError(
                f"The run in {directory} was begun with {key} = {saved[key]!r}, not {value!r}: resume it with the same "
                "settings, or start a new run."
            )


def _other_version(directory: Path, odd: str) -> RunError:
    return RunError(
        f"The run in {directory} was saved by another version of fedincentive ({odd!r} differs): resume it with that "
        "version, or start a new run."
    )
