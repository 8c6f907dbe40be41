"""Mechanisms of other papers, played by the center: every posting is derived again by both verifiers."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from keyring import folder_of

from fedincentive import ledger, mechanisms, play
from fedincentive.agent import GameOracle
from fedincentive.engine import run, table
from fedincentive.errors import SettingError
from fedincentive.game import random_data_value
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.statement import statement
from fedincentive.ledger.verify import verify
from fedincentive.mechanisms import Settings
from fedincentive.payments import Oracles
from fedincentive.reports import ledgers, run_totals

GAME = random_data_value(3, 5, 2)
NEAR = replace(GAME, valuation=replace(GAME.valuation, fit=np.float64(0.02)))  # one model suits all: fees are due
COST = dict(zip(GAME.agents, GAME.cost.c.tolist(), strict=True))
GROVES = {"groves-d": {"curvature": dict.fromkeys(GAME.agents, "0.5"), "discount": "0.9"}}
BUDGET = {"share": {"budget": "1"}}
PLAYS = {
    "fedbr": {},
    "fedbr-bg": {"cost": COST},
    "fedbr-bg with a part": {"cost": 0.01, "options": {"relative": {"part": "0.3"}}},
    "fact": {},
    "fact with stated costs": {"cost": 0.01},
    "accuracy-shaping": {},
    "realfm": {},
    "one-for-one": {"need": 20},
    "pay-what-you-contribute": {"need": 20.5, "spillover": 0.5, "cost": COST},
    "gradient-relative": {"sampled": 3},
    "cgsv": {"options": {"download": {"length": "0.2", "altruism": "2"}}},
    "cgsv with values": {"contribution": "exact", "sampled": 3},
    "shares": {"options": BUDGET},
    "shares by worth": {"options": BUDGET, "contribution": "exact", "sampled": 4},
    "shares by agreement": {"options": BUDGET, "contribution": "agreement", "sampled": 4},
    "upbred with values": {"contribution": "loo", "sampled": 3},
    "t-upbred with groves-d": {"payment": "groves-d", "options": GROVES},
    "t-upbred with sampled groves-d": {"payment": "groves-d", "options": GROVES, "sampled": 3},
}

FREE = (
    "fedbr",
    "accuracy-shaping",
    "realfm",
    "one-for-one",
    "upbred with values",
    "cgsv",
    "cgsv with values",
)  # nobody is paid


def played(name, tmp_path, **more):
    file = tmp_path / "ledger.sqlite"
    settings = {"rounds": 4, "eta": 0.5, "mechanism": name.split(" ")[0], **PLAYS[name], **more}
    outcome = play(NEAR if name.startswith("fact") else GAME, ledger=file, **settings)
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
    balanced = name.startswith(("fedbr", "gradient", "t-upbred", *FREE))
    assert (outcome.treasury == 0) == balanced
    assert any(outcome.payments.values()) == (name not in FREE)


@pytest.mark.parametrize(
    "name",
    ["fedbr-bg", "fact", "realfm", "cgsv", "pay-what-you-contribute", "shares", "t-upbred with sampled groves-d"],
)
def test_signed_runs_are_derived_from_what_agents_said(name, tmp_path):
    keys = folder_of(tmp_path / "keys", GAME.agents)
    outcome, findings, lines = played(name, tmp_path, keys=str(keys), rounds=2)
    assert outcome.basis == "signed" and findings == ()
    assert standalone_findings(lines) == []


@pytest.mark.parametrize("name", [n for n in PLAYS if n not in FREE])
def test_both_verifiers_see_a_run_that_pays_by_other_terms(name, tmp_path, monkeypatch):
    """A center that multiplies what it agreed: amounts follow from the inputs, the inputs not from the terms."""
    from fedincentive.payments import GrovesUpdates, Reimburse, Relative, Sandwich, Share

    for cls in (GrovesUpdates, Reimburse, Relative, Sandwich, Share):
        honest = cls.entry

        def entry(self, run, inputs, *, honest=honest, **kind):
            key = next(k for k in ("h", "budget", "rates", "fees") if k in inputs)
            if key == "fees":
                return honest(self, run, {**inputs, key: {a: fee + 1 for a, fee in inputs[key].items()}}, **kind)
            worse = {a: f"{r}1" for a, r in inputs["rates"].items()} if key == "rates" else inputs[key]
            worse = worse + 1 if key == "budget" else f"1{worse}" if key == "h" else worse
            return honest(self, run, {**inputs, key: worse}, **kind)

        monkeypatch.setattr(cls, "entry", entry)
    _, findings, lines = played(name, tmp_path)
    assert {finding.name for finding in findings} == {"terms"}
    assert {found[0] for found in standalone_findings(lines)} == {"terms"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda given: {"penalties": {a: 0 for a in given["penalties"]}}, "penalties"),
        (lambda given: {"costs": {a: c + k for k, (a, c) in enumerate(given["costs"].items())}}, "costs"),
        (lambda given: {"seed": "another"}, "seed"),
        (lambda given: {"points": {a: 10**12 for a in given["points"]}}, "agreed are 0 to"),
    ],
)
def test_both_verifiers_hold_fact_to_its_terms(change, said, tmp_path, monkeypatch):
    from fedincentive.payments import Sandwich

    honest = Sandwich.inputs
    monkeypatch.setattr(Sandwich, "inputs", lambda *given: {**(made := honest(*given)), **change(made)})
    _, _, lines = played("fact", tmp_path)
    monkeypatch.undo()
    with ledger.open(tmp_path / "ledger.sqlite") as book:
        assert any(said in finding.message for finding in verify(book, recompute=True).findings)
    assert any(said in found[2] for found in standalone_findings(lines))


@pytest.mark.parametrize("name", ["accuracy-shaping", "realfm"])
def test_both_verifiers_see_a_model_that_was_not_earned(name, tmp_path, monkeypatch):
    from fedincentive.payments.levels import Levels

    honest = Levels.caps
    monkeypatch.setattr(Levels, "caps", lambda *given: honest(*given) + 0.01)  # a center that is generous to all
    _, _, lines = played(name, tmp_path)
    monkeypatch.undo()
    with ledger.open(tmp_path / "ledger.sqlite") as book:
        assert any("points have earned at most" in f.message for f in verify(book, recompute=True).findings)
    assert any("points have earned at most" in found[2] for found in standalone_findings(lines))


@pytest.mark.parametrize("name", ["fact", "accuracy-shaping", "realfm"])
def test_the_center_plays_what_the_league_plays(name):
    """The league writes each rule for many games at once; the center's payments are a second writing of it."""
    from fedincentive.league import ROWS, Reports, draw

    stage = draw("data-value", 4, 6, 0.1)
    row, reports = ROWS[{"accuracy-shaping": "shaping"}.get(name, name)], Reports.honest(stage)
    outcome = play(stage.game, mechanism=name, rounds=60, eta=8.0)
    given = np.array([outcome.s[agent] for agent in stage.game.agents])
    assert given == pytest.approx(row.moves(stage, reports).s, abs=0.05)
    wanted = row.levels(stage, reports, given, given) - stage.costs(given)
    if name == "fact":
        (payment,) = mechanisms.get(name, mechanisms.prepared(Settings.read({"mechanism": name}), stage.game)).payments
        assert payment.floats(stage.game.agents, given) == pytest.approx(row.pays(stage, reports, given), abs=1e-6)
        _, fee, _, _ = row.terms(stage, reports)
        won = sum(outcome.payments.values()) / 1e6
        assert -fee.sum() < won <= 1e-6  # n is divisible by 3: the treasury never pays
        wanted = wanted + np.array([outcome.payments[agent] for agent in stage.game.agents]) / 1e6
    else:
        assert outcome.certificate.regret.value < 1e-3 and sum(outcome.withheld.values()) > 0.0
        assert sum(outcome.withheld.values()) == pytest.approx(
            (stage.values(given) - wanted - stage.costs(given)).sum(), abs=1e-4
        )
    known = {line.agent: line.amount for line in outcome.certificate.losers}
    for agent, utility in zip(stage.game.agents, wanted, strict=True):
        assert agent not in known or known[agent] == pytest.approx(utility, abs=1e-4)


def test_hosts_play_games_by_the_mechanisms_own_strategy():
    """Or FACT's agents, who reply best in the engine, would follow a slope in hosts and write another ledger."""
    from types import SimpleNamespace

    from fedincentive.agent import ClosedFormSite
    from fedincentive.hosting import HostSettings

    site, fact = next(iter(ClosedFormSite.of(GAME))), Settings.read({"mechanism": "fact"})
    assert HostSettings().strategy_of("agent-1", site, fact) == "best-response"
    assert HostSettings().strategy_of("agent-1", SimpleNamespace(), fact) == "gradient"
    assert HostSettings(strategy="fixed").strategy_of("agent-1", site, fact) == "fixed"
    by_agent = HostSettings(strategy={"agent-2": "fixed"})
    assert [by_agent.strategy_of(a, site, fact) for a in ("agent-1", "agent-2")] == ["best-response", "fixed"]


def test_a_quote_of_shaping_counts_the_models_that_agents_get():
    from fedincentive.game import quote
    from fedincentive.league import ROWS, Reports, draw

    stage = draw("data-value", 4, 6, 0.1)
    settings = mechanisms.prepared(Settings.read({"mechanism": "accuracy-shaping"}), stage.game)
    made = mechanisms.get("accuracy-shaping", settings)
    found = quote(stage.game, payments=made.payments, mechanism=made.name, full_contribution=False, phase_one=False)
    s = ROWS["shaping"].moves(stage, Reports.honest(stage)).s
    assert found.welfare == pytest.approx(ROWS["shaping"].levels(stage, Reports.honest(stage), s, s).sum(), abs=1e-3)
    assert found.welfare < stage.values(s).sum() - 1e-3


def test_realfm_needs_a_value_of_no_data():
    with pytest.raises(SettingError, match="without data, which is not finite in this game: play accuracy-shaping"):
        play({"game": {"kind": "repaired"}}, mechanism="realfm", rounds=1)


def test_needs_are_asked_for_where_the_game_tells_none():
    with pytest.raises(SettingError, match="assigns points by need: set incentive.need"):
        play({"game": {"kind": "repaired"}}, mechanism="one-for-one", rounds=1)


def test_fedbr_bg_pays_the_equal_share_of_all_costs(tmp_path):
    outcome, _, lines = played("fedbr-bg", tmp_path)
    costs = np.array([COST[a] for a in GAME.agents]) * np.array([outcome.delivered[a] for a in GAME.agents])
    expected = costs - costs.mean()  # everyone ends with the mean cost
    assert [outcome.payments[a] / 1e6 for a in GAME.agents] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["fedbr-bg", "one-for-one", "pay-what-you-contribute", "shares", "t-upbred"])
def test_what_settings_leave_out_is_the_games_and_the_leagues(name):
    """Without options a closed-form game is played by its own costs, and by the needs and budget of the league."""
    from fedincentive.league import ROWS, Reports, draw

    stage = draw("data-value", 2, 4, 0.1)
    agents, reports = stage.game.agents, Reports.honest(stage)
    groves = {"payment": "groves-d"} if name == "t-upbred" else {}
    settings = mechanisms.prepared(Settings.read({"mechanism": name, **groves}), stage.game)
    if name == "t-upbred":
        assert settings.options == {"groves-d": {"curvature": dict.fromkeys(agents, "0.1")}}
        return
    if name == "shares":
        budget = float(settings.options["share"]["budget"])
        assert budget == pytest.approx(ROWS["size-share"].budget(stage), rel=1e-5)
        assert play(stage.game, mechanism=name, rounds=2).treasury == -round(budget * 10**6)
        return
    assert settings.cost == dict(zip(agents, stage.c.tolist(), strict=True))
    outcome = play(stage.game, mechanism=name, rounds=2)
    s = np.array([outcome.delivered[agent] for agent in agents])
    paid = np.array([outcome.payments[agent] for agent in agents]) / 1e6
    row = ROWS[{"pay-what-you-contribute": "pwyc"}.get(name, name)]
    assert paid == pytest.approx(row.pays(stage, reports, s), abs=1e-5)
    if name != "fedbr-bg":
        assert s == pytest.approx(row.moves(stage, reports).s, abs=1e-3)


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


def test_values_stand_in_the_ledger_the_statement_and_the_page(tmp_path):
    """With sampling: only those who were asked have a value, and the page has the mean of each one's own rounds."""
    book, results = tmp_path / "ledger.sqlite", []
    how = {"mechanism": "upbred", "rounds": 4, "eta": 0.5, "sampled": 3, "contribution": "gtg", "audit_seed": 5}
    outcome = play(GAME, ledger=book, progress=results.append, **how)
    with ledger.open(book) as opened:
        assert verify(opened, recompute=True).findings == () and standalone_findings(list(to_jsonl(opened))) == []
        trained = [result for result in results if result.phase == "train"]
        for agent in GAME.agents:
            own = [(r.round, *r.worth[agent]) for r in trained if agent in r.worth]
            lines = [line for line in statement(opened, agent).lines if line.kind == "worth"]
            assert [line.round for line in lines] == [number for number, _, _ in own]
            for line, (_, value, half) in zip(lines, own, strict=True):
                assert line.because == f"memo, its update was worth {value:.6g} +- {half:.2g} by gtg"
                assert line.amount == 0
            (totals,) = run_totals.read(opened, 99, {})
            assert len(totals.worth.get(agent, ())) == len(own)
            if own:
                assert f">{outcome.worth[agent]:.4g} \u00b1" in ledgers.render([ledgers.check(str(book))])


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"values": {"stranger": "1"}, "spread": {"stranger": "0"}}, "'stranger' has a value but is not in the terms"),
        ({"values": {"agent-1": "nan"}, "spread": {"agent-1": "0"}}, "the value of 'agent-1' is nan"),
        ({"values": {"agent-1": "1"}, "spread": {"agent-1": "-1"}}, "the value of 'agent-1' is 1"),
        ({"values": {"agent-1": "1"}, "spread": {}}, "interval|is not named everywhere"),
        ({"step": 7}, "it is of training round 7, the one before it was of 0"),
    ],
)
def test_both_verifiers_see_a_memo_that_cannot_be(lie, said, tmp_path, monkeypatch):
    from fedincentive.center import worth

    honest = worth.memos.entry

    def entry(*given):
        made = honest(*given)
        return replace(made, inputs={**made.inputs, **lie}) if given[2] == 1 else made

    monkeypatch.setattr(worth.memos, "entry", entry)
    book = tmp_path / "ledger.sqlite"
    play(GAME, ledger=book, mechanism="upbred", rounds=3, eta=0.5, contribution="cgsv")
    with ledger.open(book) as opened:
        ours = [f.message for f in verify(opened, recompute=True).findings]
        assert any(re.search(said, one) for one in ours), ours
        theirs = [f[2] for f in standalone_findings(list(to_jsonl(opened)))]
        assert any(re.search(said, one) for one in theirs), theirs


@pytest.mark.parametrize("how", ["exact", "gtg", "loo", "cgsv", "agreement"])
def test_a_rounds_values_come_with_an_interval(how):
    results = []
    play(GAME, mechanism="fedavg", rounds=2, eta=0.5, contribution=how, progress=results.append)
    trained = [result for result in results if result.phase == "train"]
    assert all(set(result.worth) == set(GAME.agents) for result in trained)
    spread = [half for result in trained for _, half in result.worth.values()]
    assert max(spread) == 0.0 or how in ("gtg", "agreement")  # which is exact too where it evaluated every coalition
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
        ({"contribution": "agreement"}, "compares what agents' models say of shared items: give .*labels"),
        ({"contribution": "shapley"}, "contribution is 'shapley'"),
        ({"mechanism": "one-for-one", "need": {"agent-1": 3}}, "need has no number for agent 'agent-2'"),
        ({"mechanism": "one-for-one", "need": 3, "spillover": 2}, "spillover must be between 0 and 1"),
        ({"mechanism": "fedbr-bg", "cost": {"agent-1": 0.1}}, "cost has no number for agent 'agent-2'"),
        ({"mechanism": "accuracy-shaping"}, "models is 'capped', which is for closed-form games"),
        ({"mechanism": "realfm", "options": {"level": {"models": "masked/1"}}}, "gives every agent a model of its own"),
        ({"mechanism": "fact", "cost": {"agent-1": 0.1}}, "cost has no number for agent 'agent-2'"),
        ({"mechanism": "fact", "options": {"sandwich": {"fees": {"agent-1": "1"}}}}, "fees has no number for agent"),
        ({"mechanism": "fact", "options": {"sandwich": {"lenience": "2"}}}, "lenience is 2: it must be between"),
        ({"mechanism": "fact", "options": {"sandwich": {"gaps": {"agent-1": "-1"}}}}, "gaps of 'agent-1' is -1"),
        ({"mechanism": "realfm", "options": {"level": {"shape": "cubic"}}}, "shape is 'cubic'; known: value, taylor"),
        ({"mechanism": "shares", "options": {"share": {"budget": "0"}}}, "options.share.budget is required"),
        ({"mechanism": "fedbr-bg", "options": {"relative": {"part": "2"}}}, "relative.part is 2"),
        ({"mechanism": "fedbr-bg", "options": {"relative": {"compares": "x"}}}, "compares is 'x'; known: costs"),
        ({"mechanism": "t-upbred", "payment": "groves-d", "options": {"groves-d": {"curvature": {"agent-1": "1"}}}},
         "curvature has no number for agent 'agent-2'"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_played_are_refused_with_the_remedy(settings, message):
    with pytest.raises(SettingError, match=message):
        bare({"rounds": 2, **settings})


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        (lambda gram, a, b: gram[b].update({a: 10**4 * (gram[a][a] + gram[b][b])}), "the lengths of the two updates"),
        (lambda gram, a, b: gram[b].update({a: -(gram[a][a] + gram[b][b])}), "the lengths of the two updates allow"),
        (lambda gram, a, b: gram[a].update({a: 0}), "the lengths of the two updates allow"),
    ],
)
def test_both_verifiers_see_inner_products_that_no_updates_have(forged, said, tmp_path, monkeypatch):
    from fedincentive.payments import GrovesUpdates

    honest = GrovesUpdates.entry

    def entry(self, run, inputs, **kind):
        a, b, *_ = sorted(inputs["gram"])
        forged(inputs["gram"], a, b)
        return honest(self, run, inputs, **kind)

    monkeypatch.setattr(GrovesUpdates, "entry", entry)
    _, findings, lines = played("t-upbred with groves-d", tmp_path)
    assert findings and all(said in finding.message for finding in findings)
    told = standalone_findings(lines)
    assert told and all(said in found[2] for found in told)


def test_what_cannot_be_played_is_told_by_its_cause():
    with pytest.raises(SettingError, match="delivered 0 points, and its model is worth -inf then.*alone is finite"):
        play({"game": {"kind": "example"}}, mechanism="accuracy-shaping", rounds=4, eta=0.5)
    each = {"a": 2, "b": 3, "spill": 0.7, "s_max": 15, "cost": 0.02}
    agents = [{"name": "a"}, {"name": "none", "s_max": 0}, {"name": "c"}]
    nobody = {"kind": "data-value", "each": each, "agents": agents}
    with pytest.raises(SettingError, match="Agent 'none' enrols with s_max = 0"):
        play({"game": nobody}, mechanism="fact", rounds=1)
