"""The run's manifest: what an auditor needs beside the ledger, written by the center and read by reports.

It holds settings, versions and agents, and at the end the outcome and the certificate: what the chain of hashes does
not cover. The ledger heads the run saw leave the database in a file of their own, which grows by a line for each entry;
at the end the manifest has them too. The checkpoints that agents cosigned are in another such file, the last one in the
manifest.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__
from .checks import fraction
from .entry import Entry
from .errors import FedIncentiveError, RunError
from .files import reason, replace, sync_directory
from .game import Certificate, Game, outside_options
from .ledger import Checkpoint, Receipt
from .payments import quantise
from .run import Run
from .sealed import written

FILE = "manifest.json"
CHECKPOINTS = "checkpoints.jsonl"
NOTES = "notes.jsonl"
RUNS = "fedincentive-runs"  # where runs are kept unless they are told otherwise
RECEIPTS = "receipts"  # of the agents that are played beside the center, a folder for each
DEFAULT = "ledger.sqlite"  # as hosts name the ledger that state/ belongs to
PRIVATE = ("audit_seed", "keys", "ledger", "state")  # secrets, and addresses, which may hold a password
ENDING = ("status", "advice", "contributed", "trained", "counts", "digest")
Points = dict[str, Fraction]


class Heads:
    """The ledger as the run saw it after each entry: a file that only grows, in `folder` where there is one.

    The state names the part that is certain (`seen`); lines after it are made again with the entries they are of.
    """

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / CHECKPOINTS
        self.last: Checkpoint | None = None
        self._size, self._digest = 0, sha256()

    @classmethod
    def restore(cls, folder: Path, seen: Mapping[str, Any]) -> Heads:
        self = cls(folder)
        if seen["size"]:
            self._size, self.last = seen["size"], Checkpoint(*seen["last"])
            self._digest = sha256(self._read(seen["sha256"]))
        return self

    def seen(self) -> dict[str, Any]:
        last = None if self.last is None else [self.last.count, self.last.hash, self.last.ledger]
        return {"size": self._size, "sha256": self._digest.hexdigest(), "last": last}

    def add(self, entries: Sequence[Entry], receipts: Sequence[Receipt]) -> None:
        """One line per entry, on the disk when this returns."""
        if not entries:
            return
        lines = [
            {
                "round": entry.round,
                "kind": entry.kind,
                "count": receipt.seq,
                "hash": receipt.hash,
                "ledger": receipt.ledger,
            }
            for entry, receipt in zip(entries, receipts, strict=True)
        ]
        text = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines).encode()
        if self.path is not None:
            self._write(self.path, text)
            self._size += len(text)
            self._digest.update(text)
        self.last = Checkpoint(receipts[-1].seq, receipts[-1].hash, receipts[-1].ledger)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._read(self._digest.hexdigest()).splitlines()] if self._size else []

    def _write(self, path: Path, text: bytes) -> None:
        try:
            with open(path, "r+b" if self._size else "wb") as file:
                file.truncate(self._size)
                file.seek(self._size)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if not self._size:
                sync_directory(path.parent)
        except OSError as error:
            raise RunError(
                f"{path} cannot be written: {reason(error)}. Remove the cause and close the round again, or resume."
            ) from error

    def _read(self, digest: str) -> bytes:
        """The part that is certain."""
        assert self.path is not None
        try:
            text = self.path.read_bytes()[: self._size]
            if sha256(text).hexdigest() != digest:
                raise OSError(None, "it is not what the run wrote")
        except OSError as error:
            raise RunError(
                f"{self.path} is missing or damaged ({reason(error)}): restore it from a backup or start a new run."
            ) from error
        return text


class Manifest:
    """Plain values that do not change, and the heads that were seen; written when a run begins and when it ends."""

    def __init__(self, values: dict[str, Any], heads: Heads) -> None:
        self.values, self.heads = values, heads
        self.cosigned = ""

    @classmethod
    def begin(cls, run: Run, mechanism: str, folder: Path | None) -> Manifest:
        settings = {key: value for key, value in run.settings.plain().items() if key not in PRIVATE}
        versions = {"fedincentive": __version__, "python": platform.python_version(), "numpy": np.__version__}
        made = cls(
            {
                "run": run.settings.run,
                "mechanism": mechanism,
                "seed": run.settings.seed,
                "settings": settings,
                "versions": versions,
            },
            Heads(folder),
        )
        made.take(run)
        return made

    def take(self, run: Run) -> None:
        """Who plays, and with how much."""
        agents = {name: {"s_max": run.limits[name], "s0": s0} for name, s0 in run.points(run.s0).items()}
        for name in agents.keys() & run.alone.keys():
            agents[name]["alone"] = run.alone[name]
        self.values["agents"] = agents

    def of_game(self, game: Game, given: Mapping[str, float]) -> None:
        """What a closed-form game knows and a center does not: the cost of what was given, and training alone."""
        costs = game.costs(np.array([given[agent] for agent in game.agents]))
        alone = outside_options(game)
        for i, agent in enumerate(game.agents):
            self.values["agents"][agent]["cost"] = float(costs[i])
            if alone is not None:
                self.values["agents"][agent]["alone"] = float(alone[i])

    @property
    def head(self) -> str | None:
        return None if self.seen is None else self.seen.hash

    @property
    def seen(self) -> Checkpoint | None:
        """The ledger as this run saw it last: count and hash, as `ledger verify --checkpoint` takes them."""
        return self.heads.last

    def witness(self, directory: Path | None, cosigned: str) -> None:
        """Keep a checkpoint with the agents' cosignatures. The last one is in the state too: a resumed run writes it
        again, which readers of the file do not mind."""
        if not cosigned or cosigned == self.cosigned:
            return
        if directory is not None:
            with open(directory / NOTES, "a+b") as file:
                file.seek(0, os.SEEK_END)
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # a crash cut the last line
                        file.write(b"\n")
                file.write(f"{written({'note': cosigned})}\n".encode())
        self.cosigned = cosigned

    def write(self, directory: Path, outcome: Mapping[str, Any] | None, certificate: Certificate | None) -> None:
        """For reading only: the state has all of it. The heads of a run that goes on are in the file it names."""
        certified = None if certificate is None else certificate.to_json()
        heads = CHECKPOINTS if outcome is None else self.heads.lines()
        values = {**self.values, "checkpoints": heads, "outcome": outcome, "certificate": certified}
        if self.cosigned:
            values["cosigned"] = self.cosigned
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
    costs: Mapping[str, int] = field(default_factory=dict)  # of all an agent gave, in minor units, where a game says
    alone: Mapping[str, int] = field(default_factory=dict)  # what training alone is worth, in minor units
    outcome: Mapping[str, Any] = field(default_factory=dict)  # how it ended; empty while it is under way
    certificate: Certificate | None = None

    @classmethod
    def read(cls, path: Path) -> SavedRun:
        try:
            values = json.loads(path.read_text("utf-8"))
            return cls._of({**values, "checkpoints": _heads(values["checkpoints"], path.parent)})
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
            checkpoints=tuple(map(_checkpoint, values["checkpoints"])),
            first={agent: Fraction(quantise(s0, scale), scale) for agent, s0 in enrolled.items()},
            last=last,
            valuations={a: quantise(float(v), minor) for a, v in outcome.get("valuations", {}).items()},
            costs={a: quantise(float(g["cost"]), minor) for a, g in values["agents"].items() if "cost" in g},
            alone={a: quantise(float(g["alone"]), minor) for a, g in values["agents"].items() if "alone" in g},
            cost={agent: fraction(str(c)) for agent, c in per_point.items()} if any(per_point.values()) else {},
            outcome={key: outcome[key] for key in ENDING} if outcome else {},
            certificate=Certificate.from_json(values["certificate"]) if values.get("certificate") else None,
        )


def _heads(given: Any, folder: Path) -> list[dict[str, Any]]:
    """Of a run that goes on, or was stopped, they are in their own file, whose last line may not be whole."""
    if given != CHECKPOINTS:
        return given
    text = (folder / CHECKPOINTS).read_bytes() if (folder / CHECKPOINTS).exists() else b""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


def _checkpoint(line: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(int(line["count"]), str(line["hash"]), str(line.get("ledger", "")))


def certified(directory: Path) -> bool:
    """Whether the manifest there has a run's certificate already: reading the finished run again must not lose it."""
    try:
        return bool(json.loads((directory / FILE).read_bytes())["certificate"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def find(run: Path) -> Path:
    """The manifest of a run that is named by its folder, its state folder, its ledger, or the manifest itself."""
    if run.is_file() and run.suffix != ".json":
        places = list(_places(run))
        if len(places) == 1:
            return places[0]
        runs = ", ".join(str(place.parent) for place in places) or "none is beside it"
        raise RunError(f"{run} is the ledger of {len(places)} runs: name the folder of one of them ({runs}).")
    for place in (run, run / FILE, run / "state" / FILE):
        if place.is_file():
            return place
    raise RunError(
        f"There is no {FILE} in {run}, nor in {run / 'state'}: name the folder of a run that kept its state."
    )


def notes(ledger: str) -> str:
    """The checkpoints that agents cosigned in the runs of a ledger file, as the runs kept them."""
    places = [] if "://" in ledger else [place.parent / NOTES for place in _places(Path(ledger))]
    return "".join(place.read_text("utf-8") for place in places if place.exists())


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
