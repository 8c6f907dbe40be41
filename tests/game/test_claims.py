"""Claims that rest on audits, on what training alone is worth, and on what was seen of the updates."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from table import BLIND, opened, played

from fedincentive import engine, play
from fedincentive.adversary import Attack, Misreport
from fedincentive.agent import Agent, ClosedFormSite, LossSite
from fedincentive.center.metrics import far
from fedincentive.game import (
    Audits,
    Certificate,
    Evidence,
    LossValuation,
    Robustness,
    certify,
    random_data_value,
    random_quadratic,
    repaired_example,
)
from fedincentive.payments import Promises
from fedincentive.settings import Settings

NAMES = ("a", "b", "c")
FULL = {"s": [3.0, 4.0, 5.0], "s_max": [3.0, 4.0, 5.0]}


def verdict(name: str, **known):
    given = {**FULL, "basis": "reported", **known}
    found = certify(Evidence(NAMES, given.pop("s"), given.pop("s_max"), promises=Promises((name,)), **given))
    assert Certificate.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found
    return found.findings[0]


@pytest.mark.parametrize(
    ("basis", "words"),
    [("reported", "nobody signed or audited it"), ("signed", "each of them signed: nobody audited it")],
)
def test_full_contribution_says_whose_word_it_is(basis, words) -> None:
    found = verdict("full-contribution", basis=basis)
    assert found.status == "not verifiable" and found.basis == basis and words in found.detail
    assert found.detail.startswith("delivery is ")


def test_audits_make_it_attested_and_say_how_far_they_reach() -> None:
    audits = Audits(audited=40, steps=400, opened=120, auditors=("x", "y", "z"))
    found = verdict("full-contribution", basis="signed", audits=audits)
    assert found.status == "held" and found.basis == "attested"
    bound = 100 * (1 - 0.05 ** (1 / 40))  # 40 draws without a bad one: at most so many are, with 95 % confidence
    for words in ("40 of 400 agent-steps", "x, y, z", "120 opened", f"{bound:.2g} %", "Not shown"):
        assert words in found.detail
    bare = verdict("full-contribution", basis="signed", audits=Audits(40, 400, committed=False))
    assert "not every agent committed to records" in bare.detail and bare.basis == "attested"
    assert "opened" not in bare.detail and "from committed records" not in bare.detail
    none = verdict("full-contribution", basis="signed", audits=Audits(0, 400))
    assert none.basis == "signed" and "nobody audited it" in none.detail


def test_a_failed_audit_breaks_the_claim_whatever_was_said() -> None:
    found = verdict("full-contribution", basis="signed", failed={"b": 4, "c": 2}, audits=Audits(9, 30))
    assert found.status == "broken" and found.basis == "attested"
    assert "2 of 3 agents failed an audit; c in step 2" in found.detail


def test_a_gap_within_the_slack_counts_as_all_and_is_named() -> None:
    near = {"s": [3.0, 3.75, 5.0], "slack": [0.3, 0.4, 0.5]}
    found = verdict("full-contribution", **near)
    assert found.status == "not verifiable" and "b all but 0.25 points" in found.detail
    assert verdict("full-contribution", **{**near, "slack": [0.3, 0.25, 0.5]}).status == "broken"
    away = verdict("full-contribution", s=[3.0, 1.0, 5.0], lost=("b",))
    assert away.status == "broken" and "phase 1 went on without b" in away.detail


@pytest.mark.parametrize(("far_off", "failed", "status"), [(0, {}, "held"), (2, {}, "held"), (3, {}, "broken")])
def test_robustness_names_what_is_tolerated_and_what_was_seen(far_off, failed, status) -> None:
    seen = Robustness("trimmed-mean", 2, 10, far_off, 9, ("a",) if far_off else ())
    found = verdict("robust", robustness=seen, failed=failed)
    assert found.status == status
    assert "trimmed-mean tolerates 2 of 10 bad updates in a round (20 %)" in found.detail
    assert f"at most {far_off} of 9" in found.detail


def test_failed_audits_count_against_what_a_rule_tolerates() -> None:
    seen = Robustness("trimmed-mean", 1, 10, 0, 10)
    assert verdict("robust", robustness=seen, failed={"a": 0}).status == "held"
    found = verdict("robust", robustness=seen, failed={"a": 0, "b": 1})
    assert found.status == "broken" and "2 agents failed an audit" in found.detail
    assert verdict("robust").status == "not verifiable"


def test_rationality_is_checked_against_what_agents_said_of_training_alone() -> None:
    told = {
        "valuations": {"a": 5.0, "b": 5.0, "c": 5.0},
        "costs": {"a": 1.0, "b": 1.0, "c": 1.0},
        "postings": ({"a": -3 * 10**6, "b": 2 * 10**6, "c": 10**6},),
    }
    assert verdict("individually-rational", **told).status == "not verifiable"
    fine = verdict("individually-rational", alone={"a": 1.0, "b": 6.0, "c": 5.0}, **told)
    assert fine.status == "held" and fine.basis == "reported"
    worse = verdict("individually-rational", alone={"a": 1.5, "b": 6.0, "c": 5.0}, **told)
    assert worse.status == "broken" and worse.agent == "a" and worse.gain == pytest.approx(0.5)
    some = verdict("individually-rational", alone={"a": 1.0}, **told)
    assert some.status == "not verifiable" and "2 of 3 agents did not say" in some.detail


def test_lump_sums_count_where_nothing_is_posted_yet() -> None:
    game = repaired_example()
    w, alone = game.optimum(), game.values(game.optimum(), game.s_max) - game.costs(game.s_max)
    stays = replace(game, outside_option=alone + np.array([0.1, -0.2]))
    promised = Promises(("individually-rational",))
    poor = certify(Evidence.of(stays, w, stays.s_max, promises=promised))
    assert [row.agent for row in poor.losers] == ["agent-1"]
    mended = Evidence.of(stays, w, stays.s_max, promises=promised, lump_sums={"agent-1": 0.1, "agent-2": -0.1})
    assert certify(mended).losers == ()


def test_a_run_without_a_game_says_who_is_worse_off_than_it_said_it_is_alone() -> None:
    """Half the agents have other labels, in short: the model all make is worth less to them than their own."""
    game = random_data_value(3, 4)
    settings = Settings.read({"run": "test", "beta": "7", "gamma": 9.0, "rounds": 2, "cost": 0.01})
    agents = [Agent(site.name, site, s0=1.0) for site in ClosedFormSite.of(game)]
    alone = {"agent-1": 1e6, "agent-3": -1e6}
    enrolled = [replace(agent.enrol(), alone=alone.get(agent.name)) for agent in agents]
    center = opened(settings, "2p-upbred", enrolled, {"w": game.w0}, oracles=BLIND)
    engine.run(center, agents)
    found = center.conclude().certificate
    assert [row.agent for row in found.losers] == ["agent-1"]
    row, ended = found.losers[0], center.outcome
    paid = ended.payments["agent-1"] / 10**6
    assert row.amount == pytest.approx(ended.valuations["agent-1"] - 0.01 * ended.given["agent-1"] + paid)
    assert "agent-1 (has" in str(found) and "alone 1e+06" in str(found)


def test_tau_is_the_games_bound_or_what_its_slopes_show() -> None:
    game = random_quadratic(2, 3, 2)
    found = certify(Evidence.of(game, game.w0, game.s_max)).tau
    slopes = game.valuation.slope(game.w0, game.s_max)
    assert found.value == pytest.approx(game.tau_at(game.w0)) and found.value >= max(0.0, float(-slopes.min()))

    def train(w, s, draw):
        return w + 0.1 * float(np.sum(s)) + 0.01 * s[0]

    value = LossValuation(lambda w: np.array([float(w[0]), 1.0, 2.0]), reference=2.0, cap=10.0, train=train, delta=2.0,
                          s_max=np.full(3, 10.0))  # fmt: skip
    losses = replace(game, valuation=value, s_max=np.full(3, 10.0), s0=np.full(3, 5.0), w0=np.zeros(1))
    made = certify(Evidence.of(losses, losses.w0, losses.s0)).tau
    assert made.value == pytest.approx(0.11) and "estimated" in made.note  # another point of agent 1 costs it 0.11


@pytest.mark.parametrize("paid", [{"payment": "none"}, {"payment": "contribution", "beta": "0.5", "cost": 0.1}])
def test_tau_of_data_sites_is_read_off_how_they_move(paid) -> None:
    """Each point takes 0.3 from an agent's value; the counterfactual slope finds that, and s moves by it."""

    def site(name: str) -> LossSite:
        def train(w, points, step):
            return {"w": np.array([0.3 * len(points)])}

        return LossSite(50, train, lambda w: float(w["w"][0]), order=np.arange(50), reward=2.0, loss_cap=1e6,
                        cost_per_point=paid.get("cost", 0.0))  # fmt: skip

    settings = Settings.read({"run": "test", "mechanism": "upbred", "gamma": 2.0, "rounds": 2, **paid})
    agents = [Agent(name, site(name), s0=30.0) for name in NAMES]
    center = opened(settings, "upbred", agents, {"w": np.zeros(1)}, oracles=BLIND)
    engine.run(center, agents)
    found = center.conclude().certificate.tau
    assert found.value == pytest.approx(0.3) and found.basis == "reported" and "estimated" in found.note


def test_where_nobody_measures_it_tau_is_the_one_of_the_settings() -> None:
    run = played(random_data_value(0, 3), "2p-upbred", beta="7", gamma=9.0, rounds=1, tau=0.25, oracles=BLIND)
    found = run.center.conclude().certificate.tau
    assert found.value == 0.25 and found.basis == "assumed"


def test_far_updates_are_noticed_in_runs_with_a_robust_rule() -> None:
    game = random_data_value(4, 8, 3)
    terms = {"beta": "7", "gamma": 9.0, "rounds": 3, "alpha": 0.25}
    honest = played(game, "trim-2p-upbred", **terms).center.conclude(game).certificate
    claim = {found.claim: found for found in honest.findings}["robust"]
    assert claim.status == "held" and "2 of 8 bad updates in a round (25 %)" in claim.detail
    for liars, status in ((2, "held"), (3, "broken")):
        lies = dict.fromkeys(game.agents[:liars], Misreport(update=Off("off", 1.0, 0)))
        run = played(game, "trim-2p-upbred", lies=lies, **terms)
        claim = {found.claim: found for found in run.center.conclude(game).certificate.findings}["robust"]
        assert claim.status == status, claim
        assert all(name in claim.detail for name in lies)


class Off(Attack):
    """Far from what anyone learns."""

    @property
    def omniscient(self) -> bool:
        return False

    def __call__(self, update, honest=(), *, step=0, last=None):
        return {"w": update["w"] + 1000.0}


def test_far_agrees_with_plain_numpy_over_pieces_and_skips_counters() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, 200_001)).astype(np.float32)
    rows[5] += 7.0
    d = {"w": np.median(rows, axis=0), "steps": np.array(3)}
    updates = [{"w": row, "steps": np.array(10 * i)} for i, row in enumerate(rows)]
    distances = np.linalg.norm(rows.astype(np.float64) - d["w"], axis=1)
    assert far(updates, d) == np.flatnonzero(distances > 3 * np.median(distances)).tolist() == [5]
    assert far([{"w": np.ones(3)}] * 4, {"w": np.ones(3)}) == []


def test_the_mean_promises_no_robustness() -> None:
    found = play({"game": {"kind": "repaired"}}, beta="0.5", rounds=2).certificate
    assert "robust" not in {claim.claim for claim in found.findings}
