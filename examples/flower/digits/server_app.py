"""The ServerApp: the mechanism and its settings come from the run config."""

from __future__ import annotations

from fedincentive.plugins.flower import IncentiveStrategy
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from digits import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = IncentiveStrategy.from_context(context)
    first = ArrayRecord({name: Array(array) for name, array in task.first_model().items()})
    strategy.start(grid, first, evaluate_fn=evaluate)


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """The model on all images."""
    loss, accuracy = task.evaluate({name: array.numpy() for name, array in arrays.items()}, *task.digits())
    return MetricRecord({"loss": loss, "accuracy": accuracy})
