"""CGSV: whoever's updates go with everybody's is given more of the model's changes, in a model of its own."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from keyring import folder_of
from table import opened, play

from fedincentive import ledger
from fedincentive.agent import Agent, Notary, SoftmaxSite
from fedincentive.agent.softmax import first_model
from fedincentive.center.own_models import OwnModels, Sparse
from fedincentive.errors import SettingError
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.statement import statement
from fedincentive.ledger.verify import verify
from fedincentive.payments.downloads import Downloads
from fedincentive.payments.levels import Levels
from fedincentive.payments.pooled import tanh_shares
from fedincentive.provenance import statements
from fedincentive.provenance.keys import KeyRing
from fedincentive.settings import Settings

POINTS = {"north": 10, "east": 40, "south": 120, "west": 200}
LENGTH, ALTRUISM, ROUNDS = 0.5, 1.5, 5
TERMS = {
    "mechanism": "cgsv", "rounds": ROUNDS, "learning_rate": 0.5, "run": "sparse", "report_values": False,
    "options": {"download": {"length": str(LENGTH), "altruism": str(ALTRUISM)}},
}  # fmt: skip


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return x[order] / 16.0, y[order]


def sat_down(digits, *, keys=None, book=None, folder=None, **changes):
    settings = Settings.read({**TERMS, **changes})
    x, y = digits
    agents = []
    for i, (name, points) in enumerate(POINTS.items()):
        own = slice(250 * i, 250 * i + points)
        y_own = np.random.default_rng(i).permutation(y[own]) if name == "north" else y[own]  # its labels are wrong
        notary = None if keys is None else Notary.of(keys, name)
        site = SoftmaxSite(name, x[own], y_own, 10, settings)
        agents.append(Agent(name, site, "fixed", s0=float(site.s_max), notary=notary))
    return opened(settings, "cgsv", agents, first_model(64, 10), book, folder, keys=keys), agents


def by_hand(agents, points):
    """The authors' loop, written again: (center's model, agents' models, weights, parts) after each round."""
    w = {name: a.copy() for name, a in first_model(64, 10).items()}
    own, r = {agent.name: {k: a.copy() for k, a in w.items()} for agent in agents}, None
    for step in range(ROUNDS):
        units = {}
        for agent in agents:
            d = agent.site.update(own[agent.name], points[agent.name], step, points)
            size = math.sqrt(sum(float((a**2).sum()) for a in d.values()))
            units[agent.name] = {k: LENGTH * a / size for k, a in d.items()}
        weights = r or {name: x / sum(points.values()) for name, x in points.items()}
        change = {k: sum(weights[i] * units[i][k] for i in units) for k in w}
        flat = np.concatenate([a.ravel() for a in change.values()])
        cosine = {}
        for i, unit in units.items():
            mine = np.concatenate([a.ravel() for a in unit.values()])
            cosine[i] = mine @ flat / np.linalg.norm(mine) / np.linalg.norm(flat)
        raised = {i: max(0.95 * (r or dict.fromkeys(units, 0.0))[i] + 0.05 * cosine[i], 0.001) for i in units}
        r = {i: x / sum(raised.values()) for i, x in raised.items()}
        steep = {i: math.tanh(ALTRUISM * x) for i, x in r.items()}
        parts = {i: x / max(steep.values()) for i, x in steep.items()}
        for i, model in own.items():
            for k, layer in change.items():
                order = np.argsort(-np.abs(layer.ravel()), kind="stable")[: math.ceil(parts[i] * layer.size - 1e-6)]
                model[k].ravel()[order] += layer.ravel()[order]
        w = {k: w[k] + change[k] for k in w}
        yield w, own, r, parts


def test_it_is_the_authors_loop(digits, tmp_path) -> None:
    with ledger.open(tmp_path / "ledger.sqlite") as book:
        center, agents = sat_down(digits, book=book)
        twins = sat_down(digits)[1]
        for w, own, r, parts in by_hand(twins, dict(zip(POINTS, map(float, POINTS.values()), strict=True))):
            for agent in agents:
                center.submit(agent.respond(center.broadcast(agent.name)))
            center.close()
            memory = center.run.memory["download"]["weights"]
            assert {i: x / 1e9 for i, x in memory.items()} == pytest.approx(r, abs=1e-8)
            *_, memo = (record.entry.inputs for record in book.entries() if record.entry.kind == "download")
            assert {i: x / 1e9 for i, x in memo["shares"].items()} == pytest.approx(parts, abs=1e-8)
            for name in w:
                assert center.w[name] == pytest.approx(w[name], abs=1e-9)
                for agent in POINTS:
                    assert center.model_of(agent)[name] == pytest.approx(own[agent][name], abs=1e-9)
        assert center.done and verify(book, recompute=True).findings == ()
        text, told = list(to_jsonl(book)), statement(book, "north")
        lines = told.lines
        given = agents[0].site.s_max
        assert lines[-1].delivered == f"{given:g}" and told.delivered == f"{ROUNDS * given:g}"
    assert standalone.check(text, [], standalone.Signatures())[0] == []
    assert parts["north"] < 0.8 and max(parts, key=parts.get) != "north"  # wrong labels do not go with the others'
    assert f"it is given {parts['north']:.2%} of the model's change" in lines[-1].because
    alike = {i: np.concatenate([(center.model_of(i)[k] == center.w[k]).ravel() for k in w]).mean() for i in POINTS}
    assert min(alike, key=alike.get) == "north"


def test_signed_runs_and_resumed_ones_send_the_same_models(digits, tmp_path) -> None:
    def until(center, agents, trained):
        while center.run.trained < trained:
            for agent in agents:
                center.submit(agent.respond(center.broadcast(agent.name)))
            center.close()

    whole, agents = sat_down(digits)
    play(whole, agents)
    keys = KeyRing.read(folder_of(tmp_path / "keys", POINTS))
    with ledger.open(tmp_path / "ledger.sqlite") as book:
        center, agents = sat_down(digits, keys=keys, book=book, folder=tmp_path / "state")
        until(center, agents, 3)
        models = center.broadcast().models
        assert len(set(models.values())) >= 3
        center.release()
        again, _ = sat_down(digits, keys=keys, book=book, folder=tmp_path / "state", resume=True)
        assert again.broadcast().models == models
        play(again, agents)
        assert verify(book, recompute=True, keys=statements.known_keys(tmp_path / "keys")).findings == ()
    for agent in POINTS:
        for name in whole.w:
            assert np.array_equal(again.model_of(agent)[name], whole.model_of(agent)[name])


def test_who_is_not_asked_keeps_its_weight(digits, tmp_path) -> None:
    with ledger.open(tmp_path / "ledger.sqlite") as book:
        center, agents = sat_down(digits, book=book, sampled=3, audit_seed=5)
        play(center, agents)
        memos = [record.entry.inputs for record in book.entries() if record.entry.kind == "download"]
        assert verify(book, recompute=True).findings == ()
        assert standalone.check(list(to_jsonl(book)), [], standalone.Signatures())[0] == []
    for memo in memos[1:]:
        (left,) = set(POINTS) - set(memo["scores"])
        kept = {i: max(19 * memo["before"][i] + memo["scores"][i], 2 * 10**7) for i in memo["scores"]}
        total = sum(kept.values()) + 20 * max(memo["before"][left], 10**6)
        assert memo["weights"][left] == 20 * max(memo["before"][left], 10**6) * 10**9 // total


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda memo: {"weights": {**memo["weights"], "north": memo["weights"]["north"] + 1}}, "weights do not follow"),
        (lambda memo: {"shares": {**memo["shares"], "north": 10**9}}, "the part of 'north' is 1000000000"),
        (lambda memo: {"before": dict.fromkeys(POINTS, 0)}, "before|begins with"),
        (lambda memo: {"altruism": "2", "shares": tanh_shares(memo["weights"], 2)}, "altruism is '2'"),
        (lambda memo: {"scores": {**memo["scores"], "north": 2 * 10**9}}, "cosine is above 1"),
        (lambda memo: {"points": {**memo["points"], "north": 10**12}}, "agreed are 0 to"),
    ],
)  # fmt: skip
def test_both_verifiers_see_a_memo_that_cannot_be(digits, tmp_path, monkeypatch, lie, said) -> None:
    honest, amounts = Downloads.entry, Downloads.amounts

    def entry(self, run, inputs, **kind):
        monkeypatch.setattr(Downloads, "amounts", classmethod(lambda *given: {}))
        made = honest(self, run, inputs, **kind)
        return replace(made, inputs={**made.inputs, **lie(made.inputs)}) if inputs["step"] == 2 else made

    monkeypatch.setattr(Downloads, "entry", entry)
    with ledger.open(tmp_path / "ledger.sqlite") as book:
        play(*sat_down(digits, book=book))
        monkeypatch.setattr(Downloads, "amounts", amounts)
        ours = [f"{finding.name} {finding.message}" for finding in verify(book, recompute=True).findings]
        theirs = [found[2] for found in standalone.check(list(to_jsonl(book)), [], standalone.Signatures())[0]]
    assert any(re.search(said, one, re.IGNORECASE) for one in ours), ours
    assert any(re.search(said, one, re.IGNORECASE) for one in theirs), theirs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregation": "median"}, "aggregation is 'median': cgsv adds.*set aggregation: mean"),
        ({"weights": "samples"}, "weights is 'samples'.*set weights: uniform"),
        ({"server_optimizer": "adam"}, "server_optimizer is 'adam'.*set server_optimizer: sgd"),
        ({"auditors": ["court"], "audit": 0.5}, "auditors make training passes again"),
        ({"options": {"download": {"keep": "1"}}}, "download.keep is 1: it must be at least 0, below 1"),
        ({"options": {"download": {"altruism": "0"}}}, "download.altruism is 0"),
        ({"options": {"download": {"length": "-1"}}}, "download.length is -1"),
    ],
)  # fmt: skip
def test_what_cannot_be_played_is_refused_with_the_remedy(digits, changes, message) -> None:
    with pytest.raises(SettingError, match=message):
        sat_down(digits, **changes)


def test_an_update_of_zeros_has_no_part_in_the_direction(digits) -> None:
    center, agents = sat_down(digits)
    for agent in agents:
        report = agent.respond(center.broadcast(agent.name))
        if agent.name == "west":
            report = replace(report, update={name: np.zeros_like(a) for name, a in report.update.items()})
        center.submit(report)
    center.close()
    weights = center.run.memory["download"]["weights"]
    assert weights["west"] == min(weights.values()) > 0


@pytest.mark.parametrize(
    ("kind", "size"),
    [(np.float16, 1e-6), (np.float32, 1e-40), (np.float32, 3e38), (np.float64, 1e-310), (np.float64, 1e200)],
)
@pytest.mark.filterwarnings("error")
def test_the_smallest_and_the_largest_updates_have_the_agreed_length(kind, size) -> None:
    own = Sparse(Downloads(), 0, {"w": np.zeros(4, kind)}, (), {})
    (counted,) = own.counted(None, "north", {"w": np.full(4, size, kind)}).values()
    assert counted.dtype == kind and counted == pytest.approx(0.5, rel=1e-3)


def test_a_length_that_the_models_numbers_cannot_hold_is_refused() -> None:
    own = Sparse(Downloads(length=Fraction(10**6)), 0, {"w": np.zeros(4, np.float16)}, (), {})
    with pytest.raises(SettingError, match="download.length is 1000000, but 'w' is of float16.*set a smaller length"):
        own.refuse(None, None)


def test_two_payments_that_send_models_of_their_own_are_refused() -> None:
    masked = SimpleNamespace(payments=(Levels(models="masked/1"), Downloads()), settings=SimpleNamespace(seed=0))
    with pytest.raises(SettingError, match="payment names 'level' and 'download'.*name one of them"):
        OwnModels.of(masked, {}, ())
