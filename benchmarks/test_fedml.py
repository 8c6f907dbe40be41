"""A whole round of FedML's single-process simulator on the FEMNIST net (6.6 M parameters, 10 clients), in one run.

Its own FedAvg, and our center with the mean and with a trimmed mean, take turns; each counts with its fastest round, so
that a busy machine disturbs all alike. Run in the FedML environment:

    pytest benchmarks/test_fedml.py --benchmark-only -s
"""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch")
fedml = pytest.importorskip("fedml")

CLIENTS, POINTS, ROUNDS, TURNS = 10, 32, 6, 3
KINDS = {
    "FedML's FedAvg": ("FedAvg", {}),
    "ours, mean": ("fedavg", {}),
    "ours, trimmed mean": ("fedavg", {"aggregation": "trimmed-mean", "alpha": 0.1}),
}


def dataset() -> list[Any]:
    """Random images of FEMNIST's shape: only the time counts."""
    from torch.utils.data import DataLoader, TensorDataset

    draw = torch.Generator().manual_seed(0)

    def loader() -> DataLoader:
        x = torch.rand(POINTS, 1, 28, 28, generator=draw)
        return DataLoader(TensorDataset(x, torch.randint(0, 62, (POINTS,), generator=draw)), batch_size=32)

    train, test = {i: loader() for i in range(CLIENTS)}, {i: loader() for i in range(CLIENTS)}
    counts = dict.fromkeys(range(CLIENTS), POINTS)
    return [CLIENTS * POINTS, CLIENTS * POINTS, train[0], test[0], counts, train, test, 62]


def rounds(kind: str, folder: Path, data: list[Any], turn: int) -> Iterator[float]:
    """Seconds of each round but the first: local training of ten clients, aggregation, the next model."""
    from fedml import FedMLRunner
    from fedml.simulation.sp.fedavg.fedavg_api import FedAvgAPI

    from fedincentive.experiments.models import FemnistNet

    optimizer, incentive = KINDS[kind]
    values = {
        "common_args": {"training_type": "simulation", "random_seed": 0},
        "data_args": {"dataset": "random"},
        "model_args": {"model": "cnn"},
        "train_args": {
            "federated_optimizer": optimizer,
            "client_num_in_total": CLIENTS,
            "client_num_per_round": CLIENTS,
            "comm_round": ROUNDS + 1,
            "epochs": 1,
            "batch_size": 32,
            "client_optimizer": "sgd",
            "learning_rate": 0.01,
        },
        "validation_args": {"frequency_of_the_test": 1000},
        "device_args": {"using_gpu": False},
        "comm_args": {"backend": "sp"},
        "tracking_args": {"enable_wandb": False},
        "incentive_args": {"incentive": {**incentive, "report_values": False, "start": 1.0, "output": str(folder)}},
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(values))
    sys.argv = ["benchmark", "--cf", str(file), "--run_id", f"{turn}-{optimizer}-{len(incentive)}"]
    args = fedml.init()
    logging.root.setLevel(logging.WARNING)
    runner = FedMLRunner(args, fedml.device.get_device(args), data, FemnistNet())
    ends: list[float] = []
    if optimizer == "FedAvg":
        adopt = runner.runner.fl_trainer.model_trainer.set_model_params
        aggregate = runner.runner.fl_trainer._aggregate

        def aggregated(w_locals: Any) -> Any:
            model = aggregate(w_locals)
            adopt(model)
            ends.append(time.perf_counter())
            return model

        runner.runner.fl_trainer._aggregate = aggregated
        runner.runner.fl_trainer._local_test_on_all_clients = lambda _: None
        assert isinstance(runner.runner.fl_trainer, FedAvgAPI)
    else:
        runner.runner.watchers.append(lambda result: ends.append(time.perf_counter()))
        runner.runner.host.aggregator.test = lambda *_: None
    runner.run()
    shutil.rmtree(folder / args.run_id, ignore_errors=True)
    yield from (after - before for before, after in zip(ends, ends[1:], strict=False))


def measure(folder: Path) -> dict[str, float]:
    data = dataset()
    best: dict[str, float] = {}
    for turn in range(TURNS):
        for kind in KINDS:
            best[kind] = min([best.get(kind, float("inf")), *rounds(kind, folder, data, turn)])
    return best


def test_a_round_is_no_slower_than_fedmls_own(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    best = benchmark.pedantic(measure, args=(tmp_path,), rounds=1)
    stock = best["FedML's FedAvg"]
    for kind, seconds in best.items():
        benchmark.extra_info[kind] = seconds
        sys.stderr.write(f"{kind:<20} {seconds:7.3f} s a round, {seconds / stock:.3f} of FedML's\n")
    assert best["ours, mean"] <= 1.0 * stock
    assert best["ours, trimmed mean"] <= 1.1 * best["ours, mean"]
