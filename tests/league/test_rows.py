"""Each row of the league against an independent writing of its rule."""

from __future__ import annotations

from itertools import combinations, permutations
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import optimize

from fedincentive.game import best_replies, last
from fedincentive.league import ROWS, Reports, draw, lies
from fedincentive.league.claims import CHECKS
from fedincentive.league.fedbr import root_of_costs
from fedincentive.league.groves import efficient
from fedincentive.league.shaping import EPSILON
from fedincentive.league.stage import deviations, peaks
from fedincentive.mechanisms.needs import cheapest, one_for_one, useful


@pytest.fixture(scope="module", params=[0, 5])
def stage(request):
    return draw("data-value", request.param, 5, 0.1)


@pytest.mark.parametrize("name", ROWS)
def test_exact_postings_are_the_floats_to_a_few_minor_units(name, stage):
    if name == "fact":
        stage = draw("data-value", 1, 3, 0.0)  # one trio: nothing is drawn, and floats are no means
    row, reports = ROWS[name], Reports.honest(stage)
    s = row.moves(stage, reports).s
    floats = row.pays(stage, reports, s) + row.settled(stage, s)
    paid, treasury = row.postings(stage, reports, s, 0)
    assert paid == pytest.approx(floats, abs=4e-5)
    assert treasury == pytest.approx(floats.sum(), abs=2e-4)


def test_the_planner_is_as_good_as_scipy(stage):
    s = ROWS["planner"].moves(stage, Reports.honest(stage)).s

    def loss(s):
        return -float((stage.values(s) - stage.costs(s)).sum())

    found = optimize.minimize(loss, 0.5 * stage.s_max, bounds=[(0.0, m) for m in stage.s_max], method="L-BFGS-B")
    assert loss(s) == pytest.approx(found.fun, abs=1e-6)


def test_upbred_rests_where_the_games_own_best_replies_do(stage):
    s = ROWS["upbred"].moves(stage, Reports.honest(stage)).s
    again = last(best_replies(stage.game, w=stage.w, s=s), 2).s  # from there: a rest stays
    assert s == pytest.approx(again, abs=2e-3)


def test_the_root_of_costs_is_the_root_in_its_range():
    rng = np.random.default_rng(0)
    for n in (2, 3, 6, 9):
        c = rng.uniform(0.001, 0.01, n)
        a, total = 1.0 / np.sum(1.0 / c), c.sum()
        roots = np.roots([total, -(a * n * (n - 2) + total), a * (n - 1) ** 2]).real
        inside = [root for root in roots if -1e-9 <= root <= 1.0 - 1.0 / n + 1e-9]
        assert root_of_costs(c) == pytest.approx(min(inside), abs=1e-7)


def test_fedbr_reaches_the_best_welfare_on_one_common_curve_and_not_on_own_curves():
    def gap(stage):
        net = [
            float((stage.values(s) - stage.costs(s)).sum())
            for s in (ROWS[name].moves(stage, Reports.honest(stage)).s for name in ("planner", "fedbr-bg"))
        ]
        return net[0] - net[1]

    assert max(gap(draw("common", seed, 4, 0.0)) for seed in range(4)) < 1e-3
    assert max(gap(draw("data-value", seed, 4, 0.1)) for seed in range(4)) > 0.02


def test_shaping_is_the_rule_and_the_best_reply_is_the_largest_s_under_the_cap():
    stage = draw("data-value", 1, 4, 0.0)
    row, reports = ROWS["shaping"], Reports.honest(stage)
    s = row.moves(stage, reports).s
    for i in range(stage.n):
        t = optimize.minimize_scalar(
            lambda t, i=i: -(stage.alone(np.full(stage.n, t))[i] - stage.c[i] * t),
            bounds=(0.0, stage.s_max[i]),
            method="bounded",
        ).x
        cap = stage.alone(np.full(stage.n, min(t, s[i])))[i] + stage.c[i] * (1 + EPSILON) * max(s[i] - t, 0.0)
        assert row.levels(stage, reports, s, s)[i] == pytest.approx(min(stage.values(s)[i], cap), abs=1e-5)
        if t + 1e-3 < s[i] < stage.s_max[i]:
            assert cap == pytest.approx(stage.values(s)[i], abs=1e-4)
    assert float((row.utilities(stage, reports, s) - stage.outside).min()) > -1e-6


def test_realfm_expands_the_grant_to_second_order(stage):
    row, worth = ROWS["realfm"], np.full(stage.n, 0.01)
    level = stage.alone(0.3 * stage.s_max)
    assert row.grant(stage, level, worth) == pytest.approx(level + worth, abs=1e-4)
    assert np.all(row.grant(stage, level, 30 * worth) > level + 30 * worth)


def test_facts_penalty_makes_m_the_best_contribution_and_leaves_the_agreed_part_of_the_gain():
    stage = draw("data-value", 0, 6, 0.0)
    row, reports = ROWS["fact"], Reports.honest(stage)
    m, fee, lam, k = row.terms(stage, reports)
    best, _ = peaks(lambda T: deviations(lambda S: row.utilities(stage, reports, S), m, T), stage.s_max)
    charged = lam > 0
    assert best[charged] == pytest.approx(m[charged], abs=0.02)
    assert (lam * k**2)[charged] == pytest.approx((0.05 * fee)[charged])


def test_the_chance_to_be_the_middle_is_that_of_all_trios():
    c = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0])
    row = ROWS["fact"]
    for i in range(6):
        pairs = list(combinations([c[j] for j in range(6) if j != i], 2))
        assert row.chances(c)[i] == pytest.approx(np.mean([min(p) < c[i] < max(p) for p in pairs]))


def test_the_cheapest_assignment_is_the_linear_programmes():
    rng = np.random.default_rng(2)
    for _ in range(40):
        n = int(rng.integers(2, 7))
        spill, c, most = rng.uniform(0, 1, n) ** rng.choice([0.0, 1.0]), rng.uniform(0.001, 1, n), rng.uniform(1, 50, n)
        need = rng.uniform(0, 1, n) * useful(most, spill)
        s = cheapest(c, need, spill, most)
        assert np.all(useful(s, spill) >= need - 1e-6)
        rows = -(spill[:, None] * (1 - np.eye(n)) + np.eye(n))
        found = optimize.linprog(c, A_ub=rows, b_ub=-need, bounds=[(0, m) for m in most])
        assert c @ s == pytest.approx(found.fun, rel=1e-6, abs=1e-6)


def test_one_for_one_is_a_fixed_point_that_wastes_nothing():
    rng = np.random.default_rng(3)
    for _ in range(20):
        spill, most, need = (
            rng.uniform(0, 1, 5) ** rng.choice([0.0, 1.0]),
            rng.uniform(10, 50, 5),
            rng.uniform(1, 40, 5),
        )
        s = one_for_one(need, spill, most)
        reached = useful(s, spill)
        assert np.all((s <= 1e-6) | (s >= most - 1e-6) | (np.abs(reached - need) < 1e-5))
        assert np.all((s >= most - 1e-6) | (reached >= need - 1e-5))
        replies = np.zeros(5)
        for _ in range(2000):  # everyone in turn adds what the others leave it short of
            for i in range(5):
                replies[i] = np.clip(need[i] - spill[i] * (replies.sum() - replies[i]), 0.0, most[i])
        assert s.sum() == pytest.approx(replies.sum(), rel=1e-4)


def test_shapley_scores_are_means_over_all_orders(stage):
    s = 0.3 * stage.s_max

    def utility(members):
        return float(stage.values(np.array([x if i in members else 0.0 for i, x in enumerate(s)])).sum())

    orders = list(permutations(range(stage.n)))
    expected = np.zeros(stage.n)
    for order in orders:
        for place, i in enumerate(order):
            expected[i] += utility(order[: place + 1]) - utility(order[:place])
    scores = ROWS["shapley-share"].scores(stage, np.diag(s))
    assert scores == pytest.approx(expected / len(orders))
    without = [utility(range(stage.n)) - utility([j for j in range(stage.n) if j != i]) for i in range(stage.n)]
    assert ROWS["loo-share"].scores(stage, np.diag(s)) == pytest.approx(without)


def test_facts_penalty_also_holds_who_is_to_give_all_it_has():
    """Reporting no cost makes m* all there is; without a penalty there the liar would pay a small fee and ride free."""
    stage = draw("data-value", 1, 4, 0.0)
    honest = Reports.honest(stage)
    i = int(stage.c.argmax())
    reports = honest.lying("c", i, 0.0)
    m, _, lam, k = ROWS["fact"].terms(stage, reports)
    h = 1e-3
    rising = (stage.alone(m)[i] - stage.alone(m - h * np.eye(4)[i])[i]) / h
    assert m[i] == pytest.approx(stage.s_max[i]) and lam[i] > 0.0
    assert 2.0 * (lam * k)[i] == pytest.approx(rising - stage.slopes(m)[i], rel=1e-3)


def best_of(stage, c, without=None):
    """(s, net values) of the efficient assignment by SciPy; without one agent, of the others alone."""
    counted = np.arange(stage.n) != without

    def loss(s):
        return -float((stage.values(s) - c * s)[counted].sum())

    bounds = [(0.0, m if kept else 0.0) for m, kept in zip(stage.s_max, counted, strict=True)]
    starts = [np.where(counted, part * stage.s_max, 0.0) for part in (0.1, 0.5)]
    found = min((optimize.minimize(loss, s, bounds=bounds, method="L-BFGS-B") for s in starts), key=lambda r: r.fun)
    return found.x, -found.fun


def test_the_efficient_assignment_is_scipys():
    for seed in range(4):
        stage = draw("data-value", seed, 4, 0.1)
        for without in (None, 1):
            s = efficient(stage, stage.c, without)
            kept = np.arange(4) != without
            found = (stage.values(s) - stage.c * s)[kept].sum()
            assert found == pytest.approx(best_of(stage, stage.c, without)[1], abs=1e-6)
            assert without is None or s[without] == 0.0


def test_clarke_pays_what_an_agent_brings_the_others():
    stage = draw("data-value", 4, 3, 0.1)
    row, reports = ROWS["clarke"], Reports.honest(stage)
    s, _ = best_of(stage, stage.c)
    net = stage.values(s) - stage.c * s
    expected = [net.sum() - net[i] - best_of(stage, stage.c, without=i)[1] for i in range(3)]
    assert row.pays(stage, reports, s) == pytest.approx(expected, abs=1e-4)  # first order in the errors of s


def test_agv_is_truthful_before_the_others_are_known_and_not_after():
    stage = draw("data-value", 1, 3, 0.1)
    row, reports = ROWS["agv"], Reports.honest(stage)
    assert row.interim(stage)[0] < 1e-5
    s = row.moves(stage, reports).s
    u = row.utilities(stage, reports, s)
    assert lies.best_report(row, stage, reports, "c", s, u).gain > 0.005
    assert row.pays(stage, reports, s).sum() == pytest.approx(0.0, abs=1e-12)
    # what the others can expect falls with what an agent's points cost
    falling = np.diff(row.xi(stage, np.outer(np.linspace(0.0, 0.01, 5), np.ones(3))), axis=0)
    assert falling.max() < 1e-6 and falling[0].max() < -1e-3


def test_p_means_are_maximal_on_one_common_curve_only():
    for family, held in (("common", True), ("data-value", False)):
        stage = draw(family, 1, 3, 0.1)
        row, reports = ROWS["fedbr-bg"], Reports.honest(stage)
        s = row.moves(stage, reports).s
        u = row.utilities(stage, reports, s)
        played = SimpleNamespace(utilities=tuple(u))
        found = CHECKS["maximal p-means"](row, stage, played)
        best = best_of(stage, stage.c)[1] / 3
        assert found.amount == pytest.approx(best - 1.0 / np.mean(1.0 / u), abs=1e-5)  # the smallest is the harmonic
        assert (found.amount < 1e-4) == held
