"""Strides, the steps of agents that set no gamma: few rounds in any unit, and the paper's equilibrium at their end."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedincentive.game import (
    DataValue,
    Game,
    LinearCost,
    PowerLaw,
    beta_dom,
    contributions,
    last,
    max_regret,
    phase_one,
    random_quadratic,
    stride,
)

SEEDS = st.integers(0, 10_000)


def hospitals(seed: int, size: float, money: float = 1.0) -> Game:
    """Two to twelve owners of up to `size` points each, whose records help the others too."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 13))
    s_max = size * rng.uniform(0.3, 1.0, n)
    curve = PowerLaw(money, money * rng.uniform(0.5, 1.0, n), rng.uniform(0.3, 1.0), size / 4.0)
    valuation = DataValue(curve, x=rng.normal(size=(n, 2)), spill=rng.uniform(0.0, 1.0))
    cost = LinearCost(money / s_max.sum() * rng.uniform(0.05, 1.0, n))
    return Game(tuple(f"a{i:02d}" for i in range(n)), valuation, cost, s_max, s_max / 2.0, np.zeros(2))


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, size=st.floats(10.0, 20_000.0), money=st.floats(1e-3, 1e6), above=st.floats(1.001, 3.0))
def test_above_beta_dom_five_rounds_reach_s_max_in_any_unit(seed, size, money, above):
    game = hospitals(seed, size, money)
    found = phase_one(game, beta=above * beta_dom(game, game.w0))
    assert (found.ending, found.rounds <= 5) == ("full", True)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, size=st.floats(10.0, 20_000.0), part=st.floats(0.0, 0.95))
def test_below_it_they_rest_in_few_rounds_where_nobody_regrets(seed, size, part):
    game = hospitals(seed, size)
    beta = part * beta_dom(game, game.w0)
    found = phase_one(game, beta=beta, tol=1e-6)
    assert found.ending in ("full", "rested") and found.rounds <= 40
    assert max_regret(game, game.w0, np.array(found.s), beta).value <= 1e-5


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS, beta=st.floats(0.0, 1.0))
def test_they_end_at_the_equilibrium_of_the_papers_step(seed, beta):
    game = random_quadratic(seed, 4, 2)
    paper = last(contributions(game, 0.1, pay=beta), 1_500)
    assert paper.residual < 1e-6
    own = phase_one(game, beta=beta, tol=1e-7, round_limit=60)
    np.testing.assert_allclose(own.s, paper.s, atol=1e-4 * game.s_max.max())


@pytest.mark.parametrize("factor", [1e-3, 2.0**20])
def test_the_unit_of_points_and_of_money_changes_nothing_but_the_unit(factor):
    def states(points: float, money: float) -> np.ndarray:
        curve = PowerLaw(money, money * points**0.5 * np.array([0.7, 0.9, 1.0]), 0.5, 50.0 * points)
        valuation = DataValue(curve, x=np.zeros((3, 1)), spill=0.4)
        s_max = points * np.array([100.0, 150.0, 70.0])
        cost = LinearCost(money / points * np.array([5e-4, 1e-3, 4e-3]))
        game = Game(("a", "b", "c"), valuation, cost, s_max, s_max / 3.0, np.zeros(1))
        return np.array([state.s / s_max for state in islice(contributions(game, None), 15)])

    np.testing.assert_allclose(states(factor, 1.0), states(1.0, 1.0), atol=1e-9)
    np.testing.assert_allclose(states(1.0, factor), states(1.0, 1.0), atol=1e-9)


def test_a_constant_slope_takes_two_strides_up_or_down():
    s, taken = stride(500.0, 0.4, 1000.0)
    assert (s, stride(s, 0.4, 1000.0, taken)[0]) == (950.0, 1000.0)
    s, taken = stride(500.0, -0.4, 1000.0)
    assert (s, stride(s, -0.4, 1000.0, taken)[0]) == (50.0, 0.0)


def test_alone_on_a_parabola_it_finds_the_top():
    s, taken = 900.0, None
    for _ in range(12):
        s, taken = stride(s, 1e-5 * (321.0 - s), 1000.0, taken)
    assert s == pytest.approx(321.0, abs=1e-6)


@pytest.mark.parametrize("g", [0.0, 1e-320, -1e-320])
def test_no_slope_is_no_stride(g):
    assert stride(3.0, g, 5.0)[0] == 3.0
    assert np.isfinite(stride(3.0, g, 5.0)[1].gamma)


def test_an_agent_without_points_stays_at_none():
    game = hospitals(3, 100.0)
    none = replace(game, s_max=np.where(np.arange(game.n) == 0, 0.0, game.s_max), s0=np.zeros(game.n))
    assert phase_one(none, beta=2 * beta_dom(game, game.w0)).s[0] == 0.0
