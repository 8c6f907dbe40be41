"""What each paper claims, and what the search found: held, broken, outside its assumptions, or not verifiable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..mechanisms.t_upbred import curvatures
from . import lies
from .base import LeagueRow, Reports, needed, useful
from .baselines import Planner
from .columns import NOISE, Measured
from .groves import AGV, prior_known
from .lies import Lie
from .stage import Stage

SEARCHES = {
    "truthful": lies.SEARCH,
    "truthful updates": lies.ROUND_SEARCH,
    "equilibrium": "grid, ends and refinement over each agent's s",
    "delivered": "claims of s and s_max, grid over what is delivered",
    "false-name-proof": "every agent halved into two names",
    "maximal p-means": "p = 1, 1/2, 0 and -1 of utilities, against the best that balanced payments allow",
    "truthful in expectation": f"{len(lies.SCALES)} scales of each agent's cost, the others' drawn from the prior",
}
TOLERANCE = 1e-4  # of utilities, and of welfare against the planner


def common(stage: Stage) -> bool:
    """Whether all agents value whatever is given alike."""
    parts = np.arange(1.0, stage.n + 1.0) / stage.n
    values = stage.values(stage.s_max * np.stack([parts, parts[::-1], np.ones(stage.n)]))
    return bool(np.isfinite(values).all() and np.ptp(values, axis=-1).max() <= NOISE)


ASSUMPTIONS: dict[str, Callable[[Stage], bool]] = {
    "common curve": common,
    "fit 0": lambda stage: stage.shared is not None and not np.any(stage.shared.fit),
    "costs known": lambda stage: False,  # here they are asked
    "threshold utility": lambda stage: False,  # values are graded here
    "prior given": prior_known,
    "n divisible by 3": lambda stage: stage.n % 3 == 0,
    "n at least 3": lambda stage: stage.n >= 3,
    "quadratic in w": lambda stage: curvatures(stage.game) is not None,
    "needs within reach": lambda stage: stage.shared is not None
    and bool(np.all(needed(stage) < useful(stage, stage.s_max) - NOISE)),
}


@dataclass(frozen=True)
class Counterexample:
    """What contradicts a claim in one game."""

    amount: float
    words: str
    replay: str = ""  # KIND:AGENT:VALUE for --replay


Check = Callable[[LeagueRow, Stage, Measured], Counterexample | None]  # None: not verifiable; amount <= tolerance: held


def _column(name: str, sign: float, words: str) -> Check:
    def check(row: LeagueRow, stage: Stage, played: Measured) -> Counterexample | None:
        value = played.columns[name]
        return None if value is None else Counterexample(sign * value, f"{words} {abs(value):.4g}")

    return check


def _lie(*kinds: str) -> Check:
    def check(row: LeagueRow, stage: Stage, played: Measured) -> Counterexample | None:
        found = [played.lies[kind] for kind in (kinds or row.asks or ("d",)) if kind in played.lies]
        return of_lie(max(found, key=lambda lie: lie.gain)) if found else None

    return check


def of_lie(lie: Lie) -> Counterexample:
    return Counterexample(lie.gain, str(lie), f"{lie.kind}:{lie.agent}:{lie.told!r}")


def _updates(row: LeagueRow, stage: Stage, played: Measured) -> Counterexample:
    """The best update of one round, beyond the gain that the row's paper allows."""
    lie, allowed = lies.best_round(row, stage, np.array(played.s))
    return Counterexample(lie.gain - allowed, f"in one round {lie}, proved are at most {allowed:.4g}")


def _balanced(row: LeagueRow, stage: Stage, played: Measured) -> Counterexample:
    treasury = played.columns["treasury"] or 0.0
    return Counterexample(abs(treasury), f"the treasury {'pays' if treasury > 0 else 'takes'} {abs(treasury):.4g}")


def _full(row: LeagueRow, stage: Stage, played: Measured) -> Counterexample:
    share = played.columns["S"] or 0.0
    return Counterexample(1.0 - share, f"{share:.0%} of the points are given")


def _never_pays(row: LeagueRow, stage: Stage, played: Measured) -> Counterexample:
    """Over twenty draws of the trios."""
    reports, s = Reports.honest(stage), np.array(played.s)
    worst = max(row.postings(stage, reports, s, seed)[1] for seed in range(20))
    return Counterexample(worst, f"the treasury pays {worst:.4g}")


def _welfare(row: LeagueRow, stage: Stage, played: Measured) -> Counterexample:
    best = Planner().moves(stage, Reports.honest(stage)).s
    gap = float((stage.values(best) - stage.costs(best)).sum()) - (played.columns["NW"] or 0.0)
    return Counterexample(gap, f"net welfare is {gap:.4g} below the planner's")


def _p_means(row: LeagueRow, stage: Stage, played: Measured) -> Counterexample | None:
    """No p-mean with p <= 1 is above the mean, and no balanced payment brings the mean above the planner's."""
    u, best = np.array(played.utilities), Planner().moves(stage, Reports.honest(stage)).s
    if u.min() <= 0.0:
        return None  # the means are of positive numbers
    means = {"1": u.mean(), "1/2": np.mean(u**0.5) ** 2, "0": np.exp(np.log(u).mean()), "-1": 1.0 / np.mean(1.0 / u)}
    p = min(means, key=lambda p: means[p])
    gap = float((stage.values(best) - stage.costs(best)).mean() - means[p])
    return Counterexample(gap, f"the p-mean with p = {p} is {gap:.4g} below the best")


def _interim(row: LeagueRow, stage: Stage, played: Measured) -> Counterexample | None:
    if not isinstance(row, AGV):
        return None
    gain, i, told = row.interim(stage)
    words = f"{stage.game.agents[i]} reports c = {told:.6g} instead of {stage.c[i]:.6g}, expected gain {gain:.4g}"
    return Counterexample(gain, words)


def _needs(row: LeagueRow, stage: Stage, played: Measured) -> Counterexample:
    short = needed(stage) - useful(stage, np.array(played.s))
    i = int(short.argmax())
    return Counterexample(float(short[i]), f"{stage.game.agents[i]} is {max(short[i], 0.0):.4g} points short")


def _envy(row: LeagueRow, stage: Stage, played: Measured) -> Counterexample:
    """Whether somebody could give another's smaller s and still have what it needs."""
    s, need = np.array(played.s), needed(stage)
    for i in range(stage.n):
        for j in range(stage.n):
            swapped = s.copy()
            swapped[i] = s[j]
            if s[j] < s[i] - TOLERANCE and useful(stage, swapped)[i] >= need[i] + TOLERANCE:
                return Counterexample(
                    float(s[i] - s[j]), f"{stage.game.agents[i]} would be served with {s[j]:.4g} points"
                )
    return Counterexample(0.0, "no swap")


CHECKS: dict[str, Check] = {
    "budget balanced": _balanced,
    "no payments": lambda row, stage, played: Counterexample(float(np.abs(played.payments).max()), "somebody is paid"),
    "treasury never pays": _never_pays,
    "equilibrium": _lie("s"),
    "full contribution": _full,
    "individually rational": _column("vs alone", -1.0, "the worst agent against training alone:"),
    "truthful": _lie(),
    "truthful updates": _updates,
    "delivered": _lie("deliver"),
    "false-name-proof": _lie("names"),
    "maximal welfare": _welfare,
    "maximal p-means": _p_means,
    "truthful in expectation": _interim,
    "needs met": _needs,
    "envy-free": _envy,
}


@dataclass(frozen=True)
class Judgement:
    """A claim over all games: `outside` counts the games that do not meet its assumptions."""

    row: str
    claim: str
    note: str
    where: tuple[str, ...]
    verdict: str  # held, broken, outside its assumptions, not verifiable
    games: int
    broken: int
    outside: int
    worst: str = ""
    command: str = ""

    def __str__(self) -> str:
        given = f" (given {', '.join(self.where)})" if self.where else ""
        note = f" [{self.note}]" if self.note else ""
        text = f"{self.row}: {self.claim}{given}{note}: {self.verdict}"
        if self.verdict == "held":
            search = SEARCHES.get(self.claim)
            text += f" in {self.games} of {self.games} games" + (f", search = {search}" if search else "")
        elif self.verdict == "broken":
            text += f" in {self.broken} of {self.games} games; {self.worst}"
        elif self.verdict.startswith("outside"):
            text += f" in {self.outside} games; there {self.worst}" if self.worst else f" in {self.outside} games"
        return f"{text}\n    {self.command}" if self.command else text

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(row: LeagueRow, stages: Sequence[Stage], played: Sequence[Measured]) -> list[Judgement]:
    """Each promise of a row over all games in which it was played."""
    return [_judged(row, promise, stages, played) for promise in row.promises]


def _judged(row: LeagueRow, promise: Any, stages: Sequence[Stage], played: Sequence[Measured]) -> Judgement:
    inside: list[tuple[Counterexample, Measured]] = []
    outside: list[tuple[Counterexample, Measured]] = []
    for stage, one in zip(stages, played, strict=True):
        found = None if one.unsuited else CHECKS[promise.claim](row, stage, one)
        if found is not None:
            met = all(ASSUMPTIONS[name](stage) for name in promise.where)
            (inside if met else outside).append((found, one))
    if not inside and not outside:
        return Judgement(row.name, promise.claim, promise.note, promise.where, "not verifiable", 0, 0, 0)
    broken = [(found, one) for found, one in inside if found.amount > TOLERANCE]
    shown = broken or ([] if inside else [(f, one) for f, one in outside if f.amount > TOLERANCE])
    verdict = "broken" if broken else "held" if inside else "outside its assumptions"
    worst = command = ""
    if shown:
        found, one = max(shown, key=lambda pair: pair[0].amount)
        many = "" if broken else f"{len(shown)} of {len(outside)} go against it; "
        worst = f"{many}{'seed ' + str(one.seed) + ', ' if one.game.startswith('--family') else ''}{found.words}"
        again = f"--replay {row.name}:{found.replay}" if found.replay else f"--row {row.name}"
        command = f"fedincentive league {one.game} {again}"
    return Judgement(
        row.name,
        promise.claim,
        promise.note,
        promise.where,
        verdict,
        len(inside),
        len(broken),
        len(outside),
        worst,
        command,
    )
