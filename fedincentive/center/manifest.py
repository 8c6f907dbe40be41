"""The run's manifest: what an auditor needs beside the ledger, and the checkpoints that leave the database."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from .. import __version__
from ..ledger import Checkpoint, Entry, Receipt
from ..mechanisms import Mechanism, Run
from .outcome import Outcome


class Manifest:
    """Plain values, kept in the state and written out as manifest.json whenever the ledger grows."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    @classmethod
    def begin(cls, run: Run, mechanism: Mechanism) -> Manifest:
        secret = ("audit_seed", "keys", "ledger")  # a ledger's address may hold a password
        settings = {key: value for key, value in run.settings.plain().items() if key not in secret}
        versions = {"fedincentive": __version__, "python": platform.python_version(), "numpy": np.__version__}
        agents = {name: {"s_max": run.limits[name], "s0": s0} for name, s0 in run.points(run.s0).items()}
        return cls(
            {
                "run": run.settings.run,
                "mechanism": mechanism.name,
                "seed": run.settings.seed,
                "settings": settings,
                "versions": versions,
                "agents": agents,
                "checkpoints": [],
            }
        )

    @property
    def head(self) -> str | None:
        checkpoints = self.values["checkpoints"]
        return checkpoints[-1]["hash"] if checkpoints else None

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

    def report(self, outcome: Outcome | None) -> dict[str, Any]:
        return {**self.values, "outcome": None if outcome is None else outcome.to_json()}
