"""One training on real data for all hosts: each must end with the same contributions, payments and model, to the bit.

Three owners of scikit-learn's digits learn one prototype per class. A step moves the prototype of a point's class a
sixteenth of the way to it: subtraction, multiplication and addition of float64, one after the other, which every
library and processor rounds alike. So the results below hold in every environment, whatever its NumPy or torch.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from fedincentive import draws, engine, ledger, mechanisms
from fedincentive.agent import Agent, LossSite
from fedincentive.center import Center
from fedincentive.hosting import HostSettings, agent_name
from fedincentive.payments import Oracles
from fedincentive.settings import Settings

AGENTS, CLASSES, RUN, ROUNDS, SEED = 3, 10, "run", 3, 7
SIZES = (40, 60, 90)  # points each owner can give; as many again as TESTS are its own test data
TESTS = 25
MECHANISMS = ("2p-upbred", "t-upbred")
INCENTIVE = {"beta": "0.5", "gamma": 40.0, "cost": 0.0005, "start": 0.4, "delta": 5, "unchecked": True}
# mechanism -> (contributions at the end, the ledger's head, sha256 of the model)
EXPECTED: dict[str, tuple[list[float], str, str]] = {
    "2p-upbred": (
        [40.0, 60.0, 90.0],
        "5:df163c79314e6a5ed791ad9ed3225d1459f92d49b0bf3043145297ecfe3b2d1b@e4d27d141ed26cbf",
        "21f47bc99fdbadce53e5b0376f93a9acbf4c3dec920a81a1b88d97a886d82bde",
    ),
    "t-upbred": (
        [16.334657, 24.380503, 36.28878],
        "5:fec19c05fb2ef73e68ac0ab9c18e41768a660919f6213a9a76f7a83f15f3dad6@477b7f0a1c1287db",
        "21cafb2e2de04ecd4cdf7ded2160fe3a01968106bbbab36aae2e33493a6d9d37",
    ),
}
# Degraded models: what has been earned is reached after the first, the second round, and never
LEVEL = {
    "targets": {"agent-1": "10", "agent-2": "20", "agent-3": "30"},
    "bases": {"agent-1": "-0.6", "agent-2": "-0.5", "agent-3": "-0.1"},
    "floors": {"agent-1": "-0.72", "agent-2": "-0.72", "agent-3": "-0.72"},
}
SHAPED = {**INCENTIVE, "mechanism": "accuracy-shaping", "options": {"level": LEVEL}}
SPARSE = {"download": {"length": "40", "altruism": "3"}}  # a step of training moves the prototypes about so far
OWN_MODELS = {"accuracy-shaping": {"level": LEVEL}, "cgsv": SPARSE}  # the options, by mechanism


def data(index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """An owner's (x, y) to train on and (x, y) to value a model by."""
    x, y = load_digits(return_X_y=True)
    first = sum(SIZES[:index]) + index * TESTS
    middle, last = first + SIZES[index], first + SIZES[index] + TESTS
    return x[first:middle], y[first:middle], x[middle:last], y[middle:last]


def first_model() -> dict[str, np.ndarray]:
    return {"prototypes": np.full((CLASSES, 64), 8.0)}


def trained(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The prototypes after these points, in an order that NumPy's global generator draws: a host has seeded it."""
    w = w.copy()
    for i in np.random.permutation(len(y)):
        w[y[i]] = w[y[i]] + 0.0625 * (x[i] - w[y[i]])
    return w


def loss(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Mean squared distance of the test points to their prototypes, over 4096; the sum is exact."""
    return math.fsum(((x - w[y]) ** 2).ravel()) / (4096.0 * len(y))


def worth(w: Any) -> float:
    """What a model is worth at the server: minus its loss on the test data of all owners."""
    tests = [data(index)[2:] for index in range(AGENTS)]
    return -sum(loss(w["prototypes"], x, y) for x, y in tests) / AGENTS


def in_engine(mechanism: str, folder: Path, **changes: Any) -> tuple[list[float], str, str]:
    """The training in the core alone, where no host stands between center and agents."""
    host = HostSettings(start=INCENTIVE["start"])
    own = {key: value for key, value in {**INCENTIVE, **changes}.items() if key != "start"}
    settings = Settings.read({**own, "mechanism": mechanism, "rounds": ROUNDS, "run": RUN, "seed": SEED})
    agents = []
    for index in range(AGENTS):
        name = agent_name(index, AGENTS)
        site = LossSite.of(
            settings, name, SIZES[index], *_work(index, name, settings.seed), classes=CLASSES, w0=first_model
        )
        agents.append(Agent(name, site, s0=host.first(site.s_max)))
    with ledger.open(folder / f"{mechanism}.sqlite") as book:
        enrolled = [agent.enrol() for agent in agents]
        made, known = mechanisms.get(mechanism, settings), Oracles(utility=worth)
        center = Center(settings, made, enrolled, first_model(), book, oracles=known)
        outcome = engine.run(center, agents)
        return list(outcome.s.values()), str(book.head()), outcome.digest


def own_models_in_engine(mechanism: str, folder: Path) -> tuple[list[float], str, str]:
    """The same where each agent has a model of its own."""
    return in_engine(mechanism, folder, options=OWN_MODELS[mechanism])


def shaped_in_engine(folder: Path) -> tuple[list[float], str, str]:
    return own_models_in_engine("accuracy-shaping", folder)


def _work(index: int, name: str, seed: int) -> tuple[Any, Any]:
    x, y, test_x, test_y = data(index)

    def train(w: Any, points: np.ndarray, step: int) -> dict[str, np.ndarray]:
        np.random.seed(draws.local_seed(seed, name, step))
        mine = np.sort(points)
        return {"prototypes": trained(w["prototypes"], x[mine], y[mine]) - w["prototypes"]}

    return train, lambda w: loss(w["prototypes"], test_x, test_y)


def found_in(run: Path) -> tuple[list[float], str, str]:
    """What a host left in the folder of its run."""
    from fedincentive.manifest import SavedRun, find

    saved = SavedRun.read(find(run))
    with ledger.read(run / "ledger.sqlite") as book:
        digest = saved.outcome["digest"]
        return [float(s) for s in saved.last.values()], str(book.head()), digest
