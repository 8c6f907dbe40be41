"""`fedincentive new`: a first game, mechanism, payment, FedML or Flower project, which runs as it is."""

from __future__ import annotations

from pathlib import Path

import click

GAME = """\
# Three owners share records. Each values the accuracy that all records buy; another's record is worth 0.8 of one's
# own. At this price everybody gives everything, everybody is better off than alone, and all together are better off
# than without payments: `fedincentive quote game.yaml` says so.
game:
  kind: data-value
  curve: power-law
  w0: [0.0]
  each: {a: 10.0, b: 200.0, power: 0.5, prior: 400.0, spill: 0.8, cost: 0.0003}
  agents:
    - {name: large, s_max: 6000, s0: 2000}
    - {name: middle, s_max: 5000, s0: 2000}
    - {name: small, s_max: 4000, s0: 1000}
incentive:
  mechanism: 2p-upbred
  beta: "0.0004"        # price of one record; quoted, because money is exact
  rounds: 20
"""

PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "{package}"
version = "0.1"
dependencies = ["fedincentive"]

[project.entry-points."fedincentive.{group}"]
{name} = "{module}:{kind}"

[tool.setuptools]
py-modules = ["{module}"]
"""

MECHANISM = '''\
"""Everyone gives half of what it has, then the model is trained. `python my_mechanism.py` plays it.

After `pip install .` it is `mechanism: my-mechanism` in every host and in game files.
"""

from fedincentive import Center, Settings, engine
from fedincentive.agent import Agent, ClosedFormSite
from fedincentive.game import load
from fedincentive.mechanisms import Mechanism, Promises


class MyMechanism(Mechanism):
    name = "my-mechanism"
    pays = ("contribution",)  # payments or their names; incentive.payment may say otherwise

    def start(self, run):
        run.s = {agent: points // 2 for agent, points in run.s_max.items()}
        return "train"  # or "contribute", and then `after_contribute(run)` says when training begins

    def claims(self):
        return Promises(disclaimed={"equilibrium": "nobody is asked what it wants to give"})


if __name__ == "__main__":
    file = load("game.yaml")
    settings = Settings.read({**file.incentive, "mechanism": MyMechanism.name})
    sites = ClosedFormSite.of(file.game)
    agents = [Agent(site.name, site, s0=float(s0)) for site, s0 in zip(sites, file.game.s0, strict=True)]
    enrolled = [agent.enrol() for agent in agents]
    center = Center(settings, MyMechanism(settings), enrolled, {"w": file.game.w0})
    engine.run(center, agents)
    print(center.conclude(file.game).certificate)
'''

PAYMENT = '''\
"""A payment of beta for every point above the others' mean, made once at the end. `python my_payment.py` shows it.

After `pip install .` it is `payment: my-payment` in every host and in game files.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fedincentive.payments import Payment, Promises, relative


@dataclass(frozen=True)
class MyPayment(Payment):
    beta: Fraction  # fields are filled from the settings of the same name
    rounds: int
    scale: int

    name, kinds, rules, concave = "my-payment", ("my-payment",), ("my-payment/1",), True

    def due(self, run, event):
        """The entry of the round that was closed, or None."""
        if event.phase != "train" or run.trained < self.rounds:
            return None
        terms = {"beta": str(self.beta), "rounds": self.rounds, "scale": self.scale}
        return self.entry(run, {**terms, "delivered": run.delivered_total})

    @classmethod
    def amounts(cls, body, memory, minor):
        """Minor units from the entry's own inputs: whoever verifies the ledger calls this again."""
        given = body["inputs"]
        per_point = Fraction(given["beta"]) * minor / (given["rounds"] * given["scale"])
        whole = per_point.denominator
        scores = {agent: int(per_point * whole) * points for agent, points in given["delivered"].items()}
        return relative(scores, whole, body["round"])

    @classmethod
    def explain(cls, entry, account, minor):
        return f"beta for each of its {entry.inputs['delivered'][account]} delivered steps, less the others' mean"

    def floats(self, agents, s, t=None):
        return float(self.beta) * ((s if t is None else t) - (np.sum(s) - s) / (len(s) - 1))

    def slopes(self, agents, s):
        return np.full(len(s), float(self.beta))

    def limits(self, agents, s_max):
        return -self.floats(agents, s_max, np.zeros(len(s_max)))

    def promises(self, oracles):
        return Promises(("budget-balanced",))


if __name__ == "__main__":
    payment = MyPayment(Fraction("0.5"), rounds=10, scale=10**6)
    s = np.array([100.0, 60.0, 20.0])
    print("100, 60 and 20 points are paid", payment.floats(("a", "b", "c"), s))
'''

FEDML = """\
# python main.py --cf fedml.yaml --run_id first
common_args: {training_type: simulation, random_seed: 0}
data_args: {dataset: digits}
model_args: {model: lr}
train_args:
  federated_optimizer: 2p-upbred
  client_num_in_total: 4
  client_num_per_round: 4
  comm_round: 5
  epochs: 1
  batch_size: 32
  client_optimizer: sgd
  learning_rate: 0.5
validation_args: {frequency_of_the_test: 1}
device_args: {using_gpu: false}
comm_args: {backend: sp}
tracking_args: {enable_wandb: false}
incentive_args:
  incentive:              # `fedincentive settings` lists them all
    beta: "0.15"          # price of one data point; quoted, because money is exact
    cost: 0.05            # what a point costs its owner over the whole run
    value_per_nat: 100.0  # what a nat less of loss is worth to an owner
"""

MAIN = '''\
"""An ordinary FedML program on scikit-learn's digits, for your own data and model; fedml.yaml says what is played."""

import fedml
import numpy as np
import torch
from fedml import FedMLRunner
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def dataset(clients, batch_size):
    """FedML's eight parts: counts, all data, and each client's own; client i has a share proportional to i + 2."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    x = torch.tensor(data.data[order] / 16, dtype=torch.float32)
    y = torch.tensor(data.target[order], dtype=torch.int64)
    test, share = len(y) // 5, np.arange(2, clients + 2)
    cuts = test + (np.cumsum([0, *share]) / share.sum() * (len(y) - test)).astype(int)

    def loader(start, stop):
        return DataLoader(TensorDataset(x[start:stop], y[start:stop]), batch_size=batch_size)

    own = {i: loader(cuts[i], cuts[i + 1]) for i in range(clients)}
    held_out = {i: loader(0, test) for i in range(clients)}
    counts = {i: len(part.dataset) for i, part in own.items()}
    return [len(y) - test, test, loader(test, len(y)), loader(0, test), counts, own, held_out, 10]


if __name__ == "__main__":
    args = fedml.init()
    torch.manual_seed(args.random_seed)
    data = dataset(args.client_num_in_total, args.batch_size)
    FedMLRunner(args, fedml.device.get_device(args), data, torch.nn.Sequential(torch.nn.Linear(64, 10))).run()
'''

FLOWER = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "strategic-app"
version = "0.1.0"
dependencies = ["fedincentive[flower]", "scikit-learn"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

# FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 flwr run . local --stream --federation-config 'num-supernodes=4'
# (the variable lets Flower use the packages of this environment instead of looking for them on an index)
# A SuperLink that an earlier `flwr run` started without it keeps looking: `kill` it by its process id first.
[tool.flwr.app.config.incentive]
mechanism = "2p-upbred"
rounds = 3
agents = 4
beta = "0.15"
cost = 0.05
value-per-nat = 100.0
classes = 10
run = ""
"""

SERVER = '''\
"""The mechanism comes from [tool.flwr.app.config.incentive]."""

import numpy as np
from fedincentive.plugins.flower import IncentiveStrategy
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    first = ArrayRecord({"weight": Array(np.zeros((64, 10))), "bias": Array(np.zeros(10))})
    IncentiveStrategy.from_context(context).start(grid, first)
'''

CLIENT = '''\
"""An ordinary ClientApp with softmax regression on digits; the last line makes it a strategic agent."""

import numpy as np
from fedincentive.plugins.flower import points, strategic
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits

ordinary = ClientApp()


def data(context):
    """This node's points, and the held-out ones; node i has a share proportional to i + 2."""
    i, n = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x, y = digits.data[order] / 16, digits.target[order]
    test, share = len(y) // 5, np.arange(2, n + 2)
    cuts = test + (np.cumsum([0, *share]) / share.sum() * (len(y) - test)).astype(int)
    return x[cuts[i] : cuts[i + 1]], y[cuts[i] : cuts[i + 1]], x[:test], y[:test]


def chances(w, x):
    z = x @ w["weight"] + w["bias"]
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def model(message):
    return {name: array.numpy() for name, array in message.content["arrays"].items()}


@ordinary.train()
def train(message, context):
    x, y, _, _ = data(context)
    mine, w = points(message, len(y)), model(message)  # the points that the agent gives
    for batch in np.array_split(mine, max(1, len(mine) // 32)) if len(mine) else ():
        wrong = (chances(w, x[batch]) - np.eye(10)[y[batch]]) / len(batch)
        w = {"weight": w["weight"] - 0.5 * x[batch].T @ wrong, "bias": w["bias"] - 0.5 * wrong.sum(axis=0)}
    arrays = ArrayRecord({name: Array(array) for name, array in w.items()})
    metrics = MetricRecord({"num-examples": len(mine)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@ordinary.evaluate()
def evaluate(message, context):
    _, _, x, y = data(context)
    p = chances(model(message), x)
    loss = float(-np.log(np.maximum(p[np.arange(len(y)), y], 1e-12)).mean())
    metrics = MetricRecord({"loss": loss, "accuracy": float((p.argmax(1) == y).mean()), "num-examples": len(y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


app = strategic(ordinary, size=lambda context: len(data(context)[1]), classes=10)
'''


def _package(group: str, module: str, kind: str) -> str:
    name = module.replace("_", "-")
    return PROJECT.format(package=name, group=group, name=name, module=module, kind=kind)


# what -> (its files, the first command to try)
KINDS: dict[str, tuple[dict[str, str], str]] = {
    "game": ({"game.yaml": GAME}, "fedincentive quote game.yaml && fedincentive play game.yaml"),
    "mechanism": (
        {
            "game.yaml": GAME,
            "my_mechanism.py": MECHANISM,
            "pyproject.toml": _package("mechanisms", "my_mechanism", "MyMechanism"),
        },
        "python my_mechanism.py",
    ),
    "payment": (
        {
            "game.yaml": GAME,
            "my_payment.py": PAYMENT,
            "pyproject.toml": _package("payments", "my_payment", "MyPayment"),
        },
        "python my_payment.py",
    ),
    "fedml": ({"fedml.yaml": FEDML, "main.py": MAIN}, "python main.py --cf fedml.yaml --run_id first"),
    "flower": (
        {"pyproject.toml": FLOWER, "server_app.py": SERVER, "client_app.py": CLIENT},
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 flwr run . local --stream --federation-config "
        "'num-supernodes=4'",
    ),
}


@click.command()
@click.argument("what", type=click.Choice(list(KINDS)))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path("."), required=False)
def new(what: str, folder: Path) -> None:
    """Write the files of a first WHAT into FOLDER (here when not given); they run as they are.

    No file that exists is changed.
    """
    files, command = KINDS[what]
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise click.UsageError(f"{folder / there[0]} exists already: name another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
        click.echo(folder / name)
    where = "" if folder == Path(".") else f"cd {folder} && "
    click.echo(f"Try it: {where}{command}")
