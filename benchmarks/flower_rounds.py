"""How long a training round takes under IncentiveStrategy, as a multiple of Flower's FedAvg: train and evaluate.

    .venv/flower/bin/python benchmarks/flower_rounds.py [50-small] [10-large] [--turns N] [--cpu] [--simulation]

50 nodes with a logistic regression (7,850 parameters), and 10 with a layer of 6.6 M, trained in NumPy by one ClientApp:
as it is under FedAvg, wrapped with `strategic` under ours. Each node trains once and evaluates the new model once in a
round. The grid is in this process, so that what Flower needs to carry the messages, the same number for all, is left
out; with `--simulation` Flower's simulation runs the nodes, one simulation for all turns. In every turn FedAvg,
2p-upbred and 2p-upbred without reported values play a run each; a turn's figure is the median of its rounds but the
first, a ratio is that of one turn, and what is printed is the median over the turns. `--cpu` counts the seconds of this
process instead of the clock's.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fedincentive.plugins.flower import IncentiveStrategy, points, strategic
from fedincentive.plugins.flower.records import EVALUATED, INCENTIVE
from fedincentive.plugins.flower.settings import read
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

sys.path[:0] = [
    str(Path(__file__).parents[1] / "tests" / "on_flower"),
    str(Path(__file__).parents[1] / "tests/support"),
]
from conftest import LoopbackGrid  # noqa: E402

KINDS = ("FedAvg", "2p-upbred", "2p-upbred, no values")
VALUES = {"mechanism": "2p-upbred", "beta": "0.5", "gamma": 1000.0, "cost": 0.01, "start": 1.0, "accept-losses": True}
BAR = 1.1
# nodes, inputs, outputs, points of a node, batch size, rounds of a run, turns
SIZES = {"50-small": (50, 784, 10, 60, 10, 6, 7), "10-large": (10, 2573, 2573, 96, 32, 4, 5)}


def app_of(inputs: int, outputs: int, size: int, batch: int) -> ClientApp:
    """A linear layer with a softmax, trained for one epoch."""
    app = ClientApp()
    draw = np.random.default_rng(0)
    x, y = draw.random((size, inputs), dtype=np.float32), draw.integers(0, 10, size)

    def gradient(w: np.ndarray, b: np.ndarray, mine: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        z = x[mine] @ w + b
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        loss = float(-np.log(p[np.arange(len(mine)), y[mine]] + 1e-9).mean())
        p[np.arange(len(mine)), y[mine]] -= 1
        return x[mine].T @ p / len(mine), p.mean(axis=0), loss

    @app.train()
    def train(message: Message, context: Context) -> Message:
        mine = points(message, size)
        w, b = (message.content["arrays"][name].numpy().copy() for name in ("w", "b"))
        for start in range(0, len(mine), batch):
            dw, db, loss = gradient(w, b, mine[start : start + batch])
            w -= 0.01 * dw
            b -= 0.01 * db
        arrays = ArrayRecord({"w": Array(w), "b": Array(b)})
        metrics = MetricRecord({"num-examples": len(mine), "loss": loss})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        w, b = (message.content["arrays"][name].numpy() for name in ("w", "b"))
        z = x @ w + b
        top = z.max(axis=1, keepdims=True)
        loss = float((np.log(np.exp(z - top).sum(axis=1)) + top[:, 0] - z[np.arange(size), y]).mean())
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": size, "loss": loss})}), reply_to=message)

    return app


class Either(ClientApp):
    """An app as it is for FedAvg's messages and wrapped for ours, so that one simulation can time both; its nodes have
    this run config, as run_simulation gives them none."""

    def __init__(self, app: ClientApp, wrapped: ClientApp, config: dict[str, Any]) -> None:
        super().__init__()
        self.app, self.wrapped, self.config = app, wrapped, config

    def __call__(self, message: Message, context: Context) -> Message:
        app = self.wrapped if {INCENTIVE, EVALUATED} & set(message.content) else self.app
        return app(message, Context(context.run_id, context.node_id, context.node_config, context.state, self.config))


def taken_by_turn(size: str, turns: int, folder: Path, clock: Callable[[], float], simulated: bool) -> list[Any]:
    """By turn, the seconds a round takes of each kind."""
    nodes, inputs, outputs, count, batch, *_ = SIZES[size]
    app = app_of(inputs, outputs, count, batch)
    wrapped = strategic(app, size=count, classes=10)
    config = {f"incentive.{key}": value for key, value in VALUES.items()} | {"incentive.agents": nodes}

    def in_process(kind: str) -> Grid:
        grid = LoopbackGrid(config)
        grid.join_all(app if kind == "FedAvg" else wrapped, nodes)
        return grid

    def play(grid_of: Callable[[str], Grid]) -> list[Any]:
        return [
            {kind: seconds_a_round(kind, size, folder, turn, clock, grid_of(kind), config) for kind in KINDS}
            for turn in range(turns)
        ]

    if not simulated:
        return play(in_process)
    from flwr.simulation import run_simulation

    found: list[Any] = []
    server = ServerApp()
    server.main()(lambda grid, context: found.extend(play(lambda kind: grid)))
    run_simulation(server, Either(app, wrapped, config), nodes)
    return found


def seconds_a_round(
    kind: str, size: str, folder: Path, turn: int, clock: Callable[[], float], grid: Grid, config: dict[str, Any]
) -> float:
    """The median round but the first: from one model to the next."""
    nodes, inputs, outputs, *_, rounds, _ = SIZES[size]
    own = {"run": f"{size}-{kind[-2:]}-{turn}", "output": str(folder), "report-values": "no values" not in kind}
    first = {"w": Array(np.zeros((inputs, outputs), np.float32)), "b": Array(np.zeros(outputs, np.float32))}
    ends: list[float] = []

    def evaluate_fn(step: int, arrays: ArrayRecord) -> None:
        ends.append(clock())

    ours = read({**config, **{f"incentive.{key}": value for key, value in own.items()}})
    strategy = FedAvg(min_available_nodes=nodes) if kind == "FedAvg" else IncentiveStrategy(*ours)
    strategy.start(grid, ArrayRecord(first), num_rounds=rounds, evaluate_fn=evaluate_fn)
    shutil.rmtree(folder / own["run"], ignore_errors=True)
    return statistics.median(after - before for before, after in zip(ends[1:], ends[2:], strict=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", metavar="SIZE", help=", ".join(SIZES))
    parser.add_argument("--turns", type=int)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--simulation", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)  # where Ray's workers would import the package, they find the installed one
        for size in options.sizes or SIZES:
            taken = taken_by_turn(size, options.turns or SIZES[size][-1], Path(name), clock, options.simulation)
            seconds = statistics.median(turn["FedAvg"] for turn in taken)
            print(f"{size:<9} FedAvg: {seconds:.4f} s a round, {len(taken)} turns")
            for kind in KINDS[1:]:
                ratios = sorted(turn[kind] / turn["FedAvg"] for turn in taken)
                print(
                    f"{size:<9} {kind}: {statistics.median(ratios):.3f} of it (turns {ratios[0]:.3f} to "
                    f"{ratios[-1]:.3f}; at most {BAR:g} wanted)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
