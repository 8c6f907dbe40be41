"""The payment rules hold their promises for every input, and refuse what is not exact."""

from __future__ import annotations

import doctest
import json
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedincentive import mechanisms, payments
from fedincentive.errors import GameError, PaymentError, SettingError
from fedincentive.payments import contribution, exact, truthful
from fedincentive.payments.base import in_order
from fedincentive.settings import Settings

names = st.sampled_from(
    ["a", "b", "B", "agent-2", "agent-10", "\u00e9", "e\u0301", "\U0001f600", "x y", '"', "\\", "~"]
)
# few distinct values make ties likely, large ones make remainders large
points = st.one_of(st.integers(0, 6), st.integers(0, 10**9))
contributions = st.dictionaries(names, points, min_size=2, max_size=12)
betas = st.fractions(0, 1000, max_denominator=997)
scales = st.sampled_from([1, 3, 10**3, 10**6])
minors = st.sampled_from([1, 7, 100, 10**6])
rotations = st.integers(0, 10**6)


def formula(beta: Fraction, s: dict[str, int], scale: int, minor: int) -> dict[str, Fraction]:
    """The paper's formula, written the other way round: beta (s_i - mean of the others)."""
    others = {a: Fraction(sum(p for b, p in s.items() if b != a), len(s) - 1) for a in s}
    return {a: beta * minor * (s[a] - others[a]) / scale for a in s}


def check_promises(amounts: dict[str, int], due: dict[str, Fraction], s: dict[str, int]) -> None:
    assert sum(amounts.values()) == 0
    assert all(abs(amounts[a] - due[a]) < 1 for a in s)
    ranked = sorted(s, key=lambda a: (s[a], amounts[a]))
    for low, high in zip(ranked, ranked[1:], strict=False):
        assert s[low] == s[high] or amounts[low] <= amounts[high]


@given(betas, contributions, scales, minors, rotations)
@settings(max_examples=300)
def test_contribution_sums_to_zero_within_one_unit_and_monotone(beta, s, scale, minor, rotation):
    amounts = contribution.amounts(beta, s, scale=scale, minor=minor, rotation=rotation)
    check_promises(amounts, formula(beta, s, scale, minor), s)


@given(betas, contributions, rotations, st.randoms(use_true_random=False))
def test_the_order_of_reports_does_not_matter(beta, s, rotation, random):
    shuffled = list(s.items())
    random.shuffle(shuffled)
    again = contribution.amounts(beta, dict(shuffled), minor=1, scale=1, rotation=rotation)
    assert again == contribution.amounts(beta, s, minor=1, scale=1, rotation=rotation)
    assert list(again) == sorted(s)


@given(st.integers(2, 9), st.integers(0, 50), st.integers(1, 40))
def test_ties_rotate_so_that_equal_agents_receive_the_same_over_whole_turns(n, extra, denominator):
    """The ring of ties has n or n + 1 places; n (n + 1) rounds turn both fully."""
    s = {f"a{k}": 5 for k in range(n)} | {"z": 5 + extra}
    received = dict.fromkeys(s, 0)
    for rotation in range(n * (n + 1)):
        for agent, amount in contribution.amounts(
            Fraction(1, denominator), s, scale=1, minor=1, rotation=rotation
        ).items():
            received[agent] += amount
    equal = {received[f"a{k}"] for k in range(n)}
    assert len(equal) == 1


@given(betas, st.integers(1, 6), st.data(), minors)
@settings(max_examples=150)
def test_tranches_are_cumulative(beta, rounds, data, minor):
    """Every tranche sums to zero; the sums so far keep all promises; a fully delivered run ends at p(s) exactly."""
    s = data.draw(contributions)
    total, posted = dict.fromkeys(s, 0), dict.fromkeys(s, 0)
    for step in range(1, rounds + 1):
        delivered = {a: data.draw(st.sampled_from([0, s[a], s[a]])) for a in sorted(s)}
        total = {a: total[a] + delivered[a] for a in s}
        entry = contribution.tranche_amounts(beta, rounds, total, posted, scale=1, minor=minor, rotation=step)
        assert sum(entry.values()) == 0
        posted = {a: posted[a] + entry[a] for a in s}
        check_promises(posted, formula(beta / rounds, total, 1, minor), total)


@given(betas, st.integers(1, 12), contributions)
def test_full_delivery_pays_exactly_the_whole_payment(beta, rounds, s):
    posted: dict[str, int] = {}
    for step in range(1, rounds + 1):
        entry = contribution.tranche_amounts(
            beta, rounds, {a: step * s[a] for a in s}, posted, scale=1, minor=100, rotation=step
        )
        posted = {a: posted.get(a, 0) + entry[a] for a in s}
    assert posted == contribution.amounts(beta, s, scale=1, minor=100, rotation=rounds)


values = st.dictionaries(names, st.integers(-(10**12), 10**12), max_size=8)


@given(values, st.data())
def test_truthful_payments_are_the_formula_and_the_treasury_takes_the_rest(valuations, data):
    h = data.draw(st.sampled_from(["previous", "zero", "clarke"]))
    previous = data.draw(st.one_of(st.none(), values))
    pivots = {a: data.draw(st.integers(-100, 100)) for a in valuations} if h == "clarke" else None
    fines = {a: data.draw(st.integers(0, 99)) for a in valuations if data.draw(st.booleans())}
    amounts = truthful.amounts(valuations, previous, fines, h, pivots=pivots)
    assert sum(amounts.values()) == 0
    for agent in valuations:
        base = {
            "zero": 0,
            "previous": sum(v for a, v in (previous or {}).items() if a != agent),
            "clarke": (pivots or {}).get(agent),
        }[h]
        others = sum(v for a, v in valuations.items() if a != agent)
        assert amounts[agent] == others - fines.get(agent, 0) - base


def test_previous_valuations_telescope_to_the_others_improvement():
    rounds = [{"a": 3, "b": 10}, {"a": 5, "b": 40}, {"a": 9, "b": 70}]
    paid = dict.fromkeys("ab", 0)
    for before, now in zip(rounds, rounds[1:], strict=False):
        amounts = truthful.amounts(now, before, {}, "previous")
        paid = {a: paid[a] + amounts[a] for a in paid}
    assert paid == {"a": 70 - 10, "b": 9 - 3}


def test_fines_by_each_rule():
    values, references = {"a": 100, "b": 103, "c": 50}, {"a": 100, "b": 100}
    assert truthful.fines("none", 9, values, references) == {"a": 0, "b": 0, "c": 0}
    assert truthful.fines("paper", 9, values, references, minor=2) == {
        "a": 0,
        "b": 9 + 4,
        "c": 0,
    }  # 4.5, half to even
    assert truthful.fines("audited", 9, values, references, tolerance=3) == {"a": 0, "b": 0, "c": 0}
    assert truthful.fines("audited", 9, values, references, tolerance=2) == {"a": 0, "b": 9, "c": 0}
    assert truthful.fines("audited", 9, values, {}, failed={"c": "points"}) == {"a": 0, "b": 0, "c": 9}


@given(st.floats(-1e9, 1e9), scales)
def test_quantise_is_the_nearest_integer(value, scale):
    assert abs(payments.quantise(value, scale) - Fraction(value) * scale) <= Fraction(1, 2)


def test_quantise_rounds_half_to_even_and_refuses_what_is_not_finite():
    assert [payments.quantise(x, 1) for x in (0.5, 1.5, 2.5, -0.5)] == [0, 2, 2, 0]
    for bad in (float("nan"), float("inf"), True, "1", None, 1e300):
        with pytest.raises(PaymentError):
            payments.quantise(bad, 10**6)


NOT_EXACT = [1.0, True, np.int64(3), np.float64(1), "1", None, 2**63, -(2**63), 10**40]


@pytest.mark.parametrize("bad", NOT_EXACT, ids=repr)
def test_amounts_and_points_that_are_not_exact_are_refused_by_name(bad):
    with pytest.raises(PaymentError, match="'x'"):
        contribution.amounts(1, {"x": bad, "y": 1})
    with pytest.raises(PaymentError, match="'x'"):
        contribution.tranche_amounts(1, 2, {"x": 1, "y": 1}, {"x": bad})
    with pytest.raises(PaymentError, match="'x'"):
        truthful.amounts({"x": bad, "y": 1}, None, {}, "zero")
    with pytest.raises(PaymentError, match="'x'"):
        truthful.amounts({"x": 1, "y": 1}, {"x": bad}, {}, "previous")
    with pytest.raises(PaymentError, match="'x'"):
        truthful.fines("paper", 1, {"x": 1}, {"x": bad})


@pytest.mark.parametrize("bad", [0.5, True, np.float64(1), None, "abc", "1/0", -1, "-2"], ids=repr)
def test_a_rate_must_be_exact_and_not_negative(bad):
    with pytest.raises(PaymentError, match="beta"):
        contribution.amounts(bad, {"x": 1, "y": 2})


def test_a_payment_too_large_for_64_bits_is_refused_not_wrapped():
    with pytest.raises(PaymentError, match="64 bits"):
        contribution.amounts(10**6, {"x": 2**62, "y": 0}, scale=1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: contribution.amounts(1, {"x": 1}), "at least 2"),
        (lambda: contribution.amounts(1, {"x": 1, "treasury": 1}), "treasury"),
        (lambda: contribution.amounts(1, {"x": -1, "y": 1}), "'x'"),
        (lambda: contribution.tranche_amounts(1, 2, {"x": 1, "y": 1}, {"z": 1}), "'z'"),
        (lambda: contribution.tranche_amounts(1, 0, {"x": 1, "y": 1}, {}), "rounds"),
        (lambda: truthful.amounts({"x": 1}, None, {"y": 1}, "zero"), "'y'"),
        (lambda: truthful.amounts({"x": 1}, None, {"x": -1}, "zero"), "fine"),
        (lambda: truthful.amounts({"x": 1}, None, {}, "last"), "previous, zero, clarke"),
        (lambda: truthful.amounts({"x": 1}, None, {}, "clarke"), "pivot"),
        (lambda: truthful.fines("all", 1, {"x": 1}, {}), "none, paper, audited"),
        (lambda: truthful.fines("paper", 1, {"x": 1}, {"y": 1}), "'y'"),
        (lambda: payments.apportion({"x": 1, "y": 1}, 3), "whole number"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(call, words):
    with pytest.raises(PaymentError, match=words):
        call()


def test_the_examples_in_the_docstrings():
    results = [doctest.testmod(module) for module in (payments, exact, contribution, truthful)]
    assert sum(result.attempted for result in results) > 10
    assert not any(result.failed for result in results)


@dataclass(frozen=True)
class Odd(payments.Payment):
    """Every kind of field a payment may have."""

    beta: Fraction
    plain: int = 3
    steps: tuple[Fraction, ...] = (Fraction(1, 3), Fraction(2))
    costs: dict[str, Fraction] = field(default_factory=lambda: {"a": Fraction(1, 7)})
    limit: Fraction | None = None
    name = "odd"


@pytest.mark.parametrize("options", [{}, {"steps": ["1/2", "3"], "costs": {"b": "0.1"}, "limit": "5", "plain": 4}])
def test_terms_are_plain_and_make_the_same_payment(options):
    made = Odd.of(Settings.read({"beta": "0.5", "options": {"odd": options}}))
    assert Odd.read(json.loads(json.dumps(made.terms()))) == made
    assert made.beta == Fraction(1, 2) and made.plain == options.get("plain", 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"plain": "x"}, "incentive.options.odd.plain must be a whole number"),
        ({"steps": ["x"]}, r"incentive.options.odd.steps\[0\] must be a decimal number"),
        ({"step": 1}, "Did you mean 'steps'"),
        ({"beta": "1"}, "incentive.options.odd has no setting 'beta'"),
    ],
)
def test_options_that_do_not_fit_are_named(options, words):
    with pytest.raises(SettingError, match=words):
        Odd.of(Settings.read({"options": {"odd": options}}))


def test_names_of_payments():
    assert payments.chosen(["both"]) == payments.chosen("both") == ("contribution", "truthful")
    assert payments.chosen("none, contribution") == ("contribution",) and payments.chosen(["none"]) == ()
    with pytest.raises(SettingError, match="names one thing twice"):
        Settings.read({"payment": ["truthful", "truthful"]})
    with pytest.raises(SettingError, match="Mechanism 'wrong' pays 'shapley'. Did you mean 'share'"):
        type("Wrong", (mechanisms.Mechanism,), {"name": "wrong", "pays": "shapley"})(Settings())


def test_a_price_may_be_any_finite_number():
    for price in (0.5, np.float32(0.5), Fraction(1, 2)):
        assert payments.felt(price)[0].price == Fraction(1, 2)
    assert payments.felt(np.int64(0)) == ()
    with pytest.raises(GameError, match="finite"):
        payments.felt(float("nan"))


def test_a_step_that_does_not_follow_the_one_before_is_found() -> None:
    memory: dict = {}
    assert list(in_order({"inputs": {"step": 0}}, memory)) == list(in_order({"inputs": {"step": 1}}, memory)) == []
    assert list(in_order({"inputs": {"step": 3}}, memory)) == [
        ("terms", "it is of training round 3, the one before it was of 1.")
    ]
