"""Presets: `quick` for minutes, `paper` for the paper's own scale and settings. Each study reads its own section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import yaml

from ..checks import nearest
from ..errors import SettingError

NAMES = ("quick", "paper")


def load(name: str) -> dict[str, Any]:
    """The preset's mapping: `data`, `economies` and `studies`."""
    if name not in NAMES:
        raise SettingError(f"There is no preset {name!r}.{nearest(name, NAMES)}")
    return yaml.safe_load((resources.files(__package__) / "presets" / f"{name}.yaml").read_text(encoding="utf-8"))


def of_study(name: str, preset: str, **changes: Any) -> dict[str, Any]:
    """What one study needs of a preset; `changes` replace settings of the study itself (not None ones only)."""
    whole = load(preset)
    study = {**whole["studies"][name], **{key: value for key, value in changes.items() if value is not None}}
    wanted = study.get("data", [])
    wanted = [wanted] if isinstance(wanted, str) else wanted
    for data in wanted:
        if data not in whole["data"]:
            raise SettingError(f"Preset {preset!r} has no data set {data!r}.{nearest(data, whole['data'])}")
    return {
        "study": study,
        "data": {data: whole["data"][data] for data in wanted},
        "economies": {e: whole["economies"][e] for e in study.get("economies", whole["economies"])},
        **({"keep_rounds": True} if whole.get("keep_rounds") else {}),
    }


def kept(name: str, preset: str, parts: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], list[str]]:
    """What is kept of a study's lists, each value as a text, and how many they are.

    >>> kept("adversarial", "paper", {"alphas": ["0.1", "0.2"]})
    ({'alphas': [0.1, 0.2]}, ['alphas: 2 of 8'])
    """
    study = load(preset)["studies"][name]
    lists = [key for key, value in study.items() if isinstance(value, list) and key != "data"]
    found: dict[str, Any] = {}
    for key, wanted in parts.items():
        if key not in lists:
            raise SettingError(f"--only {key}: study {name!r} has no such list; it has {', '.join(lists) or 'none'}.")
        odd = [value for value in wanted if value not in map(str, study[key])]
        if odd or not wanted:
            raise SettingError(
                f"--only {key}: preset {preset!r} has {', '.join(map(str, study[key]))}, not {', '.join(odd)!r}."
            )
        found[key] = [value for value in study[key] if str(value) in wanted]
    cut_to = [f"{key}: {len(values)} of {len(study[key])}" for key, values in found.items()]
    return found, cut_to
