"""How long a whole round of FedML's single-process simulator takes under our center, as a multiple of its own FedAvg.

    .venv/fedml/bin/python benchmarks/fedml_rounds.py [femnist-10] [mnist-100] [mnist-1000] [--turns N] [--cpu]

The FEMNIST net (6.6 M parameters, 10 clients), and the logistic regression of FedML's MNIST example with 100 and 1000
small clients; no valuations. In every turn FedML's FedAvg, our mean and our trimmed mean each play a run of a few
rounds, in one process; a turn's figure is the median of its rounds but the first, a ratio is that of one turn, and what
is printed is the median over the turns. `--cpu` counts the processor's seconds instead of the clock's: for a machine
that is not quiet.
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import fedml
import torch
import yaml

KINDS = {
    "FedML's FedAvg": ("FedAvg", {}),
    "ours, mean": ("fedavg", {}),
    "ours, trimmed mean": ("fedavg", {"aggregation": "trimmed-mean", "alpha": 0.1}),
}


def femnist(clients: int) -> list[Any]:
    """Random images of FEMNIST's shape: only the time counts."""
    from torch.utils.data import DataLoader, TensorDataset

    draw, points = torch.Generator().manual_seed(0), 32

    def loader() -> DataLoader:
        x = torch.rand(points, 1, 28, 28, generator=draw)
        return DataLoader(TensorDataset(x, torch.randint(0, 62, (points,), generator=draw)), batch_size=32)

    return parts({i: loader() for i in range(clients)}, points, 62)


def mnist(clients: int) -> list[Any]:
    """As FedML loads MNIST for its logistic regression: lists of batches of ten, about 60 points for each user."""
    draw = torch.Generator().manual_seed(0)

    def batches() -> list[Any]:
        return [(torch.rand(10, 784, generator=draw), torch.randint(0, 10, (10,), generator=draw)) for _ in range(6)]

    return parts({i: batches() for i in range(clients)}, 60, 10)


def parts(train: dict[int, Any], points: int, classes: int) -> list[Any]:
    n = len(train)
    return [n * points, n * points, train[0], train[0], dict.fromkeys(train, points), train, train, classes]


@cache
def arguments(folder: Path, clients: int) -> Any:
    """What FedML makes of a YAML; once, as it looks for a network each time."""
    values = {
        "common_args": {"training_type": "simulation", "random_seed": 0},
        "data_args": {"dataset": "random"},
        "model_args": {"model": "cnn"},
        "train_args": {
            "federated_optimizer": "FedAvg",
            "client_num_in_total": clients,
            "client_num_per_round": clients,
            "comm_round": 1,
            "epochs": 1,
            "batch_size": 32,
            "client_optimizer": "sgd",
            "learning_rate": 0.01,
        },
        "validation_args": {"frequency_of_the_test": 1000},
        "device_args": {"using_gpu": False},
        "comm_args": {"backend": "sp"},
        "tracking_args": {"enable_wandb": False},
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(values))
    sys.argv = ["benchmark", "--cf", str(file), "--run_id", "benchmark"]
    args = fedml.init(check_env=False)
    logging.root.setLevel(logging.WARNING)
    return args


def seconds_a_round(
    kind: str, folder: Path, data: list[Any], model: Any, turn: int, rounds: int, clock: Callable[[], float]
) -> float:
    """The median round but the first: local training of all clients, aggregation, the next model."""
    from fedml import FedMLRunner
    from fedml.simulation.sp.fedavg.fedavg_api import FedAvgAPI

    optimizer, incentive = KINDS[kind]
    args = copy.deepcopy(arguments(folder, len(data[4])))
    args.federated_optimizer, args.comm_round, args.run_id = (
        optimizer,
        rounds + 1,
        f"{turn}-{optimizer}-{len(incentive)}",
    )
    args.incentive = {**incentive, "report_values": False, "start": 1.0, "output": str(folder)}
    runner = FedMLRunner(args, fedml.device.get_device(args), data, model())
    ends: list[float] = []
    if optimizer == "FedAvg":
        adopt = runner.runner.fl_trainer.model_trainer.set_model_params
        aggregate = runner.runner.fl_trainer._aggregate

        def aggregated(w_locals: Any) -> Any:
            model = aggregate(w_locals)
            adopt(model)
            ends.append(clock())
            return model

        runner.runner.fl_trainer._aggregate = aggregated
        runner.runner.fl_trainer._local_test_on_all_clients = lambda _: None
        assert isinstance(runner.runner.fl_trainer, FedAvgAPI)
    else:
        runner.runner.watchers.append(lambda result: ends.append(clock()))
        runner.runner.host.aggregator.test = lambda *_: None
    runner.run()
    shutil.rmtree(folder / args.run_id, ignore_errors=True)
    return statistics.median(after - before for before, after in zip(ends, ends[1:], strict=False))


def regression() -> Any:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))


def femnist_net() -> Any:
    from fedincentive.experiments.models import FemnistNet

    return FemnistNet()


# data, model, clients, rounds of a run, turns, the most that our mean and our trimmed mean may take
SIZES: dict[str, Any] = {
    "femnist-10": (femnist, femnist_net, 10, 5, 7, 1.0, 1.05),
    "mnist-100": (mnist, regression, 100, 7, 7, 1.2, 1.2),
    "mnist-1000": (mnist, regression, 1000, 3, 5, 1.2, 1.2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", metavar="SIZE", help=", ".join(SIZES))
    parser.add_argument("--turns", type=int)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    out = open(os.dup(1), "w")  # FedML makes log lines of what is written to sys.stdout  # noqa: SIM115
    with tempfile.TemporaryDirectory() as name:
        os.environ["HOME"] = name
        os.chdir(name)
        for size in options.sizes or SIZES:
            make, model, clients, rounds, turns, *most = SIZES[size]
            data, taken = make(clients), []
            for turn in range(options.turns or turns):
                given = data, model, turn, rounds, clock
                taken.append({kind: seconds_a_round(kind, Path(name), *given) for kind in KINDS})
            stock, *ours = KINDS
            seconds = statistics.median(turn[stock] for turn in taken)
            print(f"{size:<11} {stock}: {seconds:.4f} s a round, {len(taken)} turns", file=out, flush=True)
            for kind, bar in zip(ours, most, strict=True):
                ratios = sorted(turn[kind] / turn[stock] for turn in taken)
                print(
                    f"{size:<11} {kind}: {statistics.median(ratios):.3f} of it (turns {ratios[0]:.3f} to "
                    f"{ratios[-1]:.3f}; at most {bar:g} wanted)",
                    file=out,
                    flush=True,
                )


if __name__ == "__main__":
    main()
