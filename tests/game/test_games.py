"""The game itself: utilities, masks, steps, and the errors of an ill-formed game."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedincentive.errors import GameError
from fedincentive.game import Game, LinearCost, SharedError, paper_example, random_quadratic, repaired_example

SEEDS = st.integers(0, 10_000)


def test_example_one_by_hand():
    game = paper_example()
    s = np.array([1.0, 4.0])
    np.testing.assert_allclose(game.values(game.w0, s), [0.9, 0.9])
    np.testing.assert_allclose(game.costs(s), [0.04, 0.08])
    np.testing.assert_allclose(game.utilities(game.w0, s, pay=0.1), [0.9 - 0.04 - 0.3, 0.9 - 0.08 + 0.3])
    assert game.welfare(game.w0, s) == pytest.approx(1.8)
    assert game.net_welfare(game.w0, s) == pytest.approx(1.68)
    np.testing.assert_allclose(game.gradients(game.w0, s), [[0.2, 0.2], [0.2, 0.2]])
    np.testing.assert_allclose(game.gradient(1, game.w0, s), [0.2, 0.2])
    assert (game.zeta, game.tau, game.concave) == (0.04, 0.0, True)


def test_full_contribution_of_the_repaired_example_costs_net_welfare():
    game, w = repaired_example(), np.array([1.0, 2.0])
    assert game.welfare(w, game.s_max) == pytest.approx(1.9)
    assert game.net_welfare(w, game.s_max) == pytest.approx(1.6)
    assert game.net_welfare(w, np.array([0.0, 5.0])) == pytest.approx(1.7)


@settings(max_examples=50)
@given(seed=SEEDS, beta=st.floats(0.0, 5.0), n=st.integers(2, 7))
def test_payments_cancel_and_each_point_of_ones_own_earns_beta(seed, beta, n):
    game = random_quadratic(seed, n, 2, contracting=False)
    w, s = game.w0, game.s0
    assert game.payments(s, beta).sum() == pytest.approx(0.0, abs=1e-9)
    t = game.s_max * 0.7
    paid = game.deviations(w, s, t, beta) - game.deviations(w, s, t)
    here = game.deviations(w, s, s, beta) - game.deviations(w, s, s)
    np.testing.assert_allclose(paid - here, beta * (t - s), atol=1e-9)
    np.testing.assert_allclose(game.deviations(w, s, s, beta), game.utilities(w, s, beta), atol=1e-9)
    np.testing.assert_allclose(game.slopes(w, s, beta), game.slopes(w, s) + beta)


def test_the_mask_stops_only_steps_out_of_the_box():
    game = repaired_example()
    s = np.array([0.0, 5.0])
    np.testing.assert_array_equal(game.masked(np.array([-1.0, 1.0]), s), [0.0, 0.0])
    np.testing.assert_array_equal(game.masked(np.array([1.0, -1.0]), s), [1.0, -1.0])
    np.testing.assert_array_equal(game.masked(np.array([-1.0, 1.0]), np.array([2.0, 2.0])), [-1.0, 1.0])


@settings(max_examples=50)
@given(seed=SEEDS, gamma=st.floats(0.01, 100.0), beta=st.floats(0.0, 5.0))
def test_a_step_stays_in_the_box_and_follows_the_slope(seed, gamma, beta):
    game = random_quadratic(seed, 4, 2, contracting=False)
    after = game.step(game.w0, game.s0, gamma, beta)
    assert np.all((after >= 0.0) & (after <= game.s_max))
    assert np.all((after - game.s0) * game.slopes(game.w0, game.s0, beta) >= 0.0)


def test_a_step_that_rounding_leaves_an_ulp_short_arrives():
    game = repaired_example()
    s = np.full(2, 4.9)
    for _ in range(10):
        s = game.move(s, np.full(2, 0.01))
    assert (np.full(2, 4.9) + 0.01 * 10 >= 5.0).all()
    np.testing.assert_array_equal(s, game.s_max)
    np.testing.assert_array_equal(game.move(s, np.full(2, -1e-13)), s - 1e-13)  # a tiny retreat is still a retreat


def make(**changes):
    fields = dict(
        agents=("a", "b"),
        valuation=SharedError(1.0, 1.0, [0.0], floor=0.5),
        cost=LinearCost(0.1),
        s_max=[4.0, 5.0],
        s0=[1.0, 1.0],
        w0=[0.0],
    )
    return Game(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agents": ("a", "a")}, "'a' is used more than once"),
        ({"agents": ()}, "at least one agent"),
        ({"agents": ("a", "")}, "non-empty string"),
        ({"s_max": [4.0]}, "s_max needs one number for each of the 2 agents"),
        ({"s_max": [4.0, -5.0]}, "s_max must be at least 0, but entry 1 is -5"),
        ({"s0": [1.0, 6.0]}, "s0 of agent 'b' is 6: it must be between 0 and its s_max = 5"),
        ({"s0": [np.nan, 1.0]}, "s0 must be finite, but entry 0 is nan"),
        ({"s0": [0.0, 0.0]}, "sum to 0"),
        ({"w0": [[0.0]]}, "one row of model parameters"),
        ({"w0": [0.0, 0.0]}, r"target must have shape \(2,\)"),
        ({"cost": LinearCost([0.1, 0.1, 0.1])}, "."),
        ({"budget": [-1.0, 2.0]}, "budget must be at least 0"),
        ({"outside_option": [1.0, np.inf]}, "outside_option must be finite"),
    ],
)
def test_an_ill_formed_game_is_refused_with_the_name_and_the_value(changes, message):
    with pytest.raises((GameError, ValueError), match=message):
        make(**changes)


def test_the_example_has_no_value_where_nobody_contributes():
    game = paper_example()
    for ask in (game.values, game.slopes, game.gradients, game.mean_gradient):
        with pytest.raises(GameError, match="sum to 0"):
            ask(game.w0, np.zeros(2))


def test_one_agent_plays_without_payment_and_not_with_it():
    alone = make(agents=("a",), s_max=[4.0], s0=[1.0])
    assert alone.utilities(alone.w0, alone.s0).shape == (1,)
    for ask in (alone.utilities, alone.slopes):
        with pytest.raises(GameError, match="at least 2 agents"):
            ask(alone.w0, alone.s0, 0.5)


def test_a_game_can_start_elsewhere():
    game = repaired_example().starting_at(s0=[1.0, 2.0], w0=[0.0, 0.0])
    np.testing.assert_array_equal(game.s0, [1.0, 2.0])
    np.testing.assert_array_equal(game.w0, [0.0, 0.0])
