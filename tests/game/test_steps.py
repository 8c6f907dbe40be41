"""Theorems 1 and 2: constants, step sizes and round counts are never exceeded, and tight where they should be."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedincentive.errors import GameError
from fedincentive.game import ConvexCost, EffectiveCost, Game, joint, last, random_quadratic, repaired_example
from fedincentive.game.dynamics import ascent
from fedincentive.game.steps import Constants, constants, factor, iterate_rate, kappa, theorem1, welfare_rate

SEEDS = st.integers(0, 10_000)


def distance(game, state):
    return float(np.linalg.norm(state.g) + np.linalg.norm(game.mean_gradient(state.w, state.s)))


@settings(max_examples=120)
@given(seed=SEEDS, n=st.integers(1, 6), m=st.integers(1, 4), share=st.floats(0.05, 0.95))
def test_masked_and_clipped_dynamics_contract_at_rate_w(seed, n, m, share):
    game = random_quadratic(seed, n, m)
    known = constants(game)
    best = theorem1(known)
    steps = theorem1(known, gamma=share * best.gamma_limit, eta=share * best.eta_limit)
    assert best.w1 <= steps.w1 + 1e-12 and best.w2 <= steps.w2 + 1e-12 and steps.w < 1.0
    before = None
    for state in islice(joint(game, steps.gamma, steps.eta), 60):
        now = distance(game, state)
        if before is not None:
            assert now <= steps.w * before + 1e-9
        before = now


@settings(max_examples=15)
@given(seed=SEEDS, n=st.integers(1, 2), m=st.integers(1, 2))
def test_after_t0_rounds_both_gradients_are_below_eps(seed, n, m):
    game = random_quadratic(seed, n, m)
    steps = theorem1(constants(game))
    states = joint(game, steps.gamma, steps.eta)
    first = next(states)
    rounds = max(1, steps.rounds(distance(game, first), 1e-3))
    assume(rounds <= 3000)
    assert distance(game, last(states, rounds - 1)) < 1e-3  # the first state has been read


def test_the_bound_is_tight_for_one_agent_and_one_parameter():
    game = random_quadratic(11, 1, 1)
    game = Game(
        game.agents,
        type(game.valuation)(0.0, 1.0, 0.7, [[0.0]], [[1.0]]),
        game.cost,
        [1e9],
        [10.0],
        [0.0],
    )
    steps = theorem1(constants(game), gamma=0.4, eta=0.5)
    a, b = islice(joint(game, 0.4, 0.5), 2)
    assert abs(b.g[0] / a.g[0]) == pytest.approx(steps.w1)  # |1 - gamma k| with lambda = L = k


def test_the_product_printed_for_w1_is_not_a_bound():
    """The main text prints W1 as a product, the proof derives a sum; games break the product and keep the sum."""
    broken = 0
    for seed in range(60):
        game = random_quadratic(seed, 3, 1)
        game = game.starting_at(w0=game.valuation.optimum(game.s0))
        known = constants(game)
        steps = theorem1(known)
        root = factor(steps.gamma, known.lambda_s, known.bound_s * known.n, 0.0)
        printed = max(root * known.cross_w * steps.gamma, steps.w2)
        a, b = islice(joint(game, steps.gamma, steps.eta), 2)
        assert distance(game, b) <= steps.w * distance(game, a) + 1e-9
        broken += distance(game, b) > printed * distance(game, a) + 1e-9
    assert broken > 10


@settings(max_examples=60)
@given(
    strength=st.floats(0.1, 1.0),
    slack=st.floats(1.0, 3.0),
    n=st.integers(1, 6),
    share=st.floats(0.0, 0.95),
)
def test_the_limit_of_gamma_is_exact_and_twice_the_printed_one(strength, slack, n, share):
    entry, cross = strength * slack, share * strength
    known = Constants(n, 1, strength, entry, 1.0, 1.0, 0.0, cross)
    limit = theorem1(known).gamma_limit
    if cross == 0.0 or limit < 1.0 / cross:
        assert limit == pytest.approx(2.0 * (strength - cross) / (n**2 * entry**2 - cross**2))
        assert factor(limit, strength, entry * n, cross) == pytest.approx(1.0)
    assert factor(0.999 * limit, strength, entry * n, cross) < 1.0
    with pytest.raises(GameError, match="does not contract"):
        theorem1(known, gamma=limit)


@settings(max_examples=40)
@given(seed=SEEDS, n=st.integers(1, 5), m=st.integers(1, 3))
def test_constants_bound_the_numerical_second_derivatives(seed, n, m):
    game = random_quadratic(seed, n, m)
    known, h = constants(game), 1e-4
    w, s = game.w0, game.s0
    within = np.array([(game.slopes(w, s + h * row) - game.slopes(w, s - h * row)) / (2 * h) for row in np.eye(n)]).T
    across = np.array([(game.slopes(w + h * row, s) - game.slopes(w - h * row, s)) / (2 * h) for row in np.eye(m)]).T
    back = np.array(
        [(game.mean_gradient(w, s + h * row) - game.mean_gradient(w, s - h * row)) / (2 * h) for row in np.eye(n)]
    ).T
    assert np.linalg.eigvalsh((within + within.T) / 2)[-1] == pytest.approx(-known.lambda_s, abs=1e-6)
    assert np.abs(within).max() == pytest.approx(known.bound_s, abs=1e-6)
    assert np.linalg.norm(across, 2) == pytest.approx(known.cross_s, abs=1e-6)
    assert np.linalg.norm(back, 2) == pytest.approx(known.cross_w, abs=1e-6)


def test_a_convex_cost_strengthens_the_game():
    game = random_quadratic(4, 3, 2)
    bent = Game(game.agents, game.valuation, ConvexCost(0.5, 2.0), game.s_max, game.s0, game.w0)
    assert constants(bent).lambda_s == pytest.approx(constants(game).lambda_s + 1.0)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (Constants(2, 1, 1.2, 1.0, 1.0, 1.0, 0.0, 0.0), "lambda = 1.2 with L = 1 is impossible"),
        (Constants(2, 1, 1.0, 1.0, 2.0, 1.0, 0.0, 0.0), "lambda~ = 2 with L~ = 1 is impossible"),
        (Constants(2, 1, 0.5, 1.0, 1.0, 1.0, 0.0, 0.5), "No gamma is known to contract: lambda = 0.5 must exceed P~"),
        (
            Constants(2, 1, 0.5, 1.0, 0.3, 1.0, 0.4, 0.0),
            "No eta is known to contract: lambda~ = 0.3 must exceed P",
        ),
    ],
)
def test_what_has_no_step_size_is_refused_with_the_reason(known, message):
    with pytest.raises(GameError, match=message):
        theorem1(known)


def test_games_without_constants_are_told_what_to_do():
    with pytest.raises(GameError, match="2p-upbred"):
        constants(repaired_example())
    game = random_quadratic(0, 2, 1)
    bent = Game(game.agents, game.valuation, ConvexCost(0.5, 1.5), game.s_max, game.s0, game.w0)
    with pytest.raises(GameError, match="p = 1 or p >= 2"):
        constants(bent)


@settings(max_examples=40)
@given(seed=SEEDS, n=st.integers(1, 5), m=st.integers(1, 4), eps=st.floats(1e-6, 0.1))
def test_phase_two_is_within_eps_after_the_promised_rounds(seed, n, m, eps):
    game = random_quadratic(seed, n, m)
    best = game.optimum()
    rate = welfare_rate(game)
    end = last(ascent(game, rate.eta), rate.rounds(eps))
    assert (game.welfare(best, game.s_max) - game.welfare(end.w, game.s_max)) / n < eps
    rate = iterate_rate(game)
    end = last(ascent(game, rate.eta), rate.rounds(eps))
    assert np.linalg.norm(end.w - best) < eps


@settings(max_examples=40)
@given(seed=SEEDS, m=st.integers(2, 4))
def test_the_corollary_is_tight_along_the_softest_direction(seed, m):
    game = random_quadratic(seed, 3, m)
    soft = np.linalg.eigh(game.valuation.stiffness)[1][:, 0]
    game = game.starting_at(w0=game.optimum() + 5.0 * soft)
    rate = iterate_rate(game)
    rounds = rate.rounds(0.01)
    assert np.linalg.norm(last(ascent(game, rate.eta), rounds).w - game.optimum()) < 0.01
    assert np.linalg.norm(last(ascent(game, rate.eta), rounds - 1).w - game.optimum()) >= 0.01 * (1 - 1e-6)


def test_one_round_is_enough_where_every_direction_is_alike():
    game = repaired_example()
    assert iterate_rate(game).rounds(1e-6) == 1
    end = last(ascent(game, iterate_rate(game).eta), 1)
    np.testing.assert_allclose(end.w, [1.0, 2.0], atol=1e-12)
    assert iterate_rate(game.starting_at(w0=[1.0, 2.0])).rounds(1e-6) == 0


def test_kappa_refuses_what_may_never_end():
    game = repaired_example()
    with pytest.raises(GameError, match="beta = 0.03 is not above zeta [+] tau = 0.04"):
        kappa(game, gamma=1.0, beta=0.03)
    with pytest.raises(GameError, match="gamma is 0"):
        kappa(game, gamma=0.0, beta=0.5)
    unknown = Game(game.agents, game.valuation, EffectiveCost(lambda s: s, np.ones_like), game.s_max, game.s0, game.w0)
    with pytest.raises(GameError, match="zeta"):
        kappa(unknown, gamma=1.0, beta=5.0)
    assert kappa(game, gamma=2.0, beta=0.05) == pytest.approx(2.5 / (2.0 * 0.01))
    assert math.ceil(kappa(game.starting_at(s0=game.s_max), gamma=1.0, beta=0.05)) == 0


@pytest.mark.parametrize("eps", [0.0, -1.0])
def test_eps_must_be_positive(eps):
    game = random_quadratic(0, 2, 1)
    for ask in (lambda: iterate_rate(game).rounds(eps), lambda: theorem1(constants(game)).rounds(1.0, eps)):
        with pytest.raises(GameError, match="eps"):
            ask()
