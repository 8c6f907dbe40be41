"""Playing the whole league: games over processes, the table, and single lies played again."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import nearest
from ..errors import GameError, SettingError
from ..game import load
from . import ROWS, lies
from .base import LeagueRow, Reports
from .claims import Judgement, judge
from .columns import COLUMNS, Measured, measure
from .stage import Stage, draw

COUNTS = ("rounds", "messages", "evals")


@dataclass(frozen=True)
class Wanted:
    """Which games and rows: a file's game, or `games` random ones from `seed` on."""

    family: str = "data-value"
    games: int = 24
    n: int = 6
    fit: float = 0.1
    seed: int = 0
    file: str | None = None
    rows: tuple[str, ...] = tuple(ROWS)

    def __post_init__(self) -> None:
        for name in self.rows:
            chosen(name)
        if self.n < 2:
            raise GameError(f"n is {self.n}: the league compares agents with each other, so it needs at least 2.")
        if not (np.isfinite(self.fit) and self.fit >= 0.0):
            raise GameError(f"fit is {self.fit}: it must be 0 or more.")

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + (1 if self.file else self.games))

    def stage(self, seed: int) -> Stage:
        if self.file is not None:
            game = load(Path(self.file)).game
            if game.n < 2:
                raise GameError(f"{self.file} has 1 agent: the league compares agents with each other.")
            return Stage(game, self.file)
        return draw(self.family, seed, self.n, self.fit)


def chosen(name: str) -> LeagueRow:
    if name not in ROWS:
        raise SettingError(f"There is no row {name!r} in the league.{nearest(name, ROWS)}")
    return ROWS[name]


def _play(task: tuple[Wanted, str, int]) -> Measured:
    wanted, name, seed = task
    with np.errstate(all="ignore"):
        return measure(ROWS[name], wanted.stage(seed), seed)


def play(wanted: Wanted, jobs: int | None = None) -> Iterator[Measured]:
    """Every row on every game, as they are done; one process a core unless there is little to do."""
    wanted.stage(wanted.seed)  # a bad file or family is told here
    tasks = [(wanted, name, seed) for seed in wanted.seeds for name in wanted.rows]
    jobs = min(jobs or len(os.sched_getaffinity(0)), len(wanted.seeds))
    if jobs < 2:
        yield from map(_play, tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_play, tasks, chunksize=1)


def table(played: Sequence[Measured]) -> list[dict[str, Any]]:
    """The mean of every column over the games in which it is known, row by row; `games` counts those played."""
    rows = []
    for name in dict.fromkeys(one.row for one in played):
        own = [one for one in played if one.row == name and not one.unsuited]
        means: dict[str, Any] = {"row": name, "games": len(own)}
        for column in COLUMNS:
            known = [value for one in own if (value := one.columns[column]) is not None]
            means[column] = float(np.mean(known)) if known else None
        means["lies"] = {kind: float(np.mean([one.lies[kind].gain for one in own])) for kind in ROWS[name].asks if own}
        rows.append(means)
    return rows


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table as docs/league.md has it."""
    lines = ["| | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for row in rows:
        cells = [_cell(column, row[column]) for column in COLUMNS]
        if row["lies"]:  # by what is asked
            told = [f"{kind} {_cell('lie', gain)}" for kind, gain in row["lies"].items()]
            cells[tuple(COLUMNS).index("lie")] = ", ".join(told)
        lines.append(f"| {row['row']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(column: str, value: float | None) -> str:
    if value is None:
        return ""
    if column in COUNTS:
        return f"{value:.0f}"
    text = f"{value:.3f}" if column not in ("W", "NW", "S") else f"{value:.2f}"
    return "0" if float(text) == 0.0 else text


def verdicts(wanted: Wanted, played: Sequence[Measured]) -> list[Judgement]:
    stages = {seed: wanted.stage(seed) for seed in wanted.seeds}
    found: list[Judgement] = []
    with np.errstate(all="ignore"):
        for name in wanted.rows:
            own = [one for one in played if one.row == name]
            found += judge(ROWS[name], [stages[one.seed] for one in own], own)
    return found


def replay(wanted: Wanted, witness: str) -> str:
    """ROW:KIND:AGENT:VALUE, as a broken claim prints it: the same lie, played again in the first game."""
    try:
        name, kind, agent, text = witness.split(":")
        value = float(text)
    except ValueError:
        raise SettingError(f"--replay is {witness!r}: it is written ROW:KIND:AGENT:VALUE.") from None
    row, stage = chosen(name), wanted.stage(wanted.seed)
    if why := row.suits(stage):
        raise GameError(f"{name} cannot be played on this game: {why}.")
    reports = Reports.honest(stage)
    s = row.moves(stage, reports).s
    u = row.utilities(stage, reports, s)
    if not np.isfinite(value) or (kind in row.asks and value < 0.0):
        raise SettingError(f"--replay has the value {text}: a finite number is needed, and no cost or need is below 0.")
    if kind in ("names", "merge"):
        found = (lies.two_names if kind == "names" else lies.mergers)(row, stage, reports, s)
        if found is None:
            raise SettingError(f"--replay: {name} does not say what {kind} would be paid.")
        named = {lie.agent: lie for lie in found}
        if agent not in named:
            who = "who is not in the game" if kind == "names" else "which is no pair of the game's agents"
            raise SettingError(f"--replay names {agent!r}, {who}.{nearest(agent, list(named))}")
        return f"{name}: {named[agent]}"
    if agent not in stage.game.agents:
        raise SettingError(
            f"--replay names agent {agent!r}, who is not in the game.{nearest(agent, stage.game.agents)}"
        )
    i = stage.game.agents.index(agent)
    moved = s.copy()
    moved[i] = value
    if kind in ("s", "deliver") and not 0.0 <= value <= stage.s_max[i]:
        raise SettingError(f"--replay: {agent} has {stage.s_max[i]:.6g} points, not {value:g}.")
    if kind in row.asks:
        truth, gain = (
            getattr(reports, kind)[i],
            lies.told_gains(row, stage, reports, kind, np.array([i]), np.array([value]), s, u)[0],
        )
    elif kind == "s":
        truth, gain = s[i], float(row.utilities(stage, reports, moved)[i] - u[i])
    elif kind == "deliver":
        gains = {
            claim[i]: float(lies.delivered(row, stage, reports, s, claim, moved[None])[0, i] - u[i])
            for claim in (s, stage.s_max)
        }
        truth, gain = max(gains.items(), key=lambda pair: pair[1])
    elif kind == "d":
        truth, gain = 1.0, lies.scaled_gain(row, stage, s, i, value)
    else:
        known = ", ".join([*row.asks, "s", "deliver", "d", "names", "merge"])
        raise SettingError(f"--replay: {name} has no lie of kind {kind!r}; known: {known}.")
    honest = f"honest utility {u[i]:.6g}"
    return f"{name}: {lies.Lie(kind, agent, float(truth), value, float(gain))} ({honest})"
