"""Every closed form against finite differences and against the definition of what it shortcuts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedincentive.errors import GameError
from fedincentive.game import (
    ConvexCost,
    DataValue,
    EffectiveCost,
    Line,
    LinearCost,
    Logarithm,
    PowerLaw,
    Quadratic,
    SharedError,
    Valuation,
    random_quadratic,
)

SEEDS = st.integers(0, 10_000)
KINDS = ("shared-error", "quadratic", "quadratic plain", "power-law", "logarithm", "line")


def make(kind: str, seed: int, n: int = 4, m: int = 3) -> Valuation:
    rng = np.random.default_rng(seed)
    positive = rng.uniform(0.2, 2.0, (6, n))
    if kind == "shared-error":
        return SharedError(rng.normal(size=n), positive[0], rng.normal(size=m), floor=float(positive[1, 0]))
    if kind.startswith("quadratic"):
        game = random_quadratic(seed, n, m, contracting=False).valuation
        assert isinstance(game, Quadratic)
        return game if kind == "quadratic" else Quadratic(game.a, game.b, game.k, game.x, game.stiffness)
    curve = {
        "power-law": PowerLaw(positive[0], positive[1], positive[2], positive[3]),
        "logarithm": Logarithm(positive[0], positive[1]),
        "line": Line(positive[0]),
    }[kind]
    return DataValue(curve, rng.normal(size=(n, m)), fit=positive[4], spill=rng.uniform(0.0, 1.0, n))


def points(seed: int, n: int = 4, m: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed + 1)
    return rng.normal(size=m), rng.uniform(0.3, 4.0, n), rng.uniform(0.3, 4.0, n)


def moved(s: np.ndarray, i: int, t: float) -> np.ndarray:
    out = s.copy()
    out[i] = t
    return out


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(seed=SEEDS)
def test_slopes_are_derivatives(kind, seed):
    v, (w, s, _) = make(kind, seed), points(seed)
    h = 1e-5
    for i in range(len(s)):
        difference = (v.value(w, moved(s, i, s[i] + h))[i] - v.value(w, moved(s, i, s[i] - h))[i]) / (2 * h)
        assert v.slope(w, s)[i] == pytest.approx(difference, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(seed=SEEDS)
def test_gradients_are_derivatives_and_their_mean_is_the_mean(kind, seed):
    v, (w, s, _) = make(kind, seed), points(seed)
    h = 1e-5
    for k in range(len(w)):
        step = h * np.eye(len(w))[k]
        difference = (v.value(w + step, s) - v.value(w - step, s)) / (2 * h)
        np.testing.assert_allclose(v.gradient(w, s)[:, k], difference, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(v.mean_gradient(w, s), v.gradient(w, s).mean(axis=0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(seed=SEEDS)
def test_moves_of_one_agent_are_what_value_says(kind, seed):
    v, (w, s, t) = make(kind, seed), points(seed)
    np.testing.assert_allclose(v.unilateral(w, s, t), Valuation.unilateral(v, w, s, t), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(v.others(w, s, t), Valuation.others(v, w, s, t), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(v.unilateral(w, s, s), v.value(w, s), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(seed=SEEDS)
def test_tau_bounds_every_slope_at_its_w(kind, seed):
    v, (w, s_max, _) = make(kind, seed), points(seed)
    tau = v.tau(s_max, w)
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 2, (40, len(s_max))) * s_max
    inside = rng.uniform(0.0, 1.0, (40, len(s_max))) * s_max
    for s in np.concatenate([corners, inside]):
        if s.sum() > 0.0:
            assert np.all(-v.slope(w, s) <= tau + 1e-9)


@settings(max_examples=30)
@given(seed=SEEDS)
def test_tau_of_a_quadratic_is_reached(seed):
    v, (w, s_max, _) = make("quadratic", seed), points(seed)
    i = seed % 4
    s = np.where(v.interaction[i] < 0.0, s_max, 0.0)  # the others push i down as far as they can
    s[i] = s_max[i] if v.k[i] > 0.0 else 0.0
    assert max(0.0, -v.slope(w, s)[i]) == pytest.approx(v.tau(s_max, w)[i], abs=1e-9)
    assert v.tau(s_max) is None  # over every w there is no bound: s_i and w are coupled


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(seed=SEEDS)
def test_the_optimum_is_stationary_and_curvature_bounds_the_ascent(kind, seed):
    v, (w, s, _) = make(kind, seed), points(seed)
    best = v.optimum(s)
    np.testing.assert_allclose(v.mean_gradient(best, s), 0.0, atol=1e-9)
    assert v.value(best, s).sum() >= v.value(w, s).sum() - 1e-12
    nu, smooth = v.curvature(s)
    gap = float(np.linalg.norm(w - best))
    pull = float(np.linalg.norm(v.mean_gradient(w, s)))
    assert nu * gap - 1e-9 <= pull <= smooth * gap + 1e-9


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(seed=SEEDS)
def test_alone_is_the_best_model_with_nobody_else(kind, seed):
    v, (_, s, _) = make(kind, seed), points(seed)
    for i in range(len(s)):
        only = moved(np.zeros_like(s), i, s[i])
        w = np.zeros(3)
        for _ in range(3000):  # plain ascent on v_i alone
            w = w + 0.1 * v.gradient(w, only)[i]
        assert v.value(w, only)[i] == pytest.approx(v.alone(s)[i], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    "cost",
    [
        LinearCost([0.1, 0.0, 2.0]),
        ConvexCost([0.1, 0.5, 2.0], [1.0, 2.0, 3.5]),
        ConvexCost(0.3, 1.5),
        EffectiveCost(lambda s: 0.1 * s * s.sum(), lambda s: 0.1 * (s.sum() + s), convex=True),
    ],
)
def test_cost_slopes_are_derivatives_and_bounded_by_zeta(cost):
    s, h = np.array([0.5, 1.5, 2.5]), 1e-6
    difference = (cost.unilateral(s, s + h) - cost.unilateral(s, s - h)) / (2 * h)
    np.testing.assert_allclose(cost.slope(s), difference, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(cost.unilateral(s, s), cost.value(s))
    zeta = cost.zeta(np.full(3, 3.0))
    assert zeta is None or np.all(cost.slope(s) <= zeta)


def test_bends_bound_the_second_derivative():
    cost, s_max, h = ConvexCost([0.5, 1.0, 0.2], [1.0, 2.0, 4.0]), np.array([2.0, 3.0, 1.5]), 1e-5
    low, high = cost.bend(s_max)
    for share in (0.1, 0.5, 0.9):
        s = share * s_max
        second = (cost.slope(s + h) - cost.slope(s - h)) / (2 * h)
        assert np.all(low - 1e-6 <= second) and np.all(second <= high + 1e-6)
    assert ConvexCost(1.0, 1.5).bend(s_max) is None


def test_an_effective_cost_may_look_at_everyone_and_give_its_own_deviations():
    slow = EffectiveCost(lambda s: s * s.sum(), lambda s: s.sum() + s)
    fast = EffectiveCost(lambda s: s * s.sum(), lambda s: s.sum() + s, deviate=lambda s, t: t * (s.sum() - s + t))
    s, t = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.0, 4.0])
    np.testing.assert_allclose(slow.unilateral(s, t), fast.unilateral(s, t))
    with pytest.raises(GameError, match="one number per agent"):
        EffectiveCost(lambda s: s.sum(), lambda s: s).value(s)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LinearCost([-0.1, 0.2]), "cost must be at least 0, but entry 0 is -0.1"),
        (lambda: LinearCost([0.1, np.nan]), "cost must be finite, but entry 1 is nan"),
        (lambda: ConvexCost(1.0, 0.5), "cost.power must be at least 1"),
        (lambda: PowerLaw(1.0, 1.0, 0.0), "power must be greater than 0"),
        (lambda: DataValue(Line(1.0), [[0.0]], spill=1.5), "spill must be between 0 and 1"),
        (lambda: Quadratic(0.0, 0.0, 1.0, [[0.0]], [[-1.0]]), "positive definite"),
        (lambda: Quadratic(0.0, 0.0, 1.0, [[0.0]], [[1.0]], interaction=[[1.0]]), "zero diagonal"),
        (lambda: LinearCost("much"), "cost must be numbers"),
    ],
)
def test_impossible_numbers_are_refused_by_name(build, message):
    with pytest.raises(GameError, match=message):
        build()
