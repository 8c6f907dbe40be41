"""FedAvg, FedAvg-strategic and UPBReD against the game's own dynamics, and FedAvg against 2P's second phase."""

from __future__ import annotations

import numpy as np
import pytest
from table import play, played, set_table

from fedincentive.agent import digest
from fedincentive.errors import GameError
from fedincentive.game import paper_example, random_data_value, random_quadratic, repaired_example
from fedincentive.game.dynamics import ascent, contributions, joint, last


@pytest.mark.parametrize(
    "options", [{}, {"server_optimizer": "adam"}, {"sampled": 2, "audit_seed": 1}, {"weights": "samples"}]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_second_phase_of_2p_is_fedavg_to_the_byte(seed, options) -> None:
    game = random_data_value(seed, 4, 3)
    common = {"rounds": 9, "eta": 0.3, "beta": "9", "gamma": 9.0, **options}
    seen = {}
    for name in ("fedavg", "2p-upbred"):
        center, agents = set_table(game, name, **common)
        seen[name] = []

        def note(result, center=center, name=name):
            if result.phase == "train":
                seen[name].append((result.step, digest(center.w), dict(result.s), center.run.delivered_total.copy()))

        play(center, agents, progress=note)
    assert len(seen["fedavg"]) == 9
    assert seen["fedavg"] == seen["2p-upbred"]


@pytest.mark.parametrize("seed", range(3))
def test_fedavg_is_gradient_ascent_at_s_max(seed) -> None:
    game = random_quadratic(seed, 5, 3)
    run = played(game, "fedavg", rounds=20, eta=0.1)
    assert run.outcome.w["w"] == pytest.approx(last(ascent(game, 0.1), 20).w, abs=1e-12)
    assert run.outcome.contributed == 0 and not any(run.outcome.payments.values())


@pytest.mark.parametrize("seed", range(3))
def test_upbred_is_the_joint_dynamics(seed) -> None:
    game = random_quadratic(seed, 5, 3)
    run = played(game, "upbred", rounds=40, eta=0.05, gamma=0.05)
    state = last(joint(game, 0.05, 0.05), 40)
    assert run.outcome.w["w"] == pytest.approx(state.w, abs=1e-5)  # s is quantised to a millionth each round
    assert [run.outcome.s[name] for name in game.agents] == pytest.approx(list(state.s), abs=1e-5)


def test_upbred_with_the_contribution_payment_feels_beta_and_pays_tranches() -> None:
    game = repaired_example()
    run = played(game, "upbred", rounds=60, gamma=1.0, beta="0.5", payment="contribution")
    assert run.outcome.s == {"agent-1": 5.0, "agent-2": 5.0}
    assert all(sum(result.payments.values()) == 0 for result in run.history)
    assert run.outcome.promises.claims == ("equilibrium", "false-name-proof", "budget-balanced")
    assert not run.center.conclude(game).certificate.broken


def test_the_repaired_example_rests_where_agent_1_rides_free() -> None:
    run = played(repaired_example(), "upbred", rounds=3000, gamma=2.0, eta=1.0, report_values=False)
    assert run.outcome.w["w"] == pytest.approx([1.0, 2.0], abs=1e-3)
    assert list(run.outcome.s.values()) == pytest.approx([0.0, 5.0], abs=1e-3)
    certificate = run.center.conclude(repaired_example()).certificate
    assert certificate.welfare.value == pytest.approx(1.8, abs=1e-3)
    assert certificate.optimal_welfare.value == pytest.approx(1.9)


def test_the_printed_example_drifts_to_where_it_is_not_defined() -> None:
    """As printed, w runs to (1, 2), nobody values data any more, and s goes to (0, 0): an explicit error."""
    with pytest.raises(GameError, match="contributions sum to 0"):
        played(paper_example(), "upbred", rounds=20_000, gamma=2.0, eta=1.0, report_values=False)


def test_fedavg_strategic_rests_where_nobody_is_paid_and_trains_there() -> None:
    game = repaired_example()
    run = played(game, "fedavg-strategic", rounds=50, gamma=5.0, eta=1.0, tol=1e-6)
    state = last(contributions(game, 5.0), run.outcome.contributed)
    assert [run.outcome.s[name] for name in game.agents] == pytest.approx(list(state.s), abs=1e-4)
    assert list(run.outcome.s.values()) == pytest.approx([0.0, 5.0], abs=1e-3)
    assert run.outcome.delivered == pytest.approx(run.outcome.s)
    assert run.outcome.status == "complete" and run.outcome.trained == 50
    assert not any(run.outcome.payments.values())


def test_fedavg_strategic_does_not_leave_phase_one_because_all_slopes_are_negative() -> None:
    """The paper's loop runs while some g_i > 0; with nothing but costs that would end at once at s0."""
    game = random_quadratic(7, 3, 2)
    dear = game.starting_at(s0=game.s_max / 2)
    object.__setattr__(dear.cost, "c", np.full(3, 1e3))
    run = played(dear, "fedavg-strategic", rounds=2, gamma=1.0)
    assert list(run.outcome.s.values()) == [0.0, 0.0, 0.0]
    assert run.outcome.contributed >= 1


def test_fedavg_strategic_at_the_round_limit_says_so() -> None:
    run = played(repaired_example(), "fedavg-strategic", gamma=0.01, round_limit=7)
    assert run.outcome.status == "round limit" and run.outcome.trained == 0
    assert "did not settle in 7 rounds" in run.outcome.advice and "round_limit" in run.outcome.advice
    on = played(repaired_example(), "fedavg-strategic", gamma=0.01, round_limit=7, when_short="train", rounds=2)
    assert on.outcome.trained == 2
    assert "when_short" in run.outcome.advice and "when_short" not in on.outcome.advice  # it is set already


def test_the_incentive_gap() -> None:
    """What FedAvg assumes, what strategic agents give without payment, and what the payment wins back."""
    game, common = repaired_example(), {"rounds": 80, "gamma": 5.0, "eta": 1.0, "beta": "0.5"}
    welfare = {}
    for name in ("fedavg", "2p-upbred", "fedavg-strategic"):
        run = played(game, name, **common)
        welfare[name] = run.center.conclude(game).certificate.welfare.value
    assert welfare["2p-upbred"] == welfare["fedavg"] == pytest.approx(1.9, abs=1e-3)
    assert welfare["fedavg-strategic"] == pytest.approx(1.8, abs=1e-3)


def test_the_welfare_metric_is_that_of_the_reported_valuations() -> None:
    game = random_data_value(2, 3, 2)
    run = played(game, "fedavg", rounds=4, eta=0.3)
    assert [result.phase for result in run.history] == ["train"] * 4 + ["value"]
    assert run.history[-1].metrics["welfare"] == pytest.approx(game.welfare(run.outcome.w["w"], game.s_max), abs=1e-5)
    assert run.history[0].metrics["welfare"] == pytest.approx(game.welfare(game.w0, game.s_max), abs=1e-5)
    silent = played(game, "fedavg", rounds=4, eta=0.3, report_values=False)
    assert [result.phase for result in silent.history] == ["train"] * 4
    assert "welfare" not in silent.history[-1].metrics
    assert silent.outcome.digest == run.outcome.digest
