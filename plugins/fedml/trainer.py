"""The agent's side in FedML: the user's ClientTrainer trains and tests, on as many points as the agent contributes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from fedml.core import ClientTrainer
from fedml.ml.trainer.my_model_trainer_classification import ModelTrainerCLS

from ... import draws
from ...adversary import Misreport
from ...agent import LossSite, Site, Strategy
from ...errors import SettingError
from ...messages import Update
from ...settings import Settings
from .arrays import difference, set_model, to_arrays
from .contribution import mean_loss
from .data import LocalData


class IncentiveClientTrainer(ModelTrainerCLS):
    """A ClientTrainer that also says what its agent wants and what it costs it.

    Pass one to `FedMLRunner(args, device, dataset, model, client_trainer=...)`, or subclass it. `strategy` is a
    strategy or its name, `cost` the cost per point, `lies` a misreport or its name, to see what follows from it; in a
    single process, where one trainer serves all agents, each may be a mapping from agent to its own. What is not given
    is read from the YAML.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        args: Any,
        *,
        strategy: Strategy | str | Mapping[str, Strategy | str] | None = None,
        cost: float | Mapping[str, float] | None = None,
        lies: Misreport | str | Mapping[str, Misreport | str] | None = None,
    ) -> None:
        super().__init__(model, args)
        self.strategy, self.cost, self.lies = strategy, cost, lies

    def strategy_of(self, agent: str) -> Strategy | str | None:
        return self.strategy.get(agent) if isinstance(self.strategy, Mapping) else self.strategy

    def cost_of(self, agent: str) -> float | None:
        return self.cost.get(agent) if isinstance(self.cost, Mapping) else self.cost

    def lies_of(self, agent: str) -> Misreport | str | None:
        return self.lies.get(agent) if isinstance(self.lies, Mapping) else self.lies

    def site(self, agent: str, data: LocalData, settings: Settings, device: Any, classes: int) -> Site:
        """Where the agent's data and training are; override it to value a model in another way."""
        return trainer_site(self, agent, data, settings, device, self.args, classes)


def trainer_site(
    trainer: ClientTrainer, agent: str, data: LocalData, settings: Settings, device: Any, args: Any, classes: int
) -> LossSite:
    """A site whose training and loss are the trainer's own."""
    work = _Work(trainer, agent, data, settings, device, args)
    own = trainer.cost_of(agent) if isinstance(trainer, IncentiveClientTrainer) else None
    return LossSite.of(
        settings,
        agent,
        len(data),
        work.train,
        work.loss,
        classes=classes,
        cost=own,
        w0=work.first_model,
        records=data.records,
    )


def has_test(trainer: ClientTrainer) -> bool:
    """FedML's ClientTrainer.test does nothing: a trainer that keeps it cannot say what a model is worth."""
    return type(trainer).test is not ClientTrainer.test


@cache
def has_cuda() -> bool:
    """Asked once: torch asks the driver anew each time, which small clients notice."""
    return torch.cuda.is_available()


class _Work:
    """Calls the user's trainer as FedML does: data, model, the hooks around training, then the model again."""

    def __init__(
        self, trainer: ClientTrainer, agent: str, data: LocalData, settings: Settings, device: Any, args: Any
    ) -> None:
        self.trainer, self.agent, self.data = trainer, agent, data
        self.settings, self.device, self.args = settings, device, args

    def first_model(self) -> Update:
        return to_arrays(self.trainer.get_model_params())

    def train(self, w: Update, points: np.ndarray, step: int) -> Update:
        seed = draws.local_seed(self.settings.seed, self.agent, step)
        if self.settings.audited:
            torch.set_num_threads(self.settings.threads)  # with others an update is not the same, bit for bit
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        if has_cuda():
            torch.cuda.manual_seed_all(seed)
        loader = self.data.loader(points, seed)
        trainer, args = self.trainer, self.args
        args.round_idx = step
        trainer.set_id(self.data.client)
        trainer.update_dataset(loader, self.data.test, len(points))
        set_model(trainer, w)
        trainer.on_before_local_training(loader, self.device, args)
        trainer.train(loader, self.device, args)
        trainer.on_after_local_training(loader, self.device, args)
        return difference(trainer.get_model_params(), w)

    def loss(self, w: Update) -> float:
        """The mean loss on the agent's test data, from the trainer's own `test`."""
        set_model(self.trainer, w)
        found = self.trainer.test(self.data.test, self.device, self.args)
        if (loss := mean_loss(found)) is not None:
            return loss
        raise SettingError(
            f"{type(self.trainer).__name__}.test() of agent {self.agent!r} returns {found!r}: return the sums "
            "test_loss and test_total as FedML's trainers do, or set incentive.report_values: false."
        )
