"""Agents: strategies, estimates of the slope, sites, and what they remember."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from keyring import folder_of

from fedincentive.adversary import Misreport
from fedincentive.agent import (
    Agent,
    Away,
    BestResponse,
    ClosedFormSite,
    Fixed,
    FreeRider,
    Gradient,
    LossSite,
    Notary,
    SoftmaxSite,
    digest,
    read_keys,
    strategy,
)
from fedincentive.agent.softmax import first_model, loss_and_gradient
from fedincentive.errors import SettingError
from fedincentive.game import best_reply, random_data_value, random_quadratic, repaired_example
from fedincentive.mechanisms import Settings, get
from fedincentive.messages import Broadcast


def broadcast(game, phase="contribute", mechanism="2p-upbred", *, round=0, step=0, s=None, w=None, **values):
    settings = get(mechanism, Settings.read(values)).public()
    s = dict(zip(game.agents, (game.s0 if s is None else s).tolist(), strict=True))
    model = None if phase == "contribute" else {"w": game.w0 if w is None else w}
    return Broadcast("r", round, step, phase, model, s, settings)


class TestStrategies:
    @pytest.mark.parametrize("seed", range(4))
    def test_gradient_is_the_games_own_step(self, seed) -> None:
        game = random_quadratic(seed, 5, 2)
        expected = game.step(game.w0, game.s0, 0.5, 1.5)
        told = broadcast(game, gamma=0.5, beta="1.5")
        for i, site in enumerate(ClosedFormSite.of(game)):
            assert Agent(site.name, site).respond(told).s == pytest.approx(expected[i], abs=1e-12)

    @pytest.mark.parametrize("seed", range(4))
    def test_best_response_is_the_best_reply(self, seed) -> None:
        game = random_data_value(seed, 4)
        told = broadcast(game, beta="0.5")
        for i, site in enumerate(ClosedFormSite.of(game)):
            s = Agent(site.name, site, "best-response").respond(told).s
            assert s == pytest.approx(best_reply(game, i, game.w0, game.s0, 0.5), rel=1e-6, abs=1e-6)

    def test_fixed_stays_and_never_exceeds_what_it_has(self) -> None:
        game = repaired_example()
        site = ClosedFormSite(game, 0)
        assert Agent(site.name, site, "fixed").respond(broadcast(game)).s == 2.5
        assert Agent(site.name, site, Fixed(1.0)).respond(broadcast(game)).s == 1.0
        assert Agent(site.name, site, Fixed(99.0)).respond(broadcast(game)).s == 5.0

    def test_a_free_rider_commits_and_does_not_deliver(self) -> None:
        game = repaired_example()
        site = ClosedFormSite(game, 0)
        honest, rider = Agent(site.name, site), Agent(site.name, site, "free-rider")
        assert rider.respond(broadcast(game)).s == honest.respond(broadcast(game)).s
        train = broadcast(game, "train", round=1)
        assert rider.respond(train).delivered == 0.0 and honest.respond(train).delivered == 2.5
        assert Agent(site.name, site, FreeRider(share=0.5)).respond(train).delivered == 1.25

    def test_away_means_no_answer(self) -> None:
        game = repaired_example()
        agent = Agent("agent-1", ClosedFormSite(game, 0), Away(steps=[1]))
        assert agent.respond(broadcast(game)) is not None
        assert agent.respond(broadcast(game, "train", round=1, step=0)) is not None
        assert agent.respond(broadcast(game, "train", round=2, step=1)) is None
        assert agent.respond(broadcast(game, "done", round=3)) is None

    def test_an_unknown_strategy_is_met_with_the_nearest(self) -> None:
        with pytest.raises(SettingError, match="no strategy 'gradent'. Did you mean 'gradient'"):
            strategy("gradent")
        assert isinstance(strategy("gradient"), Gradient) and isinstance(strategy("best-response"), BestResponse)


class Learner:
    """A site whose training is arithmetic: n points bring the model n/100 of the way, and the loss is what is left."""

    def __init__(self, size=100, w0=None, **options):
        def train(w, points, step):
            return {"w": np.full(1, 0.01 * len(points))}

        self.site = LossSite(
            size, train, lambda w: float((1.0 - w["w"][0]) ** 2),
            order=np.random.default_rng(0).permutation(size), reward=1.0, w0=w0, **options,
        )  # fmt: skip


def told(phase="train", s=50.0, mechanism="upbred", *, round=0, step=0, w=0.0, **values):
    settings = get(mechanism, Settings.read(values)).public()
    model = None if phase == "contribute" else {"w": np.full(1, w)}
    return Broadcast("r", round, step, phase, model, {"x": s}, settings)


class TestSlopes:
    def test_bounded_never_looks_at_the_model(self) -> None:
        agent = Agent("x", Learner(cost_per_point=0.5).site)
        report = agent.respond(told("contribute", mechanism="2p-upbred", beta="2", tau=0.25, gamma=0.1))
        assert report.s == pytest.approx(50.0 + 0.1 * (2.0 - 0.5 - 0.25))

    def test_counterfactual_is_the_value_of_delta_more_points(self) -> None:
        agent = Agent("x", Learner(cost_per_point=0.001).site)
        value = lambda points: 1.0 - (1.0 - 0.01 * points) ** 2  # noqa: E731
        slope = (value(60) - value(50)) / 10
        assert agent.respond(told(gamma=100.0)).s == pytest.approx(50.0 + 100.0 * (slope - 0.001))
        backwards = (value(98) - value(88)) / 10
        assert agent.respond(told(s=98.0, gamma=1.0, round=1)).s == pytest.approx(98.0 + backwards - 0.001)

    def test_counterfactual_can_rest_inside(self) -> None:
        """Where a point is worth what it costs; the paper's quotient has no such place."""
        agent, s = Agent("x", Learner(cost_per_point=0.01).site), 5.0
        for k in range(400):
            s = agent.respond(told(s=s, gamma=400.0, delta=1, round=k)).s
        assert 45.0 < s < 55.0

    def test_the_papers_quotient_is_dropped_where_s_stands_still(self) -> None:
        agent = Agent("x", Learner(cost_per_point=0.5).site)
        common = {"slope": "paper", "gamma": 1.0, "payment": "contribution", "beta": "1"}
        first = agent.respond(told(s=50.0, **common))
        assert first.s == pytest.approx(50.0 - 0.5 + 1.0)  # the first round: -c + beta
        assert agent.respond(told(s=50.5, round=1, **common)).s == pytest.approx(51.0)  # moved half a point
        value = 1.0 - (1.0 - 0.01 * 60) ** 2
        moved = agent.respond(told(s=60.0, round=2, **common)).s
        assert moved == pytest.approx(60.0 + value / (60.0 - 50.5) + 0.5)

    def test_one_gradient_is_a_step_of_size_eta(self) -> None:
        agent = Agent("x", Learner().site)
        value = lambda points: 1.0 - (1.0 - 0.1 * 0.01 * points) ** 2  # noqa: E731
        s = agent.respond(told(local="gradient", eta=0.1, gamma=1.0)).s
        assert s == pytest.approx(50.0 + (value(60) - value(50)) / 10)

    def test_what_is_missing_is_named(self) -> None:
        without = Agent("x", Learner().site)
        with pytest.raises(SettingError, match="'x' needs the first model.*give its site w0, or set incentive.slope"):
            without.respond(told("contribute", mechanism="fedavg-strategic"))
        assert (
            Agent("x", Learner(w0={"w": np.zeros(1)}).site).respond(told("contribute", mechanism="fedavg-strategic")).s
        )
        with pytest.raises(SettingError, match="'closed-form', but agent 'x' trains on data"):
            without.respond(told(slope="closed-form", round=1))
        with pytest.raises(SettingError, match="'x' trains on data, so its best response is not known"):
            Agent("x", Learner().site, "best-response").respond(told())

    def test_a_setting_overrules_the_closed_form(self) -> None:
        game = repaired_example()
        agent = Agent("agent-1", ClosedFormSite(game, 0))
        s = agent.respond(broadcast(game, slope="bounded", tau=0.01, beta="0.5", gamma=1.0)).s
        assert s == pytest.approx(2.5 + 0.5 - 0.04 - 0.01)


class TestSites:
    def test_a_larger_s_only_adds_points(self) -> None:
        seen = []

        def train(w, points, step):
            seen.append(list(points))
            return {"w": np.zeros(1)}

        order = np.random.default_rng(3).permutation(20)
        site = LossSite(20, train, lambda w: 0.0, order=order, reward=0.0)
        for s in (3.4, 7.0, 7.5, 20.0):
            site.update({"w": np.zeros(1)}, s, 0, {})
        assert [len(points) for points in seen] == [3, 7, 8, 20]
        assert all(longer[: len(shorter)] == shorter for shorter, longer in zip(seen, seen[1:], strict=False))
        assert sorted(seen[-1]) == list(range(20)) != seen[-1]

    def test_no_points_no_update(self) -> None:
        site = Learner().site
        assert site.update({"w": np.zeros(1)}, 0.4, 0, {})["w"] == 0.0

    @pytest.mark.parametrize(("loss", "value"), [(0.5, 3.0), (50.0, -16.0), (math.inf, -16.0), (math.nan, -16.0)])
    def test_losses_are_cut_at_the_cap(self, loss, value) -> None:
        options = {"reward": 2.0, "value_per_nat": 2.0, "loss_cap": 10.0}
        site = LossSite(5, lambda w, p, t: w, lambda w: loss, order=np.arange(5), **options)
        assert site.value({"w": np.zeros(1)}, {}) == value

    def test_points_are_delivered_whole(self) -> None:
        report = Agent("x", Learner().site).respond(told(s=33.4))
        assert report.delivered == 33.0
        assert report.update["w"][0] == pytest.approx(0.33)

    def test_closed_form_sites_agree_with_the_game(self) -> None:
        game = random_quadratic(2, 4, 3)
        s = {name: float(x) for name, x in zip(game.agents, game.s0, strict=True)}
        w = {"w": game.w0}
        for i, site in enumerate(ClosedFormSite.of(game)):
            assert site.value(w, s) == game.values(game.w0, game.s0)[i]
            assert np.array_equal(site.update(w, game.s0[i], 0, s)["w"], game.gradient(i, game.w0, game.s0))
            assert site.slope(w, s) - site.cost_slope(s[site.name]) == pytest.approx(game.slopes(game.w0, game.s0)[i])
            moved = game.s0.copy()
            moved[i] = 0.123
            assert np.array_equal(site.update(w, 0.123, 0, s)["w"], game.gradient(i, game.w0, moved))
            assert site.cost(0.123) == pytest.approx(game.costs(moved)[i])

    def test_softmax_gradient_against_differences(self) -> None:
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(12, 4)), rng.integers(0, 3, 12)
        w = {"weight": rng.normal(size=(4, 3)), "bias": rng.normal(size=3)}
        _, gradient = loss_and_gradient(w, x, y)
        for name, place in (("weight", (2, 1)), ("bias", (0,))):
            up, down = ({k: v.copy() for k, v in w.items()} for _ in range(2))
            up[name][place] += 1e-6
            down[name][place] -= 1e-6
            slope = (loss_and_gradient(up, x, y)[0] - loss_and_gradient(down, x, y)[0]) / 2e-6
            assert gradient[name][place] == pytest.approx(slope, abs=1e-6)

    def test_a_softmax_site_holds_out_a_fifth_and_repeats_itself(self) -> None:
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(50, 4)), rng.integers(0, 3, 50)
        site, again = (SoftmaxSite("a", x, y, 3, Settings()) for _ in range(2))
        assert site.s_max == 40 and len(site.held_out[1]) == 10
        w = first_model(4, 3)
        same = digest(site.update(w, 20, 5, {}))
        assert same == digest(again.update(w, 20, 5, {}))
        assert same != digest(site.update(w, 20, 6, {}))
        assert same != digest(SoftmaxSite("b", x, y, 3, Settings()).update(w, 20, 5, {}))


class TestMemory:
    def test_the_same_question_gets_the_same_answer(self) -> None:
        agent = Agent("x", Learner(cost_per_point=0.5).site)
        common = {"slope": "paper", "gamma": 1.0}
        agent.respond(told(s=50.0, **common))
        once = agent.respond(told(s=60.0, round=1, **common))
        again = agent.respond(told(s=60.0, round=1, **common))
        assert once.s == again.s and digest(once.update) == digest(again.update)
        assert agent.respond(told(s=60.0, round=2, **common)).s != once.s  # s stood still: the quotient is dropped

    def test_an_agent_that_was_restarted_goes_on_as_it_would_have(self) -> None:
        common = {"slope": "paper", "gamma": 1.0}
        agent, other = (Agent("x", Learner(cost_per_point=0.5).site, lies="understate-s") for _ in range(2))
        agent.respond(told(s=50.0, **common))
        agent.respond(told(s=30.0, round=1, **common))
        other.restore(json.loads(json.dumps(agent.state())))
        assert other.actual == agent.actual
        for round in (1, 2, 3):  # the last question again, then new ones
            assert (
                other.respond(told(s=20.0, round=round, **common)).s
                == agent.respond(told(s=20.0, round=round, **common)).s
            )

    def test_a_liar_acts_on_what_it_really_gives(self) -> None:
        game = repaired_example()
        agent = Agent("agent-1", ClosedFormSite(game, 0), s0=2.5, lies=Misreport(s=lambda s, s_max: 0.0))
        assert agent.respond(broadcast(game, beta="0.5", gamma=1.0)).s == 0.0
        assert agent.actual > 2.5
        train = agent.respond(broadcast(game, "train", round=1, s=np.array([0.0, 2.5])))
        assert train.delivered > 2.5


class TestKeys:
    def test_keys_come_from_a_folder(self, tmp_path) -> None:
        folder_of(tmp_path / "keys", ["a"])
        ring = read_keys(tmp_path / "keys")
        assert set(ring.public) == set(ring.private) == {"a", "center"}
        with pytest.raises(SettingError, match="incentive.keys: The folder of keys .*none cannot be read"):
            read_keys(tmp_path / "none")
        with pytest.raises(SettingError, match="no private key of agent 'b'"):
            Notary.of(ring, "b")

    def test_the_digest_sees_names_types_shapes_and_order(self) -> None:
        base = {"a": np.zeros(4), "b": np.ones(2)}
        others = [
            {"b": np.ones(2), "a": np.zeros(4)},
            {"a": np.zeros((2, 2)), "b": np.ones(2)},
            {"a": np.zeros(4, np.float32), "b": np.ones(2)},
            {"a": np.zeros(4), "c": np.ones(2)},
            {"a": np.zeros(4), "b": np.ones(2) * (1 + 1e-15)},
        ]
        assert digest(base) == digest({name: array.copy() for name, array in base.items()})
        assert len({digest(base), *(digest(other) for other in others)}) == 6
        strided = np.arange(8.0)[::2]
        assert digest({"a": strided}) == digest({"a": strided.copy()})
