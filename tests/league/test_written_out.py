"""What each row pays and gives, against its rule written out agent by agent from the game's own numbers.

Where contributions rest, Clarke's pivots and the assignments are in `test_rows.py`, the ledger's exact amounts in
`ledger/vectors.py`.
"""

from __future__ import annotations

from itertools import permutations
from math import sqrt

import numpy as np
import pytest
from scipy import optimize

from fedincentive import draws
from fedincentive.league import ROWS, Reports, draw

N = 5


@pytest.fixture(scope="module", params=[2, 7])
def stage(request):
    return draw("data-value", request.param, N, 0.1)


@pytest.fixture(scope="module")
def s(stage):
    return np.random.default_rng(1).uniform(0.1, 0.9, stage.n) * stage.s_max


class Written:
    """A data-value game: v_i = a - b (1 + E)^-power - fit |w - x|^2 / 2, with E = s_i + spill_i sum of the others."""

    def __init__(self, stage):
        v = stage.game.valuation
        self.n, self.c, self.most = stage.n, stage.game.cost.c, stage.game.s_max
        self.a, self.b, self.power, self.spill, self.x = v.curve.a, v.curve.b, v.curve.power, v.spill, v.x[:, 0]
        self.fit, self.w = float(v.fit), float(v.x.mean())  # with one fit for all the best model is the mean ideal

    def curve(self, i, points):
        return self.a[i] - self.b[i] * (1.0 + points) ** -self.power[i]

    def slope(self, i, points):
        return self.b[i] * self.power[i] * (1.0 + points) ** (-self.power[i] - 1.0)

    def useful(self, i, s):
        return s[i] + self.spill[i] * sum(s[j] for j in range(self.n) if j != i)

    def value(self, i, s):
        return self.curve(i, self.useful(i, s)) - self.fit * (self.w - self.x[i]) ** 2 / 2

    def alone(self, i, cost):
        """t* = argmax curve - cost t, where the slope meets the cost."""
        t = (self.b[i] * self.power[i] / cost) ** (1.0 / (self.power[i] + 1.0)) - 1.0 if cost > 0.0 else np.inf
        return min(max(t, 0.0), self.most[i])


def against_others(phi):
    """phi_i less the mean of the others'."""
    return [phi[i] - sum(x for j, x in enumerate(phi) if j != i) / (len(phi) - 1) for i in range(len(phi))]


def paid(name, stage, s, reports=None):
    return ROWS[name].pays(stage, reports or Reports.honest(stage), s)


def test_values_are_the_games(stage, s):
    hand = Written(stage)
    assert stage.values(s) == pytest.approx([hand.value(i, s) for i in range(N)])
    assert stage.t_star == pytest.approx([hand.alone(i, hand.c[i]) for i in range(N)], abs=1e-3)
    for name in ("planner", "fedavg", "upbred", "one-for-one"):  # nobody is paid
        assert not np.any(paid(name, stage, s))
        utility = ROWS[name].utilities(stage, Reports.honest(stage), s)
        assert utility == pytest.approx([hand.value(i, s) - hand.c[i] * s[i] for i in range(N)])


def test_t_upbred_pays_what_the_others_gained_since_the_start(stage, s):
    hand, game = Written(stage), stage.game
    first = Written(stage)
    first.w = float(game.w0[0])
    gained = [hand.value(i, s) - first.value(i, game.s0) for i in range(N)]
    expected = [sum(gained[j] for j in range(N) if j != i) for i in range(N)]
    assert paid("t-upbred", stage, s) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["2p-upbred", "2p-attested"])
def test_two_phase_prices_points_above_every_cost(name, stage, s):
    """Here no agent is worse off by points, so the largest cost is all that the price has to beat."""
    price = 1.05 * max(Written(stage).c)
    assert paid(name, stage, s) == pytest.approx(against_others([price * x for x in s]))


def test_claims_are_paid_unless_delivery_is_attested(stage, s):
    reports, less = Reports.honest(stage), 0.5 * s
    for name, counted in (("2p-upbred", s), ("2p-attested", less)):
        expected = stage.values(less) - stage.c * less + paid(name, stage, counted)
        assert ROWS[name].utilities(stage, reports, s, less) == pytest.approx(expected)


def test_fedbr_bg_leaves_everyone_the_mean_of_all_stated_costs(stage, s):
    told = Reports.honest(stage).lying("c", 1, 0.02)
    costs = [0.02 * s[1] if i == 1 else stage.c[i] * s[i] for i in range(N)]
    assert paid("fedbr-bg", stage, s, told) == pytest.approx([cost - sum(costs) / N for cost in costs])


def cap(hand, i, points, cost, grant):
    t = hand.alone(i, cost)
    return hand.curve(i, points) if points <= t else grant(hand, i, hand.curve(i, t), 1.01 * cost * (points - t))


def realfm(hand, i, level, worth):
    """The accuracy on top of phi's own that phi's second-order expansion values at `worth`, found by bisection."""
    floor = hand.curve(i, 0.0)
    a = 1.0 - 1.0 / sqrt(level - floor + 1.0)  # phi(a) = 1/(1-a)^2 - 1 over the value of no data
    first, second = 2.0 / (1.0 - a) ** 3, 6.0 / (1.0 - a) ** 4
    g = optimize.brentq(lambda g: first * g + second * g * g / 2.0 - worth, 0.0, 1.0)
    return floor + 1.0 / (1.0 - a - g) ** 2 - 1.0


@pytest.mark.parametrize(
    ("name", "grant"), [("shaping", lambda hand, i, level, worth: level + worth), ("realfm", realfm)]
)
def test_degraded_models_are_worth_what_the_points_have_earned(name, grant, stage, s):
    hand, reports, seen = Written(stage), Reports.honest(stage), set()
    for part in (0.2, 0.6, 1.0):
        given = part * s
        found = ROWS[name].levels(stage, reports, given, given)
        for i in range(N):
            most = cap(hand, i, given[i], hand.c[i], grant)
            assert found[i] == pytest.approx(min(hand.value(i, given), most), abs=2e-6)
            seen.add((given[i] > hand.alone(i, hand.c[i]), most < hand.value(i, given)))
    assert seen >= {(False, True), (True, True)}  # both sides of t*, and the cap binds


def test_fact_pays_the_mean_over_all_draws_of_trios():
    stage = draw("data-value", 3, 6, 0.0)
    hand, s = Written(stage), np.random.default_rng(0).uniform(0.1, 0.9, 6) * stage.s_max
    m = np.array([hand.alone(i, hand.c[i]) for i in range(6)])
    fee = [max(hand.value(i, m) - hand.curve(i, m[i]), 0.0) for i in range(6)]
    prize, draws_ = np.zeros(6), list(permutations(range(6)))
    for order in draws_:
        for trio in (order[:3], order[3:]):
            winner = sorted(trio, key=lambda i: hand.c[i])[1]
            prize[winner] += 3.0 / 6.0 * (sum(fee) - fee[winner])
    expected = []
    for i in range(6):
        gap = max(hand.c[i], hand.slope(i, m[i])) - hand.slope(i, hand.useful(i, m))
        if fee[i] > 0.0 and gap > 0.0:
            scale = gap**2 / (4.0 * (1.0 - 1.9 / 2.0) * fee[i])
            penalty = scale * (gap / (2.0 * scale) + m[i] - s[i]) ** 2
        expected.append(prize[i] / len(draws_) - fee[i] - (penalty if fee[i] > 0.0 and gap > 0.0 else 0.0))
    assert paid("fact", stage, s) == pytest.approx(expected, rel=2e-3, abs=2e-4)


def test_pwyc_pays_stated_costs_back(stage, s):
    told = Reports.honest(stage).lying("c", 0, 0.5)
    assert paid("pwyc", stage, s, told) == pytest.approx([0.5 * s[0], *(stage.c[i] * s[i] for i in range(1, N))])


def marginal(hand, s):
    """U(N) - U(N without i), where U(C) is what all agents have from the points of C."""
    worth = lambda t: sum(hand.value(j, t) for j in range(N))  # noqa: E731
    return [worth(s) - worth([0.0 if j == i else s[j] for j in range(N)]) for i in range(N)]


def agreed(stage, s):
    """Right in the part e, a coin's otherwise: two agents agree beyond chance in proportion to both their efforts."""
    effort = [s[i] / stage.s_max[i] for i in range(N)]
    return [effort[i] * sum(effort[j] for j in range(N) if j != i) / (N - 1) for i in range(N)]


def by_orders(hand, s):
    orders, value = list(permutations(range(N))), [0.0] * N
    for order in orders:
        given = [0.0] * N
        for i in order:
            before = sum(hand.value(j, given) for j in range(N))
            given[i] = s[i]
            value[i] += (sum(hand.value(j, given) for j in range(N)) - before) / len(orders)
    return value


@pytest.mark.parametrize("name", ["size-share", "loo-share", "shapley-share", "agreement-share"])
def test_shares_divide_half_of_what_all_points_cost(name, stage, s):
    hand = Written(stage)
    scores = {
        "size-share": lambda: list(s),
        "loo-share": lambda: marginal(hand, s),
        "shapley-share": lambda: by_orders(hand, s),
        "agreement-share": lambda: agreed(stage, s),
    }[name]()
    budget = sum(hand.c[i] * hand.most[i] for i in range(N)) / 2.0
    assert paid(name, stage, s) == pytest.approx([budget * score / sum(scores) for score in scores])


def groves(d, h, k):
    """docs/truthful.md, pair by pair: who is in no term of a square or a pair is charged for it in equal parts."""
    n, pay = len(d), [0.0] * len(d)
    for i in range(n):
        own = (k[i] * h * h - h) / 2.0 * float(d[i] @ d[i])
        for j in range(n):
            pay[j] += own if j == i else -own / (n - 1)
            if j > i:
                product = h * h * float(d[i] @ d[j])
                pay[i] += k[i] * product
                pay[j] += k[j] * product
                for other in set(range(n)) - {i, j}:
                    pay[other] -= (k[i] + k[j]) * product / (n - 2)
    return pay


def linear(d, h, k):
    return against_others([-h / 2.0 * float(own @ own) for own in d])


@pytest.mark.parametrize(("name", "rule"), [("groves-d", groves), ("gradient-relative", linear)])
def test_updates_are_paid_for_in_every_round_of_training(name, rule, stage, s):
    """Server SGD whose step halves the distance to the best model; each round counts twice what the one before does."""
    hand, total = Written(stage), np.zeros(N)
    w, h = float(stage.game.w0[0]), 0.5 / hand.fit / N
    for t in range(20):
        d = np.array([[-hand.fit * (w - hand.x[i])] for i in range(N)])
        total += 0.5 ** (19 - t) * np.array(rule(d, h, [hand.fit] * N))
        w += h * float(d.sum())
    assert ROWS[name].settled(stage, s) == pytest.approx(total, abs=1e-12)
    assert abs(total.sum()) < 1e-12 < abs(total).max()


def test_agv_pays_what_the_others_can_expect():
    """xi_i over eight draws of the others' costs, one in each eighth of the prior, each game solved by SciPy."""
    stage = draw("data-value", 2, 3, 0.1)
    hand, rng = Written(stage), draws.generator(0, "agv")
    eighths = np.stack([rng.permutation(8) for _ in range(3)], axis=1)
    drawn = 0.01 * (eighths + rng.uniform(size=(8, 3))) / 8

    def others(i, costs):
        def net(s, who):
            return sum(hand.value(j, s) - costs[j] * s[j] for j in who)

        bounds = [(0.0, most) for most in hand.most]
        starts = [part * hand.most for part in (0.1, 0.5)]
        found = [optimize.minimize(lambda s: -net(s, range(3)), s, bounds=bounds, method="L-BFGS-B") for s in starts]
        return net(min(found, key=lambda one: one.fun).x, [j for j in range(3) if j != i])

    xi = []
    for i in range(3):
        costs = [np.where(np.arange(3) == i, hand.c, theirs) for theirs in drawn]
        xi.append(sum(others(i, one) for one in costs) / 8)
    assert paid("agv", stage, hand.most) == pytest.approx(against_others(xi), abs=1e-3)
