"""An ordinary ClientApp, and the two lines that make it a strategic agent."""

from __future__ import annotations

import numpy as np
from fedincentive.plugins.flower import points, strategic
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits import task

ordinary = ClientApp()


@ordinary.train()
def train(message: Message, context: Context) -> Message:
    x, y, _, _ = task.split(*partition(context))
    mine = points(message, len(y))  # all of them under FedAvg, those the agent delivers under a mechanism
    config = message.content["config"]
    w = task.train(
        arrays(message),
        x[mine],
        y[mine],
        int(context.run_config["local-epochs"]),
        float(context.run_config["learning-rate"]),
        int(config.get("seed", 0)),
    )
    metrics = MetricRecord({"train-loss": task.evaluate(w, x[mine], y[mine])[0], "num-examples": len(mine)})
    return Message(RecordDict({"arrays": record(w), "metrics": metrics}), reply_to=message)


@ordinary.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    _, _, x, y = task.split(*partition(context))
    loss, accuracy = task.evaluate(arrays(message), x, y)
    metrics = MetricRecord({"loss": loss, "accuracy": accuracy, "num-examples": len(y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def partition(context: Context) -> tuple[int, int]:
    return int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])


def arrays(message: Message) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in message.content["arrays"].items()}


def record(w: dict[str, np.ndarray]) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in w.items()})


def size(context: Context) -> int:
    """How many points this node could give."""
    return len(task.split(*partition(context))[1])


app = strategic(ordinary, size=size, classes=task.CLASSES, model=lambda context: record(task.first_model()))
