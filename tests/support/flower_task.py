"""A small task for a grid in this process: an ordinary ClientApp, and the strategy started over its nodes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from fedincentive.plugins.flower import IncentiveStrategy, points, strategic
from fedincentive.plugins.flower.settings import read
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

FAST = {"incentive.gamma": 1000.0, "incentive.rounds": 2, "incentive.cost": 0.5, "incentive.run": "r"}


def identified() -> None:
    """What Flower's own hosts set before a message is made; the oldest Flower needs nothing."""
    with suppress(ModuleNotFoundError):
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


def task(calls: list[tuple[str, Any]]) -> ClientApp:
    """An ordinary app: a node's data are numbers around its index, the model their mean; it knows no incentives."""
    app = ClientApp()

    def data(context: Context) -> np.ndarray:
        index = int(context.node_config["partition-id"])
        return index + np.linspace(-1, 1, size(context), dtype=np.float32)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        mine = points(message, size(context))
        calls.append(("train", mine))
        w = message.content["arrays"]["w"].numpy()
        new = w + 0.5 * (data(context)[mine].mean() - w)
        metrics = MetricRecord({"num-examples": len(mine), "mean": float(new[0])})
        return Message(RecordDict({"arrays": ArrayRecord({"w": Array(new)}), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        calls.append(("evaluate", None))
        w = message.content["arrays"]["w"].numpy()
        metrics = MetricRecord({"num-examples": 5, "loss": float(((data(context) - w) ** 2).mean() / 100)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def size(context: Context) -> int:
    return 10 * (int(context.node_config["partition-id"]) + 1)


def first() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(1, np.float32))})


def started(grid: Any, tmp_path: Path, **options: Any) -> tuple[IncentiveStrategy, Any]:
    strategy = IncentiveStrategy(*read({**grid.run_config, "incentive.output": str(tmp_path)}), **options)
    return strategy, strategy.start(grid, first())


def deployed(grid_class: Any, n: int, calls: list[Any], **config: Any) -> Any:
    grid = grid_class(
        {**FAST, "incentive.agents": n, **{f"incentive.{k}".replace("_", "-"): v for k, v in config.items()}}
    )
    grid.join_all(strategic(task(calls), size=size, classes=10), n)
    return grid
