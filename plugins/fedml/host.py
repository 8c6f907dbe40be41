"""What the two sides of a run build from FedML's objects: the center with its ledger, the agents with their sites."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from fedml.core import ClientTrainer, ServerAggregator
from fedml.ml.aggregator.aggregator_creator import create_server_aggregator
from fedml.ml.trainer.trainer_creator import create_model_trainer

from ...agent import Agent, ClosedFormSite, Site, worth_alone
from ...audit import Auditor
from ...center import Center
from ...errors import SettingError
from ...game import Game
from ...game import read as read_game
from ...hosting import Session
from ...messages import Enrol
from .. import network_json
from . import aggregator as server_side
from .arrays import arrays, buffers
from .data import local_data
from .settings import agent_names, read
from .trainer import IncentiveClientTrainer, trainer_site

log = logging.getLogger("fedincentive")


class Host:
    """FedML's arguments, data and model, and the user's trainer and aggregator or FedML's own."""

    def __init__(
        self,
        args: Any,
        device: Any,
        dataset: Any,
        model: Any,
        client_trainer: ClientTrainer | None = None,
        server_aggregator: ServerAggregator | None = None,
    ) -> None:
        self.args, self.device, self.model = args, device, model
        given = getattr(server_aggregator, "mechanism", None)
        if given is not None:
            args.federated_optimizer = given if isinstance(given, str) else given.name
        self.settings, self.host = read(args)
        self.n = int(args.client_num_in_total)
        self.names = agent_names(self.host, self.n)
        (_, _, _, self.test_global, _, self.train_local, self.test_local, self.classes) = dataset
        self._given = client_trainer, server_aggregator
        self.session = Session(
            self.settings,
            self.host,
            log,
            mechanism=given if isinstance(given, type) else None,
            ledger=getattr(server_aggregator, "ledger", None),
            game=self.game,
        )

    @cached_property
    def game(self) -> Game | None:
        """The closed-form game that is played instead of training, its agents renamed to the run's."""
        if self.host.game is None:
            return None
        game = read_game(Path(self.host.game))
        if len(game.agents) != self.n:
            raise SettingError(f"incentive.game: {self.host.game} has {len(game.agents)} agents for {self.n} clients.")
        return game if self.host.agents is None else dataclasses.replace(game, agents=self.names)

    @cached_property
    def agents(self) -> tuple[str, ...]:
        return self.names if self.game is None else self.game.agents

    @property
    def auditors(self) -> tuple[str, ...]:
        """Who audits; their processes come after those of the agents."""
        return self.settings.auditors or ()

    def largest_message(self, rank: int) -> int:
        """Bytes of the largest message of this run: a model, twice if a trainer likes, and what is said beside it."""
        if self.game is not None:
            model = {"w": self.game.w0}
        else:
            model = arrays((self.trainer if rank else self.aggregator).get_model_params())
        return 2 * sum(array.nbytes for array in model.values()) + network_json.MOST_BYTES

    # The center's side

    @cached_property
    def aggregator(self) -> ServerAggregator:
        aggregator = self._given[1] or create_server_aggregator(self.model, self.args)
        server_side.check(aggregator, self.args)
        aggregator.set_id(0)
        return aggregator

    def center(self, enrolled: Sequence[Enrol]) -> Center:
        """A new center for the enrolled agents, or the saved one where the run is resumed."""
        return self._hooked(self.session.center(enrolled, self._w0, self._buffers))

    def saved_center(self) -> Center | None:
        """The center of a run to resume, before anyone has enrolled again; None for a new run."""
        center = self.session.saved(self._buffers)
        return None if center is None else self._hooked(center)

    def _hooked(self, center: Center) -> Center:
        if self.game is None:
            center.hooks = server_side.AggregatorHooks(self.aggregator)
        return center

    @property
    def _w0(self) -> Any:
        return {"w": self.game.w0} if self.game is not None else arrays(self.aggregator.get_model_params())

    @property
    def _buffers(self) -> frozenset[str]:
        return frozenset() if self.game is not None else buffers(self.model, self._w0)

    # The agents' side

    @cached_property
    def trainer(self) -> ClientTrainer:
        given = self._given[0]
        if given is None:
            return create_model_trainer(self.model, self.args)
        given.model = self.model if getattr(given, "model", None) is None else given.model
        return given

    def agent(self, index: int, *, beside: bool = False) -> Agent:
        """The agent of FedML's client `index`; `beside` its center, in one process."""
        name = self.agents[index]
        site = self._site(index, name)
        s0 = float(self.game.s0[index]) if self.game is not None else self.host.first(site.s_max)
        ours = self._given[0] if isinstance(self._given[0], IncentiveClientTrainer) else None
        strategy = (ours and ours.strategy_of(name)) or self.host.strategy_of(name)
        notary, committed = self.session.notary(name, beside=beside), self.session.commitment(name, site)
        money = {"budget": self.host.budget_of(name), "alone": worth_alone(site, self.settings)}
        lies = None if ours is None else ours.lies_of(name)
        return Agent(name, site, strategy, s0=s0, lies=lies, notary=notary, commitment=committed, **money)

    def auditor(self, name: str) -> Auditor:
        """One of the auditors, who finds every agent's data as this process does."""
        return self.session.auditor(name, lambda agent: self._site(self.agents.index(agent), agent))

    def _site(self, index: int, name: str) -> Site:
        if self.game is not None:
            return ClosedFormSite(self.game, index)
        test = self.test_local.get(index) if self.test_local else None
        data = local_data(index, self.train_local[index], test, int(self.args.batch_size), name, self.settings.seed)
        if not len(data):
            raise SettingError(f"Agent {name!r} (client {index}) has no training data.")
        trainer = self.trainer
        if isinstance(trainer, IncentiveClientTrainer):
            return trainer.site(name, data, self.settings, self.device, self.classes)
        return trainer_site(trainer, name, data, self.settings, self.device, self.args, self.classes)
