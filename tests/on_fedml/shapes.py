"""FedML programs in the shapes of its own examples, many short runs in one process: shapes.py CASE...

What each case found goes to found.json. The data are random numbers of the examples' shapes. With FedML's own options
(--cf ...) it is an ordinary FedML program over users with a few points each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import fedml
import numpy as np
import torch
from fedml import FedMLRunner
from fedml.core import ClientTrainer
from fedml.ml.trainer import trainer_creator
from fedml.ml.trainer.my_model_trainer_classification import ModelTrainerCLS
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

sys.path[:0] = [str(Path(__file__).parents[1] / "support")]
from fedml_runs import write_config  # noqa: E402

FEATURES, CLASSES = 12, 10
STEERED = {"beta": "0.5", "gamma": 500.0, "cost": 0.1}


def users(n: int, batch_size: int = 10) -> list:
    """As FedML's MNIST: every user has lists of batches, and different numbers of points."""
    draw = torch.Generator().manual_seed(0)
    centers = torch.randn(CLASSES, FEATURES, generator=draw)

    def batches(count: int) -> list:
        y = torch.randint(0, CLASSES, (count,), generator=draw)
        x = centers[y] + 0.5 * torch.randn(count, FEATURES, generator=draw)
        size = batch_size if batch_size > 0 else count
        return [(x[i : i + size], y[i : i + size]) for i in range(0, count, size)]

    counts = {i: 12 + i % 17 for i in range(n)}
    train, test = {i: batches(counts[i]) for i in counts}, {i: batches(6) for i in counts}
    return [sum(counts.values()), 6 * n, train[0], test[0], counts, train, test, CLASSES]


def played(case: str, optimizer: str, dataset: list, model: Any = None, trainer: Any = None, **given: Any) -> Any:
    """One run in the single-process simulator; returns FedML's inner runner."""
    folder = Path(case)
    folder.mkdir(exist_ok=True)
    options = {"clients": len(dataset[4]), "rounds": 2, **given}
    run_id, per_round = options.pop("run_id", case), options.pop("per_round", None)
    if per_round:
        options.setdefault("train_args", {})["client_num_per_round"] = per_round
    cf = write_config(folder, options.pop("backend", "sp"), optimizer, **options)
    sys.argv = ["shapes.py", "--cf", str(cf), *(["--run_id", run_id] if run_id else [])]
    args = fedml.init(check_env=False)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, CLASSES)) if model is None else model
    made = None if trainer is None else trainer(model, args)
    runner = FedMLRunner(args, fedml.device.get_device(args), dataset, model, made)
    runner.run()
    return runner.runner


def mistake(case: str, *given: Any, **options: Any) -> str:
    try:
        played(case, *given, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def no_ledger(case: str) -> bool:
    """Nothing was agreed: no entry of any run."""
    from fedincentive import ledger

    return all(
        not list(ledger.open(path).entries()) for path in Path("fedincentive-runs").glob(f"{case}*/ledger.sqlite")
    )


# The cases


def parrot() -> dict[str, Any]:
    """FedML's first example: 1000 users, ten of them in a round."""
    runner = played("parrot", "2p-upbred", users(1000), per_round=10, incentive=STEERED)
    ended = runner.outcome
    return {"status": ended.status, "agents": len(ended.s), "short": len(ended.short), "trained": ended.trained}


def names() -> dict[str, Any]:
    """Two runs without a --run_id, and one that is resumed when it is over."""
    data, ids = users(3), []
    for _ in range(2):
        ids.append(played("names", "fedavg", data, run_id=None).outcome.run)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, CLASSES))
    ended = played("again", "fedavg", data).outcome
    fresh = torch.nn.Sequential(torch.nn.Linear(FEATURES, CLASSES))
    resumed = played("again", "fedavg", data, fresh, incentive={"resume": True}).outcome
    saved = torch.load("fedincentive-runs/again/model.pt", weights_only=True)
    model.load_state_dict(saved)
    same = all(np.array_equal(ended.w[k], v.numpy()) for k, v in fresh.state_dict().items())
    kept = all(np.array_equal(ended.w[k], v.numpy()) for k, v in model.state_dict().items())
    return {"ids": ids, "same": same and resumed.digest == ended.digest, "file": kept}


def defaults() -> dict[str, Any]:
    """The mechanisms that look at their own data, without a single setting."""
    found = {}
    for mechanism in ("fedavg-strategic", "upbred"):
        ended = played(mechanism, mechanism, users(3), rounds=3).outcome
        found[mechanism] = [ended.status, sum(abs(ended.s[a] - ended.s0[a]) for a in ended.s)]
    return found


class Seeing(ModelTrainerCLS):
    """Notes the loaders it is given."""

    seen: list[Any] = []

    def train(self, train_data, device, args):  # type: ignore[no-untyped-def]
        drop, workers = getattr(train_data, "drop_last", None), getattr(train_data, "num_workers", None)
        self.seen.append([[len(batch[1]) for batch in train_data], drop, workers])
        super().train(train_data, device, args)


class Untested(ClientTrainer):
    """A trainer as FedML's guide writes it, without test()."""

    def get_model_params(self):  # type: ignore[no-untyped-def]
        return self.model.state_dict()

    def set_model_params(self, model_parameters):  # type: ignore[no-untyped-def]
        self.model.load_state_dict(model_parameters)

    def train(self, train_data, device, args):  # type: ignore[no-untyped-def]
        for batch in train_data:
            x = batch["x"] if isinstance(batch, dict) else batch[0]
            self.model[0].bias.data += x.float().mean() * 0 + 1


class Stream(IterableDataset):
    def __iter__(self):  # type: ignore[no-untyped-def]
        yield from ((torch.randn(FEATURES), torch.tensor(i % CLASSES)) for i in range(10**9))


def own_things() -> dict[str, Any]:
    """BatchNorm with drop_last, full batches, no test(), streams, dicts and batches of different lengths."""
    found: dict[str, Any] = {}
    x, y = torch.randn(21, 3, 8, 8), torch.randint(0, CLASSES, (21,))
    loader = DataLoader(TensorDataset(x, y), batch_size=4, drop_last=True)
    cifar = [63, 63, loader, loader, dict.fromkeys(range(3), 21), dict.fromkeys(range(3), loader), None, CLASSES]
    cifar[6] = dict.fromkeys(range(3), loader)
    mobile = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(4, CLASSES),
    )  # fmt: skip
    given = {"batch_size": 64, "learning_rate": 0.05}
    runner = played("cifar", "fedavg", cifar, mobile, Seeing, rounds=1, train_args=given)
    recorded = json.loads(Path("fedincentive-runs/cifar/state/manifest.json").read_text())["settings"]
    found["cifar"] = [Seeing.seen[0], recorded["learning_rate"], int(runner.outcome.w["1.num_batches_tracked"])]
    Seeing.seen.clear()
    played("full", "fedavg", users(2, -1), None, Seeing, rounds=1, train_args={"batch_size": -1})
    found["full batch"] = [sizes for sizes, _, _ in Seeing.seen]
    data = users(2)
    ended = played("untested", "2p-upbred", data, None, Untested, incentive=STEERED).outcome
    found["untested"] = [ended.status, dict(ended.valuations), ended.w["0.bias"].tolist()[0] > 0]
    found["untested, t-upbred"] = [mistake("paid", "t-upbred", data, None, Untested), no_ledger("paid")]
    stream = {i: DataLoader(Stream(), batch_size=5) for i in range(2)}
    streams = [30, 30, None, None, {0: 14, 1: 16}, stream, data[6], CLASSES]
    found["stream"] = dict(played("stream", "2p-upbred", streams, None, Untested, incentive=STEERED).outcome.s_max)
    dicts = {
        i: [{"x": torch.randn(4, FEATURES), "y": torch.zeros(4)}, {"x": torch.randn(3, FEATURES), "y": torch.zeros(3)}]
        for i in range(2)
    }
    ragged = {i: [(torch.randn(4, 5 + k), torch.zeros(4)) for k in range(3)] for i in range(2)}
    for name, train in (("dicts", dicts), ("ragged", ragged)):
        held = [14, 14, None, train[0], {0: 1, 1: 1}, train, None, CLASSES]
        found[name] = dict(played(name, "2p-upbred", held, None, Untested, incentive=STEERED).outcome.s_max)
    return found


def server() -> dict[str, Any]:
    """FedML's names for the server's optimizer."""
    data, found = users(3), {}
    start = torch.nn.Sequential(torch.nn.Linear(FEATURES, CLASSES))
    for rate in (1.0, 0.5):
        torch.manual_seed(3)
        start = torch.nn.Sequential(torch.nn.Linear(FEATURES, CLASSES))
        before = start[0].weight.detach().numpy().copy()
        given = {"server_optimizer": "sgd", "server_lr": rate}
        w = played(f"rate-{rate}", "fedavg", data, start, rounds=1, train_args=given).outcome.w
        found[rate] = w["0.weight"] - before
    half = float(np.abs(found[0.5] - 0.5 * found[1.0]).max())
    return {
        "half": half,
        "yogi": mistake("yogi", "fedavg", data, train_args={"server_optimizer": "yogi"}),
        "momentum": mistake("momentum", "fedavg", data, train_args={"server_momentum": 0.9}),
    }


def refused() -> dict[str, Any]:
    """What cannot work is said at once, and nothing is agreed."""
    data = users(6)
    silo = {"training_type": "cross_silo", "scenario": "horizontal"}

    def choose(**changes: Any) -> str:
        """What FedMLRunner says to arguments that fedml.init would first ask the network about."""
        from types import SimpleNamespace

        values = {"federated_optimizer": "2p-upbred", "role": "server", "rank": 0, **changes}
        try:
            FedMLRunner(SimpleNamespace(**values), None, data, None)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "no error"

    gone, nothing = list(users(3)), list(users(3))
    gone[5], nothing[5] = {0: gone[5][0], 1: gone[5][1]}, {**nothing[5], 2: []}
    twice = {"train_args": {"server_lr": 0.5}, "incentive": {"eta": 1.0}}
    rule = {"enable_defense": True, "defense_type": "coordinate_medain"}
    return {
        "no client": mistake("gone", "fedavg", gone),
        "no data": mistake("nothing", "fedavg", nothing),
        "server_lr": mistake("lr", "fedavg", data, train_args={"server_lr": 0}),
        "twice": mistake("twice", "fedavg", data, **twice),
        "per round": mistake("none", "fedavg", data, train_args={"client_num_per_round": 0}),
        "misspelt rule": mistake("rule", "FedAvg", data, defense_args=rule),
        "few": mistake("few", "trim-2p-upbred", data, per_round=2, incentive={**STEERED, "alpha": 0.34}),
        "nothing agreed": no_ledger("few"),
        "MQTT_S3": choose(**silo, backend="MQTT_S3"),
        "cross_device": choose(training_type="cross_device", backend="MQTT_S3_MNN"),
        "hierarchical": choose(training_type="cross_silo", scenario="hierarchical", backend="GRPC"),
        "NCCL": choose(training_type="simulation", backend="NCCL"),
        "FedOpt": mistake(
            "opt", "FedOpt", data, defense_args={"enable_defense": True, "defense_type": "coordinate_median"},
            train_args={"server_optimizer": "sgd", "server_lr": 1.0},
        ),
    }  # fmt: skip


def flat(model: Any) -> list[float]:
    return [float(value) for tensor in model.values() for value in tensor.flatten()]


class Hostile:
    """FedML's single-process simulators have one trainer for all clients: its id tells whose turn it is."""

    hostile = 0
    kept: list[list[float]] = []

    def train(self, train_data, device, args):  # type: ignore[no-untyped-def]
        super().train(train_data, device, args)
        if self.id == self.hostile:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.fill_(100.0)
        self.kept.append(flat(self.model.state_dict()))


def defended() -> dict[str, Any]:
    """FedML's own FedAvg and FedProx with our rules, the hostile client first or last; the model is made again by
    hand."""
    from fedml.simulation.sp.fedprox import fedprox_trainer

    prox = fedprox_trainer.FedProxModelTrainer
    trainer_creator.ModelTrainerCLS = type("HostileTrainer", (Hostile, ModelTrainerCLS), {})
    fedprox_trainer.FedProxModelTrainer = type("HostileProx", (Hostile, prox), {})
    found = {}
    n, data = 5, users(5)
    rules = {"coordinate_median": {}, "centered_clipping": {"tau": 0.3}, "coordinate_trimmed_mean": {"beta": 0.2}}
    for optimizer in ("FedAvg", "FedProx"):
        for rule, given in rules.items():
            for Hostile.hostile in (0, n - 1):
                Hostile.kept.clear()
                options = {
                    "defense_args": {"enable_defense": True, "defense_type": rule, **given},
                    "train_args": {"fedprox_mu": 0.1},
                }
                start = torch.nn.Sequential(torch.nn.Linear(FEATURES, CLASSES))
                before = flat(start.state_dict())
                case = f"{optimizer} {rule} {Hostile.hostile}"
                runner = played(case.replace(" ", "-"), optimizer, data, start, rounds=2, **options)
                model = flat(runner.fl_trainer.model_trainer.model.state_dict())
                found[case] = {"start": before, "sent": list(Hostile.kept), "model": model}
    trainer_creator.ModelTrainerCLS, fedprox_trainer.FedProxModelTrainer = ModelTrainerCLS, prox
    return found


CASES = {case.__name__: case for case in (parrot, names, defaults, own_things, server, refused, defended)}

if __name__ == "__main__":
    found = {}
    if sys.argv[1] == "--cf":  # an ordinary FedML program
        args = fedml.init(check_env=False)
        torch.manual_seed(0)
        torch.set_num_threads(1)
        model = torch.nn.Sequential(torch.nn.Linear(FEATURES, CLASSES))
        FedMLRunner(args, fedml.device.get_device(args), users(args.client_num_in_total), model).run()
        sys.exit()
    for name in sys.argv[1:]:
        found[name] = CASES[name]()
        Path("found.json").write_text(json.dumps(found, default=float))
