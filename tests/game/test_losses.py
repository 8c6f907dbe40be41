"""The loss-based valuation: clipping, one round of training, its standard error, and its use in a certificate."""

from __future__ import annotations

import numpy as np
import pytest

from fedincentive.errors import GameError
from fedincentive.game import Evidence, Game, LinearCost, LossValuation, Search, certify, max_regret

TARGETS = np.array([1.0, 2.0, 3.0])


def losses(w):
    """Each agent's held-out loss: how far the model is from what its own data says."""
    return 0.5 * (w[0] - TARGETS) ** 2


def train(w, s, draw):
    """One round: the model moves to the weighted target, with sampling noise that shrinks with the data."""
    total = s.sum()
    noise = np.random.default_rng(draw).normal() / np.sqrt(1.0 + total)
    return np.array([(s @ TARGETS + 0.1 * w[0]) / (total + 0.1) + 0.1 * noise])


def game(**changes):
    valuation = LossValuation(losses, reference=2.0, cap=10.0, **changes)
    return Game(("a", "b", "c"), valuation, LinearCost(0.01), np.full(3, 10.0), np.full(3, 5.0), [0.0])


def test_value_is_what_the_loss_saves_and_is_cut_at_the_cap():
    value = LossValuation(lambda w: np.array([0.5, 30.0, np.inf]), reference=2.0, cap=10.0, value_per_nat=3.0)
    np.testing.assert_allclose(value.value(np.zeros(1), np.zeros(3)), [4.5, -24.0, -24.0])


def test_at_a_fixed_model_the_loss_ignores_contributions():
    plain = game()
    np.testing.assert_array_equal(plain.valuation.slope(plain.w0, plain.s0), 0.0)
    assert plain.valuation.standard_error(plain.w0, plain.s0) is None
    assert not plain.valuation.estimated
    found = max_regret(plain, plain.w0, plain.s0)
    assert found.deviation == 0.0 and found.value == pytest.approx(0.05)  # only the cost is left to save


def test_with_training_a_value_is_the_mean_after_one_round():
    trained = game(train=train, draws=8)
    rows = np.stack([2.0 - losses(train(trained.w0, trained.s0, k)) for k in range(8)])
    np.testing.assert_allclose(trained.values(trained.w0, trained.s0), rows.mean(axis=0))
    expected = rows.std(axis=0, ddof=1) / np.sqrt(8)
    np.testing.assert_allclose(trained.valuation.standard_error(trained.w0, trained.s0), expected)


def test_the_counterfactual_slope_looks_ahead_and_at_the_bound_back():
    value = LossValuation(losses, reference=2.0, cap=10.0, train=train, delta=2.0, s_max=np.full(3, 10.0))
    s, w = np.array([5.0, 9.5, 0.0]), np.zeros(1)
    slope = value.slope(w, s)
    for i, step in enumerate((2.0, -2.0, 2.0)):
        moved = s.copy()
        moved[i] += step
        assert slope[i] == pytest.approx((value.value(w, moved)[i] - value.value(w, s)[i]) / step)


def test_a_trained_certificate_is_an_estimate_with_a_standard_error():
    trained = game(train=train, draws=4)
    made = certify(Evidence.of(trained, trained.w0, trained.s0, 0.05, search=Search(points=8, hills=1, zooms=3)))
    assert made.regret.lower_bound and made.regret.standard_error > 0.0
    assert made.welfare.note == "estimated"
    assert made.model_norm.value is None  # no gradient was given
    assert made.gap.basis == "unavailable" and made.losers is None
    assert "estimated" in str(made)


def test_a_gradient_is_used_when_given_and_missed_by_name():
    given = game(gradient_of=lambda w, s: (TARGETS - w[0])[:, None])
    np.testing.assert_allclose(given.gradients(given.w0, given.s0), TARGETS[:, None])
    with pytest.raises(GameError, match="gradient_of"):
        game().gradients(np.zeros(1), np.zeros(3))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: game(draws=0), "draws must be at least 1"),
        (lambda: game(delta=0.0), "delta must be greater than 0"),
        (lambda: game(value_per_nat=-1.0), "value_per_nat must be at least 0"),
        (lambda: LossValuation(losses, reference=2.0, cap=0.0), "cap must be greater than 0"),
        (lambda: LossValuation(lambda w: np.array([np.nan]), 2.0, 10.0).value(np.zeros(1), np.zeros(1)), "NaN"),
    ],
)
def test_impossible_settings_are_refused(build, message):
    with pytest.raises(GameError, match=message):
        build()
