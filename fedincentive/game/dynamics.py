"""The dynamics as generators: tests, plots and solvers read the same stream of states.

Every generator yields its starting state first and never ends; the reader decides when it has seen enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np

from ..errors import GameError
from .arrays import Array
from .games import Game, Pay
from .search import Search, maximise

T = TypeVar("T")


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


def contributions(
    game: Game, gamma: float, *, pay: Pay = (), w: Array | None = None, s: Array | None = None
) -> Iterator[State]:
    """Phase 1: s <- clip(s + gamma g(w, s), 0, s_max) with w frozen.

    >>> from fedincentive.game import paper_example
    >>> last(contributions(paper_example(), 10.0), 6000).s.round(3)
    array([0., 5.])
    """
    check_steps(gamma=gamma)
    w = game.w0 if w is None else w
    s = game.s0 if s is None else game.check(s)
    t = 0
    while True:
        g = game.masked(game.slopes(w, s, pay), s)
        yield State(t, w, s, g)
        s = game.move(s, gamma * g)
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
