"""A search for lies that pay in spite of audits and deposits.

    python benchmarks/deposits.py --games 200 --runs 20

In each random game, and in the digits federation, every agent tries under-training, invented points, points that do
not exist (an inflated s_max), records enrolled twice, copies of another's update, replays of the last step, poison, and
all at once, in single rounds and from any round on: alone, with an honest partner that shares in the forfeits, and with
a partner that lies too, in the same or in another way and in the same or in other rounds. What each outcome of the
audits pays comes from the functions that make the ledger's entries, and how likely it is from the audit's probability,
the records opened and their detection. Costs are the games' own; what less training does to the model is left out,
which favours the liar, but for `V`, what poison gains in a round. A liar's copy has its partner audited too; that is
left out, which favours them as well. Records of another site are found by tags before the terms (`attest
duplicates`), not here.

Printed is the best gain over being honest at the computed deposit, which must be at most 0, and at 99 % of it, which
must be above 0. Where the price keeps single agents at s_max but not pairs, a pair gains by openly giving less: there
the best gain is over that, and it is at most 0 at the same deposit. Then audited runs are played in the engine with
liars among the agents: every balance must be what the search reckons with. Exits 1 otherwise.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations, product
from math import comb, prod
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
    Lie("records twice", 0.5, enrolled=True),
    Lie("copied update", 1.0, obvious=True),
    Lie("replayed step", 1.0, obvious=True),
    Lie("poison", poison=True),
    Lie("all at once", 1.0, enrolled=True, poison=True),
)
Plan = tuple[int, int]  # the first and the last round of the lie
Lies = dict[int, tuple[Lie, Plan]]  # of these agents
TRIED = 4  # of each liar's best lies, with each of its partner's, and as many pairs of lies at random


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
            return float(self.terms.chance)
        s, fakes = self.points[i], round(lie.share * self.points[i])
        opened = min(self.terms.openings, s)
        missed = sum(
            comb(fakes, j) * comb(s - fakes, opened - j) / comb(s, opened) * (1.0 - self.terms.detection) ** j
            for j in range(opened + 1)
        )
        return float(self.terms.chance) * (1.0 - missed)

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

    def outcomes(self, i: int, lie: Lie, plan: Plan) -> Iterator[tuple[float, bool, int, float]]:
        """(chance, whether it fails, the points that count, what it gains beside the money)."""
        chance, left = self.found(lie, i), 1.0
        for t in range(plan[0], plan[1] + 1):
            yield left * chance, True, *self.delivered(i, lie, plan, t)
            left *= 1.0 - chance
        yield left, False, *self.delivered(i, lie, plan, None)

    def delivered(self, i: int, lie: Lie, plan: Plan, failed: int | None) -> tuple[int, float]:
        """The points that count over the run, and what the agent gains beside the money: V less its costs."""
        s, T = self.points[i], self.terms.rounds
        has = s - round(lie.share * s) if lie.enrolled else s
        trained = s - round(lie.share * s)

        def lying(end: int) -> int:
            """Rounds of the lie before this one."""
            return max(0, min(end, plan[1] + 1) - plan[0])

        counts = T if failed is None else failed
        seen = T if failed is None else min(T, failed + 1 + self.terms.lag)
        spent = lying(seen) * trained + (seen - lying(seen)) * has
        gained = float(self.terms.steering) * lie.poison * lying(seen) - self.costs[i] * spent / T
        return lying(counts) * s + (counts - lying(counts)) * has, gained

    def has(self, lies: Lies) -> list[int]:
        """The points that everybody really has."""
        fakes = {i: round(lie.share * self.points[i]) for i, (lie, _) in lies.items() if lie.enrolled}
        return [s - fakes.get(i, 0) for i, s in enumerate(self.points)]

    def honest(self, who: Sequence[int], lies: Lies, *, withdrawing: bool) -> float:
        """What these have together by enrolling and giving what they have; or less, where that is better for them."""
        has, best = self.has(lies), -np.inf
        for kept in product((1, 0), repeat=len(who) if withdrawing else 0):
            given = has.copy()
            for i, all_of_it in zip(who, kept, strict=False):
                given[i] *= all_of_it
            paid = self.money(tuple(s * self.terms.rounds for s in given), frozenset())
            best = max(best, sum(paid[i] - self.costs[i] * given[i] for i in who))
        return best

    def expected(self, who: Sequence[int], lies: Lies) -> float:
        """What these have together on average, where some of them lie."""
        total = 0.0
        points = [s * self.terms.rounds for s in self.points]
        beside = {j: -self.costs[j] * self.points[j] for j in who}
        for branch in product(*(self.outcomes(i, *one) for i, one in lies.items())):
            chance = prod(one[0] for one in branch)
            if not chance:
                continue
            for i, (_, _, counted, gained) in zip(lies, branch, strict=True):
                points[i], beside[i] = counted, gained
            paid = self.money(tuple(points), frozenset(i for i, one in zip(lies, branch, strict=True) if one[1]))
            total += chance * sum(paid[j] + beside[j] for j in who)
        return total

    def tried(self, who: Sequence[int], lies: Lies, *, withdrawing: bool = False) -> Best:
        gain = self.expected(who, lies) - self.honest(who, lies, withdrawing=withdrawing)
        told = (f"{lie.name} {lie.share:g} in rounds {first}..{last}" for lie, (first, last) in lies.values())
        return Best(gain, " and ".join(told) + " with a partner" * (len(who) > len(lies)))

    def search(self, *, pairs: bool, withdrawing: bool = False, seed: int = 0) -> Best:
        """The best lie of all agents, or of pairs. A liar brings every partner the same:
        one partner is tried with all lies, all pairs with the best lies of both and with some at random."""
        T, n, rng = self.terms.rounds, len(self.points), np.random.default_rng(seed)
        plans = sorted({(t, end) for t in range(T) for end in (t, T - 1)})
        found: list[list[tuple[Best, tuple[Lie, Plan]]]] = []
        for i in range(n):
            lies = [lie for lie in LIES if round(lie.share * self.points[i]) or (lie.poison and self.terms.steering)]
            who = (i, (i + 1) % n) if pairs else (i,)  # a lie that changes nothing, with so few points, is none
            every = ((self.tried(who, {i: one}, withdrawing=withdrawing), one) for one in product(lies, plans))
            found.append(sorted(every, key=lambda tried: tried[0].gain, reverse=True))
        best = max(tried for own in found for tried, _ in own)
        for i, j in combinations(range(n), 2) if pairs else ():
            drawn = [
                (found[i][rng.integers(len(found[i]))], found[j][rng.integers(len(found[j]))]) for _ in range(TRIED)
            ]
            for (_, mine), (_, partners) in [*product(found[i][:TRIED], found[j][:TRIED]), *drawn]:
                best = max(best, self.tried((i, j), {i: mine, j: partners}, withdrawing=withdrawing))
        return best


def random_federation(
    seed: int,
    *,
    colluding: int,
    steering: float = 0.0,
    lag: int = 3,
    kept: int | None = None,
    rounds: int | None = None,
) -> Federation:
    """Points and costs of a random game; the price is just above what keeps `kept` agents together (as many as may
    collude) giving all."""
    rng = np.random.default_rng(seed)
    game = random_data_value(seed, int(rng.integers(3, 6)))
    points = tuple(max(1, int(s)) for s in game.s_max)
    costs = tuple(float(c) for c in game.cost.slope(game.s_max))
    together = kept or colluding
    share = (game.n - 1) / (game.n - together)  # a pair that openly gives less recovers a part of what it loses
    terms = Deposit(
        Fraction(str(round(1.05 * share * max(costs), 9))),
        rounds=rounds or int(rng.integers(3, 6)),
        audit=float(rng.choice([0.05, 0.1, 0.3, 0.5] if rounds is None else [0.5])),
        detection=float(rng.choice([0.5, 0.9, 1.0])),
        openings=int(rng.choice([1, 5, 10])),
        steering=Fraction(str(steering)) * max(points),
        colluding=colluding,
        minor=MINOR,
        lag=lag,
    )
    return Federation(points, costs, terms)


TERMS = {
    "alone": {"colluding": 1},
    "pairs": {"colluding": 2},
    "pairs that may openly give less": {"colluding": 2, "kept": 1},
    "steering alone": {"colluding": 1, "steering": 1e4, "lag": 0},
    "steering pairs": {"colluding": 2, "steering": 1e4, "lag": 0},
}
LONG = {"colluding": 2, "steering": 1e4, "lag": 3, "rounds": 14}  # long enough to steer until the verdict


def digits(colluding: int) -> Federation:
    """Ten agents with scikit-learn's digits, four fifths of them to train on."""
    from sklearn.datasets import load_digits

    parts = [len(part) for part in np.array_split(np.arange(int(0.8 * len(load_digits().target))), 10)]
    beta, q = Fraction(2), 0.1
    terms = Deposit(beta, 5, q, 0.9, 10, colluding=colluding, minor=MINOR)
    return Federation(tuple(parts), (0.5,) * 10, terms)


def judge(name: str, federations: Sequence[Federation], *, pairs: bool, **search: bool) -> bool:
    """Search all of them at the deposit and just below it."""
    at, below, paying = Best(), Best(), 0
    for seed, one in enumerate(tqdm(federations, desc=name, leave=False)):
        found = one.search(pairs=pairs, seed=seed, **search)
        less = replace(one, scaled=0.99).search(pairs=pairs, seed=seed, **search)
        at, below = max(at, found), max(below, less)
        paying += less.gain > NOTHING
    fine = at.gain <= NOTHING and paying == len(federations)
    print(
        f"{name}: best gain {at.gain:.3g} at D ({at.what}); at 0.99 D {below.gain:.3g} ({below.what}), "
        f"above 0 in {paying} of {len(federations)}{'' if fine else '  <-- WRONG'}",
        flush=True,
    )
    return fine


CAUGHT = ("under-train", "zero-d", "sign-flip", "copy", "replay", "phantom")


def engine_runs(count: int, audit: float = 0.5) -> bool:
    """Audited runs with a liar: every balance is what the search reckons with, and the ledger verifies."""
    wrong = caught = 0
    with tempfile.TemporaryDirectory() as at:
        for seed in tqdm(range(count), desc="engine", leave=False):
            game = random_data_value(seed, 4)
            folder = Path(at) / str(seed)
            for name in (CENTER, *game.agents, "x", "y", "z"):
                make(name, folder / "keys")
            lie = CAUGHT[seed % len(CAUGHT)]
            values = {"mechanism": "2p-upbred", "beta": "7", "gamma": 9.0, "rounds": 6, "audit": audit, "seed": seed}
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
    made = {name: [random_federation(seed, **terms) for seed in range(options.games)] for name, terms in TERMS.items()}
    fine = [
        *(judge(name, games, pairs="pairs" in name, withdrawing="open" in name) for name, games in made.items()),
        judge("steering pairs until the verdict", [random_federation(seed, **LONG) for seed in range(3)], pairs=True),
        judge("digits, alone", [digits(1)], pairs=False),
        judge("digits, pairs", [digits(2)], pairs=True),
        engine_runs(options.runs) if options.runs else True,
    ]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
