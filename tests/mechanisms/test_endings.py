"""How phase 1 ends when somebody is absent, or keeps almost nothing back; and what a run that stops short costs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from table import answer, played, set_table

from fedincentive import ledger
from fedincentive.agent import Away, Strategy
from fedincentive.errors import QuorumError
from fedincentive.game import random_data_value, repaired_example
from fedincentive.ledger.verify import verify
from fedincentive.messages import Report

TERMS = {"beta": "7", "gamma": 9.0, "rounds": 3}
GONE = Away(phases=("contribute",))


class Keeps(Strategy):
    """All but so many points, from the first round on; with `wobble` it never says the same twice."""

    def __init__(self, back: float, wobble: float = 0.0) -> None:
        self.back, self.wobble = back, wobble

    def choose(self, view):
        return view.site.s_max - self.back - self.wobble * (view.broadcast.round % 2)


class Now(Strategy):
    """Away from these rounds, else at once to s_max."""

    def __init__(self, away) -> None:
        self._away = away

    def choose(self, view):
        return view.site.s_max

    def away(self, view):
        return view.broadcast.phase == "contribute" and view.broadcast.round in self._away


@pytest.mark.parametrize("misses", [1, 3, 5])
def test_an_absent_agent_costs_phase_one_so_many_rounds_and_no_more(misses, tmp_path, caplog) -> None:
    game = random_data_value(1, 4)
    with ledger.open(tmp_path / "l.db") as book:
        run = played(game, "2p-upbred", strategies={"agent-2": GONE}, misses=misses, book=book, **TERMS)
        found = verify(book, recompute=True).findings
        committed = next(record.inputs for record in book.entries() if record.kind == "commitment")
    ended, waited = run.outcome, [r for r in run.history if r.phase == "contribute" and "agent-2" in r.absent]
    assert ended.status == "complete" and ended.trained == 3 and not found
    assert len(waited) == misses and ended.contributed < 20
    assert ended.lost == ended.short == ("agent-2",)
    assert ended.s["agent-2"] == committed["s"]["agent-2"] / 10**6 == round(float(game.s0[1]), 6)
    assert "agent-2 with" in ended.advice and "raise beta" not in ended.advice
    assert "phase 1 goes on without it" in caplog.text
    assert json.loads(json.dumps(ended.to_json()))["lost"] == ["agent-2"]


def test_the_absent_agent_is_asked_again_in_training_and_paid_for_what_it_delivers() -> None:
    run = played(random_data_value(1, 4), "2p-upbred", strategies={"agent-2": GONE}, **TERMS)
    training = [result for result in run.history if result.phase == "train"]
    assert all(result.absent == () for result in training)
    assert run.outcome.delivered["agent-2"] == pytest.approx(run.outcome.s["agent-2"])


def test_agents_that_are_absent_by_turns_do_not_keep_it_from_resting() -> None:
    """Nobody is lost, and nobody moves: every second round one of them is away."""
    turns = {"agent-1": Now(range(0, 99, 2)), "agent-2": Now(range(1, 99, 2)), "agent-3": Keeps(30.0)}
    run = played(random_data_value(5, 3), "2p-upbred", strategies=turns, **TERMS)
    assert run.outcome.status == "rested" and run.outcome.contributed < 8
    assert run.outcome.lost == () and run.outcome.short == ("agent-3",)


def test_who_stood_still_before_others_moved_is_waited_for() -> None:
    """Its last answer was to another s: phase 1 rests only after it has seen the new one."""
    center, agents = set_table(random_data_value(5, 3), "2p-upbred", **TERMS)
    first, *others = (agent.name for agent in agents)
    s = {"agent-1": 0.5, "agent-2": 1.0, "agent-3": 1.0}

    def close(*who: str) -> None:
        for name in who:
            center.submit(Report("test", center.run.round, "contribute", name, s=s[name]))
        center.close()

    close(first, *others)
    close(first, *others)
    assert center.run.phase != "contribute"  # nobody moved
    center, agents = set_table(random_data_value(5, 3), "2p-upbred", **TERMS)
    close(first, *others)
    s["agent-2"] = 0.9
    close(*others)
    close(*others)
    assert center.run.phase == "contribute" and center.run.moved is None
    close(first, *others)
    assert center.run.status == "rested"


def test_an_agent_that_comes_back_in_time_goes_on() -> None:
    run = played(random_data_value(1, 4), "2p-upbred", strategies={"agent-2": Now([0, 1, 3, 4])}, **TERMS)
    assert run.outcome.lost == () and run.outcome.short == () and run.outcome.status == "complete"


def test_the_quorum_counts_those_that_phase_one_goes_on_without() -> None:
    strategies = {"agent-1": GONE, "agent-2": GONE, "agent-3": Now(range(4, 99))}
    with pytest.raises(QuorumError, match=r"1 of 4 agents answered.*quorum is 0.5. Absent: agent-1, agent-2, agent-3"):
        played(random_data_value(1, 4), "2p-upbred", strategies={**strategies, "agent-4": Keeps(50.0, 1.0)}, **TERMS)


def test_who_is_lost_when_others_rest_short_is_said_apart_and_no_price_is_blamed_for_it() -> None:
    strategies = {"agent-2": GONE, "agent-3": Keeps(5.0)}
    ended = played(random_data_value(1, 4), "2p-upbred", strategies=strategies, **TERMS).outcome
    assert ended.status == "rested" and ended.short == ("agent-2", "agent-3") and ended.lost == ("agent-2",)
    assert "agent agent-3 is giving less than everything" in ended.advice and "agent-2 with" in ended.advice


@pytest.mark.parametrize(("back", "wobble"), [(0.001, 0.0), (0.999, 0.0), (0.001, 0.002)])
def test_keeping_back_less_than_a_point_is_no_veto(back, wobble, tmp_path) -> None:
    game = random_data_value(1, 4)
    strategies = {"agent-4": Keeps(back, wobble)}
    with ledger.open(tmp_path / "l.db") as book:
        run = played(game, "2p-upbred", strategies=strategies, book=book, round_limit=60, **TERMS)
        committed = next(record.inputs for record in book.entries() if record.kind == "commitment")
        assert not verify(book, recompute=True).findings
    said = committed["s_max"]["agent-4"] - committed["s"]["agent-4"]
    assert run.outcome.status == "complete" and run.outcome.trained == 3
    assert run.outcome.short == ("agent-4",) and said in (round(back * 1e6), round((back + wobble) * 1e6))
    assert run.outcome.delivered["agent-4"] == pytest.approx(committed["s"]["agent-4"] / 10**6, abs=1e-6)


@pytest.mark.parametrize(("back", "slack"), [(1.0, 1.0), (0.001, 0.0), (0.6, 0.5)])
def test_keeping_back_more_stops_the_run_and_nobody_has_a_cost(back, slack) -> None:
    game = random_data_value(1, 4)
    run = played(game, "2p-upbred", strategies={"agent-4": Keeps(back)}, slack=slack, **TERMS)
    assert run.outcome.status == "rested" and run.outcome.trained == 0
    assert not any(run.outcome.payments.values())
    assert "Nobody trained, so nobody had a cost" in run.outcome.advice
    found = run.center.conclude(game).certificate
    assert found.net_welfare.value == found.welfare.value and "nobody trained" in found.net_welfare.note


def test_the_slack_is_at_most_a_tenth_of_what_an_agent_has() -> None:
    """Points may be counted in thousands: an agent that gives nothing of 0.8 is not full."""
    game = repaired_example()
    run = played(game, "2p-upbred", beta="0.5", strategies={"agent-2": Keeps(0.6)}, rounds=2)
    assert run.outcome.status == "rested"  # of 5 points
    run = played(game, "2p-upbred", beta="0.5", strategies={"agent-2": Keeps(0.4)}, rounds=2)
    assert run.outcome.status == "complete"


def test_honest_agents_still_go_all_the_way() -> None:
    """The slack shortens no phase 1 that is under way, however small its steps are."""
    game = random_data_value(1, 4)
    run = played(game, "2p-upbred", beta="7", gamma=0.02, rounds=2)
    assert np.array_equal([run.outcome.s[name] for name in game.agents], game.s_max)


def test_a_strategic_federation_rests_without_the_absent_too() -> None:
    run = played(
        random_data_value(1, 4), "fedavg-strategic", strategies={"agent-2": GONE}, gamma=50.0, rounds=2, tol=1e-3
    )
    assert (
        run.outcome.status == "complete" and run.outcome.lost == ("agent-2",) and "agent-2 with" in run.outcome.advice
    )


def test_a_lost_agent_stays_lost_over_a_restart(tmp_path) -> None:
    game = random_data_value(1, 4)
    with ledger.open(tmp_path / "l.db") as book:
        options = {"book": book, "folder": tmp_path / "state", "strategies": {"agent-2": GONE}, "gamma": 0.2}
        options = {**TERMS, **options}
        center, agents = set_table(game, "2p-upbred", **options)
        for _ in range(4):
            answer(center, [agent for agent in agents if agent.name in center.missing])
            center.close()
        assert center.run.lost == ("agent-2",)
        center.release()
        again, _ = set_table(game, "2p-upbred", resume=True, **options)
        assert again.run.lost == ("agent-2",) and "agent-2" not in again.asked
        again.release()
