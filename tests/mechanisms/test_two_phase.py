"""2P-UPBReD: exact payments, full contribution in equilibrium, and nothing to gain by shirking."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table import played

from fedincentive import ledger, payments
from fedincentive.agent import Away, Fixed, FreeRider
from fedincentive.game import (
    DataValue,
    Game,
    LinearCost,
    Logarithm,
    beta_dom,
    max_regret,
    random_data_value,
    random_quadratic,
    repaired_example,
)
from fedincentive.game.dynamics import ascent, last

ROUNDS = 7  # not a divisor of anything: tranches have to be rounded
games = st.tuples(st.integers(0, 10**6), st.integers(2, 6))


def price(game: Game, eta: float = 0.2) -> Fraction:
    """A beta above zeta + tau at the first and at the last model, as a short decimal."""
    w_end = last(ascent(game, eta), ROUNDS).w
    bound = max(beta_dom(game, w) for w in (game.w0, w_end))
    return Fraction(math.ceil(bound * 1000) + 137, 1000)


def run_of(game, **options):
    beta = price(game)
    gap = float(beta) - beta_dom(game, game.w0)
    gamma = float(game.s_max.max()) / gap / 3.0
    return beta, played(game, "2p-upbred", beta=str(beta), gamma=gamma, eta=0.2, rounds=ROUNDS, **options)


@settings(max_examples=25)
@given(games)
def test_payments_sum_to_zero_every_round_and_to_the_papers_over_the_run(which) -> None:
    game = random_quadratic(*which, m=2)
    beta, run = run_of(game)
    training = [result for result in run.history if result.phase == "train"]
    assert run.outcome.status == "complete" and len(training) == ROUNDS
    for result in run.history:
        assert sum(result.payments.values()) == 0
        assert bool(result.payments) == (result.phase == "train")
    s_max = {name: payments.quantise(float(s)) for name, s in zip(game.agents, game.s_max, strict=True)}
    assert run.outcome.payments == payments.contribution.amounts(beta, s_max, rotation=training[-1].round)
    assert run.outcome.treasury == 0


@settings(max_examples=25)
@given(games)
def test_it_ends_at_s_max_with_regret_zero_while_the_payment_is_live(which) -> None:
    game = random_quadratic(*which, m=2)
    beta, run = run_of(game)
    s = np.array([run.outcome.s[name] for name in game.agents])
    assert np.array_equal(s, game.s_max)
    assert max_regret(game, run.outcome.w["w"], s, float(beta)).value == 0.0
    certificate = run.center.conclude(game, basis="exact").certificate
    held = {found.claim for found in certificate.findings if found.status == "held"}
    assert {"full-contribution", "budget-balanced", "equilibrium", "false-name-proof"} <= held
    assert not certificate.broken


@settings(max_examples=25)
@given(games)
def test_phase_one_takes_at_most_kappa_rounds(which) -> None:
    game = random_quadratic(*which, m=2)
    beta, run = run_of(game)
    pull = float(beta) - beta_dom(game, game.w0)
    kappa = float(np.max((game.s_max - game.s0) / (run.center.settings.gamma * pull)))
    assert run.outcome.contributed <= math.ceil(kappa) + 1  # one more for the quantised s


@pytest.mark.parametrize("seed", range(6))
def test_shirking_or_staying_away_never_pays(seed) -> None:
    game = random_data_value(seed, 4, 2)
    _, honest = run_of(game)
    for i, name in enumerate(game.agents):
        ways = [FreeRider(share=share) for share in (0.0, 0.5, 0.99)]
        ways += [Away(), Away(steps=[ROUNDS - 1]), Away(phases=("train",), steps=[0, 2])]
        for way in ways:
            _, run = run_of(game, strategies={name: way}, quorum=0.5)
            assert run.outcome.status == "complete"
            assert run.utilities[i] < honest.utilities[i], (name, way)
            assert sum(run.outcome.payments.values()) == 0


def reluctant() -> Game:
    """Data is worth little to each agent at s_max, so that only a live payment keeps it there."""
    valuation = DataValue(Logarithm(1.0, 1.0), x=np.zeros((3, 1)))
    return Game(("a", "b", "c"), valuation, LinearCost([0.2, 0.3, 0.4]), np.full(3, 20.0), np.full(3, 5.0), np.ones(1))


@pytest.mark.parametrize("settlement", ["tranches", "end", "commitment"])
def test_under_commitment_everyone_gains_by_shirking_and_otherwise_nobody(settlement) -> None:
    game, terms = reluctant(), {"beta": "0.5", "gamma": 50.0, "rounds": ROUNDS, "settlement": settlement}
    honest = played(game, "2p-upbred", **terms)
    for i, name in enumerate(game.agents):
        shirking = played(game, "2p-upbred", strategies={name: FreeRider()}, **terms)
        away = played(game, "2p-upbred", strategies={name: Away()}, **terms)
        sunk = settlement == "commitment"
        assert (shirking.utilities[i] > honest.utilities[i]) == sunk
        assert (away.utilities[i] > honest.utilities[i]) == sunk
        assert sum(shirking.outcome.payments.values()) == 0


def test_commitment_says_that_delivery_is_not_an_equilibrium() -> None:
    run = played(reluctant(), "2p-upbred", beta="0.5", gamma=50.0, rounds=2, settlement="commitment")
    promises = run.outcome.promises
    assert "equilibrium" not in promises.claims
    assert "delivering less pays" in promises.disclaimed["equilibrium"]
    certificate = run.center.conclude(reluctant()).certificate
    assert certificate.regret.value > 0.0
    paying = [result for result in run.history if result.payments]
    assert [result.phase for result in paying] == ["contribute"]


@pytest.mark.parametrize("settlement", ["tranches", "end", "commitment"])
def test_every_settlement_of_a_fully_delivered_run_pays_the_same(settlement) -> None:
    run = played(random_data_value(3, 5), "2p-upbred", beta="7", gamma=9.0, rounds=ROUNDS, settlement=settlement)
    s_max = dict(run.center.run.s_max)
    exact = payments.contribution.amounts(7, s_max)
    assert all(abs(run.outcome.payments[name] - exact[name]) <= 1 for name in s_max)
    assert sum(run.outcome.payments.values()) == 0


def test_the_ledger_has_one_commitment_and_a_tranche_each_round_and_recomputes(tmp_path) -> None:
    from fedincentive.ledger.verify import verify

    with ledger.open(tmp_path / "l.db") as book:
        run = played(random_data_value(1, 4), "2p-upbred", book=book, beta="7", gamma=9.0, rounds=ROUNDS)
        records = list(book.entries("test"))
        assert [record.kind for record in records] == ["terms", "commitment", *["tranche"] * ROUNDS]
        assert records[1].inputs["s"] == run.center.run.s_max
        assert book.balances("test") == {k: v for k, v in run.outcome.payments.items()}
        assert run.outcome.head == book.head().hash == records[-1].hash
        heads = [result.head for result in run.history if result.phase == "train"]
        assert heads == [record.hash for record in records[2:]]
        assert not verify(book, recompute=True).findings


def test_a_beta_too_small_names_who_is_short_and_is_not_settled(tmp_path) -> None:
    game = reluctant()
    with ledger.open(tmp_path / "l.db") as book:
        run = played(game, "2p-upbred", book=book, beta="0.25", gamma=20.0, tol=1e-5)
        assert [record.kind for record in book.entries()] == ["terms", "commitment"]
        advice = run.center.conclude(game).advice
    assert run.outcome.status == "rested"
    assert run.outcome.short == ("b", "c")
    assert run.outcome.trained == 0 and not any(run.outcome.payments.values())
    assert "agents b, c are giving less than everything at a price of 0.25" in advice
    assert "Above 0.4 " in advice and "beta_NE" in advice


def test_the_round_limit_is_another_outcome() -> None:
    run = played(reluctant(), "2p-upbred", beta="0.41", gamma=0.001, round_limit=5)
    assert run.outcome.status == "round limit" and run.outcome.contributed == 5
    assert run.outcome.short == ("a", "b", "c")
    assert "stopped at the round limit of 5" in run.outcome.advice


def test_short_runs_can_be_trained_on_what_was_committed() -> None:
    run = played(reluctant(), "2p-upbred", beta="0.3", gamma=20.0, tol=1e-5, rounds=3, when_short="train")
    assert run.outcome.status == "rested" and run.outcome.trained == 3
    assert run.outcome.delivered == pytest.approx(run.outcome.s)
    assert sum(run.outcome.payments.values()) == 0 and any(run.outcome.payments.values())
    assert [found.claim for found in run.center.conclude(reluctant()).certificate.broken] == ["full-contribution"]


def test_an_agent_that_never_moves_is_named() -> None:
    run = played(repaired_example(), "2p-upbred", beta="0.5", strategies={"agent-2": Fixed(1.0)}, tol=1e-4)
    assert run.outcome.status == "rested" and run.outcome.short == ("agent-2",)


def test_nothing_to_negotiate_when_everyone_starts_at_s_max(tmp_path) -> None:
    with ledger.open(tmp_path / "l.db") as book:
        run = played(repaired_example(s0=(5.0, 5.0)), "2p-upbred", book=book, beta="0.5", rounds=2)
        assert [record.kind for record in book.entries()] == ["terms", "commitment", "tranche", "tranche"]
    assert run.outcome.contributed == 0 and run.outcome.rounds == 2


def test_two_agents_pay_each_other() -> None:
    game = random_data_value(5, 2)
    run = played(game, "2p-upbred", beta="9", gamma=9.0, rounds=3)
    first, second = run.outcome.payments.values()
    assert first == -second != 0


def test_paid_truthfully_as_well_it_gives_up_balance() -> None:
    run = played(random_data_value(5, 3), "2p-upbred", beta="9", gamma=9.0, rounds=3, payment="both", loss_cap=1000.0)
    assert "budget-balanced" not in run.outcome.promises.claims
    assert "does not balance" in run.outcome.promises.disclaimed["budget-balanced"]
    assert run.outcome.treasury == -sum(run.outcome.payments.values()) != 0
    assert [result.phase for result in run.history[-2:]] == ["train", "value"]
