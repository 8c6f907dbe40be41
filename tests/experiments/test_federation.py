"""Mechanisms on real data (digits): what agents share changes nothing but the time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from table import opened, play

from fedincentive import ledger
from fedincentive.agent import FreeRider
from fedincentive.errors import SettingError
from fedincentive.experiments import models
from fedincentive.experiments.data import Dataset, read
from fedincentive.experiments.federation import Federation, Layout
from fedincentive.experiments.shared_training import Group, GroupAgent, Memory, Trained
from fedincentive.experiments.training import Local, Plain
from fedincentive.settings import Settings

DIGITS = read("digits")
QUICK = {"rounds": 3, "server_optimizer": "adam", "eta": 0.01, "learning_rate": 0.1, "when_short": "train"}
PAPER = {**QUICK, "slope": "paper", "gamma": 0.5, "round_limit": 500}
COUNTERFACTUAL = {**QUICK, "slope": "counterfactual", "gamma": 20.0, "delta": 8, "value_per_nat": 1000.0,
                  "round_limit": 4}  # fmt: skip


def federation(seed: int = 0, **layout) -> Federation:
    return Federation(DIGITS, Layout("digits", "patches", **{"agents": 4, "points": 40, **layout}), seed)


def test_two_phase_is_fedavg_byte_for_byte_and_trains_only_once() -> None:
    here = federation()
    fedavg = here.play({**PAPER, "mechanism": "fedavg"})
    trained = here.memory.misses
    paid = here.play({**PAPER, "mechanism": "2p-upbred"})
    assert fedavg.outcome.digest == paid.outcome.digest
    assert here.memory.misses == trained and here.memory.hits == 3
    assert fedavg.share == paid.share == 1.0
    alone = federation().play({**PAPER, "mechanism": "2p-upbred"})  # nothing remembered
    assert alone.outcome.digest == paid.outcome.digest
    assert alone.curve() == paid.curve()


@pytest.mark.parametrize("incentive", [PAPER, COUNTERFACTUAL], ids=["paper", "counterfactual"])
@pytest.mark.parametrize("mechanism", ["upbred", "fedavg-strategic"])
def test_agents_in_a_group_decide_as_they_would_alone(mechanism: str, incentive: dict) -> None:
    """The same run with sites that train one by one and share nothing."""
    together = federation().play({**incentive, "mechanism": mechanism})
    other = federation()
    settings = Settings.read({**incentive, "mechanism": mechanism, "cost": other.cost})
    local = Local(learning_rate=settings.learning_rate)
    other._groups[local] = Lonely(Plain(other.model, other.shards, local), other.losses, other.w0, Memory(0))
    agents = other.agents(settings)
    outcome = play(opened(settings, mechanism, agents, other.w0), agents)
    assert outcome.contributed == together.outcome.contributed
    assert outcome.s == pytest.approx(together.outcome.s, abs=0.05)
    for name, array in outcome.w.items():
        assert np.allclose(array, together.outcome.w[name], atol=2e-3)


class Lonely(Group):
    """A group that is of no help."""

    def update(self, agent, w, points, step):
        return self.trainer.updates(w, [(agent, self.orders[agent][:points])], step)[0]

    def loss(self, agent, w):
        return self.losses.one(w, agent)


def test_welfare_values_costs_and_payments_fit_together() -> None:
    here = federation(points=None, agents=6)
    played = here.play({**PAPER, "mechanism": "2p-upbred", "value_per_nat": 3.0})
    losses = here.losses.all(played.outcome.w)
    assert played.nats == pytest.approx({name: math.log(10) - loss for name, loss in losses.items()})
    spent = {name: here.cost[name] * len(shard.y) for name, shard in here.shards.items()}
    assert played.costs == pytest.approx(spent)
    assert played.net_welfare == pytest.approx(3.0 * sum(played.nats.values()) - sum(spent.values()))
    assert sum(played.outcome.payments.values()) == 0
    name = here.names[2]
    mine = 3.0 * played.nats[name] - spent[name] + played.outcome.payments[name] / 10**6
    assert played.utilities()[name] == pytest.approx(mine)
    assert played.curve()[-1] == [3, played.welfare] and len(played.curve()) == 4


def test_payments_of_a_scene_are_in_its_ledger(tmp_path) -> None:
    with ledger.open(tmp_path / "book.db") as book:
        here = federation()
        lazy = {here.names[0]: FreeRider(share=0.5)}
        played = here.play({**PAPER, "mechanism": "2p-upbred", "run": "lazy"}, book, strategies=lazy)
        assert book.balances("lazy") == {k: v for k, v in played.outcome.payments.items()}
        assert played.outcome.head == book.head().hash
    assert played.outcome.payments[here.names[0]] < 0


def test_strategic_agents_without_payment_end_with_nothing() -> None:
    played = federation().play({**PAPER, "mechanism": "fedavg-strategic", "round_limit": 4000})
    assert played.share == 0.0 and played.outcome.status == "complete"
    assert played.welfare == pytest.approx(played.curve()[0][1], abs=1e-5)  # the model never moved


def test_first_contributions_are_whole_and_in_the_middle_third() -> None:
    here = federation(agents=12, points=100)
    for name, shard in here.shards.items():
        assert here.s0[name] == int(here.s0[name]) and len(shard.y) / 3 <= here.s0[name] <= 2 * len(shard.y) / 3
        assert 0 <= here.cost[name] <= 1
    assert federation(seed=1, agents=12, points=100).s0 != here.s0


def test_shares_follow_the_layout() -> None:
    for split in ("iid", "dirichlet", "pathological"):
        here = federation(split=split, agents=5, points=100)
        sizes = [len(s.y) + len(s.y_held) for s in here.shards.values()]
        assert sum(sizes) <= 500 and min(sizes) >= 10
    with pytest.raises(SettingError, match="whose"):
        federation(split="writers")
    with pytest.raises(SettingError, match="1797"):
        federation(agents=20, points=100)


def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    memory = Memory(limit=1000)
    for k in range(5):
        memory.put(("k", k), Trained([{"w": np.zeros(100, np.float32)}]))  # 400 bytes each
    assert memory.bytes == 800
    assert memory.get(("k", 2)) is None and memory.get(("k", 4)) is not None
    memory.put(("large",), Trained([{"w": np.zeros(1000)}]))
    assert memory.get(("large",)) is None and memory.bytes == 800


def test_an_agent_that_asks_for_other_points_than_it_broadcast_gets_them() -> None:
    here = federation()
    settings = Settings.read({**PAPER, "mechanism": "fedavg", "cost": here.cost})
    agents = here.agents(settings)
    center = opened(settings, "fedavg", agents, here.w0)
    broadcast = center.broadcast()
    assert isinstance(agents[0], GroupAgent)
    agents[0].respond(broadcast)
    asked = agents[1].site.update(broadcast.w, 7, 0, broadcast.s)
    (alone,) = here.group(Local(learning_rate=0.1)).trainer.updates(
        here.w0, [(here.names[1], here.orders[here.names[1]][:7])], 0
    )
    assert all(np.allclose(asked[key], alone[key], atol=1e-6) for key in asked)


def test_rows_of_words_that_nobody_has_stay_out_of_the_game_and_change_nothing(monkeypatch) -> None:
    """The center plays with a few rows of the embedding; put together again, the model is the dense one's bytes."""
    monkeypatch.setattr(models, "TWITTER_VOCABULARY", 400)
    rng = np.random.default_rng(5)
    tweets = Dataset("tweets", rng.choice([0, 3, 7, 90, 250, 399], (60, 5)), rng.integers(0, 2, 60), 2, None, 400)
    played = {}
    for sparse in (True, False):
        here = Federation(tweets, Layout("tweets", "tweets", agents=3, points=20), 1, sparse=sparse)
        ended = here.play({**QUICK, "mechanism": "fedavg"})
        played[sparse] = ended.nats, here.whole(ended.outcome.w), here.w0
    rows, dense = (sum(array.nbytes for array in played[kind][2].values()) for kind in (True, False))
    assert dense - rows == 4 * 300 * (400 - 6)
    assert played[True][0] == played[False][0]
    for name, array in played[False][1].items():
        assert np.array_equal(array, played[True][1][name]), name
    moved = np.any(played[True][1]["embedding.weight"] != played[False][2]["embedding.weight"], axis=1)
    assert set(np.flatnonzero(moved)) == {0, 3, 7, 90, 250, 399}
