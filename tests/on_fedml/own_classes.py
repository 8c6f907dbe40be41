"""A FedML program with the user's own trainer and aggregator; writes what was called, and how mistakes end, to JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import fedml
import torch
import yaml
from fedincentive.plugins.fedml import IncentiveClientTrainer, IncentiveServerAggregator
from fedml import FedMLRunner
from fedml.ml.aggregator.default_aggregator import DefaultServerAggregator
from fedml.ml.trainer.my_model_trainer_classification import ModelTrainerCLS
from main import digits

from fedincentive.agent import Fixed

CALLS: list[str] = []


def noted(*names: str) -> Any:
    """A class decorator that notes the calls of these methods."""

    def decorate(cls: type) -> type:
        for name in names:

            def method(self, *args, _name=name, **kwargs):  # type: ignore[no-untyped-def]
                CALLS.append(_name)
                return getattr(super(cls, self), _name)(*args, **kwargs)

            setattr(cls, name, method)
        return cls

    return decorate


@noted("update_dataset", "set_model_params", "on_before_local_training", "train", "on_after_local_training", "test")
class OwnTrainer(ModelTrainerCLS):
    pass


@noted("on_before_aggregation", "test_all", "test")
class OwnAggregator(DefaultServerAggregator):
    def on_after_aggregation(self, model):  # type: ignore[no-untyped-def]
        CALLS.append("on_after_aggregation")
        model = super().on_after_aggregation(model)
        model["0.bias"] = torch.full_like(model["0.bias"], 0.25)
        return model

    def set_model_params(self, model_parameters):  # type: ignore[no-untyped-def]
        CALLS.append("adopt")
        super().set_model_params(model_parameters)


class Dropping(DefaultServerAggregator):
    """Throws out the last client's update before the aggregation."""

    def on_before_aggregation(self, models):  # type: ignore[no-untyped-def]
        models, indexes = super().on_before_aggregation(models)
        return models[:-1], indexes[:-1]


class Aggregating(DefaultServerAggregator):
    def aggregate(self, models):  # type: ignore[no-untyped-def]
        return models[0][1]


def run(case: str, trainer: Any = None, aggregator: Any = None, **changes: Any) -> Any:
    """One run of the configuration with these changes of its sections; returns the runner."""
    CALLS.clear()
    values = yaml.safe_load(Path(CONFIGURATION).read_text())
    for section, new in changes.items():
        values.setdefault(section, {}).update(new)
    Path(f"{case}.yaml").write_text(yaml.safe_dump(values))
    sys.argv = ["own_classes.py", "--cf", f"{case}.yaml", "--run_id", case]
    args = fedml.init()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 10))
    dataset = digits(args.client_num_in_total, args.batch_size)
    made = [make(model, args) if make is not None else None for make in (trainer, aggregator)]
    runner = FedMLRunner(args, fedml.device.get_device(args), dataset, model, *made)
    runner.run()
    return runner.runner


def mistake(case: str, **options: Any) -> str:
    try:
        run(case, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def incentive(**settings: Any) -> dict[str, Any]:
    return {"incentive_args": {"incentive": {"beta": "0.5", "gamma": 500.0, "cost": 0.1, **settings}}}


if __name__ == "__main__":
    CONFIGURATION = sys.argv[1]
    found: dict[str, Any] = {}
    runner = run("own", OwnTrainer, OwnAggregator)
    found["calls"] = CALLS.copy()
    found["bias"] = runner.outcome.w["0.bias"].tolist()
    calm = run("stock")
    found["stock"] = [calm.outcome.digest, calm.outcome.payments]
    dropped = run("dropping", aggregator=Dropping)
    found["dropping"] = [dropped.outcome.digest, dropped.outcome.payments]

    def lazy(model: Any, args: Any) -> IncentiveClientTrainer:
        return IncentiveClientTrainer(model, args, strategy={"agent-2": Fixed(7.0)}, cost={"agent-1": 0.05})

    def paying(model: Any, args: Any) -> IncentiveServerAggregator:
        return IncentiveServerAggregator(model, args, mechanism="2p-upbred", ledger="own.sqlite")

    plain = {
        "train_args": {"federated_optimizer": "FedAvg"},
        **incentive(round_limit=5, when_short="train", accept_losses=True),
    }
    classes = run("classes", lazy, paying, **plain)
    found["classes"] = [classes.outcome.mechanism, classes.outcome.s, Path("own.sqlite").exists()]
    found["mistakes"] = {
        "aggregate": mistake("a", aggregator=Aggregating),
        "unknown": mistake("b", **incentive(gama=3)),
        "host": mistake("c", **incentive(round_timout=3)),
        "fedml's": mistake("d", **incentive(rounds=3)),
        "flat": mistake("e", incentive_args={"beta": "2"}),
        "money": mistake("f", **incentive(beta=0.1)),
        "names": mistake("g", **incentive(agents=["one"])),
        "defense": mistake("h", defense_args={"enable_defense": True, "defense_type": "coordinate_median"}),
        "optimizer": mistake("i", train_args={"federated_optimizer": "2p-upbread"}),
        "again": mistake("own"),
        "folder": mistake("../up"),
    }
    Path("found.json").write_text(json.dumps(found))
