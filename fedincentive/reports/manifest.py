"""The manifest that a run leaves beside its ledger: what the chain does not cover, and the heads the run saw."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..errors import FedIncentiveError, RunError
from ..ledger import Checkpoint
from ..payments import quantise

DEFAULT = "ledger.sqlite"  # as FedML's and Flower's hosts name the ledger that state/ belongs to
PRIVATE = ("ledger", "state", "keys")  # addresses, which may hold a password
ENDING = ("status", "advice", "contributed", "trained", "counts")
Points = dict[str, Fraction]


@dataclass(frozen=True)
class Manifest:
    """Empty where a run has left none."""

    run: str = ""
    mechanism: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    first: Points = field(default_factory=dict)  # at enrolment
    last: Points = field(default_factory=dict)  # at the end
    valuations: Mapping[str, int] = field(default_factory=dict)  # in minor units
    cost: Mapping[str, Fraction] = field(default_factory=dict)  # per point, of those in `last`
    outcome: Mapping[str, Any] = field(default_factory=dict)  # how it ended; empty while it is under way

    @classmethod
    def read(cls, path: Path) -> Manifest:
        try:
            return cls._of(json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, FedIncentiveError) as error:
            raise RunError(
                f"{path} is not the manifest of a run ({type(error).__name__}: {error}). Restore it, or move it away "
                "to report on the ledger alone."
            ) from error

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> Manifest:
        settings, outcome = values["settings"], values["outcome"] or {}
        scale, minor, cost = settings["scale"], settings["minor"], settings["cost"] or 0
        last = {agent: Fraction(quantise(float(s), scale), scale) for agent, s in outcome.get("s", {}).items()}
        per_point = {agent: cost.get(agent, 0) if isinstance(cost, dict) else cost for agent in last}
        enrolled = {agent: float(given["s0"]) for agent, given in values["agents"].items()}
        return cls(
            run=values["run"],
            mechanism=values["mechanism"],
            settings={key: value for key, value in settings.items() if key not in PRIVATE},
            checkpoints=tuple(Checkpoint(int(c["count"]), str(c["hash"])) for c in values["checkpoints"]),
            first={agent: Fraction(quantise(s0, scale), scale) for agent, s0 in enrolled.items()},
            last=last,
            valuations={a: quantise(float(v), minor) for a, v in outcome.get("valuations", {}).items()},
            cost={agent: Fraction(str(c)) for agent, c in per_point.items()} if any(per_point.values()) else {},
            outcome={key: outcome[key] for key in ENDING} if outcome else {},
        )


def beside(ledger: str, runs: Collection[str]) -> dict[str, Manifest]:
    """The manifests that belong to a ledger file which holds these runs, by run."""
    if "://" in ledger:
        return {}
    found = {manifest.run: manifest for manifest in map(Manifest.read, _places(Path(ledger)))}
    return {run: manifest for run, manifest in found.items() if run in runs or Path(ledger).name == DEFAULT}


def _places(ledger: Path) -> Iterator[Path]:
    """FedML and Flower keep a run's state in state/, `fedincentive play` in LEDGER.runs/RUN/."""
    yield from ledger.parent.glob("state/manifest.json")
    yield from sorted(Path(f"{ledger}.runs").glob("*/manifest.json"))
