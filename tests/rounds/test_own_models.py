"""Degraded models where agents really train: everyone is sent a model of its own, as good as its points have earned."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from keyring import folder_of
from table import opened, play

from fedincentive import ledger
from fedincentive.agent import Agent, Notary, SoftmaxSite
from fedincentive.agent.softmax import accuracy, first_model, loss_and_gradient
from fedincentive.errors import BroadcastRefused, SettingError
from fedincentive.identity import digest
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify
from fedincentive.payments import Oracles
from fedincentive.provenance import statements
from fedincentive.provenance.keys import KeyRing
from fedincentive.settings import Settings

GIVEN = {"north": 10.0, "east": 30.0, "south": 60.0, "west": 200.0}  # of 200 points each
LEVEL = {
    "targets": dict.fromkeys(GIVEN, "20"),
    "bases": dict.fromkeys(GIVEN, "-1.5"),
    "floors": dict.fromkeys(GIVEN, "-2.3"),
}
TERMS = {"rounds": 6, "learning_rate": 1.0, "epochs": 3, "cost": 0.005, "run": "shaped", "options": {"level": LEVEL}}


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return x[order] / 16.0, y[order]


class Noting(SoftmaxSite):
    """A site that keeps every model it is given."""

    def __init__(self, *given):
        super().__init__(*given)
        self.seen = []

    def update(self, w, *rest):
        self.seen.append(w)
        return super().update(w, *rest)


def sat_down(digits, mechanism="accuracy-shaping", *, keys=None, book=None, folder=None, utility=True, **changes):
    """Center and agents; the center's utility is minus the loss on 500 digits that no agent has."""
    settings = Settings.read({**TERMS, "mechanism": mechanism, **changes})
    x, y = digits
    agents = []
    for i, (name, s0) in enumerate(GIVEN.items()):
        own = slice(500 + 250 * i, 750 + 250 * i)
        notary = None if keys is None else Notary.of(keys, name)
        agents.append(Agent(name, Noting(name, x[own], y[own], 10, settings), "fixed", s0=s0, notary=notary))
    worth = (lambda w: -loss_and_gradient(w, x[:500], y[:500])[0]) if utility is True else utility or None
    known = Oracles(utility=worth)
    return opened(settings, mechanism, agents, first_model(64, 10), book, folder, keys=keys, oracles=known), agents


@pytest.mark.parametrize("said", [float("nan"), None, 10**400], ids=["nan", "none", "huge"])
def test_a_utility_that_is_no_number_is_refused_before_the_first_round(said, digits) -> None:
    with pytest.raises(SettingError, match="is (nan|None|a number of about 401 digits): a finite number is needed"):
        sat_down(digits, utility=lambda w: said)


def caps(points):
    """What has been earned, by hand: the line to -1.5 at 20 points, then 1.01 times the cost of further ones."""
    return -2.3 + 0.8 * min(points, 20.0) / 20.0 + 1.01 * 0.005 * max(points - 20.0, 0.0)


def test_nobody_is_given_a_better_model_than_it_has_earned(digits, tmp_path) -> None:
    with ledger.open(tmp_path / "ledger.sqlite") as book:
        center, agents = sat_down(digits, book=book)
        outcome = play(center, agents)
        entries = [record.entry for record in book.entries() if record.entry.kind == "level"]
        assert verify(book, recompute=True).findings == ()
        text = "".join(to_jsonl(book))
    (tmp_path / "ledger.jsonl").write_text(text)
    assert standalone.main([str(tmp_path / "ledger.jsonl")]) == 0
    utility = center.oracles.utility
    for agent in agents:
        worth = [utility(w) for w in agent.site.seen[1:]]
        assert max(worth) <= caps(GIVEN[agent.name]) + 1e-9
        said = [entry.inputs["levels"][agent.name] / 10**6 for entry in entries]
        assert said[:-1] == pytest.approx(worth, abs=1e-6)  # the memo is of the model that comes next
        assert said[-1] == pytest.approx(utility(center.model_of(agent.name)), abs=1e-6)
        value = agent.site.value(center.model_of(agent.name), {})
        assert outcome.valuations[agent.name] == pytest.approx(value, abs=1e-5)
    last = [entries[-1].inputs["levels"][name] for name in GIVEN]
    assert last == sorted(last) and len(set(last)) == len(last)  # who gives more has more
    assert utility(outcome.w) == pytest.approx(last[-1] / 10**6, abs=1e-6)  # who gives all has all of it
    assert last[0] / 10**6 > caps(10.0) - 0.1 and last[1] / 10**6 > caps(30.0) - 0.1  # and no less than earned, nearly


def test_what_is_withheld_stays_unseen_and_the_center_still_learns(digits) -> None:
    center, agents = sat_down(digits, rounds=12)
    outcome = play(center, agents)
    north, utility = agents[0].site.seen, center.oracles.utility
    assert utility(north[-1]) < utility(outcome.w) - 0.5
    # Whatever it puts together of all the models it was sent, place by place the newest number it has seen:
    newest = dict(north[0])
    for before, after in itertools.pairwise([*north, center.model_of("north")]):
        newest = {name: np.where(after[name] != before[name], after[name], newest[name]) for name in newest}
    assert utility(newest) <= caps(GIVEN["north"]) + 1e-9
    assert accuracy(outcome.w, digits[0][:500], digits[1][:500]) > 0.85


def test_who_delivers_less_is_sent_less(digits, tmp_path) -> None:
    with ledger.open(tmp_path / "ledger.sqlite") as book:
        center, agents = sat_down(digits, book=book, quorum=0.5)
        while not center.done:
            for agent in agents if center.run.trained != 4 else agents[:-1]:
                center.submit(agent.respond(center.broadcast(agent.name)))
            center.close()
            if center.run.trained == 4:
                whole = center.oracles.utility(center.model_of("west"))
            if center.run.trained == 5 and center.run.phase == "train":
                assert center.oracles.utility(center.model_of("west")) <= caps(0.0) + 1e-9 < whole
        assert center.model_of("west") is center.w  # it came back, and has earned all again
        assert verify(book, recompute=True).findings == ()


def test_realfm_grants_by_its_expansion(digits) -> None:
    center, agents = sat_down(digits, "realfm")
    play(center, agents)
    shaped, others = sat_down(digits)
    play(shaped, others)
    worth = {c: c.oracles.utility(c.model_of("east")) for c in (center, shaped)}
    assert worth[center] <= caps(30.0) + 1e-9 and center.run.terms["payments"]["level"]["terms"]["shape"] == "taylor"
    assert digest(center.model_of("north")) != digest(center.model_of("east"))


def test_in_a_signed_run_all_answer_to_the_list_of_models(digits, tmp_path) -> None:
    keys = KeyRing.read(folder_of(tmp_path / "keys", GIVEN))
    with ledger.open(tmp_path / "ledger.sqlite") as book:
        center, agents = sat_down(digits, keys=keys, book=book)
        while not (center.broadcast().phase == "train" and center.run.trained == 2):
            for agent in agents:
                center.submit(agent.respond(center.broadcast(agent.name)))
            center.close()
        told = center.broadcast("east")
        assert told.models["east"] == digest(told.w) != told.models["west"]
        assert center.broadcast().w is None  # no host sends it by mistake
        assert agents[0].respond(told) is None  # another's model is not answered
        forged = replace(told, models={**told.models, "north": told.models["east"]})
        with pytest.raises(BroadcastRefused, match="not signed by the center"):
            agents[0].respond(forged)  # nor where somebody else says that it is its own
        play(center, agents)
        assert verify(book, recompute=True, keys=statements.known_keys(tmp_path / "keys")).findings == ()
        terms = next(book.entries()).entry.inputs["terms"]["payments"]["level"]["terms"]
    assert terms["models"] == "masked/1" and json.dumps(terms)


def test_a_resumed_run_sends_the_same_models(digits, tmp_path) -> None:
    def until(center, agents, trained):
        while center.run.trained < trained:
            for agent in agents:
                center.submit(agent.respond(center.broadcast(agent.name)))
            center.close()

    with ledger.open(tmp_path / "whole.sqlite") as book:
        whole, agents = sat_down(digits, book=book, folder=tmp_path / "whole")
        play(whole, agents)
        head = book.head()
    with ledger.open(tmp_path / "ledger.sqlite") as book:
        center, agents = sat_down(digits, book=book, folder=tmp_path / "state")
        until(center, agents, 3)
        models = center.broadcast().models
        center.release()
        again, agents = sat_down(digits, book=book, folder=tmp_path / "state", resume=True)
        assert again.broadcast().models == models and len(set(models.values())) > 1
        play(again, agents)
        assert str(book.head()) == str(head)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"utility": False}, "center must know what a model is worth.*test data"),
        ({"options": {"level": {**LEVEL, "floors": None}}}, "level.floors is required"),
        ({"options": {"level": {**LEVEL, "floors": dict.fromkeys(GIVEN, "-3")}}}, "is worth -2.30259 already"),
        ({"options": {"level": {**LEVEL, "bases": dict.fromkeys(GIVEN, "-2.4")}}}, "'east' is below its floor"),
        ({"options": {"level": {**LEVEL, "targets": {"north": "1"}}}}, "targets has no number for agent 'east'"),
        ({"options": {"level": {**LEVEL, "models": "noisy"}}}, "models is 'noisy'; known: masked/1, capped"),
        ({"options": {"level": {**LEVEL, "models": "capped"}}}, "'capped', which is for closed-form games"),
        ({"auditors": ["court"], "audit": 0.5}, "auditors make training passes again"),
    ],
)  # fmt: skip
def test_what_cannot_be_played_is_refused_with_the_remedy(digits, changes, message) -> None:
    with pytest.raises(SettingError, match=message):
        sat_down(digits, **changes)
