"""The in-process host: it carries messages and decides nothing."""

from __future__ import annotations

import logging

import pytest
from keyring import folder_of
from table import play, played, set_table

from fedincentive import engine
from fedincentive.adversary import Misreport, attack
from fedincentive.agent import Away
from fedincentive.errors import QuorumError, RunError, SettingError
from fedincentive.game import Certificate, random_data_value, repaired_example


def test_a_refused_report_is_logged_and_the_run_goes_on(caplog) -> None:
    too_much = Misreport(s=lambda s, s_max: 2.0 * s_max)
    game = random_data_value(1, 3, 2)
    with caplog.at_level(logging.WARNING, "fedincentive"):
        run = played(game, "upbred", rounds=3, lies={"agent-2": too_much})
    assert run.outcome.counts == {"refused": 3}
    assert "Agent 'agent-2' reports s =" in caplog.text
    assert all(result.absent == ("agent-2",) for result in run.history if result.phase == "train")


def test_agents_that_stay_away_for_good_end_the_run_with_their_names() -> None:
    game = random_data_value(1, 3, 2)
    away = {name: Away(phases=("contribute", "train")) for name in game.agents[:2]}
    with pytest.raises(QuorumError, match="Absent: agent-1, agent-2"):
        played(game, "2p-upbred", strategies=away, beta="9", repeats=1)


@pytest.mark.parametrize("name", ["alie", "ipm"])
def test_attacks_made_from_honest_updates_are_shown_them(name) -> None:
    game = random_data_value(1, 5, 2)
    lie = Misreport(update=attack(name, 5.0))
    honest, attacked = played(game, "fedavg", rounds=5), played(game, "fedavg", rounds=5, lies={"agent-1": lie})
    assert attacked.outcome.counts == {}
    assert attacked.outcome.digest != honest.outcome.digest


def test_every_enrolled_agent_must_be_at_the_table() -> None:
    center, agents = set_table(repaired_example(), "fedavg")
    with pytest.raises(SettingError, match="'agent-2' is enrolled but is not among the agents that play"):
        play(center, agents[:1])


def test_a_run_that_goes_on_is_not_certified() -> None:
    center, _ = set_table(repaired_example(), "fedavg")
    with pytest.raises(RunError, match="not over"):
        center.conclude(repaired_example())


def test_a_certificate_says_whether_anybody_signed(tmp_path) -> None:
    game = random_data_value(1, 3, 2)
    keys = folder_of(tmp_path / "keys", game.agents)
    for values, told in (({}, "none: nobody signed what agents said"), ({"keys": str(keys)}, "every agent signed")):
        made = engine.play(game, mechanism="2p-upbred", beta="9", rounds=2, **values).certificate
        assert made.basis == "exact" and f"  signatures            {told}" in str(made)
        older = {key: value for key, value in made.to_json().items() if key != "signed"}
        assert Certificate.from_json(made.to_json()) == made and told not in str(Certificate.from_json(older))


def test_many_agents_play_in_one_process() -> None:
    game = random_data_value(0, 1000, 1)
    outcome = play(*set_table(game, "2p-upbred", rounds=2, beta="9", gamma=50.0))
    assert outcome.status == "complete" and outcome.s == outcome.s_max
    assert sum(outcome.payments.values()) == 0
