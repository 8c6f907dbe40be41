"""groves-d: no misreport pays in quadratic games, a bound elsewhere, and the sum is exactly zero."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize

from fedincentive.errors import PaymentError, SettingError
from fedincentive.league.lies import update_pay
from fedincentive.payments import GrovesUpdates, Oracles, quantise
from fedincentive.payments.pooled import pair


class Round:
    """n agents with v_i = -k_i |w - x_i|^2 / 2 + bend_i sum cos(w): one round of server SGD from w = 0."""

    def __init__(self, seed: int, eta: float, bend: float = 0.0):
        rng = np.random.default_rng(seed)
        self.n, m = int(rng.integers(3, 7)), int(rng.integers(1, 4))
        self.k, self.x = rng.uniform(0.2, 1.0, self.n), rng.normal(size=(self.n, m))
        self.w, self.h, self.bend = rng.normal(size=m), eta / self.n, bend

    def value(self, i, w):
        return -0.5 * self.k[i] * np.sum((w - self.x[i]) ** 2) + self.bend * np.sum(np.cos(w))

    def gradient(self, i, w):
        return -self.k[i] * (w - self.x[i]) - self.bend * np.sin(w)

    @property
    def honest(self):
        return np.array([self.gradient(i, self.w) for i in range(self.n)])

    def utility(self, i, sent, how="groves-d", k=None):
        d = self.honest
        d[i] = sent
        paid = update_pay(how, d, self.h, self.k if k is None else k)[i]
        return self.value(i, self.w + self.h * d.sum(axis=0)) + paid

    def gain(self, i, how="groves-d", k=None):
        """The best of all updates, by a search from several starts."""
        honest = self.honest[i]
        starts = [honest, 3.0 * honest + 1.0]
        found = max(-optimize.minimize(lambda d: -self.utility(i, d, how, k), start).fun for start in starts)
        return found - self.utility(i, honest, how, k)


@pytest.mark.parametrize("eta", [0.05, 0.5, 1.0])
def test_no_update_pays_more_than_the_gradient_in_quadratic_games(eta):
    games = [Round(seed, eta) for seed in range(4)]
    assert max(game.gain(i) for game in games for i in range(game.n)) < 1e-9
    unpaid = np.mean([game.gain(0, "none", game.k) for game in games])
    linear = np.mean([max(game.gain(i, "relative") for i in range(game.n)) for game in games])
    wrong = np.mean([max(game.gain(i, k=1.3 * game.k) for i in range(game.n)) for game in games])
    assert unpaid > 0.05 and 1e-7 < wrong < linear < unpaid


@pytest.mark.parametrize("eta", [0.2, 1.0])
def test_elsewhere_the_gain_is_within_the_proved_bound(eta):
    tight = []
    for seed in range(4):
        game = Round(seed, eta, bend=-0.15)  # v_i stays concave: k_i >= 0.2
        for i in range(game.n):
            ahead = game.w + game.h * game.honest.sum(axis=0)
            error = game.gradient(i, ahead) - game.gradient(i, game.w) + game.k[i] * (ahead - game.w)
            least = game.k[i] - 0.15
            bound = 0.5 * game.h * float(error @ error) / (1.0 - game.h * (game.k[i] - least))
            gain = game.gain(i)
            assert gain <= bound + 1e-9
            tight.append(gain / bound)
    assert max(tight) > 0.8  # the bound is not empty words


def exact(game: Round, unit: int = 10**9, minor: int = 10**6):
    names = [f"a{i}" for i in range(game.n)]
    products = game.honest @ game.honest.T
    gram = {
        a: {b: quantise(float(products[i, j]), unit) for j, b in enumerate(names[: i + 1])} for i, a in enumerate(names)
    }
    k = {a: str(Fraction(str(round(float(x), 6)))) for a, x in zip(names, game.k, strict=True)}
    return pair(gram, unit, str(Fraction(1, 2) / game.n), k, minor=minor), names


def test_amounts_sum_to_exactly_zero_and_are_the_formula():
    for seed in range(50):
        game = Round(seed, 0.5)
        amounts, names = exact(game)
        assert sum(amounts.values()) == 0
        floats = update_pay("groves-d", game.honest, game.h, game.k)
        assert [amounts[a] / 1e6 for a in names] == pytest.approx(floats, abs=1e-5)


def test_a_pairs_part_is_charged_to_the_others_only():
    """An agent's payment without its own update does not depend on how the others' pairs are written."""
    game = Round(1, 0.5)
    before = update_pay("groves-d", game.honest, game.h, game.k)
    turned = game.honest @ np.linalg.qr(np.random.default_rng(0).normal(size=(game.w.size,) * 2))[0]
    assert update_pay("groves-d", turned, game.h, game.k) == pytest.approx(before)


def run_long(game, scales, rho, rounds=40):
    """Total gain of agent 0 when it scales the update of round t by scales(t), payments weighed rho^(T-1-t)."""

    def play(scaled):
        w, paid = game.w, 0.0
        for t in range(rounds):
            d = np.array([game.gradient(i, w) for i in range(game.n)])
            d[0] *= scales(t) if scaled else 1.0
            paid += rho ** (rounds - 1 - t) * update_pay("groves-d", d, game.h, game.k)[0]
            w = w + game.h * d.sum(axis=0)
        return game.value(0, w) + paid

    return play(True) - play(False)


def test_discounted_payments_leave_little_to_a_patient_agent():
    """The best of 18 plans in 40 rounds, by games: docs/truthful.md has their means."""
    games = [Round(seed, 0.2) for seed in range(8)]
    plans = [lambda t, a=a, c=c: a if t < c else 1.0 for a in (-1.0, 0.0, 0.3, 0.6, 0.9, 1.5) for c in (5, 15, 30)]

    def most(game, rho):
        return max(0.0, *(run_long(game, plan, rho) for plan in plans))

    assert np.mean([most(game, 1.0) for game in games]) == pytest.approx(0.29, abs=0.005)
    assert np.mean([most(game, 1.0 - 0.2 * game.k.mean()) for game in games]) == pytest.approx(0.011, abs=5e-4)


def test_two_names_gain_as_the_page_says():
    gains = []
    for seed in range(10):
        game = Round(seed, 0.5)
        d = game.honest
        one = game.value(0, game.w + game.h * d.sum(axis=0)) + update_pay("groves-d", d, game.h, game.k)[0]
        double, k, h = np.vstack([d, d[0]]), np.append(game.k, game.k[0]), 0.5 / (game.n + 1)
        paid = update_pay("groves-d", double, h, k)
        gains.append(game.value(0, game.w + h * double.sum(axis=0)) + paid[0] + paid[-1] - one)
    assert np.mean(np.array(gains) > 0) > 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"server_optimizer": "adam"}, "server_optimizer is 'adam'.*set server_optimizer: sgd"),
        ({"weights": "samples"}, "weights is 'samples'"),
        ({"aggregation": "median"}, "aggregation is 'median'"),
        ({"sampled": 2}, "with 2 agents in a round: it needs at least 3"),
        ({"discount": Fraction(2)}, "discount is 2"),
    ],
)
def test_what_it_does_not_hold_for_is_refused(change, message):
    with pytest.raises(SettingError, match=message):
        GrovesUpdates(**change).check(5, Oracles())


def test_a_gram_matrix_that_is_none_is_refused():
    for gram in (
        {"a": {"a": 1}, "b": {"b": 1}},
        {"a": {"a": 1}, "b": {"a": 0, "b": 1}, "c": {"a": 0, "c": 1}},
        {"a": {"a": -1}, "b": {"a": 0, "b": 1}, "c": {"a": 0, "b": 0, "c": 1}},
        {"a": {"a": 1.0}, "b": {"a": 0, "b": 1}, "c": {"a": 0, "b": 0, "c": 1}},
    ):
        with pytest.raises(PaymentError):
            pair(gram, 1, 1, dict.fromkeys(gram, 0))
