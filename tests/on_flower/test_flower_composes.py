"""What Flower's users bring along: legacy clients, decorators, mods, wrappers, a strategy's own aggregate_train."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedincentive.plugins.flower import FedTrimmedAvg, IncentiveStrategy, points, strategic
from fedincentive.plugins.flower.records import INCENTIVE
from fedincentive.plugins.flower.settings import read
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from keyring import folder_of
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from fedincentive.errors import RunError, SettingError

CONFIG = {"incentive.gamma": 1000.0, "incentive.rounds": 3, "incentive.cost": 0.5, "incentive.run": "r",
          "incentive.agents": 3}  # fmt: skip
SIZE = 20


def data(context: Any) -> np.ndarray:
    return int(context.node_config["partition-id"]) + np.linspace(-1, 1, SIZE)


def train(message: Message, context: Any) -> Message:
    mine = points(message, SIZE)
    w = message.content["arrays"]["w"].numpy()
    new = w + 0.5 * (data(context)[mine].mean() - w)
    metrics = MetricRecord({"num-examples": len(mine)})
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(new)}), "metrics": metrics}), reply_to=message)


def evaluate(message: Message, context: Any) -> Message:
    w = message.content["arrays"]["w"].numpy()
    metrics = MetricRecord({"num-examples": 5, "loss": float(((data(context) - w) ** 2).mean() / 100)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def ordinary(**options: Any) -> ClientApp:
    app = ClientApp(**options)
    app.train()(train)
    app.evaluate()(evaluate)
    return app


class Legacy(NumPyClient):
    """The same in the shape of Flower's baselines; one line asks for the points."""

    def __init__(self, context: Any) -> None:
        self.data = data(context)

    def fit(self, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[list[np.ndarray], int, dict]:
        mine = points(config, SIZE)
        (w,) = parameters
        return [w + 0.5 * (self.data[mine].mean() - w)], len(mine), {}

    def evaluate(self, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[float, int, dict]:
        return float(((self.data - parameters[0]) ** 2).mean() / 100), 5, {"accuracy": 0.5}


def first() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(1))})


def started(grid_class: Any, app: ClientApp, folder: Path, kind: Any = IncentiveStrategy, **options: Any) -> Any:
    config = {**CONFIG, **options.pop("config", {}), "incentive.output": str(folder)}
    grid = grid_class(config)
    grid.join_all(app, 3)
    strategy = kind(*read(config), **options)
    return strategy, strategy.start(grid, first()), grid


def app_of(inner: ClientApp) -> ClientApp:
    return strategic(inner, size=SIZE, classes=10)


def test_a_legacy_client_ends_with_the_same_ledger_and_model(grid: Any, tmp_path: Path) -> None:
    legacy = ClientApp(client_fn=lambda context: Legacy(context).to_client())
    mine, result, _ = started(grid, app_of(legacy), tmp_path / "legacy")
    other, expected, _ = started(grid, app_of(ordinary()), tmp_path / "new")
    assert mine.outcome.head == other.outcome.head and mine.outcome.status == "complete"
    assert np.array_equal(result.arrays["w"].numpy(), expected.arrays["w"].numpy())
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == 0.5
    assert result.evaluate_metrics_clientapp[1]["loss"] == expected.evaluate_metrics_clientapp[1]["loss"]


def test_a_legacy_client_also_works_under_flowers_own_strategies(grid: Any) -> None:
    legacy = ClientApp(client_fn=lambda context: Legacy(context).to_client())
    results = []
    for app in (app_of(legacy), ordinary()):
        table = grid({})
        table.join_all(app, 3)
        results.append(FedAvg().start(table, first(), num_rounds=2))
    assert np.array_equal(results[0].arrays["w"].numpy(), results[1].arrays["w"].numpy())
    assert results[0].evaluate_metrics_clientapp[2]["loss"] == results[1].evaluate_metrics_clientapp[2]["loss"]


def test_functions_registered_with_the_wrapper_are_the_apps(grid: Any, tmp_path: Path) -> None:
    app, lives = app_of(ClientApp()), []
    app.train()(train)
    app.evaluate()(evaluate)

    @app.lifespan()
    def lifespan(context: Any) -> Any:
        lives.append(context.node_id)
        yield

    strategy, _, _ = started(grid, app, tmp_path)
    assert strategy.outcome.status == "complete" and lives


def test_an_app_that_is_not_wrapped_is_told_so(grid: Any, tmp_path: Path) -> None:
    for app in (ordinary(), ClientApp(client_fn=lambda context: Legacy(context).to_client())):
        with pytest.raises(RunError, match=r"wrap it with fedincentive\.plugins\.flower\.strategic\(\)"):
            started(grid, app, tmp_path)


def test_the_nodes_evaluate_after_every_round(grid: Any, tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level(logging.INFO, logger="flwr.fedincentive"):
        strategy, result, _ = started(grid, app_of(ordinary()), tmp_path)
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2, 3]
    w = [float(result.arrays["w"].numpy()[0])]
    losses = [((int(i) + np.linspace(-1, 1, SIZE) - w[0]) ** 2).mean() / 100 for i in range(3)]
    assert result.evaluate_metrics_clientapp[3]["loss"] == pytest.approx(np.mean(losses))
    assert "Final results:" in caplog.text and str(tmp_path / "r" / "state") in caplog.text
    quiet, none, sent = started(grid, app_of(ordinary()), tmp_path / "quiet", fraction_evaluate=0.0)
    assert sorted(none.evaluate_metrics_clientapp) == [3]  # the value round at the end
    assert quiet.outcome.head == strategy.outcome.head


def test_the_weight_of_the_nodes_metrics_has_a_name(grid: Any, tmp_path: Path) -> None:
    def weighed(message: Message, context: Any) -> Message:
        number = int(context.node_config["partition-id"])
        metrics = MetricRecord({"num-examples": 1, "patients": 1 + number, "loss": float(number)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    app = ClientApp()
    app.train()(train)
    app.evaluate()(weighed)
    _, plain, _ = started(grid, app_of(app), tmp_path / "plain")
    _, named, _ = started(grid, app_of(app), tmp_path / "named", weighted_by_key="patients")
    assert plain.evaluate_metrics_clientapp[1]["loss"] == pytest.approx((0 + 1 + 2) / 3)
    assert named.evaluate_metrics_clientapp[1]["loss"] == pytest.approx((0 * 1 + 1 * 2 + 2 * 3) / 6)


def test_the_shape_of_flowers_scikit_learn_quickstart(grid: Any, tmp_path: Path) -> None:
    """Arrays without names of their own, a model that is fitted further, and a loss under another name."""
    digits = load_digits()
    x, y = digits.data / 16, digits.target

    def model_of(message: Message) -> LogisticRegression:
        model = LogisticRegression(max_iter=5, warm_start=True)
        model.classes_ = np.arange(10)
        model.coef_, model.intercept_ = (array.copy() for array in message.content["arrays"].to_numpy_ndarrays())
        return model

    def part(context: Any) -> np.ndarray:
        return np.arange(int(context.node_config["partition-id"]), len(x), 3)

    app = ClientApp()

    @app.train()
    def fit(message: Message, context: Any) -> Message:
        mine = part(context)[points(message, len(part(context)))]
        model = model_of(message)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # five steps are not to the end
            model.fit(x[mine], y[mine])
        metrics = MetricRecord({"num-examples": len(mine), "train_logloss": 0.0})
        content = {"arrays": ArrayRecord([model.coef_, model.intercept_]), "metrics": metrics}
        return Message(RecordDict(content), reply_to=message)

    @app.evaluate()
    def score(message: Message, context: Any) -> Message:
        mine, model = part(context), model_of(message)
        loss = float(log_loss(y[mine], model.predict_proba(x[mine]), labels=range(10)))
        metrics = MetricRecord({"num-examples": len(mine), "test_logloss": loss})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    wrapped = strategic(app, size=lambda context: len(part(context)), classes=10, loss="test_logloss")
    config = {**CONFIG, "incentive.cost": 0.001, "incentive.output": str(tmp_path)}
    table = grid(config)
    table.join_all(wrapped, 3)
    strategy = IncentiveStrategy(*read(config))
    result = strategy.start(table, ArrayRecord([np.zeros((10, 64)), np.zeros(10)]))
    assert strategy.outcome.status == "complete" and result.arrays.keys() == {"0", "1"}
    losses = [result.evaluate_metrics_clientapp[step]["test_logloss"] for step in (1, 2, 3)]
    assert np.log(10) > losses[0] > losses[1] > losses[2]


class Watching(IncentiveStrategy):
    """Its own two methods of evaluation, as under FedAvg: it asks in every second round and adds a metric."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[int] = []
        self.heard: list[int] = []

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: Any, grid: Any) -> Any:
        self.asked.append(server_round)
        return super().configure_evaluate(server_round, arrays, config, grid) if server_round != 1 else []

    def aggregate_evaluate(self, server_round: int, replies: Any) -> MetricRecord | None:
        self.heard.append(len(replies))  # a list, of which super() gets all too
        found = super().aggregate_evaluate(server_round, replies)
        return MetricRecord({**(found or {}), "worst": max(reply.content["metrics"]["loss"] for reply in replies)})


def test_a_subclass_has_its_own_evaluation(grid: Any, tmp_path: Path) -> None:
    mine, result, _ = started(grid, app_of(ordinary()), tmp_path / "mine", Watching)
    other, expected, _ = started(grid, app_of(ordinary()), tmp_path / "other")
    assert mine.asked == [1, 2, 3] and mine.heard == [3, 3]
    assert sorted(result.evaluate_metrics_clientapp) == [2, 3]
    for step, found in result.evaluate_metrics_clientapp.items():
        assert found["loss"] == expected.evaluate_metrics_clientapp[step]["loss"] < found["worst"]
    assert mine.outcome.head == other.outcome.head


def test_a_subclass_may_not_leave_out_the_valuations_that_a_mechanism_needs(grid: Any, tmp_path: Path) -> None:
    class Silent(IncentiveStrategy):
        def configure_evaluate(self, *arguments: Any) -> Any:
            return []

    class Deaf(IncentiveStrategy):
        def aggregate_evaluate(self, *arguments: Any) -> None:
            return None

    for kind in (Silent, Deaf):
        with pytest.raises(SettingError, match=f"2p-upbred needs the agents' valuations.*{kind.__name__}"):
            started(grid, app_of(ordinary()), tmp_path / kind.__name__, kind)


def test_a_model_is_evaluated_once_for_metrics_and_valuation(grid: Any, tmp_path: Path) -> None:
    names = [f"agent-{i}" for i in (1, 2, 3)]
    keys = {"incentive.keys": str(folder_of(tmp_path / "keys", names))}

    def run(name: str, **options: Any) -> tuple[Any, list[float]]:
        seen: list[float] = []

        def counted(message: Message, context: Any) -> Message:
            if context.node_config["partition-id"] == 0:
                seen.append(float(message.content["arrays"]["w"].numpy()[0]))
            return evaluate(message, context)

        app = ClientApp()
        app.train()(train)
        app.evaluate()(counted)
        strategy, _, _ = started(grid, app_of(app), tmp_path / name, **options)
        return strategy, seen

    shared, once = run("shared")
    alone, each = run("alone", fraction_evaluate=0.0)
    assert len(once) == len(set(once)) == 4  # three rounds, and the value round at the end
    assert once == each and shared.outcome.head == alone.outcome.head
    assert [found.metrics for found in shared.rounds] == [found.metrics for found in alone.rounds]
    _, signed = run("signed", config=keys)  # what it signs, an agent finds of the model that its center signed
    assert len(signed) > len(set(signed)) == 4


def test_another_model_that_a_subclass_has_evaluated_is_no_valuation(grid: Any, tmp_path: Path) -> None:
    class Averaging(IncentiveStrategy):
        def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: Any, grid: Any) -> Any:
            if self.center.broadcast().phase != "value":
                arrays = ArrayRecord({"w": Array(100 + arrays["w"].numpy())})
            return super().configure_evaluate(server_round, arrays, config, grid)

    mine, result, _ = started(grid, app_of(ordinary()), tmp_path / "mine", Averaging)
    other, expected, _ = started(grid, app_of(ordinary()), tmp_path / "other")
    assert result.evaluate_metrics_clientapp[1]["loss"] > 50 * expected.evaluate_metrics_clientapp[1]["loss"]
    assert [found.metrics for found in mine.rounds] == [found.metrics for found in other.rounds]
    assert mine.outcome.head == other.outcome.head


def test_a_resumed_run_counts_on_where_it_was(grid: Any, tmp_path: Path) -> None:
    config = {**CONFIG, "incentive.output": str(tmp_path)}

    def start(evaluate_fn: Any, **more: Any) -> Any:
        table = grid({**config, **more})
        table.join_all(app_of(ordinary()), 3)
        return IncentiveStrategy(*read({**config, **more})).start(table, first(), evaluate_fn=evaluate_fn)

    def dies(step: int, arrays: ArrayRecord) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(dies)
    seen: list[int] = []
    result = start(lambda step, arrays: seen.append(step), **{"incentive.resume": True})
    assert seen == [2, 3] and sorted(result.train_metrics_clientapp) == [3]


def test_an_overridden_aggregate_train_makes_the_model(grid: Any, tmp_path: Path) -> None:
    seen: list[list[float]] = []

    class Shifted(IncentiveStrategy):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            replies = list(replies)
            seen.append([float(reply.content["arrays"]["w"].numpy()[0]) for reply in replies])
            arrays, metrics = super().aggregate_train(server_round, replies)
            assert arrays["w"].numpy()[0] == pytest.approx(np.mean(seen[-1]))
            return ArrayRecord({"w": Array(arrays["w"].numpy() + 1.0)}), MetricRecord({**metrics, "shift": 1.0})

    strategy, result, _ = started(grid, app_of(ordinary()), tmp_path, Shifted)
    w = 0.0
    for models in seen:  # each round begins where the last one ended, shift and all
        assert models == pytest.approx([w + 0.5 * (i - w) for i in range(3)])
        w = np.mean(models) + 1.0
    assert result.arrays["w"].numpy()[0] == strategy.center.w["w"][0] == pytest.approx(w)
    assert result.train_metrics_clientapp[1]["shift"] == 1.0 and "incentive.s" in result.train_metrics_clientapp[1]


def test_an_override_without_super_sees_whole_models(grid: Any, tmp_path: Path) -> None:
    class Own(IncentiveStrategy):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            return FedAvg.aggregate_train(self, server_round, replies)

    _, result, _ = started(grid, app_of(ordinary()), tmp_path, Own)
    _, expected, _ = started(grid, app_of(ordinary()), tmp_path / "plain")
    np.testing.assert_allclose(result.arrays["w"].numpy(), expected.arrays["w"].numpy(), rtol=1e-12)


def test_an_override_that_returns_another_model_is_refused(grid: Any, tmp_path: Path) -> None:
    class Wrong(IncentiveStrategy):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            return ArrayRecord({"v": Array(np.zeros(1))}), MetricRecord()

    with pytest.raises(SettingError, match=r"Wrong\.aggregate_train returns another model"):
        started(grid, app_of(ordinary()), tmp_path, Wrong)


def test_privacy_wrappers_are_refused_by_name_around_a_mechanism(grid: Any, tmp_path: Path) -> None:
    config = {**CONFIG, "incentive.output": str(tmp_path)}
    table = grid(config)
    table.join_all(app_of(ordinary()), 3)
    wrapped = DifferentialPrivacyServerSideFixedClipping(IncentiveStrategy(*read(config)), 0.1, 1.0, 3)
    with pytest.raises(RunError, match="DifferentialPrivacy"):
        wrapped.start(table, first(), num_rounds=1)
    assert not (tmp_path / "r").exists()


def test_privacy_wrappers_compose_with_a_robust_strategy(grid: Any) -> None:
    table = grid({})
    table.join_all(ordinary(), 3)
    wrapped = DifferentialPrivacyServerSideFixedClipping(FedTrimmedAvg(beta=0.34), 0.0, 100.0, 3)
    result = wrapped.start(table, first(), num_rounds=1)
    assert result.arrays["w"].numpy()[0] == pytest.approx(0.5)  # the middle one of 0, 0.5 and 1


def test_mods_work_and_their_errors_reach_the_log(grid: Any, tmp_path: Path, caplog: Any) -> None:
    def fails(message: Message, context: Any, call_next: Any) -> Message:
        if message.metadata.message_type == "train" and context.node_config["partition-id"] == 1:
            return Message(Error(0, "the disk of this clinic is full"), reply_to=message)
        return call_next(message, context)

    strategy, _, _ = started(grid, app_of(ordinary(mods=[fails])), tmp_path)
    assert "cannot train: the disk of this clinic is full" in caplog.text and "agent-2" in caplog.text
    assert strategy.outcome.status == "complete"


def test_secure_aggregation_is_refused_with_the_reason(grid: Any, tmp_path: Path, caplog: Any) -> None:
    with pytest.raises(Exception):  # noqa: B017  nobody can train, so the quorum fails
        started(grid, app_of(ordinary(mods=[secaggplus_mod])), tmp_path, config={"incentive.repeats": 1})
    assert "secaggplus_mod, but SecAgg+ is a workflow" in caplog.text


def test_a_fraction_of_the_agents_is_asked(grid: Any, tmp_path: Path) -> None:
    _, _, table = started(grid, app_of(ordinary()), tmp_path, fraction_train=0.7, fraction_evaluate=0.0)
    assert sum(message.metadata.message_type == "train" for message in table.sent) == 3 * 2
    with pytest.raises(SettingError, match="fraction_train = 0.5 and incentive.sampled = 2"):
        started(grid, app_of(ordinary()), tmp_path, fraction_train=0.5, config={"incentive.sampled": 2})


def test_nobody_and_no_rounds_are_refused_by_name(grid: Any, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="fraction_train must be greater than 0"):
        started(grid, app_of(ordinary()), tmp_path, fraction_train=0.0)
    strategy = IncentiveStrategy(*read({**CONFIG, "incentive.output": str(tmp_path)}))
    with pytest.raises(SettingError, match="num_rounds must be at least 1, not 0"):
        strategy.start(grid(CONFIG), first(), num_rounds=0)


def test_the_users_own_train_config_is_kept(grid: Any, tmp_path: Path) -> None:
    """Also a seed of theirs, where we would give one; which points to train on is ours to say."""
    seen = []
    app = ClientApp()

    @app.train()
    def noticed(message: Message, context: Any) -> Message:
        seen.append(dict(message.content["config"]))
        return train(message, context)

    app.evaluate()(evaluate)
    config = {**CONFIG, "incentive.output": str(tmp_path)}
    table = grid(config)
    table.join_all(app_of(app), 3)
    told = ConfigRecord({"seed": 5, "lr": 0.1, "points": [7]})
    IncentiveStrategy(*read(config)).start(table, first(), train_config=told)
    assert {(own["seed"], own["lr"], len(own["points"])) for own in seen} == {(5, 0.1, SIZE)}


def test_a_fraction_of_the_nodes_evaluates_as_under_fedavg(grid: Any, tmp_path: Path) -> None:
    """Two of three, whoever they are, after the rounds that no value round follows; the ledger is the same."""

    def asked(table: Any) -> int:
        messages = [message for message in table.sent if message.metadata.message_type == "evaluate"]
        return sum(INCENTIVE not in message.content.config_records for message in messages)

    whole, _, every = started(grid, app_of(ordinary()), tmp_path / "whole")
    part, _, some = started(grid, app_of(ordinary()), tmp_path / "part", fraction_evaluate=0.7)
    assert (asked(every), asked(some)) == (2 * 3, 2 * 2) and part.outcome.head == whole.outcome.head
    stock = grid(CONFIG)
    stock.join_all(app_of(ordinary()), 3)
    FedAvg(fraction_evaluate=0.7).start(stock, first(), num_rounds=3)
    assert asked(stock) == 3 * 2


def test_who_does_not_answer_in_time_is_named_in_a_warning(grid: Any, tmp_path: Path, caplog: Any) -> None:
    config = {**CONFIG, "incentive.output": str(tmp_path), "incentive.round-timeout": 0.3}
    table = grid(config)
    nodes = table.join_all(app_of(ordinary()), 3)
    table.before_send = lambda message: table.mute.add(nodes[2]) if message.metadata.message_type == "train" else None
    IncentiveStrategy(*read(config)).start(table, first())
    assert "No answer after 0.3 seconds from agent-3: absent." in caplog.text
    assert any(record.levelno == logging.WARNING and "agent-3" in record.message for record in caplog.records)


def test_clipping_at_the_clients_changes_what_they_send(grid: Any, tmp_path: Path) -> None:
    """Flower's own mod for privacy at the clients is the one that composes."""
    app = ClientApp()
    app.train(mods=[fixedclipping_mod])(train)
    app.evaluate()(evaluate)
    config = {**CONFIG, "incentive.rounds": 1, "incentive.output": str(tmp_path)}
    table = grid(config)
    table.join_all(app_of(app), 3)
    told = ConfigRecord({"clipping_norm": 0.25})
    result = IncentiveStrategy(*read(config)).start(table, first(), train_config=told)
    assert result.arrays["w"].numpy()[0] == pytest.approx(np.mean([0.0, 0.25, 0.25]))  # of 0, 0.5 and 1
