"""The run's manifest: what an auditor needs beside the ledger, written by the center and read by reports.

It holds settings, versions and agents, the ledger heads the run saw, and at the end the outcome and the certificate:
what the chain of hashes does not cover, and the checkpoints that leave the database.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__
from .entry import Entry
from .errors import FedIncentiveError, RunError
from .files import replace
from .game import Certificate
from .ledger import Checkpoint, Receipt
from .payments import quantise
from .run import Run

FILE = "manifest.json"
DEFAULT = "ledger.sqlite"  # as hosts name the ledger that state/ belongs to
PRIVATE = ("audit_seed", "keys", "ledger", "state")  # secrets, and addresses, which may hold a password
ENDING = ("status", "advice", "contributed", "trained", "counts", "digest")
Points = dict[str, Fraction]


class Manifest:
    """Plain values, kept in the state and written out whenever the ledger grows."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    @classmethod
    def begin(cls, run: Run, mechanism: str) -> Manifest:
        settings = {key: value for key, value in run.settings.plain().items() if key not in PRIVATE}
        versions = {"fedincentive": __version__, "python": platform.python_version(), "numpy": np.__version__}
        agents = {name: {"s_max": run.limits[name], "s0": s0} for name, s0 in run.points(run.s0).items()}
        return cls(
            {
                "run": run.settings.run,
                "mechanism": mechanism,
                "seed": run.settings.seed,
                "settings": settings,
                "versions": versions,
                "agents": agents,
                "checkpoints": [],
            }
        )

    @property
    def head(self) -> str | None:
        return None if self.seen is None else self.seen.hash

    @property
    def seen(self) -> Checkpoint | None:
        """The ledger as this run saw it last: count and hash, as `ledger verify --checkpoint` takes them."""
        checkpoints = self.values["checkpoints"]
        return Checkpoint(checkpoints[-1]["count"], checkpoints[-1]["hash"]) if checkpoints else None

    def checkpoint(self, entry: Entry, receipt: Receipt) -> None:
        """One line per entry; an entry appended again after a crash has its line already or gets it now."""
        line = {"round": entry.round, "kind": entry.kind, "count": receipt.seq, "hash": receipt.hash}
        if line not in self.values["checkpoints"][-2:]:
            self.values["checkpoints"].append(line)

    def write(self, directory: Path, outcome: Mapping[str, Any] | None, certificate: Certificate | None) -> None:
        """For reading only: the state has all of it, so it is whole after a crash but need not be the newest."""
        certified = None if certificate is None else certificate.to_json()
        values = {**self.values, "outcome": outcome, "certificate": certified}
        text = json.dumps(values, sort_keys=True, indent=1).encode()
        replace(directory / FILE, lambda file: file.write(text), durable=False)


@dataclass(frozen=True)
class SavedRun:
    """What a run's manifest says; empty where it has left none."""

    run: str = ""
    mechanism: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    first: Points = field(default_factory=dict)  # at enrolment
    last: Points = field(default_factory=dict)  # at the end
    valuations: Mapping[str, int] = field(default_factory=dict)  # in minor units
    cost: Mapping[str, Fraction] = field(default_factory=dict)  # per point, of those in `last`
    outcome: Mapping[str, Any] = field(default_factory=dict)  # how it ended; empty while it is under way
    certificate: Certificate | None = None

    @classmethod
    def read(cls, path: Path) -> SavedRun:
        try:
            return cls._of(json.loads(path.read_text("utf-8")))
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
            ArithmeticError,
            FedIncentiveError,
        ) as error:
            raise RunError(
                f"{path} is not the manifest of a run ({type(error).__name__}: {error}). Restore it, or move it away "
                "to report on the ledger alone."
            ) from error

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> SavedRun:
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
            certificate=Certificate.from_json(values["certificate"]) if values.get("certificate") else None,
        )


def certified(directory: Path) -> bool:
    """Whether the manifest there has a run's certificate already: reading the finished run again must not lose it."""
    try:
        return bool(json.loads((directory / FILE).read_bytes())["certificate"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def find(run: Path) -> Path:
    """The manifest of a run that is named by its folder, its state folder, or the manifest itself."""
    for place in (run, run / FILE, run / "state" / FILE):
        if place.is_file():
            return place
    raise RunError(
        f"There is no {FILE} in {run}, nor in {run / 'state'}: name the folder of a run that kept its state."
    )


def beside(ledger: str, runs: Collection[str]) -> dict[str, SavedRun]:
    """The manifests that belong to a ledger file which holds these runs, by run."""
    if "://" in ledger:
        return {}
    found = {manifest.run: manifest for manifest in map(SavedRun.read, _places(Path(ledger)))}
    return {run: manifest for run, manifest in found.items() if run in runs or Path(ledger).name == DEFAULT}


def _places(ledger: Path) -> Iterator[Path]:
    """FedML and Flower keep a run's state in state/, `fedincentive play` in LEDGER.runs/RUN/."""
    yield from ledger.parent.glob(f"state/{FILE}")
    yield from sorted(Path(f"{ledger}.runs").glob(f"*/{FILE}"))
