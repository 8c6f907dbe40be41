"""Whether T-UPBReD lets an agent gain by the s0 it enrols with: `python benchmarks/starts.py --games 200`.

Over a run p* comes to the others' values at the end less H_i, the start that `h: previous` takes off. Where the
dynamics choose s from s0 on, s0 is also what is given. Where it is "only said" everyone stands still, and the agent
gives the same after the first round whatever s0 it said.

    gain of an s0 = change of (v_i - c_i + others' values at the end) - change of H_i
                    what it really changes for all                     through h

Printed is for how many agents some s0 pays through h, which must be 0; for how many it would, were the start what is
reported at s0 (truthful/1); and for how many giving more or less pays, with h and without (`h: zero`). Where it pays
with h, it pays all agents together as much: that must hold to a thousandth. Exits 1 otherwise.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from fedincentive import Settings, engine
from fedincentive.agent import Fixed
from fedincentive.game import Game, random_data_value, random_quadratic
from fedincentive.payments import MINOR

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of s_max, tried as s0
NOTHING = 1e-3  # of money
TERMS = {"mechanism": "t-upbred", "gamma": 0.5, "eta": 0.3, "rounds": 5, "loss_cap": 10_000.0, "report_values": False}


class Ended(NamedTuple):
    """How a run ends for one agent."""

    own: float  # its value less its cost
    others: float  # their values
    paid: float

    @property
    def start(self) -> float:
        """H_i: what was taken off."""
        return self.others - self.paid

    @property
    def utility(self) -> float:
        return self.own + self.paid


def ended(game: Game, i: int, s0: float, *, still: bool = False, **terms: object) -> Ended:
    """Agent i enrols with this s0; where all stand `still` it gives what it has in the game from the first round on."""
    said = game.starting_at(s0=np.where(np.arange(game.n) == i, s0, game.s0))
    plans: Mapping[str, Fixed] = {name: Fixed(float(s)) for name, s in zip(game.agents, game.s0, strict=True)}
    settings = Settings.read({**TERMS, **terms})
    outcome = engine.run(*engine.table(said, settings, strategies=plans if still else None))
    s = np.array([outcome.s[name] for name in game.agents])
    values, costs = game.values(outcome.w["w"], s), game.costs(s)
    paid = outcome.payments[game.agents[i]] / MINOR
    return Ended(float(values[i] - costs[i]), float(values.sum() - values[i]), paid)


class Gains(NamedTuple):
    """The best of all s0 for one agent, over the one in the game."""

    through_h: float
    only_said: float  # through h, where nothing else changes
    by_truthful_1: float  # were H_i the others' values at s0
    really: float  # with h
    without_h: float
    aside: float  # how much what it gains differs from what all gain


def gains(game: Game, i: int) -> Gains:
    own = float(game.s0[i])
    choices = [share * float(game.s_max[i]) for share in SHARES]
    before, said, plain = (ended(game, i, own, **how) for how in ({}, {"still": True}, {"h": "zero"}))
    tried = [ended(game, i, s0) for s0 in choices]

    def old_start(s0: float) -> float:
        values = game.values(game.w0, np.where(np.arange(game.n) == i, s0, game.s0))
        return float(values.sum() - values[i])

    return Gains(
        max(before.start - one.start for one in tried),
        max(said.start - ended(game, i, s0, still=True).start for s0 in choices),
        max(old_start(own) - old_start(s0) for s0 in choices),
        max(one.utility - before.utility for one in tried),
        max(ended(game, i, s0, h="zero").utility - plain.utility for s0 in choices),
        max(abs(one.start - before.start) for one in tried),
    )


def search(games: int) -> bool:
    found = []
    for seed in tqdm(range(games), leave=False):
        game = random_data_value(seed, 3, 2) if seed % 2 else random_quadratic(seed, 3, 2)
        found.append(gains(game, seed // 2 % 3))
    columns = np.array(found)
    paying, best = (columns > NOTHING).sum(axis=0), columns.max(axis=0)
    print(f"{games} games, one agent each, {len(SHARES)} values of s0; for how many one pays, and the most it pays:")
    labels = (
        "through h",
        "through h, where s0 is only said",
        "by the start of truthful/1",
        "by really giving more or less",
    )
    for label, count, most in zip((*labels, "  the same without h"), paying, best, strict=False):
        print(f"  {label:<34} {count:4d}   {most:.3g}")
    print(f"  what it gains and what all gain    differ by at most {best[5]:.2g}")
    return not paying[0] and not paying[1] and bool(best[5] <= NOTHING)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--games", type=int, default=200)
    options = parser.parse_args(arguments)
    logging.getLogger("fedincentive").setLevel(logging.ERROR)
    return 0 if search(options.games) else 1


if __name__ == "__main__":
    sys.exit(main())
