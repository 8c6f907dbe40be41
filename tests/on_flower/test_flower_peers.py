"""Other papers' mechanisms in Flower: the engine's ledger in a closed-form game, own models in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import data_parity as task
import numpy as np
import parity
import pytest
from fedincentive.plugins.flower import IncentiveStrategy, play, points, strategic
from fedincentive.plugins.flower.settings import FlowerSettings
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedincentive import game, hosting
from fedincentive.errors import SettingError
from fedincentive.settings import Settings

GAME = game.read({"game": parity.GAME})


@pytest.mark.parametrize("name", parity.PEERS)
def test_a_game_gives_the_engines_ledger(grid: Any, name: str, tmp_path: Path) -> None:
    nodes = grid({"incentive.mechanism": parity.peer(name)["mechanism"]})
    for agent in GAME.agents:
        nodes.join(play(GAME), agent=agent)
    host = FlowerSettings(agents=GAME.n, output=str(tmp_path))
    strategy = IncentiveStrategy(Settings.read(parity.peer(name)), host, game=GAME)
    strategy.start(nodes, ArrayRecord({"w": Array(GAME.w0)}))
    assert strategy.outcome is not None
    assert strategy.outcome.checkpoint == parity.peer_in_engine(name, tmp_path)


def prototypes() -> ClientApp:
    """The training of data_parity in an ordinary app."""
    app = ClientApp()

    def own(context: Any) -> Any:
        return task.data(int(context.node_config["partition-id"]))

    @app.train()
    def train(message: Message, context: Any) -> Message:
        x, y, _, _ = own(context)
        mine = np.sort(points(message, len(y)))
        np.random.seed(int(message.content["config"]["seed"]))
        new = task.trained(message.content["arrays"]["prototypes"].numpy(), x[mine], y[mine])
        metrics = MetricRecord({"num-examples": len(mine)})
        arrays = ArrayRecord({"prototypes": Array(new)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Any) -> Message:
        _, _, x, y = own(context)
        loss = task.loss(message.content["arrays"]["prototypes"].numpy(), x, y)
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": len(y), "loss": loss})}), reply_to=message)

    return strategic(app, size=lambda context: len(own(context)[1]), classes=task.CLASSES)


def shaped(
    grid: Any, folder: Path, kind: type[IncentiveStrategy] = IncentiveStrategy, mechanism: str = "accuracy-shaping"
) -> tuple[Any, list[int]]:
    """The training with models of the agents' own: its grid with all that was sent, and the nodes."""
    own = {**task.INCENTIVE, "mechanism": mechanism, "options": task.OWN_MODELS[mechanism]}
    fixed = {"rounds": task.ROUNDS, "run": task.RUN, "seed": task.SEED, "agents": task.AGENTS, "handout": True}
    settings, host = hosting.read({**own, **fixed, "output": str(folder)}, FlowerSettings, {})
    nodes = grid({"incentive.mechanism": mechanism, "incentive.start": task.INCENTIVE["start"]})
    nodes.run_config |= {"incentive.seed": task.SEED, "incentive.cost": task.INCENTIVE["cost"]}
    joined = nodes.join_all(prototypes(), task.AGENTS)

    def evaluate(step: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"loss": -task.worth({"prototypes": arrays["prototypes"].numpy()})})

    first = ArrayRecord({name: Array(array) for name, array in task.first_model().items()})
    needed = {"evaluate_fn": evaluate} if mechanism == "accuracy-shaping" else {}
    kind(settings, host).start(nodes, first, **needed)
    return nodes, joined


def test_no_message_carries_a_better_model_than_its_node_has_earned(grid: Any, tmp_path: Path) -> None:
    """Rounds, evaluations between them and the hand-out at the end; the ledger and the model are the engine's."""
    nodes, joined = shaped(grid, tmp_path)
    assert task.found_in(tmp_path / task.RUN) == task.shaped_in_engine(tmp_path)
    sent: dict[int, list[float]] = {node: [] for node in joined}
    kinds = set()
    for message in nodes.sent:
        if "arrays" in message.content.array_records:
            kinds.add(message.metadata.message_type)
            model = message.content["arrays"]["prototypes"].numpy()
            sent[message.metadata.dst_node_id].append(task.worth({"prototypes": model}))
    assert kinds == {"train", "evaluate", "query.handout"}
    earned = [-0.59, -0.49, -0.05]  # a little more than the bases: their further points are cheap
    for node, most in zip(joined, earned, strict=True):
        assert max(sent[node]) < most and len(sent[node]) == 2 * task.ROUNDS + 1
    assert len({round(max(worth), 6) for worth in sent.values()}) == 3


def test_cgsv_needs_no_evaluation_and_gives_the_engines_ledger_and_models(grid: Any, tmp_path: Path) -> None:
    nodes, joined = shaped(grid, tmp_path, mechanism="cgsv")
    assert task.found_in(tmp_path / task.RUN) == task.own_models_in_engine("cgsv", tmp_path)
    last = {}
    for message in nodes.sent:
        if message.metadata.message_type == "train" and "arrays" in message.content.array_records:
            last[message.metadata.dst_node_id] = message.content["arrays"]["prototypes"].numpy().tobytes()
    assert set(last) == set(joined) and len(set(last.values())) > 1


class Averaging(IncentiveStrategy):
    """A user's own mean of the nodes' models."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        models = [reply.content["arrays"]["prototypes"].numpy() for reply in replies]
        return ArrayRecord({"prototypes": Array(np.mean(models, axis=0))}), metrics


def test_a_users_own_mean_sees_what_counts_of_each_update(grid: Any, tmp_path: Path) -> None:
    """Where a node did not have the center's numbers, its change is not of the center's model."""
    shaped(grid, tmp_path, Averaging)
    contributions, head, model = task.found_in(tmp_path / task.RUN)
    expected = task.shaped_in_engine(tmp_path)
    assert (contributions, head) == expected[:2]  # to the micro-unit of every level; the last bits of a mean may differ


def test_a_strategy_that_cannot_value_models_is_refused(grid: Any, tmp_path: Path) -> None:
    settings, host = hosting.read({**task.SHAPED, "agents": 3, "output": str(tmp_path)}, FlowerSettings, {})
    with pytest.raises(SettingError, match="mechanism is 'accuracy-shaping', which evaluates models.*evaluate_fn"):
        IncentiveStrategy(settings, host).start(grid({}), ArrayRecord({}))
