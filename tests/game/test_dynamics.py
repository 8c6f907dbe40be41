"""The dynamics: the golden runs of Example 1, and what the paper prints about it shown false."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedincentive.errors import GameError
from fedincentive.game import (
    ascent,
    best_replies,
    best_reply,
    contributions,
    joint,
    last,
    max_regret,
    paper_example,
    random_quadratic,
    regrets,
    repaired_example,
)
from fedincentive.game.dynamics import State

SEEDS = st.integers(0, 10_000)


@pytest.mark.parametrize("s0", [(2.5, 2.5), (5.0, 5.0), (5.0, 0.0), (0.1, 0.1)])
def test_example_one_with_w_frozen_rests_at_its_free_riding_equilibrium(s0):
    game = paper_example(s0=s0)
    end = last(contributions(game, gamma=1.0), 6000)
    np.testing.assert_allclose(end.s, [0.0, 5.0], atol=1e-3)
    assert game.welfare(end.w, end.s) == pytest.approx(1.8, abs=1e-3)
    assert max_regret(game, end.w, np.array([0.0, 5.0])).value == 0.0
    assert max_regret(game, end.w, end.s).value == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("w0", [(0.5, 1.5), (0.0, 0.0), (3.0, -2.0), (1.0, 2.0)])
def test_the_repaired_example_converges_from_any_model(w0):
    game = repaired_example(w0=w0)
    end = last(joint(game, gamma=1.0, eta=0.5), 6000)
    np.testing.assert_allclose(end.w, [1.0, 2.0], atol=1e-3)
    np.testing.assert_allclose(end.s, [0.0, 5.0], atol=1e-3)
    assert game.welfare(end.w, end.s) == pytest.approx(1.8, abs=1e-3)
    assert game.welfare(game.optimum(), game.s_max) == pytest.approx(1.9, abs=1e-12)


def test_the_joint_convergence_printed_for_example_one_is_false():
    """The paper says Algorithm 1 converges to ((0.5, 1.5), (0, 5)). It does not.

    That point is an equilibrium of the agents while w is frozen there, but not a fixed point: the center's gradient
    is not 0, w leaves for (1, 2), and with it the worth of data; then every agent's slope is -c_i < 0 and s runs to
    (0, 0), where v is not defined.
    """
    game = paper_example(s0=(0.0, 5.0), w0=(0.5, 1.5))
    assert max_regret(game, game.w0, game.s0).value == 0.0
    assert np.linalg.norm(game.mean_gradient(game.w0, game.s0)) == pytest.approx(0.2 * np.sqrt(2.0))
    states = []
    with pytest.raises(GameError, match="sum to 0"):
        for state in islice(joint(game, gamma=1.0, eta=0.5), 6000):
            states.append(state)
    np.testing.assert_allclose(states[-1].w, [1.0, 2.0], atol=1e-3)
    assert states[-1].s.sum() < 0.1


def test_generators_yield_the_start_and_then_one_state_a_round():
    game = repaired_example()
    states = list(islice(contributions(game, 1.0, pay=0.05), 4))
    assert [state.round for state in states] == [0, 1, 2, 3]
    np.testing.assert_array_equal(states[0].s, game.s0)
    for before, after in zip(states, states[1:], strict=False):
        np.testing.assert_array_equal(after.s, game.step(game.w0, before.s, 1.0, 0.05))
        np.testing.assert_array_equal(before.g, game.masked(game.slopes(game.w0, before.s, 0.05), before.s))


def test_both_moves_of_a_joint_round_start_from_the_same_point():
    game = random_quadratic(1, 3, 2)
    first, second = islice(joint(game, 0.1, 0.2), 2)
    np.testing.assert_array_equal(second.s, game.step(first.w, first.s, 0.1))
    np.testing.assert_array_equal(second.w, first.w + 0.2 * game.mean_gradient(first.w, first.s))


def test_ascent_holds_s_at_s_max_and_finds_the_optimum():
    game = random_quadratic(2, 3, 2)
    end = last(ascent(game, 1.0 / game.valuation.curvature(game.s_max)[1]), 400)
    np.testing.assert_array_equal(end.s, game.s_max)
    np.testing.assert_allclose(end.w, game.optimum(), atol=1e-6)


@settings(max_examples=6)
@given(seed=SEEDS, beta=st.floats(0.0, 2.0))
def test_best_replies_rest_where_nobody_regrets(seed, beta):
    game = random_quadratic(seed, 4, 2)
    end = last(best_replies(game, pay=beta), 25)
    assert max_regret(game, end.w, end.s, beta).value == pytest.approx(0.0, abs=1e-6)
    gain, where = regrets(game, game.w0, game.s0, beta)
    for i in range(game.n):
        reply = best_reply(game, i, game.w0, game.s0, beta)
        assert reply == pytest.approx(where[i] if gain[i] > 0.0 else reply, abs=1e-5)


def test_residual_is_the_largest_masked_slope():
    assert State(0, np.zeros(1), np.zeros(2), np.array([-3.0, 2.0])).residual == 3.0


@pytest.mark.parametrize("step", [0.0, -1.0, float("nan"), float("inf")])
def test_a_step_size_must_be_positive(step):
    game = repaired_example()
    for states in (contributions(game, step), joint(game, step, 1.0), joint(game, 1.0, step), ascent(game, step)):
        with pytest.raises(GameError, match="greater than 0"):
            next(states)
