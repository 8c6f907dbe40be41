"""What the two sides of a run build from FedML's objects: the center with its ledger, the agents with their sites."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

from fedml.core import ClientTrainer, ServerAggregator
from fedml.ml.aggregator.aggregator_creator import create_server_aggregator
from fedml.ml.trainer.trainer_creator import create_model_trainer

from ... import mechanisms
from ...agent import Agent, ClosedFormSite, Site, worth_alone
from ...audit import Auditor
from ...center import Center
from ...contribution import METHODS
from ...errors import SettingError
from ...game import Game
from ...game import read as read_game
from ...hosting import Session
from ...mechanisms import Mechanism
from ...messages import Enrol, Update
from ...payments import Oracles
from .. import network_json
from . import aggregator as server_side
from . import contribution
from .arrays import arrays, buffers
from .data import local_data
from .settings import agent_names, read, whole
from .trainer import IncentiveClientTrainer, has_test, trainer_site

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
        self._given = client_trainer, server_aggregator
        self.n = int(args.client_num_in_total)
        self.names = agent_names(self.host, self.n)
        (_, _, _, self.test_global, self.counts, self.train_local, self.test_local, self.classes) = dataset
        untested = self.host.game is None and client_trainer is not None and not has_test(client_trainer)
        if untested:
            self.settings = dataclasses.replace(self.settings, report_values=False)
        self._tried = False
        self.session = Session(
            self.settings,
            self.host,
            log,
            mechanism=given if isinstance(given, type) else None,
            ledger=getattr(server_aggregator, "ledger", None),
            game=self.game,
            oracles=Oracles(utility=self._utility(), labels=self._labels()),
        )
        if untested:
            self._do_without_test(type(client_trainer).__name__)

    def _do_without_test(self, trainer: str) -> None:
        """A trainer that cannot test a model only loses the welfare, unless the mechanism lives on what models are
        worth."""
        mechanism = self.session.mechanism
        slope = self.settings.slope or mechanism.slope
        if mechanism.values or slope in ("paper", "counterfactual"):
            why = "pays on what models are worth" if mechanism.values else f"has incentive.slope {slope}"
            raise SettingError(
                f"{trainer} has no test(), but {mechanism.name} {why}: give it a test() that returns the sums "
                "test_loss and test_total as FedML's trainers do, or choose 2p-upbred."
            )
        log.warning("%s has no test(): nobody can say what a model is worth, so this run has no welfare.", trainer)

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

    @cached_property
    def silos(self) -> int:
        """How many client processes there are: as FedML counts them, which is not how many users the data have."""
        if self.args.backend != "MPI":
            given = getattr(self.args, "worker_num", None) or self.args.client_num_per_round
            return min(whole("device_args.worker_num", given), self.n)
        clients = self.args.comm.Get_size() - 1 - len(self.auditors)
        if not 1 <= clients <= self.n:
            raise SettingError(
                f"mpirun starts {self.args.comm.Get_size()} processes: one for the server, {len(self.auditors)} for "
                f"incentive.auditors, and 1 to {self.n} (train_args.client_num_in_total) for clients are needed. Start "
                f"{1 + int(self.args.client_num_per_round) + len(self.auditors)}, so that a round's clients train side "
                "by side."
            )
        return clients

    @property
    def silos_from(self) -> str:
        return "mpirun's" if self.args.backend == "MPI" else f"device_args.worker_num = {self.silos}"

    def rank_of(self, index: int) -> int:
        """The process that plays FedML's client `index`; a silo may play several users of the data, always the same."""
        return 1 + index % self.silos

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
        return self._hooked(self.session.center(enrolled, self._w0, self._buffers, self._classes))

    def saved_center(self) -> Center | None:
        """The center of a run to resume, before anyone has enrolled again; None for a new run."""
        center = self.session.saved(self._buffers)
        return None if center is None else self._hooked(center)

    def _hooked(self, center: Center) -> Center:
        if self.game is None:
            center.hooks = server_side.AggregatorHooks(self.aggregator)
        return center

    @property
    def _classes(self) -> int | None:
        """Of the data; a trainer that makes its own sites may value models otherwise."""
        given = self._given[0]
        otherwise = isinstance(given, IncentiveClientTrainer) and type(given).site is not IncentiveClientTrainer.site
        known = self.game is None and not otherwise and isinstance(self.classes, Integral)
        return int(self.classes) if known else None

    @property
    def _w0(self) -> Any:
        return {"w": self.game.w0} if self.game is not None else arrays(self.aggregator.get_model_params())

    @property
    def _buffers(self) -> frozenset[str]:
        return frozenset() if self.game is not None else buffers(self.model, self._w0)

    def _utility(self) -> Callable[[Update], float] | None:
        """Where contribution values or degraded models need one and this is the center: minus the trainer's loss on the
        server's data."""
        if self.game is not None or int(getattr(self.args, "rank", 0)):
            return None
        if self._made().degrades:
            whose = f"train_args.federated_optimizer: {self.args.federated_optimizer}"
        elif self.settings.contribution in METHODS:
            whose = f"incentive.contribution: {self.settings.contribution}"
        else:
            return None
        data, cap = self.test_global, self.settings.loss_cap
        return contribution.utility(self.trainer, data, self.device, self.args, whose, cap)

    def _made(self) -> Mechanism:
        """The mechanism that the settings name, or that the user's aggregator brings."""
        given, settings = getattr(self._given[1], "mechanism", None), self.settings
        return given(settings) if isinstance(given, type) else mechanisms.get(settings.mechanism, settings)

    def _labels(self) -> Callable[[str, Update], Any] | None:
        """Where agreement on shared items is measured and this is the center: what models say of the server's data."""
        if self.game is not None or self.settings.contribution != "agreement" or int(getattr(self.args, "rank", 0)):
            return None
        whose = "incentive.contribution: agreement"
        return contribution.labels(self.trainer, self.test_global, self.device, whose)

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
        strategy = (ours and ours.strategy_of(name)) or self.host.strategy_of(name, site, self.settings)
        notary, committed = self.session.notary(name, beside=beside), self.session.commitment(name, site)
        money = {"budget": self.host.budget_of(name), "alone": worth_alone(site, self.settings)}
        lies = None if ours is None else ours.lies_of(name)
        shown = {"commitment": committed, "tags": self.session.tags(site)}
        return Agent(name, site, strategy, s0=s0, lies=lies, notary=notary, **shown, **money)

    def auditor(self, name: str) -> Auditor:
        """One of the auditors, who finds every agent's data as this process does."""
        return self.session.auditor(name, lambda agent: self._site(self.agents.index(agent), agent))

    def _site(self, index: int, name: str) -> Site:
        if self.game is not None:
            return ClosedFormSite(self.game, index)
        try:
            mine = self.train_local[index]
        except (KeyError, IndexError):
            raise SettingError(
                f"train_data_local_dict has no client {index} (agent {name!r}), but train_args.client_num_in_total is "
                f"{self.n}: the clients are 0 to {self.n - 1}."
            ) from None
        test = self.test_local.get(index) if self.test_local else None
        count = self.counts.get(index) if isinstance(self.counts, Mapping) else None
        data = local_data(index, mine, test, count, name, self.settings.seed)
        if not len(data):
            raise SettingError(f"Agent {name!r} (client {index}) has no training data.")
        trainer = self.trainer
        if isinstance(trainer, IncentiveClientTrainer):
            site = trainer.site(name, data, self.settings, self.device, self.classes)
        else:
            site = trainer_site(trainer, name, data, self.settings, self.device, self.args, self.classes)
        if self.settings.report_values and not self._tried and site.w0 is not None:
            site.value(site.w0, {})  # a test() that says nothing of use is an error now, before anything is agreed
            self._tried = True
        return site
