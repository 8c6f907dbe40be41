"""Regret against brute force, on games where a plain bounded search fails."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from fedincentive.errors import GameError
from fedincentive.game import (
    Game,
    LinearCost,
    Search,
    Valuation,
    beta_dom,
    max_regret,
    paper_example,
    random_data_value,
    random_quadratic,
    regrets,
    repaired_example,
)
from fedincentive.game.regret import weakest
from fedincentive.game.search import maximise
from fedincentive.payments import Truthful, felt

SEEDS = st.integers(0, 10_000)


@dataclass(frozen=True, eq=False)
class Peaks(Valuation):
    """Each agent's value is a low broad hill and a high narrow one: the case where following a slope fails."""

    centre: np.ndarray
    width: float
    height: float

    def value(self, w, s):
        broad = 0.11 * np.exp(-(((s - 0.35) / 0.2) ** 2))
        return broad + self.height * np.exp(-(((s - self.centre) / self.width) ** 2))

    def slope(self, w, s):
        h = 1e-7
        return (self.value(w, s + h) - self.value(w, s - h)) / (2 * h)

    def gradient(self, w, s):
        return np.zeros((len(s), len(w)))


def peaks(centre, width=0.004, height=0.615):
    n = len(centre)
    names = tuple(f"agent-{i}" for i in range(n))
    return Game(names, Peaks(np.array(centre), width, height), LinearCost(0.0), np.ones(n), np.zeros(n), [0.0])


def brute(game, w, s, beta, truthful=False, points=2001):
    """u_i of a move, from the definition alone, on a plain grid."""
    gains = np.zeros(game.n)
    here = game.utilities(w, s, beta)
    total = game.values(w, s).sum()
    for i in range(game.n):
        for t in np.linspace(0.0, game.s_max[i], points):
            moved = s.copy()
            moved[i] = t
            gain = game.utilities(w, moved, beta)[i] - here[i]
            if truthful:
                values = game.values(w, moved)
                gain += (values.sum() - values[i]) - (total - game.values(w, s)[i])
            gains[i] = max(gains[i], gain)
    return gains


@settings(max_examples=20)
@given(seed=SEEDS, n=st.integers(2, 4), beta=st.floats(0.0, 2.0), truthful=st.booleans())
def test_regret_is_what_brute_force_finds(seed, n, beta, truthful):
    game = random_quadratic(seed, n, 2, contracting=bool(seed % 2))
    gain, where = regrets(game, game.w0, game.s0, (*felt(beta), *([Truthful()] if truthful else [])))
    expected = brute(game, game.w0, game.s0, beta, truthful, points=301)
    assert np.all(gain >= expected - 1e-9)
    np.testing.assert_allclose(gain, expected, atol=1e-3)
    if not truthful:
        reached = game.deviations(game.w0, game.s0, where, beta) - game.utilities(game.w0, game.s0, beta)
        np.testing.assert_allclose(reached, gain, atol=1e-9)  # the deviation shown really gains that much


def test_a_narrow_peak_is_found_where_a_bounded_search_stops_on_the_broad_one():
    game = peaks([0.8131])
    found = max_regret(game, game.w0, game.s0)
    assert found.value == pytest.approx(0.615, abs=0.01)
    assert (found.agent, found.lower_bound) == ("agent-0", True)
    assert found.deviation == pytest.approx(0.8131, abs=1e-3)
    bounded = scipy.optimize.minimize_scalar(
        lambda t: -float(game.deviations(game.w0, game.s0, np.array([t]))[0]), bounds=(0.0, 1.0), method="bounded"
    )
    assert -bounded.fun < 0.12  # it rests on the broad hill and would call 0.11 the regret


@settings(max_examples=40)
@given(centre=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6))
def test_peaks_as_wide_as_a_cell_are_never_missed(centre):
    game = peaks(centre, width=0.004)
    gain, _ = regrets(game, game.w0, game.s0)
    grid = np.linspace(0.0, 1.0, 100_001)
    for i, c in enumerate(centre):
        value = 0.11 * np.exp(-(((grid - 0.35) / 0.2) ** 2)) + 0.615 * np.exp(-(((grid - c) / 0.004) ** 2))
        assert gain[i] == pytest.approx(value.max() - value[0], abs=1e-4)


def test_what_a_coarse_search_misses_it_never_calls_verified():
    game = peaks([0.8131], width=1e-5)
    found = max_regret(game, game.w0, game.s0, search=Search(points=4, hills=1, zooms=4))
    assert found.lower_bound and found.value < 0.2
    assert "at least" in str(found)


def test_golden_regrets_of_the_examples():
    printed, repaired = paper_example(), repaired_example()
    rest = np.array([0.0, 5.0])
    assert max_regret(printed, printed.w0, rest).value == 0.0
    found = max_regret(printed, printed.w0, np.array([5.0, 5.0]))
    assert (found.agent, found.deviation) == ("agent-1", 0.0)
    assert found.value == pytest.approx(0.15)
    w = np.array([1.0, 2.0])
    assert max_regret(repaired, w, rest).value == 0.0
    assert max_regret(repaired, w, repaired.s_max, 0.035).value == pytest.approx(0.0, abs=1e-12)
    assert max_regret(repaired, w, repaired.s_max, 0.034).value > 1e-4
    assert max_regret(repaired, w, repaired.s_max).value == pytest.approx(0.15)  # once the payment is sunk


def test_a_concave_game_is_verified_and_another_is_not():
    game = repaired_example()
    assert not max_regret(game, game.w0, game.s0).lower_bound
    bumpy = random_quadratic(0, 3, 2, contracting=False)
    assert not bumpy.concave
    assert max_regret(bumpy, bumpy.w0, bumpy.s0).lower_bound


@settings(max_examples=30)
@given(seed=SEEDS)
def test_a_dominant_s_max_is_verified_whatever_the_shape(seed):
    game = random_quadratic(seed, 3, 2, contracting=False)
    found = max_regret(game, game.w0, game.s_max, beta_dom(game, game.w0))
    assert (found.value, found.lower_bound) == (0.0, False)
    gain, _ = regrets(game, game.w0, game.s_max, beta_dom(game, game.w0))
    np.testing.assert_allclose(gain, 0.0, atol=1e-9)


def test_a_deviation_into_nothing_is_not_a_gain():
    game = paper_example()
    gain, _ = regrets(game, game.w0, np.array([0.0, 5.0]))  # agent-2 at 0 would leave v undefined
    assert np.isfinite(gain).all()


def test_regret_refuses_a_point_outside_the_game():
    game = repaired_example()
    with pytest.raises(GameError, match="agent-2"):
        max_regret(game, game.w0, np.array([1.0, 5.5]))


def test_a_hundred_thousand_agents_are_searched_at_once():
    """A search agent by agent would take hours."""
    game = random_data_value(1, 100_000)
    found = max_regret(game, game.w0, game.s_max, 0.001)
    assert found.value > 0.0 and not found.lower_bound
    i = game.agents.index(found.agent)
    moved = game.s_max.copy()
    moved[i] = found.deviation
    gain = game.utilities(game.w0, moved, 0.001)[i] - game.utilities(game.w0, game.s_max, 0.001)[i]
    assert gain == pytest.approx(found.value, rel=1e-6)


def test_maximise_finds_end_points_and_refines_inside():
    low, high = np.zeros(3), np.array([1.0, 2.0, 0.0])
    best, top = maximise(lambda t: np.array([t[0], -((t[1] - 1.234567) ** 2), t[2]]), low, high, Search(), concave=True)
    np.testing.assert_allclose(best, [1.0, 1.234567, 0.0], atol=1e-6)
    np.testing.assert_allclose(top, [1.0, 0.0, 0.0], atol=1e-12)


def test_the_highest_hill_is_found_although_the_grid_sees_a_broad_one_higher():
    cell = 1.0 / 256
    off = 100.5 * cell  # between two points of the grid, which see only the foot of this hill

    def hills(t):
        return 0.5 * np.exp(-(((t - 0.8) / 0.1) ** 2)) + np.exp(-(((t - off) / (0.52 * cell)) ** 2))

    seen = max(hills(100 * cell), hills(101 * cell))
    assert 0.3 < seen < 0.45 < np.sort(hills(np.arange(257) * cell))[-10]
    best, top = maximise(hills, np.zeros(1), np.ones(1), Search(), concave=False)
    assert (best[0], top[0]) == (pytest.approx(off, abs=1e-5), pytest.approx(1.0, abs=1e-3))
    assert maximise(hills, np.zeros(1), np.ones(1), Search(hills=1), concave=False)[1][0] < 0.6


def test_undefined_values_are_never_the_maximum():
    best, top = maximise(lambda t: np.where(t < 0.5, np.nan, -t), np.zeros(1), np.ones(1), Search(), concave=False)
    assert (best[0], top[0]) == pytest.approx((0.5, -0.5), abs=1e-6)


def test_a_result_is_known_no_better_than_its_worst_part():
    assert weakest("exact", "attested") == "attested"
    assert weakest("assumed", "reported", "exact") == "assumed"
