"""The quote: its numbers by hand, the range of beta by brute force, the agents that block it, the command."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedincentive import engine
from fedincentive.errors import GameError, SettingError
from fedincentive.game import (
    beta_ne,
    max_regret,
    outside_options,
    paper_example,
    phase_one,
    quote,
    random_data_value,
    random_quadratic,
    read,
    repaired_example,
)
from fedincentive.game.phases import Bound, combine
from fedincentive.game.quoting import _decimal, lump_sums
from fedincentive.payments import Contribution, Deposit, LumpSum, Truthful
from fedincentive.plain import width

EXAMPLES = Path(__file__).parents[2] / "examples" / "games"
SEEDS = st.integers(0, 10_000)


def hospitals(**changes):
    rows = [
        {"name": "big", "s_max": 60, "cost": 0.05},
        {"name": "middle", "s_max": 40, "cost": 0.05},
        {"name": "small", "s_max": 20, "cost": 0.05, **changes},
    ]
    each = {"a": 10.0, "b": 20.0, "prior": 4.0, "spill": 0.8}
    return read({"game": {"kind": "data-value", "each": each, "agents": rows}})


def test_the_terms_by_hand():
    found = quote(hospitals(), "0.1")
    assert [row.payment for row in found.agents] == pytest.approx([3.0, 0.0, -3.0])
    assert [row.worst_payment for row in found.agents] == pytest.approx([-3.0, -4.0, -5.0])
    game = hospitals()
    np.testing.assert_allclose([row.utility for row in found.agents], game.utilities(game.w0, game.s_max, 0.1))
    np.testing.assert_allclose([row.outside_option for row in found.agents], outside_options(game))
    assert found.net_welfare == pytest.approx(sum(row.utility for row in found.agents))
    assert found.beta == "0.1" and not found.proposed


def test_no_strategy_of_the_others_makes_the_payment_worse_than_quoted():
    game = hospitals()
    found = quote(game, "0.1")
    rng = np.random.default_rng(0)
    for _ in range(200):
        s = rng.uniform(0.0, 1.0, 3) * game.s_max
        for i, row in enumerate(found.agents):
            assert game.payments(s, 0.1)[i] >= row.worst_payment - 1e-12
            full = np.where(np.arange(3) == i, game.s_max, s)
            assert game.payments(full, 0.1)[i] >= row.payment - 1e-12


def test_the_repaired_example_is_quoted_with_both_net_welfares():
    found = quote(repaired_example(), "0.05", gamma=1.0)
    assert (found.beta_ne, found.beta_dom) == (pytest.approx(0.035), pytest.approx(0.04))
    assert found.net_welfare == pytest.approx(1.6)
    assert found.net_welfare_unpaid == pytest.approx(1.7, abs=1e-4)
    assert found.phase_one_rounds >= phase_one(repaired_example(), gamma=1.0, beta=0.05).rounds
    assert found.losers == ()


def test_an_agent_that_loses_at_every_price_blocks_and_is_named():
    found = quote(paper_example(), "0.05")  # alone each of them reaches 1 at no cost worth naming
    assert found.losers == ("agent-1", "agent-2")
    assert found.rational.empty
    assert {bound.agent for bound in found.rational.blocking} == {"agent-1", "agent-2"}
    assert "no price lets agent-1 end no worse off than alone" in str(found)


def test_a_budget_that_excludes_the_equilibrium_names_both_sides():
    found = quote(hospitals(budget=0.3), "0.1")
    assert found.rational.high == pytest.approx(0.3 / 30.0)
    assert found.full.empty
    reasons = {(bound.agent, bound.why) for bound in found.full.blocking}
    assert ("small", "stay within its budget") in reasons
    assert any(why == "gain by giving everything" for _, why in reasons)
    assert [row.over_budget for row in found.agents] == [False, False, True]
    assert "small needs at most 0.01 to stay within its budget" in str(found)


def test_only_the_agent_that_no_price_can_please_is_blamed():
    hopeless, willing = Bound("a", math.inf, 0.0, "individual rationality"), Bound("b", 0.1, math.inf, "s_max")
    assert combine([hopeless, willing]).blocking == (hopeless,)
    low, high = Bound("a", 0.2, math.inf, "s_max"), Bound("b", 0.0, 0.1, "its budget")
    assert combine([low, high, Bound("c", 0.05, math.inf, "s_max")]).blocking == (low, high)


def test_beta_ne_holds_at_the_first_model_and_at_the_best_one():
    game = random_quadratic(2, 3, 2)
    for w0 in (5.0, -5.0):
        far = game.starting_at(w0=[w0, w0])
        start, end = beta_ne(far, far.w0), beta_ne(far, far.optimum())
        assert start != end
        assert quote(far, "1").beta_ne == max(start, end)


def test_a_demanding_payer_limits_beta_by_its_outside_option():
    game = hospitals()
    base = game.utilities(game.w0, game.s_max)
    found = quote(replace(game, outside_option=base - np.array([1.0, 1.0, 0.6])), "0.1")
    assert found.rational.high == pytest.approx(0.02)
    assert found.losers == ("small",)


@settings(max_examples=20)
@given(seed=SEEDS, n=st.integers(2, 6))
def test_the_accepted_range_is_what_trying_every_price_says(seed, n):
    game = random_data_value(seed, n, 2)
    rng = np.random.default_rng(seed)
    w = game.optimum()
    base = game.utilities(w, game.s_max)
    game = replace(game, outside_option=base + rng.normal(size=n) * 0.2, budget=rng.uniform(0.1, 5.0, n))
    found = quote(game, "0.01")

    def accepted(beta):
        paid = game.payments(game.s_max, beta)
        return bool(np.all(base + paid >= game.outside_option - 1e-9) and np.all(-paid <= game.budget + 1e-9))

    for beta in np.geomspace(1e-4, 1.0, 60):
        near = min(abs(beta - found.rational.low), abs(beta - found.rational.high)) < 1e-6
        assert near or accepted(beta) == (beta in found.rational)
    if found.rational.empty:
        assert found.rational.blocking


@settings(max_examples=8)
@given(seed=SEEDS, n=st.integers(2, 5))
def test_s_max_is_an_equilibrium_from_beta_ne_on_and_phase_one_ends_above_beta_dom(seed, n):
    game = random_data_value(seed, n, 2)
    found = quote(game)
    w = game.optimum()
    assert max_regret(game, w, game.s_max, found.beta_ne + 1e-9).value <= 1e-8
    if found.beta_ne > 1e-4:
        assert max_regret(game, w, game.s_max, found.beta_ne * 0.9).value > 0.0
    assert phase_one(game, gamma=500.0, beta=found.beta_dom * 1.01).ending == "full"


@settings(max_examples=8)
@given(seed=SEEDS)
def test_a_proposal_is_accepted_wherever_any_price_is(seed):
    found = quote(random_data_value(seed, 4))
    assert found.proposed
    if not found.full.empty and found.full.high > found.full.low * 1.02 + 1e-6:
        assert float(Fraction(found.beta)) in found.full
    assert any("those above the average gain" in said for said in found.assumptions)


def test_what_is_not_known_is_said_so():
    bumpy = random_quadratic(0, 3, 2, contracting=False)
    found = quote(bumpy, "1")
    text = str(found)
    assert "at least that, by search" in text
    assert "holds at the first and last model" in text
    unknown = quote(replace_valuation_without_alone(), "0.1")
    assert unknown.losers is None
    assert "who loses              not known" in str(unknown)


def replace_valuation_without_alone():
    game = hospitals()

    class NoAlone(type(game.valuation)):
        def alone(self, t):
            return None

    v = game.valuation
    return replace(game, valuation=NoAlone(v.curve, v.x, v.fit, v.spill))


@pytest.mark.parametrize("beta", ["0", "-1", "much", float("nan")])
def test_a_price_must_be_positive(beta):
    with pytest.raises(GameError, match="beta must be"):
        quote(repaired_example(), beta)


def test_an_agent_whose_cost_is_above_beta_is_named():
    found = quote(repaired_example(), "0.03")
    assert found.cost_above_beta == ("agent-1",)
    assert "price below cost       of the last point: agent-1" in str(found)
    assert quote(repaired_example(), "0.05").cost_above_beta == ()


def test_one_agent_cannot_be_quoted():
    alone = read({"game": {"kind": "data-value", "agents": 1, "each": {"s_max": 5}}})
    with pytest.raises(GameError, match="at least 2 agents"):
        quote(alone, "0.1")


@pytest.mark.parametrize(("beta", "shown"), [("0.05", "0.05"), ("1/3", "1/3"), (2.5, "2.5"), ("10", "10")])
def test_the_price_is_shown_exactly(beta, shown):
    assert quote(repaired_example(), beta).beta == shown


def test_a_hundred_thousand_agents_are_quoted():
    found = quote(random_data_value(5, 100_000), "0.02")
    assert len(found.agents) == 100_000
    assert "and 99960 more agents" in str(found)


def run(*args, cwd):
    command = [sys.executable, "-m", "fedincentive.cli", "quote", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120)


def test_the_command_prints_a_table_or_json(tmp_path):
    done = run(EXAMPLES / "hospitals.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ("clinic", "(beta_NE)", "(beta_dom)", "acceptable prices", "who loses              nobody", "Assumed"):
        assert words in done.stdout
    whole = json.loads(run(EXAMPLES / "hospitals.yaml", "--json", cwd=tmp_path).stdout)
    assert whole["beta"] == "0.08" and whole["losers"] == [] and len(whole["agents"]) == 5
    assert whole["full"]["low"] == pytest.approx(whole["beta_ne"]) and not whole["full"]["empty"]
    assert math.isfinite(whole["full"]["high"])


def test_the_text_speaks_in_words():
    """Symbols stand in brackets at most, for those who know the paper."""
    for text in (str(quote(hospitals(), "0.1")), str(quote(paper_example(), "0.05")), str(quote(hospitals()))):
        plain = re.sub(r"\([^)]*\)", "", text)
        assert not re.search(r"s_max|beta|w_OPT|\bw0?\b|tau|individual rationality|\bsunk\b", plain), text


def test_the_price_stands_beside_what_a_point_costs():
    assert "in all; the last point costs its owner 0.02 to 0.04" in str(quote(repaired_example(), "0.05"))


def test_the_first_example_gains_against_training_alone_and_against_no_payments(tmp_path):
    found = json.loads(run(EXAMPLES / "hospitals.yaml", "--json", cwd=tmp_path).stdout)
    assert found["losers"] == [] and found["phase_one_rounds"] <= 5
    assert found["net_welfare"] > max(found["net_welfare_alone"], found["net_welfare_unpaid"])


def test_the_command_takes_a_price_and_refuses_a_float_in_the_file(tmp_path):
    path = tmp_path / "GAME.yaml"
    path.write_text("game: {kind: repaired}\nincentive: {beta: 0.05}\n")
    refused = run(path, cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.strip().startswith("Error: incentive.beta must be a quoted decimal")
    assert ": 0.07 per point (as given)" in run(path, "--beta", "0.07", cwd=tmp_path).stdout
    path.write_text('game: {kind: repaired}\nincentive: {bata: "1"}\n')
    assert "no setting 'bata'. Did you mean 'beta'?" in run(path, cwd=tmp_path).stderr
    path.write_text("game: {kind: repaired}\n")
    assert "(proposed)" in run(path, cwd=tmp_path).stdout
    missing = run(tmp_path / "none.yaml", cwd=tmp_path)
    assert missing.returncode == 1 and "cannot be read" in missing.stderr


TRUTHFUL = Truthful(rounds=4)


def test_without_a_payment_that_moves_them_agents_are_quoted_where_they_rest():
    """Phase 1 would stop short of s_max, and the quote must not promise it."""
    for payments in ((), (TRUTHFUL,)):
        found = quote(repaired_example(), payments=payments)
        assert not found.full_contribution and found.rested
        assert [row.s for row in found.agents] == pytest.approx([0.0, 5.0], abs=1e-3)
        assert found.beta is None and found.rational is None and "everyone gives what is best for it" in str(found)
    told = quote(repaired_example(), payments=(), phase_one=False)  # as FedAvg: nobody is asked
    assert told.full_contribution and [row.s for row in told.agents] == [5.0, 5.0]


def test_a_price_that_does_not_keep_s_max_is_said():
    assert not any("NOT an equilibrium" in said for said in quote(repaired_example(), "0.05").assumptions)
    assert any("NOT an equilibrium" in said for said in quote(repaired_example(), "0.01").assumptions)
    sunk = quote(repaired_example(), "0.5", payments=(Contribution(Fraction(1), settlement="commitment"),))
    assert any("NOT an equilibrium" in said for said in sunk.assumptions)
    assert sunk.full is None and "delivering earns nothing" in str(sunk) and "beta_NE" not in str(sunk)
    json.dumps(sunk.to_json(), allow_nan=False)


def test_only_a_mechanism_with_a_phase_1_is_quoted_its_length():
    assert quote(repaired_example(), "0.05", gamma=1.0).phase_one_rounds == 250
    assert quote(repaired_example(), "0.05", gamma=1.0, phase_one=False).phase_one_rounds is None


def test_fines_are_in_the_worst_case():
    found = quote(repaired_example(), payments=(TRUTHFUL,), full_contribution=False)
    fine = 2 * 10.0  # n loss_cap value_per_nat
    assert [row.worst_payment for row in found.agents] == pytest.approx([-(4 * fine + 2 * 10.0)] * 2)
    assert any("costs 20 in each round" in said for said in found.assumptions)


def least_squares_lumps(missing):
    """min |L|^2 with sum L = 0 and L >= missing, by bisection in floats."""
    low, high = -1e9, 1e9
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(missing, middle).sum() <= 0 else (low, middle)
    return np.maximum(missing, low)


@settings(max_examples=50)
@given(st.lists(st.floats(-5, 3), min_size=2, max_size=7))
def test_lump_sums_are_the_least_change_that_leaves_nobody_short(missing):
    names = [f"a{k}" for k in range(len(missing))]
    found = lump_sums(dict(zip(names, missing, strict=True)))
    if sum(missing) > 1e-5:
        assert found is None
    if found is None:
        assert sum(missing) > -1e-5
        return
    assert sum(found.values()) == 0
    amounts = np.array([found[name] for name in names]) / 1e6
    assert np.all(amounts >= np.array(missing) - 1e-12)
    np.testing.assert_allclose(amounts, least_squares_lumps(np.array(missing)), atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_proposed_lump_sums_make_everyone_at_least_as_well_off_as_alone(seed):
    """Played with them, nobody is short of its outside option, and s_max is as stable as before."""
    game = random_data_value(seed, 5)
    found = quote(game, None, margin=0.01)
    if found.lump_sums is None:
        assert not found.losers or sum(row.utility for row in found.agents) < found.net_welfare_alone + 0.05
        return
    sums = {agent: Fraction(money) for agent, money in found.lump_sums.items()}
    assert sum(sums.values()) == 0
    paid = (Contribution(Fraction(found.beta)), LumpSum(sums))
    again = quote(game, found.beta, payments=paid)
    assert again.losers == () and again.lump_sums is None
    for row in again.agents:
        assert row.utility >= row.outside_option + 0.01 - 1e-9
    w = game.optimum()
    assert max_regret(game, w, game.s_max, paid).value == max_regret(game, w, game.s_max, paid[:1]).value


def test_with_lump_sums_nobody_falls_short_by_rounding():
    """Played from the best model on, what is paid differs from the quote by rounding alone: at this price half a step
    of a point is worth several units of money. All together have just enough for that."""
    game = random_data_value(3, 4)
    game = game.starting_at(w0=game.optimum())
    utilities = np.array([row.utility for row in quote(game, "7").agents])
    game = replace(game, outside_option=utilities + [10.0, -10.0, 5.0, -5.0] - 1.1e-5)
    found = quote(game, "7")
    ended = engine.play(game, mechanism="2p-upbred", beta="7", rounds=3, eta=1e-12, lump_sums=found.lump_sums)
    s = np.array([ended.s[name] for name in game.agents])
    paid = np.array([ended.payments[name] for name in game.agents]) / 1e6
    assert np.all(game.values(ended.w["w"], s) - game.costs(s) + paid >= game.outside_option)


def test_where_no_lump_sums_can_help_it_is_said():
    found = quote(paper_example(), "0.05")
    assert found.lump_sums is None and "lump sums              none: together the agents are" in str(found)


def test_deposits_and_budgets_are_quoted_as_the_center_counts():
    audited = Deposit(Fraction(1), 40, 0.1, 0.9, 10)
    game = hospitals(budget=3.2)
    game = replace(game, budget=np.array([1.0, np.inf, 3.2]))
    found = quote(game, "0.1", payments=(Contribution(Fraction(1), 40), audited))
    g = 0.1 * np.array([60, 40, 20]) / 40
    expected = g * (1 / (0.1 * (1 - 1e-10)) - 1)
    np.testing.assert_allclose([row.deposit for row in found.agents], expected, atol=2e-6)
    big, middle, small = found.agents
    assert big.counted == 44.0  # 0.0225 a point, and with more points than the others it owes nothing
    assert middle.counted == 40.0 and middle.budget is None
    assert small.counted == 0.0 and not small.over_budget  # it pays 3 and cannot leave 0.45 beside
    assert "counts with 44 for its budget of 1" in str(found)
    json.dumps(found.to_json(), allow_nan=False)


def test_the_cap_on_what_anyone_can_owe_bounds_the_price_as_the_center_does():
    """small delivers nothing and the others all they have: it owes beta 50, middle beta 40, big beta 30."""
    capped = quote(hospitals(), "0.07", most_owed=3)
    assert [row.over_cap for row in capped.agents] == [False, False, True] and "over most_owed" in str(capped)
    assert capped.rational.high == pytest.approx(3 / 50)
    assert not any(row.over_cap for row in quote(hospitals(), "0.06", most_owed=3).agents)
    for beta, refused in (("0.06", False), ("0.07", True)):
        terms = {"mechanism": "2p-upbred", "beta": beta, "rounds": 2, "gamma": 1e4, "most_owed": "3"}
        with pytest.raises(SettingError, match="could owe 3.5 in run") if refused else nullcontext():
            engine.play(hospitals(), **terms)
    proposed = quote(hospitals(), most_owed=3)
    assert float(Fraction(proposed.beta)) in proposed.full and proposed.full.high == capped.rational.high


@pytest.mark.parametrize("money", ["-0.085151", "-1.5", "-2", "0.085151", "0", "12", "-0.000001"])
def test_proposed_amounts_are_written_as_settings_read_them(money):
    assert _decimal(Fraction(money)) == money


def test_lump_sums_count_in_budgets_and_in_the_cap():
    """small pays beta 30 and a lump sum of 1; by the cap it may owe beta 50 + 1."""
    paid = Contribution(Fraction(1)), LumpSum({"big": Fraction(1), "small": Fraction(-1)})
    assert quote(hospitals(), "0.02", payments=paid, most_owed=2).rational.high == pytest.approx(1 / 50)
    assert quote(hospitals(budget=1.6), "0.02", payments=paid).rational.high == pytest.approx(0.6 / 30)
    tight = quote(hospitals(budget=0.5), "0.02", payments=paid)
    assert tight.rational.empty and "stay within its budget" in str(tight)


def test_a_narrow_range_of_prices_is_hit():
    game = hospitals()
    base, ne = game.utilities(game.w0, game.s_max), beta_ne(game, game.w0)
    outside = base + np.array([ne * 1.0001 * 30, -10.0, -ne * 1.0002 * 30])  # big wants more than small will pay
    found = quote(replace(game, outside_option=outside))
    assert not found.full.empty and Fraction(found.beta) > 0
    assert float(Fraction(found.beta)) in found.full and found.losers == ()


def test_lump_sums_are_in_whole_units_of_the_currency() -> None:
    """In yen there is nothing smaller than one: what is proposed is what the run pays, and nobody falls short."""
    each = {"a": 1000.0, "b": 100000.0, "prior": 40.0, "spill": 0.8, "cost": 3.0}
    rows = [{"name": "one", "s_max": 10}, {"name": "two", "s_max": 200}, {"name": "three", "s_max": 3000}]
    found = quote(read({"game": {"kind": "data-value", "each": each, "agents": rows}}), "5", minor=1, currency="JPY")
    assert found.losers and found.lump_sums, found.lump_reason
    given = {agent: Fraction(money) for agent, money in found.lump_sums.items()}
    assert all(money.denominator == 1 for money in given.values()) and sum(given.values()) == 0
    for row in found.agents:
        assert row.utility + float(given[row.agent]) >= row.outside_option
    assert str(found).startswith("Quote for 2p-upbred in JPY: 5 per point")


def test_names_of_any_script_stand_in_columns() -> None:
    lines = str(quote(replace(hospitals(), agents=("\u9280\u884c", "clinic", "city")), "0.1")).splitlines()
    assert {width(line.split("  loses")[0]) for line in lines[2:6]} == {width(lines[2])}
