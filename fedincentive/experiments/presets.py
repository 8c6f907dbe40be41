"""Presets: `quick` for minutes, `paper` for the paper's own scale and settings. Each study reads its own section."""

from __future__ import annotations

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
