"""A search for lies that pay in spite of audits and deposits.

    python benchmarks/deposits.py --games 200 --runs 20

In each random game, and in the digits federation, every agent tries under-training, invented points, points that do
not exist (an inflated s_max), copies of another's update, replays of the last step, poison, and all at once, in single
rounds and from any round on; alone, with an honest partner that shares in the forfeits, and with one that lies too.
What each outcome of the audits pays comes from the functions that make the ledger's entries, and how likely it is from
the audit's probability, the records opened and their detection. Costs are the games' own; what less training does to
the model is left out, which favours the liar, but for `V`, what poison gains in a round.

Printed is the best gain over being honest at the computed deposit, which must be at most 0, and at 99 % of it, which
must be above 0 where the deposit is tight: alone (colluding: 1), and in pairs where V is what matters. Then audited
runs are played in the engine with liars among the agents: every balance must be what the search reckons with. Exits 1
otherwise.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import comb
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from fedincentive import engine, ledger
from fedincentive.game import random_data_value
from fedincentive.identity import CENTER
from fedincentive.ledger.verify import verify
from fedincentive.payments import Deposit, contribution, deposit
from fedincentive.provenance.keys import make

MINOR = 10**9  # units small enough that rounding is no gain
NOTHING = 1e-6  # of money: more than the rounding of a sum, less than any gain that counts


class Lie(NamedTuple):
    """What is done in a round: `share` of the points is not trained on. Where the points are `invented` or do not
    exist, the agent has enrolled more than it has, and being honest is to enrol what it has."""

    name: str
    share: float = 0.0
    enrolled: bool = False  # it has fewer points than it enrolled
    invented: bool = False  # found by opened records only
    poison: bool = False
    obvious: bool = False  # copies and replays are always audited


LIES = (
    *(Lie("under-training", share) for share in (0.1, 0.5, 1.0)),
    *(Lie("invented points", share, enrolled=True, invented=True) for share in (0.1, 0.5, 1.0)),
    *(Lie("inflated s_max", share, enrolled=True) for share in (0.1, 0.5, 1.0)),
    Lie("copied update", 1.0, obvious=True),
    Lie("replayed step", 1.0, obvious=True),
    Lie("poison", poison=True),
    Lie("all at once", 1.0, enrolled=True, poison=True),
)
Plan = tuple[int, int]  # the first and the last round of the lie


class Best(NamedTuple):
    gain: float = -np.inf
    what: str = "nothing"


@dataclass(frozen=True)
class Federation:
    """Agents with whole points, linear costs for the run, and the terms they play by."""

    points: tuple[int, ...]
    costs: tuple[float, ...]
    terms: Deposit
    scaled: float = 1.0  # of the computed deposit

    @cached_property
    def agents(self) -> tuple[str, ...]:
        return tuple(f"a{k}" for k in range(len(self.points)))

    @cached_property
    def deposits(self) -> dict[str, int]:
        computed = self.terms.deposits({a: s * self.terms.scale for a, s in zip(self.agents, self.points, strict=True)})
        return {agent: int(self.scaled * money) for agent, money in computed.items()}

    def found(self, lie: Lie, i: int) -> float:
        """The chance that a round with this lie fails its audit."""
        if lie.obvious:
            return 1.0
        if not lie.invented:
            return self.terms.audit
        s, fakes = self.points[i], round(lie.share * self.points[i])
        opened = min(self.terms.openings, s)
        missed = sum(
            comb(fakes, j) * comb(s - fakes, opened - j) / comb(s, opened) * (1.0 - self.terms.detection) ** j
            for j in range(opened + 1)
        )
        return self.terms.audit * (1.0 - missed)

    @cached_property
    def _known(self) -> dict[tuple[tuple[int, ...], frozenset[int]], tuple[float, ...]]:
        return {}

    def money(self, totals: tuple[int, ...], failed: frozenset[int]) -> tuple[float, ...]:
        """Everybody's balance after these deliveries, and these forfeits."""
        if (totals, failed) not in self._known:
            scores = contribution.scored(dict(zip(self.agents, totals, strict=True)))
            n, beta, rounds = len(self.points), self.terms.beta, self.terms.rounds
            paid = contribution.score_amounts(beta, rounds, n, scores, {}, self.agents, scale=1, minor=MINOR)
            lost = {self.agents[i]: self.deposits[self.agents[i]] for i in failed}
            shares = deposit.shared(lost, self.agents)
            balances = tuple((paid[a] + shares[a] - lost.get(a, 0)) / MINOR for a in self.agents)
            self._known[totals, failed] = balances
        return self._known[totals, failed]

    def outcomes(self, i: int, lie: Lie, plan: Plan) -> Iterator[tuple[float, int | None]]:
        """(chance, first round that fails or None)."""
        chance, left = self.found(lie, i), 1.0
        for t in range(plan[0], plan[1] + 1):
            yield left * chance, t
            left *= 1.0 - chance
        yield left, None

    def delivered(self, i: int, lie: Lie, plan: Plan, failed: int | None) -> tuple[int, float]:
        """The points that count over the run, and what the agent gains beside the money: V less its costs."""
        s, T = self.points[i], self.terms.rounds
        has = s - round(lie.share * s) if lie.enrolled else s
        counted, beside, end = 0, 0.0, T if failed is None else min(T, failed + 1 + self.terms.lag)
        for t in range(T):
            lies = plan[0] <= t <= plan[1]
            if failed is None or t < failed:
                counted += s if lies else has
            if t < end:
                trained = s - round(lie.share * s) if lies else has
                beside += float(self.terms.steering) * (lie.poison and lies) - self.costs[i] * trained / T
        return counted, beside

    def honest(self, who: Sequence[int], lies: dict[int, Lie]) -> float:
        """What these have together by enrolling and giving what they have."""
        has = [s - round(lies[i].share * s) if i in lies and lies[i].enrolled else s for i, s in enumerate(self.points)]
        paid = self.money(tuple(s * self.terms.rounds for s in has), frozenset())
        return sum(paid[i] - self.costs[i] * has[i] for i in who)

    def expected(self, who: Sequence[int], lies: dict[int, Lie], plan: Plan) -> float:
        """What these have together on average, where some of them lie."""
        total, liars = 0.0, sorted(lies)
        for branch in product(*(list(self.outcomes(i, lies[i], plan)) for i in liars)):
            chance = float(np.prod([p for p, _ in branch]))
            if not chance:
                continue
            points = [s * self.terms.rounds for s in self.points]
            beside = {j: -self.costs[j] * self.points[j] for j in who}
            for i, (_, failed) in zip(liars, branch, strict=True):
                points[i], beside[i] = self.delivered(i, lies[i], plan, failed)
            out = frozenset(i for i, (_, failed) in zip(liars, branch, strict=True) if failed is not None)
            paid = self.money(tuple(points), out)
            total += chance * sum(paid[j] + beside[j] for j in who)
        return total

    def search(self, *, pairs: bool) -> Best:
        """The best lie of all agents, or pairs of agents."""
        T, best = self.terms.rounds, Best()
        plans = sorted({(t, end) for t in range(T) for end in (t, T - 1)})
        for i, lie in product(range(len(self.points)), LIES):
            if not (round(lie.share * self.points[i]) or (lie.poison and self.terms.steering)):
                continue  # with so few points it changes nothing
            for plan in plans:
                sets: list[tuple[tuple[int, ...], dict[int, Lie]]] = [((i,), {i: lie})]
                if pairs:
                    partner = (i + 1) % len(self.points)
                    sets = [((i, partner), {i: lie})]
                    sets += [((i, partner), {i: lie, partner: lie})] * (plan[1] - plan[0] in (0, T - 1))
                for who, lies in sets:
                    gain = self.expected(who, lies, plan) - self.honest(who, lies)
                    if gain > best.gain:
                        best = Best(gain, f"{lie.name} {lie.share:g} by {len(lies)} in rounds {plan[0]}..{plan[1]}")
        return best


def random_federation(seed: int, *, colluding: int, steering: float = 0.0, lag: int = 3) -> Federation:
    """Points and costs of a random game; the price is just above what keeps everybody (and every pair) giving all."""
    rng = np.random.default_rng(seed)
    game = random_data_value(seed, int(rng.integers(3, 6)))
    points = tuple(max(1, int(s)) for s in game.s_max)
    costs = tuple(float(c) for c in game.cost.slope(game.s_max))
    share = (game.n - 1) / (game.n - colluding)  # a pair that openly gives less recovers a part of what it loses
    terms = Deposit(
        Fraction(str(round(1.05 * share * max(costs), 9))),
        rounds=int(rng.integers(3, 6)),
        audit=float(rng.choice([0.05, 0.1, 0.3, 0.5])),
        detection=float(rng.choice([0.5, 0.9, 1.0])),
        openings=int(rng.choice([1, 5, 10])),
        steering=Fraction(str(steering)) * max(points),
        colluding=colluding,
        minor=MINOR,
        lag=lag,
    )
    return Federation(points, costs, terms)


def digits(colluding: int) -> Federation:
    """Ten agents with scikit-learn's digits, four fifths of them to train on."""
    from sklearn.datasets import load_digits

    parts = [len(part) for part in np.array_split(np.arange(int(0.8 * len(load_digits().target))), 10)]
    beta, q = Fraction(2), 0.1
    terms = Deposit(beta, 5, q, 0.9, 10, colluding=colluding, minor=MINOR)
    return Federation(tuple(parts), (0.5,) * 10, terms)


def judge(name: str, federations: Sequence[Federation], *, pairs: bool, tight: bool) -> bool:
    """Search all of them at the deposit and just below it."""
    at, below, paying = Best(), Best(), 0
    for one in tqdm(federations, desc=name, leave=False):
        found = one.search(pairs=pairs)
        less = Federation(one.points, one.costs, one.terms, 0.99).search(pairs=pairs)
        at, below = max(at, found), max(below, less)
        paying += less.gain > NOTHING
    fine = at.gain <= NOTHING and (paying == len(federations) or not tight)
    print(
        f"{name}: best gain {at.gain:.3g} at D ({at.what}); at 0.99 D {below.gain:.3g} ({below.what}), "
        f"above 0 in {paying} of {len(federations)}{'' if fine else '  <-- WRONG'}"
    )
    return fine


CAUGHT = ("under-train", "zero-d", "sign-flip", "copy", "replay", "phantom")


def engine_runs(count: int) -> bool:
    """Audited runs with a liar: every balance is what the search reckons with, and the ledger verifies."""
    wrong = caught = 0
    with tempfile.TemporaryDirectory() as at:
        for seed in tqdm(range(count), desc="engine", leave=False):
            game = random_data_value(seed, 4)
            folder = Path(at) / str(seed)
            for name in (CENTER, *game.agents, "x", "y", "z"):
                make(name, folder / "keys")
            lie = CAUGHT[seed % len(CAUGHT)]
            values = {"mechanism": "2p-upbred", "beta": "7", "gamma": 9.0, "rounds": 6, "audit": 0.5, "seed": seed}
            values |= {"auditors": ["x", "y", "z"], "keys": str(folder / "keys"), "run": f"run-{seed}"}
            ended = engine.play(game, ledger=folder / "book.db", lies={game.agents[seed % 4]: lie}, **values)
            with ledger.read(folder / "book.db") as book:
                clean = verify(book, recompute=True).clean
                entries = [record.entry for record in book.entries()]
            agreed = entries[0].inputs["terms"]
            terms = Deposit.agreed(agreed["payments"]["deposit"]["terms"])
            failed = {a: t for e in entries if e.kind.startswith("forfeit") for a, t in e.inputs["failed"].items()}
            s_max = {agent: given["s_max"] for agent, given in agreed["agents"].items()}
            total = {agent: s * failed.get(agent, 6) for agent, s in s_max.items()}
            paid = contribution.score_amounts("7", 6, 4, contribution.scored(total), {}, sorted(total))
            lost = {agent: terms.deposits(s_max)[agent] for agent in failed}
            shares = deposit.shared(lost, sorted(total))
            for agent in total:
                wrong += abs(ended.payments[agent] - (paid[agent] + shares[agent] - lost.get(agent, 0))) > len(total)
            wrong += not clean or not set(failed) <= {game.agents[seed % 4]}
            caught += bool(failed)
    print(f"engine: {count} audited runs with a liar, {caught} caught, {wrong} balances or verdicts not as reckoned")
    return not wrong


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--games", type=int, default=200)
    parser.add_argument("--runs", type=int, default=20, help="audited runs in the engine")
    options = parser.parse_args(arguments)
    logging.getLogger("fedincentive").setLevel(logging.ERROR)
    seeds = range(options.games)
    steered = {"colluding": 2, "steering": 1e4, "lag": 0}
    fine = [
        judge("alone", [random_federation(seed, colluding=1) for seed in seeds], pairs=False, tight=True),
        judge("pairs", [random_federation(seed, colluding=2) for seed in seeds], pairs=True, tight=False),
        judge("steering pairs", [random_federation(seed, **steered) for seed in seeds], pairs=True, tight=True),
        judge("digits, alone", [digits(1)], pairs=False, tight=True),
        judge("digits, pairs", [digits(2)], pairs=True, tight=False),
        engine_runs(options.runs) if options.runs else True,
    ]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
