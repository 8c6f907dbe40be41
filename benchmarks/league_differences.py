"""Where the league's figures differ from an earlier prototype's: variants of each rule, on the league's own games.

    python benchmarks/league_differences.py [--games 24] [--row fact|fedbr|shaping|pwyc|loo ...]

The prototype's games were other draws of the same family, so each mean comes with its standard error over the games.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from fedincentive.league import ROWS, Reports, Stage, draw, lies
from fedincentive.league.claims import ASSUMPTIONS
from fedincentive.league.shares import LeaveOneOut

Figure = tuple[str, Sequence[float]]


def fact(stages: Sequence[Stage]) -> Iterator[Figure]:
    row = ROWS["fact"]

    def gains(told: Callable[[np.ndarray, int], np.ndarray]) -> list[np.ndarray]:
        """The best gain of every agent among these reports of its cost, by game."""
        found = []
        for stage in stages:
            reports = Reports.honest(stage)
            s = row.moves(stage, reports).s
            u = row.utilities(stage, reports, s)
            asked = [told(stage.c, i) for i in range(stage.n)]
            agents, values = np.repeat(np.arange(stage.n), [len(one) for one in asked]), np.concatenate(asked)
            gained = lies.told_gains(row, stage, reports, "c", agents, values, s, u)
            found.append(np.array([max(gained[agents == i].max(), 0.0) for i in range(stage.n)]))
        return found

    def scales(*factors: float) -> Callable[[np.ndarray, int], np.ndarray]:
        return lambda c, i: np.array(factors) * c[i]

    for factors in ((3.0,), (0.5, 2.0), (0.5, 1.5, 2.0, 3.0)):
        said = " and ".join(f"{factor:g}" for factor in factors)
        yield f"lie: {said} times the cost, the agent that gains most", [g.max() for g in gains(scales(*factors))]
    every = gains(lies._first_lies)
    yield "lie: all scales and middles, the agent that gains most", [g.max() for g in every]
    yield "lie: all scales and middles, mean over agents", [g.mean() for g in every]
    yield from _at_targets(stages)


def _at_targets(stages: Sequence[Stage]) -> Iterator[Figure]:
    """Everyone gives m*, as it would wherever it gains by the federation and is charged; here some do not gain."""
    row, given, correlation, best, tripled = ROWS["fact"], [], [], [], []
    for stage in stages:
        honest = Reports.honest(stage)
        m = row.terms(stage, honest)[0]
        u = row.utilities(stage, honest, m)

        def gains(agents: np.ndarray, values: np.ndarray, stage=stage, honest=honest, u=u) -> np.ndarray:
            told = honest.each_lying("c", agents, values)
            return row.utilities(stage, told, row.terms(stage, told)[0])[np.arange(len(agents)), agents] - u[agents]

        asked = [lies._first_lies(stage.c, i) for i in range(stage.n)]
        everyone = np.arange(stage.n)
        given.append(float(m.sum() / stage.s_max.sum()))
        correlation.append(float(np.corrcoef(row.pays(stage, honest, m), m)[0, 1]))
        best.append(gains(np.repeat(everyone, [len(one) for one in asked]), np.concatenate(asked)).max())
        tripled.append(max(gains(everyone, 3.0 * stage.c).max(), 0.0))
    yield "S: everyone gives m*", given
    yield "corr(pay, s): everyone gives m*", correlation
    yield "lie: everyone gives m*, all scales and middles", best
    yield "lie: everyone gives m*, 3 times the cost", tripled


def fedbr(stages: Sequence[Stage]) -> Iterator[Figure]:
    """Cost lies pay without limit, so the gain is that of the largest lie that is tried."""
    row = ROWS["fedbr-bg"]
    for factor in (3.0, 5.0):
        found = []
        for stage in stages:
            reports = Reports.honest(stage)
            s = row.moves(stage, reports).s
            u = row.utilities(stage, reports, s)
            found.append(lies.told_gains(row, stage, reports, "c", np.arange(stage.n), factor * stage.c, s, u).max())
        yield f"lie: {factor:g} times the cost", found


def shaping(stages: Sequence[Stage]) -> list[Figure]:
    row, best, under, beyond = ROWS["shaping"], [], [], []
    for stage in stages:
        reports = Reports.honest(stage)
        for found, low in ((best, None), (under, np.zeros(stage.n)), (beyond, stage.t_star)):
            s = row.moves(stage, reports).s if low is None else _largest(stage, reports, low)
            found.append(lies.best_contribution(row, stage, reports, s, row.utilities(stage, reports, s)).gain)
    return [
        ("regret: everyone replies best", best),
        ("regret: the largest s under the cap", under),
        ("regret: the same, but at least what it trains on alone", beyond),
    ]


def _largest(stage: Stage, reports: Reports, low: np.ndarray) -> np.ndarray:
    """Everyone in turn gives the largest s_i of at least low_i whose cap is not above V_i; else low_i."""
    row, s = ROWS["shaping"], stage.t_star.copy()
    for _ in range(60):
        before = s.copy()
        for i in range(stage.n):
            t = low[i] + np.linspace(0.0, 1.0, 513) * (stage.s_max[i] - low[i])
            S = np.tile(s, (len(t), 1))
            S[:, i] = t
            fits = row.cap(stage, reports, S)[:, i] <= stage.values(S)[:, i] + 1e-9
            s[i] = t[fits][-1] if fits.any() else low[i]
        if np.abs(s - before).max() < 1e-6:
            break
    return s


def pwyc(stages: Sequence[Stage]) -> list[Figure]:
    row, paid, within = ROWS["pwyc"], [], []
    for stage in stages:
        reports = Reports.honest(stage)
        paid.append(row.postings(stage, reports, row.moves(stage, reports).s, 0)[1])
        within.append(ASSUMPTIONS["needs within reach"](stage))
    return [
        ("treasury: all games, needs beyond reach count as all there is", paid),
        ("treasury: games whose needs are within reach", [p for p, reach in zip(paid, within, strict=True) if reach]),
    ]


class WithoutOwn(LeaveOneOut):
    """What i's points are worth to the others."""

    def scores(self, stage: Stage, held: np.ndarray) -> np.ndarray:
        everyone = held.sum(axis=-2, keepdims=True)
        lost = stage.values(everyone) - stage.values(everyone - held)
        return lost.sum(axis=-1) - np.einsum("...kk->...k", lost)


class OneModel(LeaveOneOut):
    """U(C) = sum_j curve_j(all points of C): every point serves everyone as its own, as one validation set sees it."""

    def scores(self, stage: Stage, held: np.ndarray) -> np.ndarray:
        total = held.sum(axis=(-1, -2))[..., None]
        return self.worth(stage, total) - self.worth(stage, total - held.sum(axis=-1))

    @staticmethod
    def worth(stage: Stage, points: np.ndarray) -> np.ndarray:
        assert stage.shared is not None
        return stage.shared.curve.value(np.broadcast_to(points[..., None], (*points.shape, stage.n))).sum(axis=-1)


def loo(stages: Sequence[Stage]) -> Iterator[Figure]:
    rows = {"of one model": OneModel(), "without its own value": WithoutOwn(), "as in the league": ROWS["loo-share"]}
    for name, row in rows.items():
        given, correlation = [], []
        for stage in stages:
            reports = Reports.honest(stage)
            s = row.moves(stage, reports).s
            given.append(float(s.sum() / stage.s_max.sum()))
            correlation.append(float(np.corrcoef(row.pays(stage, reports, s), s)[0, 1]))
        yield f"S: the score is {name}", given
        yield f"corr(pay, s): the score is {name}", correlation


PROTOTYPE = {
    "fact": "S .36, corr .25, lie .04",
    "fedbr": "lie 1.93",
    "shaping": "regret .03",
    "pwyc": "treasury .21",
    "loo": "S .51, corr .99",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=24)
    parser.add_argument("--row", action="append", choices=sorted(PROTOTYPE))
    given = parser.parse_args()
    stages = [draw("data-value", seed, 6, 0.1) for seed in range(given.games)]
    for name in given.row or PROTOTYPE:
        print(f"{name}: the prototype had {PROTOTYPE[name]}")
        for what, values in globals()[name](stages):
            error = np.std(values, ddof=1) / np.sqrt(len(values))
            print(f"  {what}: {np.mean(values):.3f} +- {error:.3f} ({len(values)} games)", flush=True)


if __name__ == "__main__":
    main()
