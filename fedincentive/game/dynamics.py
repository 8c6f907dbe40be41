"""The dynamics as generators: tests, plots and solvers read the same stream of states.

Every generator yields its starting state first and never ends; the reader decides when it has seen enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import numpy as np

from ..errors import GameError
from .arrays import Array
from .games import Game, Pay
from .search import Search, maximise

T = TypeVar("T")
NEARLY = 1e-4  # of s_max: from here a stride goes to the bound
TINY = 1e-200  # a slope that is none
FREELY = 19  # strides that may be of any length


@dataclass(frozen=True, eq=False)
class State:
    """Where the dynamics stand after `round` rounds; g is the masked slope the next step follows."""

    round: int
    w: Array
    s: Array
    g: Array

    @property
    def residual(self) -> float:
        """||g||_inf: 0 where no agent wants to move."""
        return float(np.max(np.abs(self.g)))


@dataclass(frozen=True)
class Stride:
    """Where an agent stood, the slope it felt there, the step size it used, and how many strides it has taken."""

    s: float
    g: float
    gamma: float
    count: int = 0


def stride(s: float, g: float, s_max: float, last: Stride | None = None) -> tuple[float, Stride]:
    """One step up an agent's own utility with a step size of its own, which needs no unit of points or money.

    The first step size would take it across its whole range. While the slope g keeps its sign the step size grows, by
    at most 2; where it turns, the agent has gone too far: back to where the line through both slopes is 0. A stride
    takes at most 9/10 of the way to a bound, for the slope may change there; one that has not changed at all since
    the last stride, as with a constant price, takes it to the bound at once. After FREELY strides each is at most half
    as long as the longest before could be: after twice as many, everyone stands.

    >>> s, last = stride(500.0, 0.4, 1000.0)
    >>> s, stride(s, 0.4, 1000.0, last)[0]
    (950.0, 1000.0)
    """
    if abs(g) < TINY or s_max <= 0.0:
        return s, Stride(s, g, 0.0) if last is None else replace(last, count=last.count + 1)
    whole = s_max / abs(g)
    if last is None or last.gamma == 0.0 or g == last.g:
        gamma = whole
    else:
        crossing = (s - last.s) / (last.g - g)  # with this step the line through both slopes ends at 0
        if g * last.g < 0.0:
            gamma = min(max(crossing, 0.1 * last.gamma), 0.5 * last.gamma)
        else:
            gamma = min(max(crossing, last.gamma), 2.0 * last.gamma) if crossing > 0.0 else 2.0 * last.gamma
        gamma = min(gamma, whole)
    room = s_max - s if g > 0.0 else s
    count = 0 if last is None else last.count + 1
    way = room if last is not None and g == last.g or room <= NEARLY * s_max else min(gamma * abs(g), 0.9 * room)
    way = min(way, s_max * 2.0 ** min(0, FREELY - count))
    reached = s + way if g > 0.0 else s - way
    return min(max(reached, 0.0), s_max), Stride(s, g, gamma, count)


def contributions(
    game: Game, gamma: float | None, *, pay: Pay = (), w: Array | None = None, s: Array | None = None
) -> Iterator[State]:
    """Phase 1: s <- clip(s + gamma g(w, s), 0, s_max) with w frozen; without a gamma everyone takes its own strides.

    >>> from fedincentive.game import paper_example
    >>> last(contributions(paper_example(), 10.0), 6000).s.round(3)
    array([0., 5.])
    """
    if gamma is not None:
        check_steps(gamma=gamma)
    w = game.w0 if w is None else w
    s = game.s0 if s is None else game.check(s)
    last: list[Stride | None] = [None] * game.n
    t = 0
    while True:
        slopes = game.slopes(w, s, pay)
        g = game.masked(slopes, s)
        yield State(t, w, s, g)
        if gamma is not None:
            s = game.move(s, gamma * g)
        else:
            each = [stride(float(s[i]), float(slopes[i]), float(game.s_max[i]), last[i]) for i in range(game.n)]
            s, last = np.array([reached for reached, _ in each]), [taken for _, taken in each]
        t += 1


def joint(
    game: Game, gamma: float, eta: float, *, pay: Pay = (), w: Array | None = None, s: Array | None = None
) -> Iterator[State]:
    """UPBReD: s and w move together, both from the same (w, s): s as above, w <- w + (eta/n) sum_i grad_w v_i(w, s)."""
    check_steps(gamma=gamma, eta=eta)
    w = game.w0 if w is None else w
    s = game.s0 if s is None else game.check(s)
    t = 0
    while True:
        g = game.masked(game.slopes(w, s, pay), s)
        yield State(t, w, s, g)
        w, s = w + eta * game.mean_gradient(w, s), game.move(s, gamma * g)
        t += 1


def ascent(game: Game, eta: float, *, w: Array | None = None, s: Array | None = None) -> Iterator[State]:
    """Phase 2: w <- w + (eta/n) sum_i grad_w v_i(w, s) with s frozen, at s_max unless told otherwise."""
    check_steps(eta=eta)
    w = game.w0 if w is None else w
    s = game.s_max if s is None else game.check(s)
    nobody_moves = np.zeros(game.n)
    t = 0
    while True:
        yield State(t, w, s, nobody_moves)
        w = w + eta * game.mean_gradient(w, s)
        t += 1


def best_replies(
    game: Game, *, pay: Pay = (), w: Array | None = None, s: Array | None = None, search: Search | None = None
) -> Iterator[State]:
    """Each round every agent in turn moves to its best reply to the others' latest contributions, w frozen.

    One agent at a time does not overshoot as simultaneous replies do; a round costs n searches.
    """
    w = game.w0 if w is None else w
    s = (game.s0 if s is None else game.check(s)).copy()
    search = search or Search()
    t = 0
    while True:
        yield State(t, w, s.copy(), game.masked(game.slopes(w, s, pay), s))
        for i in range(game.n):
            s[i] = best_reply(game, i, w, s, pay, search)
        t += 1


def best_reply(game: Game, i: int, w: Array, s: Array, pay: Pay = (), search: Search | None = None) -> float:
    """argmax of u_i(w, (t, s_-i)) over t in [0, s_max_i]."""

    def utility(t: Array) -> Array:
        return game.deviations(w, s, np.where(others, s, t), pay)[i : i + 1]

    others = np.arange(game.n) != i
    low, high = np.zeros(1), game.s_max[i : i + 1]
    return float(maximise(utility, low, high, search or Search(), concave=bool(game.concave))[0][0])


def last(states: Iterator[T], rounds: int) -> T:
    """The state after exactly `rounds` rounds."""
    if rounds < 0:
        raise GameError(f"rounds must be at least 0, not {rounds}.")
    return next(islice(states, rounds, None))


def check_steps(**steps: float) -> None:
    """Raises GameError unless every step size is a positive finite number."""
    for name, step in steps.items():
        if not np.isfinite(step) or step <= 0.0:
            raise GameError(f"{name} is {step!r}: a step size must be a finite number greater than 0.")
