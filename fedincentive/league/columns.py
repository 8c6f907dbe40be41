"""The columns of the league: one row played on one game, and everything that is measured there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import FedIncentiveError, GameError
from ..game.arrays import Array
from . import lies
from .base import LeagueRow, Reports
from .lies import Lie
from .stage import Stage, unilateral

NOISE = 1e-6  # gains below it are rounding of the search or of minor units

# column -> what it says; the order is that of the table
COLUMNS = {
    "W": "welfare, the sum of the values received",
    "NW": "welfare less costs",
    "S": "share of all points that is given",
    "regret": "most that an agent gains by another s",
    "lie": "most that an agent gains by another report of cost or need",
    "lie d": "most that an agent gains by scaling its updates through training",
    "treasury": "what the treasury pays (negative: takes)",
    "vs out": "worst agent against not taking part",
    "vs alone": "worst agent against training alone",
    "names": "most that an agent gains by two names",
    "merge": "most that two agents gain by merging",
    "fabr.": "most that an agent gains by claiming points it does not deliver",
    "corr": "correlation of payment and s",
    "envy": "most that an agent would gain in another's place",
    "rounds": "rounds until contributions rest",
    "messages": "scalars sent until then",
    "evals": "model evaluations of the center in each training round",
}


@dataclass(frozen=True, eq=False)
class Measured:
    """One row on one game."""

    row: str
    game: str  # how to draw the game again
    seed: int
    unsuited: str  # why it was not played
    columns: dict[str, float | None]
    lies: dict[str, Lie]
    s: tuple[float, ...] = ()
    payments: tuple[float, ...] = ()
    utilities: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(row: LeagueRow, stage: Stage, seed: int) -> Measured:
    """Plays a row honestly, then searches every lie; a row that does not suit the game is left out with the reason."""
    why = row.suits(stage)
    if not why:
        try:
            return _measured(row, stage, seed)
        except FedIncentiveError as error:
            why = str(error).rstrip(".")
    return Measured(row.name, stage.label, seed, why, dict.fromkeys(COLUMNS), {})


def _measured(row: LeagueRow, stage: Stage, seed: int) -> Measured:
    reports = Reports.honest(stage)
    moves = row.moves(stage, reports)
    s = moves.s
    u = row.utilities(stage, reports, s)  # in expectation, where the rule draws
    if not np.isfinite(u).all():
        raise GameError("what agents have where contributions rest is not finite")
    levels = row.levels(stage, reports, s, s)
    paid, treasury = row.postings(stage, reports, s, seed)
    exact = levels - stage.costs(s) + paid
    found: dict[str, Lie | None] = {kind: lies.best_report(row, stage, reports, kind, s, u) for kind in row.asks}
    found["s"] = lies.best_contribution(row, stage, reports, s, u)
    found["deliver"] = lies.best_fabrication(row, stage, reports, s, u)
    found["d"] = lies.best_update(row, stage, s)
    found["names"] = lies.best(lies.two_names(row, stage, reports, s))
    found["merge"] = lies.best(lies.mergers(row, stage, reports, s))

    def gain(kind: str) -> float | None:
        lie = found[kind]
        return None if lie is None else lie.gain

    told = [lie.gain for kind in row.asks if (lie := found[kind]) is not None]
    varies = np.ptp(paid) > NOISE and np.ptp(s) > NOISE
    nothing = stage.game.valuation.alone(np.zeros(stage.n))
    known = nothing is not None and np.isfinite(stage.outside).all()
    columns: dict[str, float | None] = {
        "W": float(levels.sum()),
        "NW": float((levels - stage.costs(s)).sum()),
        "S": float(s.sum() / stage.s_max.sum()),
        "regret": gain("s"),
        "lie": max(told) if told else None,
        "lie d": gain("d"),
        "treasury": treasury,
        "vs out": float((exact - nothing).min()) if nothing is not None and np.isfinite(nothing).all() else None,
        "vs alone": float((u + row.settled(stage, s) - stage.outside).min()) if known else None,
        "names": gain("names"),
        "merge": gain("merge"),
        "fabr.": gain("deliver"),
        "corr": float(np.corrcoef(paid, s)[0, 1]) if varies else None,
        "envy": envy(row, stage, reports, s, paid, exact),
        "rounds": float(moves.rounds),
        "messages": float(moves.messages),
        "evals": float(row.evaluations(stage.n)),
    }
    real = {kind: lie for kind, lie in found.items() if lie is not None}
    return Measured(row.name, stage.label, seed, "", columns, real, tuple(s), tuple(paid), tuple(u))


def envy(row: LeagueRow, stage: Stage, reports: Reports, s: Array, paid: Array, u: Array) -> float:
    """max over i, j: what i would have with j's s and payment, less what it has, where i has that many points."""
    T = np.broadcast_to(s[:, None], (stage.n, stage.n))  # row j, column i
    swapped = unilateral(s, T)
    level = np.einsum("jii->ji", row.levels(stage, reports, swapped, swapped))
    cost = np.einsum("jii->ji", stage.costs(swapped))
    gains = np.where(stage.s_max >= T, level - cost + paid[:, None] - u, 0.0)
    return max(float(gains.max()), 0.0)
