"""Mechanisms of other papers, played by the center: every posting is derived again by both verifiers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from keyring import folder_of

from fedincentive import ledger, play
from fedincentive.agent import GameOracle
from fedincentive.engine import run, table
from fedincentive.errors import SettingError
from fedincentive.game import random_data_value
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify
from fedincentive.mechanisms import Settings
from fedincentive.payments import Oracles

GAME = random_data_value(3, 5, 2)
COST = dict(zip(GAME.agents, GAME.cost.c.tolist(), strict=True))
GROVES = {"groves-d": {"curvature": dict.fromkeys(GAME.agents, "0.5"), "discount": "0.9"}}
BUDGET = {"share": {"budget": "1"}}
PLAYS = {
    "fedbr": {},
    "fedbr-bg": {"cost": COST},
    "fedbr-bg with a part": {"cost": 0.01, "options": {"relative": {"part": "0.3"}}},
    "one-for-one": {"need": 20},
    "pay-what-you-contribute": {"need": 20.5, "spillover": 0.5, "cost": COST},
    "gradient-relative": {"sampled": 3},
    "shares": {"options": BUDGET},
    "shares by worth": {"options": BUDGET, "contribution": "exact", "sampled": 4},
    "t-upbred with groves-d": {"payment": "groves-d", "options": GROVES},
    "t-upbred with sampled groves-d": {"payment": "groves-d", "options": GROVES, "sampled": 3},
}


def played(name, tmp_path, **more):
    file = tmp_path / "ledger.sqlite"
    settings = {"rounds": 4, "eta": 0.5, "mechanism": name.split(" ")[0], **PLAYS[name], **more}
    outcome = play(GAME, ledger=file, **settings)
    with ledger.open(file) as book:
        return outcome, verify(book, recompute=True).findings, list(to_jsonl(book))


def standalone_findings(lines):
    return standalone.check(lines, [], standalone.Signatures())[0]


@pytest.mark.parametrize("name", PLAYS)
def test_every_posting_is_derived_again(name, tmp_path):
    outcome, findings, lines = played(name, tmp_path)
    assert outcome.status == "complete" and findings == ()
    assert standalone_findings(lines) == []
    assert sum(outcome.payments.values()) + outcome.treasury == 0
    balanced = name.startswith(("fedbr", "gradient", "t-upbred", "one-for-one"))
    assert (outcome.treasury == 0) == balanced
    assert any(outcome.payments.values()) == (name not in ("fedbr", "one-for-one"))


@pytest.mark.parametrize("name", ["fedbr-bg", "pay-what-you-contribute", "shares", "t-upbred with sampled groves-d"])
def test_signed_runs_are_derived_from_what_agents_said(name, tmp_path):
    keys = folder_of(tmp_path / "keys", GAME.agents)
    outcome, findings, lines = played(name, tmp_path, keys=str(keys), rounds=2)
    assert outcome.basis == "signed" and findings == ()
    assert standalone_findings(lines) == []


@pytest.mark.parametrize("name", [n for n in PLAYS if n not in ("fedbr", "one-for-one")])
def test_both_verifiers_see_a_run_that_pays_by_other_terms(name, tmp_path, monkeypatch):
    """A center that multiplies what it agreed: amounts follow from the inputs, the inputs not from the terms."""
    from fedincentive.payments import GrovesUpdates, Reimburse, Relative, Share

    for cls in (GrovesUpdates, Reimburse, Relative, Share):
        honest = cls.entry

        def entry(self, run, inputs, *, honest=honest, **kind):
            key = next(k for k in ("h", "budget", "rates") if k in inputs)
            worse = {a: f"{r}1" for a, r in inputs["rates"].items()} if key == "rates" else inputs[key]
            worse = worse + 1 if key == "budget" else f"1{worse}" if key == "h" else worse
            return honest(self, run, {**inputs, key: worse}, **kind)

        monkeypatch.setattr(cls, "entry", entry)
    _, findings, lines = played(name, tmp_path)
    assert {finding.name for finding in findings} == {"terms"}
    assert {found[0] for found in standalone_findings(lines)} == {"terms"}


def test_fedbr_bg_pays_the_equal_share_of_all_costs(tmp_path):
    outcome, _, lines = played("fedbr-bg", tmp_path)
    costs = np.array([COST[a] for a in GAME.agents]) * np.array([outcome.delivered[a] for a in GAME.agents])
    expected = costs - costs.mean()  # everyone ends with the mean cost
    assert [outcome.payments[a] / 1e6 for a in GAME.agents] == pytest.approx(expected, abs=1e-5)


def test_costs_are_paid_back_and_no_more(tmp_path):
    outcome, _, _ = played("pay-what-you-contribute", tmp_path)
    expected = [COST[a] * outcome.s[a] for a in GAME.agents]
    assert [outcome.payments[a] / 1e6 for a in GAME.agents] == pytest.approx(expected, abs=1e-5)
    assert all(outcome.s[a] + 0.5 * (sum(outcome.s.values()) - outcome.s[a]) >= 20.5 - 1e-5 for a in GAME.agents)


def test_a_budget_is_divided_to_the_last_unit(tmp_path):
    for name in ("shares", "shares by worth"):
        outcome, _, _ = played(name, tmp_path / name, rounds=7) if (tmp_path / name).mkdir() is None else None
        assert outcome.treasury == -(10**6) and min(outcome.payments.values()) >= 0


def test_values_are_of_the_rounds_an_agent_was_in(tmp_path):
    """Exact values sum to the round's gain; who was not asked has none, and keeps its mean."""
    settings = Settings.read({"mechanism": "upbred", "rounds": 6, "eta": 0.5, "sampled": 3, "contribution": "exact"})
    center, agents = table(GAME, settings)
    results, before = [], {}

    def note(result):
        if result.phase == "train":
            results.append((result, {a: x for a, x in before.items()}))
            before.update(center.run.memory["worth"]["count"])

    run(center, agents, progress=note)
    for result, counted in results:
        assert len(result.worth) == 3
        for agent in GAME.agents:
            assert center.run.memory["worth"]["count"].get(agent, 0) >= counted.get(agent, 0)
    outcome = center.conclude(GAME)
    for agent in GAME.agents:
        own = [result.worth[agent][0] for result, _ in results if agent in result.worth]
        assert (agent in outcome.worth) == bool(own)
        assert not own or outcome.worth[agent] == pytest.approx(np.mean(own))


@pytest.mark.parametrize("how", ["exact", "gtg", "loo", "cgsv"])
def test_a_rounds_values_come_with_an_interval(how):
    results = []
    play(GAME, mechanism="fedavg", rounds=2, eta=0.5, contribution=how, progress=results.append)
    trained = [result for result in results if result.phase == "train"]
    assert all(set(result.worth) == set(GAME.agents) for result in trained)
    spread = [half for result in trained for _, half in result.worth.values()]
    assert (max(spread) > 0.0) == (how == "gtg")
    if how == "exact":  # efficiency: the values sum to what the round gained
        s = GAME.s_max
        w1 = GAME.w0 + 0.5 * GAME.mean_gradient(GAME.w0, s)
        gained = GAME.welfare(w1, s) - GAME.welfare(GAME.w0, s)
        assert sum(value for value, _ in trained[0].worth.values()) == pytest.approx(gained)


def test_a_resumed_run_has_the_same_means(tmp_path):
    how = {"mechanism": "upbred", "rounds": 6, "eta": 0.5, "contribution": "cgsv", "sampled": 3, "audit_seed": 1}
    whole = play(GAME, **how)

    class Stop(Exception):
        pass

    def stop(result):
        if result.step == 2:
            raise Stop

    with pytest.raises(Stop):
        play(GAME, state=tmp_path / "state", progress=stop, **how)
    again = play(GAME, state=tmp_path / "state", resume=True, **how)
    assert again.worth == whole.worth
    assert json.dumps(again.to_json()["worth"])


def bare(settings):
    """A center that was given no way to value models."""
    read = Settings.read(settings)
    return table(GAME, read, oracles=Oracles(GameOracle(GAME, lambda name: 0.0)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"contribution": "exact"}, "contribution is 'exact', which evaluates models.*set contribution: cgsv"),
        ({"contribution": "shapley"}, "contribution is 'shapley'"),
        ({"mechanism": "one-for-one"}, "assigns points by need: set incentive.need"),
        ({"mechanism": "one-for-one", "need": {"agent-1": 3}}, "need has no number for agent 'agent-2'"),
        ({"mechanism": "one-for-one", "need": 3, "spillover": 2}, "spillover must be between 0 and 1"),
        ({"mechanism": "fedbr-bg", "cost": {"agent-1": 0.1}}, "cost has no number for agent 'agent-2'"),
        ({"mechanism": "shares"}, "options.share.budget is required"),
        ({"mechanism": "fedbr-bg", "options": {"relative": {"part": "2"}}}, "relative.part is 2"),
        ({"mechanism": "fedbr-bg", "options": {"relative": {"compares": "x"}}}, "compares is 'x'; known: costs"),
        ({"mechanism": "t-upbred", "payment": "groves-d", "options": {"groves-d": {"curvature": {"agent-1": "1"}}}},
         "curvature has no number for agent 'agent-2'"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_played_are_refused_with_the_remedy(settings, message):
    with pytest.raises(SettingError, match=message):
        bare({"rounds": 2, **settings})
