"""Phase 1 as a result, and what beta_NE and beta_dom mean, by brute force."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedincentive.errors import GameError
from fedincentive.game import (
    DataValue,
    Game,
    Line,
    LinearCost,
    Quadratic,
    beta_dom,
    beta_ne,
    last,
    phase_one,
    random_data_value,
    random_quadratic,
    repaired_example,
)
from fedincentive.game.dynamics import contributions
from fedincentive.game.steps import kappa

SEEDS = st.integers(0, 10_000)


def worthless(cost, s_max, s0):
    """Data that nobody values: the slope is exactly beta - c_i, so every bound is tight."""
    n = len(cost)
    names = tuple(f"agent-{i}" for i in range(1, n + 1))
    return Game(names, DataValue(Line(0.0), np.zeros((n, 1))), LinearCost(cost), s_max, s0, [0.0])


@settings(max_examples=60)
@given(seed=SEEDS, n=st.integers(2, 6), extra=st.floats(0.05, 3.0), gamma=st.floats(0.05, 2.0))
def test_above_beta_dom_phase_one_is_full_within_kappa_rounds(seed, n, extra, gamma):
    game = random_quadratic(seed, n, 2, contracting=False)
    beta = beta_dom(game, game.w0) + extra
    end = phase_one(game, gamma=gamma, beta=beta)
    assert end.ending == "full" and end.short == ()
    assert end.s == tuple(game.s_max)
    assert end.rounds <= math.ceil(kappa(game, gamma=gamma, beta=beta))


@settings(max_examples=60)
@given(
    distance=st.floats(0.5, 20.0),
    cost=st.floats(0.0, 1.0),
    extra=st.floats(0.05, 1.0),
    gamma=st.floats(0.05, 1.0),
)
def test_kappa_is_reached_where_the_farthest_agent_is_the_dearest(distance, cost, extra, gamma):
    game = worthless([cost, cost / 2], [distance + 1.0, 1.0], [1.0, 0.5])
    bound = kappa(game, gamma=gamma, beta=cost + extra)
    assume(abs(bound - round(bound)) > 1e-6)  # at a whole number rounding decides
    assert phase_one(game, gamma=gamma, beta=cost + extra).rounds == math.ceil(bound)


def test_kappa_of_a_whole_number_of_steps_is_not_missed_by_rounding():
    game = worthless([0.1, 0.1], [1.0, 1.0], [0.0, 0.0])
    assert phase_one(game, gamma=1.0, beta=0.2).rounds == 10
    assert kappa(game, gamma=1.0, beta=0.2) == pytest.approx(10.0)


def test_below_beta_dom_it_rests_and_names_who_is_short():
    game = worthless([0.1, 0.5, 0.2], [4.0, 5.0, 6.0], [2.0, 2.0, 2.0])
    end = phase_one(game, gamma=1.0, beta=0.3)
    assert (end.ending, end.short) == ("rested", ("agent-2",))
    assert end.s == (4.0, 0.0, 6.0)
    assert (end.beta_ne, end.beta_dom) == (0.5, 0.5)
    for words in ("settled", "agent agent-2 is giving less than everything at a price of 0.3", "From 0.5", "Above 0.5"):
        assert words in end.advice
    assert json.loads(json.dumps(end.to_json()))["advice"] == end.advice


def test_below_beta_dom_contributions_can_die_out():
    game = worthless([0.5, 0.5], [5.0, 5.0], [2.0, 3.0])
    end = phase_one(game, gamma=0.001, beta=0.1, round_limit=10_000)
    assert (end.ending, end.s, end.short) == ("rested", (0.0, 0.0), ("agent-1", "agent-2"))


def test_the_round_limit_is_another_ending_with_other_advice():
    game = worthless([0.1, 0.1], [1e6, 1.0], [0.0, 0.0])
    end = phase_one(game, gamma=1.0, beta=0.2, round_limit=50)
    assert (end.ending, end.rounds, end.short) == ("round limit", 50, ("agent-1",))
    assert "allow more rounds or a larger gamma" in end.advice
    assert "still moving" in end.advice


def test_without_payment_the_repaired_example_rests_with_agent_one_short():
    end = phase_one(repaired_example(w0=(1.0, 2.0)), gamma=1.0, beta=0.0)
    assert (end.ending, end.short[0]) == ("rested", "agent-1")
    np.testing.assert_allclose(end.s, [0.0, 5.0], atol=1e-3)  # agent-2 comes as near to 5 as tol asks, from below


def test_a_beta_ne_from_a_search_is_called_a_lower_bound():
    game = random_quadratic(1, 3, 2, contracting=False)
    end = phase_one(game, gamma=0.1, beta=0.0, round_limit=20)
    assert end.ending != "full" and end.beta_ne_at_least
    assert "From at least" in end.advice


def test_many_short_agents_are_counted_not_listed():
    n = 12
    end = phase_one(worthless([1.0] * n, [2.0] * n, [1.0] * n), gamma=1.0, beta=0.1)
    assert len(end.short) == n
    assert "and 7 more are giving less" in end.advice


@settings(max_examples=25)
@given(seed=SEEDS, n=st.integers(2, 5))
def test_beta_ne_is_exactly_where_full_contribution_becomes_an_equilibrium(seed, n):
    game = random_quadratic(seed, n, 2, contracting=False)  # convex and concave utilities mixed
    w, threshold = game.w0, beta_ne(game, game.w0)

    def best_gain(beta):
        here = game.utilities(w, game.s_max, beta)
        grid = np.linspace(0.0, 1.0, 801)
        return max(float((game.deviations(w, game.s_max, x * game.s_max, beta) - here).max()) for x in grid)

    assert best_gain(threshold + 1e-6) <= 1e-9
    if threshold > 0.02:
        assert best_gain(threshold - 0.01) > 0.0


def test_beta_ne_of_a_concave_agent_is_its_slope_even_beside_one_that_is_not():
    valuation = Quadratic([0.0, 0.0], [0.0, 9.0], [1.0, -1.0], np.zeros((2, 1)), [[1.0]])
    game = Game(("bent", "eager"), valuation, LinearCost([0.3, 0.1]), [2.0, 2.0], [1.0, 1.0], [0.0])
    assert not game.concave
    assert beta_ne(game, game.w0) == pytest.approx(2.3, abs=1e-12)  # k s_max + c, approached only at s_max


@settings(max_examples=25)
@given(seed=SEEDS, n=st.integers(2, 5))
def test_above_beta_dom_more_is_better_wherever_the_others_stand(seed, n):
    game = random_quadratic(seed, n, 2, contracting=False)
    dom = beta_dom(game, game.w0)
    assert beta_ne(game, game.w0) <= dom + 1e-8
    rng = np.random.default_rng(seed)
    for _ in range(30):
        s = rng.choice([0.0, 1.0, rng.uniform()], n) * game.s_max
        assert np.all(game.slopes(game.w0, s, dom + 1e-9) > -1e-9)


@settings(max_examples=40)
@given(seed=SEEDS)
def test_beta_dom_is_tight_for_agents_that_are_alike(seed):
    rng = np.random.default_rng(seed)
    game = random_quadratic(seed, 1, 1, contracting=False)
    v = game.valuation
    twins = Game(
        ("a", "b"),
        type(v)(np.repeat(v.a, 2), np.repeat(v.b, 2), np.repeat(v.k, 2), np.repeat(v.x, 2, axis=0), v.stiffness),
        LinearCost(float(game.cost.c[0])),
        np.repeat(game.s_max, 2),
        np.repeat(game.s0, 2),
        game.w0,
    )
    dom = beta_dom(twins)
    assume(dom > twins.zeta + 0.02)  # tau > 0: the worst slope is inside the game, not cut at 0
    corners = [rng.permutation([x, 1.0]) * twins.s_max for x in (0.0, 1.0)]
    worst = min(float(twins.slopes(twins.w0, s, dom - 0.01).min()) for s in [*corners, np.zeros(2)])
    assert worst == pytest.approx(-0.01, abs=1e-9)


def test_a_game_without_bounds_has_no_beta_dom():
    game = random_quadratic(0, 3, 2)  # s and w are coupled
    assert beta_dom(game) is None
    assert beta_dom(game, game.w0) is not None


@pytest.mark.parametrize("beta", [-0.1, float("nan")])
def test_a_negative_beta_is_refused(beta):
    with pytest.raises(GameError, match="beta is"):
        phase_one(repaired_example(), gamma=1.0, beta=beta)


def test_a_hundred_thousand_agents_play_a_hundred_rounds():
    """Nothing here may grow with the square of n: this test would then never end."""
    game = random_data_value(0, 100_000, m=2)
    end = last(contributions(game, gamma=10.0, pay=0.02), 100)
    assert end.s.shape == (100_000,)
    done = phase_one(game, gamma=500.0, beta=0.02)
    assert done.ending == "full" and done.rounds <= math.ceil(kappa(game, gamma=500.0, beta=0.02))
