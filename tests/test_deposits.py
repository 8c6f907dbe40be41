"""How large deposits are, what sampled rounds pay, and lump sums: formulas, bounds and exact expectations."""

from __future__ import annotations

import doctest
import itertools
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedincentive import mechanisms, payments
from fedincentive.errors import PaymentError, SettingError
from fedincentive.payments import Contribution, Deposit, LumpSum, Oracles, contribution, deposit, lump
from fedincentive.settings import Settings

SCALE = MINOR = 10**6
HOSPITALS = {"university": 60, "city": 50, "county": 45, "harbour": 40, "clinic": 25}
chances = st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.9, 1.0])


def hospitals(**changes) -> Deposit:
    return Deposit(
        **{"beta": Fraction("0.08"), "rounds": 40, "audit": 0.1, "detection": 0.9, "openings": 10, **changes}
    )


def test_the_hospitals_by_hand():
    """g = 0.08 * 60/40 = 0.12, rho = 1 - 1e-10: 0.12 (1/(0.1 rho) - 1) = 1.08, rounded up; by deposit/1 4/3 as much."""
    points = {name: s * SCALE for name, s in HOSPITALS.items()}
    made = hospitals().deposits(points)
    assert made["university"] == 1_080_001 and made["clinic"] == 450_001
    older = hospitals().deposits(points, older=True)
    assert older["university"] == 1_440_001 and older["clinic"] == 600_001
    assert hospitals().covered(MINOR, 60 * SCALE, 5) == 55 * SCALE
    assert hospitals().covered(2 * MINOR, 60 * SCALE, 5) == 60 * SCALE
    assert hospitals().covered(0, 60 * SCALE, 5) == 0


def test_second_looks_at_passes_leave_fewer_audits_and_need_more():
    """With a tenth of passes looked at twice q is 0.1/1.1: 0.12 (11/rho - 1) = 1.2; where all are audited, they are."""
    points = {name: s * SCALE for name, s in HOSPITALS.items()}
    assert hospitals(rechecks=0.1).deposits(points)["university"] == 1_200_001
    assert hospitals(rechecks=0.1, audit=1.0).deposits(points) == hospitals(audit=1.0).deposits(points)


@given(
    st.integers(1, 500), st.integers(2, 40), st.integers(1, 100), chances, chances, st.integers(0, 20),
    st.sampled_from([0, Fraction(1, 7), 3]), st.integers(1, 5), st.integers(0, 6), st.integers(2, 45), st.booleans(),
)  # fmt: skip
def test_the_formula_in_floats_and_rounded_up_in_whole_units(s, n, T, q, delta, k, V, m, L, asked, sampled):
    made = Deposit(
        Fraction(2, 3), T, q, delta, k, Fraction(V), m, asked if sampled else None, scale=10, minor=1000, lag=L
    )
    g = 2 / 3 * s / T * (n / min(asked, n) if sampled else 1.0)
    rho = 1.0 - (1.0 - delta) ** min(k, s)
    kappa = (n - 1) / (n - min(m, n - 1))
    invented = g * (1.0 / (q * rho) - 1.0) if k else 0.0
    trained, steered = g * (1.0 / q - 1.0), float(V) * (1.0 / q + L)
    for older, wanted in (
        (False, max(invented, trained + kappa * steered)),
        (True, kappa * max(invented, trained + steered)),
    ):
        found = made.of_points(s * 10, n, older=older)
        assert wanted * 1000 - 1e-6 * (1 + wanted) <= found <= wanted * 1000 + 1 + 1e-6 * (1 + wanted)


@given(st.integers(1, 10**5), st.integers(2, 9), chances, chances, st.integers(0, 12), st.integers(0, 10**8))
@settings(max_examples=60)
def test_more_points_never_need_less_and_a_budget_covers_the_most_that_fit(s, n, q, delta, k, budget):
    made = Deposit(Fraction(1, 2), 10, q, delta, k, scale=10, minor=100)
    assert made.of_points(s, n) <= made.of_points(s + 1, n)
    most = made.covered(budget, s, n)
    assert most == s or (most % 10 == 0 and most < s)
    assert most == 0 or made.of_points(most, n) <= budget
    assert most == s or made.of_points(most + 10, n) > budget


@given(st.integers(2, 30), st.data())
def test_shares_of_forfeits_are_equal_exact_and_for_all_others(n, data):
    agents = [f"a{k:02d}" for k in range(n)]
    lost = {a: data.draw(st.integers(0, 10**9)) for a in agents if data.draw(st.booleans())}
    shares = deposit.shared(lost, agents, data.draw(st.integers(0, 99)))
    assert sum(shares.values()) == sum(lost.values()) and min(shares.values()) >= 0
    for agent in agents:
        assert abs(shares[agent] - Fraction(sum(lost.values()) - lost.get(agent, 0), n - 1)) < 1


def test_an_accomplice_that_fails_too_gets_no_more_than_one_that_does_not():
    assert deposit.shared({"a": 90}, "abcd") == {"a": 0, "b": 30, "c": 30, "d": 30}
    both = deposit.shared({"a": 90, "b": 60}, "abcd")
    assert both["b"] == 30 and both["c"] == 50


def test_audits_bring_deposits_and_lump_sums_their_payment():
    audited = {"auditors": ["x", "y", "z"], "beta": "0.5", "lump_sums": {"a": "1", "b": "-1"}}
    made = mechanisms.get("2p-upbred", Settings.read(audited))
    assert [payment.name for payment in made.payments] == ["contribution", "lump", "deposit"]
    assert made.beta == made.payments[2].beta == Fraction(1, 2)
    unpaid = mechanisms.get("fedavg", Settings.read({**audited, "payment": "none"}))
    assert unpaid.payments[-1].beta == 0 and unpaid.payments[-1].of_points(10**9, 3) == 0
    for payment in made.payments:
        assert type(payment).read(payment.terms()) == payment or payment.name == "contribution"


@pytest.mark.parametrize("settlement", ["end", "commitment"])
def test_audited_runs_pay_in_tranches(settlement):
    made = mechanisms.get("2p-upbred", Settings.read({"auditors": ["x", "y", "z"], "settlement": settlement}))
    with pytest.raises(SettingError, match=f"incentive.settlement is '{settlement}' in a run with auditors"):
        made.check(3)


def test_a_lump_sum_of_nobody_is_refused_by_name():
    with pytest.raises(SettingError, match="lump_sums names 'bod', who is not among the agents. Did you mean 'bob'"):
        LumpSum({"ann": Fraction(1), "bod": Fraction(-1)}).named(["ann", "bob"])
    with pytest.raises(SettingError, match="sum to 0.5"):
        Settings.read({"lump_sums": {"ann": "1", "bob": "-0.5"}})


@given(st.dictionaries(st.sampled_from("abcdef"), st.fractions(-5, 5), min_size=2), st.sampled_from([1, 7, 100]))
def test_lump_sums_are_exact_and_sum_to_nothing(sums, minor):
    agents = sorted(sums)
    given_ = lump.spread(sums, agents)
    assert sum(given_.values()) == 0
    body = {"inputs": {"amounts": {agent: str(money) for agent, money in given_.items()}}}
    posted = LumpSum.amounts(body, {}, minor)
    assert sum(posted.values()) == 0 and all(abs(posted[a] - given_[a] * minor) < 1 for a in agents)
    gaps = {sums[a] - given_[a] for a in agents}
    assert len(gaps) == 1  # everyone gives up the same


# Sampled rounds


def tranche(beta, T, drawn, points, n):
    """What one sampled round pays in exact fractions, straight from the words."""
    paid = {}
    for agent in drawn:
        others = [points[other] for other in drawn if other != agent]
        paid[agent] = beta / T * Fraction(n, len(drawn)) * (points[agent] - Fraction(sum(others), len(others)))
    return paid


@pytest.mark.parametrize(("n", "asked"), [(3, 2), (4, 2), (5, 3), (6, 5), (6, 6)])
def test_the_expectation_over_who_is_asked_is_the_full_tranche(n, asked):
    agents = [f"a{k}" for k in range(n)]
    points = {agent: 7 * (k + 1) ** 2 for k, agent in enumerate(agents)}
    total = dict.fromkeys(agents, Fraction(0))
    draws = list(itertools.combinations(agents, asked))
    for drawn in draws:
        by_hand = tranche(Fraction(3), 1, drawn, points, n)
        scores = {**dict.fromkeys(agents, 0), **contribution.scored({a: points[a] for a in drawn})}
        posted = contribution.score_amounts(3, 1, asked, scores, {}, drawn, scale=1, minor=asked * (asked - 1))
        for agent in drawn:
            assert posted[agent] == by_hand[agent] * asked * (asked - 1)
            total[agent] += by_hand[agent]
    for agent in agents:
        mean = Fraction(sum(points.values()) - points[agent], n - 1)
        assert total[agent] / len(draws) == 3 * (points[agent] - mean)


@pytest.mark.parametrize("cost", [Fraction(0), Fraction(1, 2), Fraction(99, 100)])
def test_no_patient_strategy_gains_where_agents_are_sampled(cost):
    """All strategies of one agent that may depend on when it was asked before: none beats giving all it has.

    The price of a point is 1, and the rounds that it is asked in cost their part of the whole run's cost.
    """
    n, asked, T, s = 3, 2, 3, 10
    agents = "abc"
    draws = list(itertools.product(itertools.combinations(agents, asked), repeat=T))
    histories = [h for t in range(T) for h in itertools.product((False, True), repeat=t)]

    def utility(choice):
        total = Fraction(0)
        for drawn in draws:
            seen = ()
            for who in drawn:
                here = "a" in who
                if here:
                    mine = choice[seen]
                    total += tranche(Fraction(1), T, who, {"a": mine, "b": 6, "c": 9}, n)["a"] - cost * mine / T
                seen = (*seen, here)
        return total / len(draws)

    honest = utility(dict.fromkeys(histories, s))
    for given_ in itertools.product((0, s), repeat=len(histories)):
        assert utility(dict(zip(histories, given_, strict=True))) <= honest


def test_who_is_charged_most_where_agents_are_sampled():
    """By trying all draws: an agent that gives nothing, always asked with the largest others."""
    s_max = np.array([1.0, 9.0, 4.0, 6.0, 4.0])
    agents = tuple("abcde")
    found = Contribution(Fraction(2), 10, sampled=3).limits(agents, s_max)
    for i, agent in enumerate(agents):
        worst = 0.0
        for drawn in itertools.combinations(range(5), 3):
            if i in drawn:
                points = {agents[j]: Fraction(0 if j == i else s_max[j]) for j in drawn}
                worst = max(worst, -10 * float(tranche(Fraction(2), 10, list(points), points, 5)[agent]))
        assert found[i] == pytest.approx(worst)


def test_one_agent_cannot_be_compared_with_nobody():
    with pytest.raises(SettingError, match="incentive.sampled is 1 with the contribution payment"):
        Contribution(Fraction(1), sampled=1).check(5, Oracles())
    Contribution(Fraction(1), settlement="commitment", sampled=1).check(5, Oracles())  # nothing is paid in training
    with pytest.raises(PaymentError):
        contribution.score_amounts(1, 1, 2, {"a": 1.5, "b": -1}, {}, "ab")


def test_the_examples_in_the_docstrings():
    results = [doctest.testmod(module) for module in (deposit, lump, payments)]
    assert sum(result.attempted for result in results) > 8 and not any(result.failed for result in results)


def test_a_deposit_is_rounded_up():
    assert Deposit(Fraction(1, 3), 7, 0.5, minor=1).of_points(SCALE, 3) == ceil(Fraction(2, 21))
