"""The search for lies that pay: reports of costs and needs, contributions, points never delivered, updates, names.

Scales of the truth, the ends of the range, the middles between what the others say, then refinement around the best.
A lie is made before contributions move, and everyone replies to what it makes of the payments; the liar's utility
counts its true cost and value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..game.arrays import Array
from ..mechanisms.t_upbred import curvatures
from .base import LeagueRow, Reports, compared
from .stage import Stage, deviations, peaks, unilateral

SCALES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2.0, 3.0)
REFINEMENTS = 3
UPDATE_SCALES = (0.0, 0.5, 1.5, 2.0, 3.0)
ROUNDS = 20  # of training, with a step that halves the distance to the best model
ROUND_SEARCH = "one round, from -1 to 5 times the gradient and along the slope of the utility"
SEARCH = f"{len(SCALES)} scales from 0 to {SCALES[-1]:g}, middles between the others, {REFINEMENTS} refinements"


class Step(NamedTuple):
    """A training round: the updates sent, its step h, the curvatures, its weight, and the model after it."""

    d: Array
    h: float
    k: Array
    weight: float
    w: Array


@dataclass(frozen=True)
class Lie:
    """What an agent says or does, and what it gains by it."""

    kind: str  # c, need, s, deliver, d, names, merge
    agent: str
    truth: float
    told: float
    gain: float

    def __str__(self) -> str:
        if self.kind in ("names", "merge"):
            what = "takes two names" if self.kind == "names" else "merge"
            return f"{self.agent} {what}, gain {self.gain:.4g}"
        verb = {"s": "gives", "deliver": "delivers", "d": "scales its updates by"}.get(
            self.kind, f"reports {self.kind} ="
        )
        return f"{self.agent} {verb} {self.told:.6g} instead of {self.truth:.6g}, gain {self.gain:.4g}"


def best_report(row: LeagueRow, stage: Stage, reports: Reports, kind: str, s: Array, u: Array) -> Lie:
    """The most that any agent gains by another report of this kind; all lies of a step are played together."""
    truth = getattr(reports, kind)
    told = [_first_lies(truth, i) for i in range(stage.n)]
    width = np.array([np.diff(values).mean() for values in told])
    agents, values = np.repeat(np.arange(stage.n), [len(one) for one in told]), np.concatenate(told)
    gains = told_gains(row, stage, reports, kind, agents, values, s, u)
    for _ in range(REFINEMENTS):
        top = np.array([values[agents == i][gains[agents == i].argmax()] for i in range(stage.n)])
        width = 0.5 * width
        more, who = np.concatenate([np.maximum(top - width, 0.0), top + width]), np.tile(np.arange(stage.n), 2)
        gains = np.append(gains, told_gains(row, stage, reports, kind, who, more, s, u))
        agents, values = np.append(agents, who), np.append(values, more)
    k = int(gains.argmax())
    i = int(agents[k])
    if gains[k] <= 0.0:
        return Lie(kind, stage.game.agents[i], float(truth[i]), float(truth[i]), 0.0)
    return Lie(kind, stage.game.agents[i], float(truth[i]), float(values[k]), float(gains[k]))


def _first_lies(truth: Array, i: int) -> Array:
    others = np.sort(np.delete(truth, i))
    return np.unique([*(scale * truth[i] for scale in SCALES), *(0.5 * (others[1:] + others[:-1])), truth[i] + 1e-9])


def told_gains(
    row: LeagueRow,
    stage: Stage,
    reports: Reports,
    kind: str,
    agents: NDArray[np.intp],
    values: Array,
    s: Array,
    u: Array,
) -> Array:
    """What agents[k] gains by reporting values[k], after all contributions have moved from s to their new rest."""
    lied = reports.each_lying(kind, agents, values)
    after = row.moves(stage, lied, s).s
    return row.utilities(stage, lied, after)[np.arange(len(agents)), agents] - u[agents]


def best_contribution(row: LeagueRow, stage: Stage, reports: Reports, s: Array, u: Array) -> Lie:
    """Regret: the most that any agent gains by another s of its own."""
    t, top = peaks(lambda T: deviations(lambda S: row.utilities(stage, reports, S), s, T), stage.s_max)
    return _largest("s", stage, s, t, top - u)


def best_fabrication(row: LeagueRow, stage: Stage, reports: Reports, s: Array, u: Array) -> Lie | None:
    """Claims s_i or s_max_i and delivers less; None where an audit attests s, which is not played here."""
    if row.pays_d == "audited":
        return None
    found = []
    for claim in (s, stage.s_max):
        t, top = peaks(lambda T, claim=claim: delivered(row, stage, reports, s, claim, T), claim)  # type: ignore[misc]
        found.append(_largest("deliver", stage, claim, t, top - u))
    return max(found, key=lambda lie: lie.gain)


def delivered(row: LeagueRow, stage: Stage, reports: Reports, s: Array, claim: Array, T: Array) -> Array:
    """u_i where i alone claims claim_i and delivers T[b, i]."""
    claimed = unilateral(s, np.broadcast_to(claim, T.shape))
    return np.einsum("bii->bi", row.utilities(stage, reports, claimed, unilateral(s, T)))


def _largest(kind: str, stage: Stage, truth: Array, told: Array, gains: Array) -> Lie:
    i = int(gains.argmax())
    gain = max(float(gains[i]), 0.0)
    return Lie(kind, stage.game.agents[i], float(truth[i]), float(told[i]), gain)


def best(found: list[Lie] | None) -> Lie | None:
    """What the best placed gain; None where the rule does not say."""
    return max(found, key=lambda lie: lie.gain) if found else None


def two_names(row: LeagueRow, stage: Stage, reports: Reports, s: Array) -> list[Lie] | None:
    """What each agent gains by halving its points between two names; None where the rule does not say."""
    if row.pays_d in ("relative", "groves-d"):
        return _names_of_updates(row, stage, s)
    before = row.named(stage, reports, np.diag(s))
    if before is None:
        return None
    found = []
    for i, agent in enumerate(stage.game.agents):
        held = np.vstack([np.diag(s), np.eye(stage.n)[i] * s[i] / 2.0])
        held[i, i] = s[i] / 2.0
        after = row.named(stage, reports, held)
        assert after is not None
        found.append(Lie("names", agent, float(s[i]), float(s[i]) / 2.0, float(after[i] + after[-1] - before[i])))
    return found


def mergers(row: LeagueRow, stage: Stage, reports: Reports, s: Array) -> list[Lie] | None:
    """What each pair gains by enrolling under one name; None where the rule does not say."""
    before = row.named(stage, reports, np.diag(s))
    if before is None or stage.n < 3 or row.pays_d in ("relative", "groves-d"):
        return None
    found = []
    for i, j in combinations(range(stage.n), 2):
        held = np.delete(np.diag(s), j, axis=0)
        held[i, j] = s[j]
        after = row.named(stage, reports, held)
        assert after is not None
        pair = f"{stage.game.agents[i]} and {stage.game.agents[j]}"
        found.append(
            Lie("merge", pair, float(s[i] + s[j]), float(s[i] + s[j]), float(after[i] - before[i] - before[j]))
        )
    return found


def update_pay(how: str, d: Array, h: float, k: Array) -> Array:
    """What a round pays on the updates d (rows), in floats; exact amounts are `payments.pooled`'s."""
    if how == "relative":
        return compared(-0.5 * h * np.sum(d**2, axis=1))
    if how != "groves-d":
        return np.zeros(len(d))
    n, gram = len(d), d @ d.T
    cross = gram - np.diag(np.diag(gram))
    pairs = h**2 * (k[:, None] + k[None]) * cross
    both = 0.5 * pairs.sum()
    own = compared(0.5 * (k * h**2 - h) * np.diag(gram))
    return own + h**2 * k * cross.sum(axis=1) - (both - pairs.sum(axis=1)) / (n - 2)


def steps(row: LeagueRow, stage: Stage, s: Array, sends: Array, rounds: int = ROUNDS) -> Iterator[Step]:
    """Training where name a sends sum_i sends[a, i] d_i, with a step that halves the distance to the best model.

    Later rounds weigh more, so that a patient agent does not gain by holding back early (docs/truthful.md).
    """
    game = stage.game
    bend = game.valuation.curvature(s)
    mean = bend[1] if bend is not None and bend[1] > 0.0 else 1.0
    known = curvatures(game)
    k = (sends != 0.0) @ (np.full(stage.n, mean) if known is None else known)
    h, w = 0.5 / mean / len(sends), game.w0
    for t in range(rounds):
        d = sends @ game.gradients(w, s)
        w = w + h * d.sum(axis=0)
        yield Step(d, h, k, 0.5 ** (rounds - 1 - t), w)


def train(row: LeagueRow, stage: Stage, s: Array, sends: Array, rounds: int = ROUNDS) -> tuple[Array, Array]:
    """(v after training, payments by name on the updates)."""
    taken = list(steps(row, stage, s, sends, rounds))
    paid = sum((one.weight * update_pay(row.pays_d, one.d, one.h, one.k) for one in taken), start=np.zeros(len(sends)))
    return stage.game.values(taken[-1].w, s), paid


def best_round(row: LeagueRow, stage: Stage, s: Array) -> tuple[Lie, float]:
    """(the best update of the first round, the gain that is proved to be the most for that agent)."""
    game, first = stage.game, next(steps(row, stage, s, np.eye(stage.n), 1))
    g = game.gradients(game.w0, s)
    moved = first.w - game.w0
    turned = game.gradients(first.w, s) - g
    best, allowed = Lie("d", game.agents[0], 1.0, 1.0, 0.0), 0.0
    for i, agent in enumerate(game.agents):
        error = turned[i] + (first.k[i] * moved if row.pays_d == "groves-d" else 0.0)
        bound = 0.5 * first.h * float(error @ error)
        if row.pays_d == "groves-d":
            bound /= max(1.0 - first.h * first.k[i], 1e-9)

        def utility(a: float, along: Array, i: int = i) -> float:
            d = g.copy()
            d[i] = g[i] + a * along
            w = game.w0 + first.h * d.sum(axis=0)
            return float(game.values(w, s)[i] + update_pay(row.pays_d, d, first.h, first.k)[i])

        for along in (g[i], error):

            def tried(T: Array, along: Array = along) -> Array:
                return np.array([utility(float(a) - 2.0, along) for a in T])

            top, value = peaks(tried, np.array(6.0))
            gain = float(value) - utility(0.0, along)
            if gain - bound > best.gain - allowed:
                best, allowed = Lie("d", agent, 1.0, float(top) - 1.0, gain), bound
    return best, allowed


def best_update(
    row: LeagueRow, stage: Stage, s: Array, scales: tuple[float, ...] = UPDATE_SCALES, rounds: int = ROUNDS
) -> Lie | None:
    """The most that any agent gains by scaling its updates through the whole training; None where they are audited."""
    if row.pays_d == "audited":
        return None
    best = Lie("d", stage.game.agents[0], 1.0, 1.0, 0.0)
    for i, agent in enumerate(stage.game.agents):
        for scale in scales:
            if (gain := scaled_gain(row, stage, s, i, scale, rounds)) > best.gain:
                best = Lie("d", agent, 1.0, scale, gain)
    return best


def scaled_gain(row: LeagueRow, stage: Stage, s: Array, i: int, scale: float, rounds: int = ROUNDS) -> float:
    sends = np.eye(stage.n)
    values, paid = train(row, stage, s, sends, rounds)
    sends[i, i] = scale
    lied, lied_paid = train(row, stage, s, sends, rounds)
    return float(lied[i] + lied_paid[i] - values[i] - paid[i])


def _names_of_updates(row: LeagueRow, stage: Stage, s: Array) -> list[Lie]:
    """Two names that both send the gradient, where updates are paid for."""
    values, paid = train(row, stage, s, np.eye(stage.n))
    found = []
    for i, agent in enumerate(stage.game.agents):
        after, after_paid = train(row, stage, s, np.vstack([np.eye(stage.n), np.eye(stage.n)[i]]))
        gain = after[i] + after_paid[i] + after_paid[-1] - values[i] - paid[i]
        found.append(Lie("names", agent, 1.0, 2.0, float(gain)))
    return found
