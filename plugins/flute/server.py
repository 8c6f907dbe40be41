"""The center's side in FLUTE: the rounds are the mechanism's; clients train in FLUTE's workers."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import core.client as their_client
import numpy as np
import torch
from core import federated
from core import server as their_server
from core.trainer import run_validation_generic
from utils.dataloaders_utils import get_dataset, make_val_dataloader

from ... import engine
from ...agent import Agent, ClosedFormSite, LossSite, Site, worth_alone
from ...center import Center, Outcome
from ...errors import RunError, SettingError
from ...game import read as read_game
from ...hosting import Session
from ...messages import RoundResult, Update
from .client import part, points_of
from .settings import is_mechanism, read
from .strategy import changes_of

log = logging.getLogger("fedincentive")


class IncentiveServer(their_server.OptimizationServer):
    """FLUTE's server, which plays a mechanism where `strategy:` names one. `outcome` is how the run ended."""

    center: Center | None = None
    outcome: Outcome | None = None

    def train(self) -> None:
        if not is_mechanism(self.config["strategy"]):
            super().train()
            return
        try:
            self._play()
        finally:  # workers wait for commands, after an error too
            self.terminate_workers()

    def _play(self) -> None:
        settings, host = read(self.config)
        torch.set_num_threads(settings.threads)  # models are valued here, with the same bits however many processes
        game = None if host.game is None else read_game(host.game)
        session = Session(settings, host, log, game=game)
        try:
            agents = [str(user) for user in _train_data().user_list] if game is None else list(game.agents)
            session.preflight(agents, network=False)
            if game is None:
                sites: list[Site] = FluteUsers(self, session, agents).sites
                first = [host.first(site.s_max) for site in sites]
                w0 = model_of(self.worker_trainer.model)
            else:
                sites, first, w0 = [*ClosedFormSite.of(game)], [float(s) for s in game.s0], {"w": game.w0}
            players = [
                Agent(
                    name,
                    site,
                    host.strategy_of(name, site, settings),
                    s0=s0,
                    notary=session.notary(name, beside=True),
                    budget=host.budget_of(name),
                    alone=worth_alone(site, settings),
                )
                for name, site, s0 in zip(agents, sites, first, strict=True)
            ]
            self.center = center = session.center(
                [player.enrol() for player in players], w0, classes=host.classes if game is None else None
            )
            if game is None and not settings.resume:
                self._evaluate([mode for mode, asked in (("test", "initial_rec"), ("val", "initial_val"))
                                if self.config["server_config"].get(asked)])  # fmt: skip
            engine.run(center, players, progress=partial(self._progress, session))
            self.outcome = session.conclude(center)
        finally:
            session.close()

    def _progress(self, session: Session, result: RoundResult) -> None:
        session.note(result)
        for name, value in result.metrics.items():
            their_server.run.log(f"incentive/{name}", value)
        if result.phase != "train" or result.repeated or session.game is not None:
            return
        assert self.center is not None
        set_model(self.worker_trainer.model, self.center.w)
        often = {"val": self.val_freq, "test": self.req_freq}
        self._evaluate([mode for mode, n in often.items() if n and (result.step + 1) % n == 0])
        self.backup_models(result.step)

    def _evaluate(self, modes: list[str]) -> None:
        """FLUTE's own evaluation of the model, as often as its settings say."""
        if modes:
            self.metrics["worker_trainer"] = self.worker_trainer
            self.metrics = self.evaluation.run(modes, self.metrics, metric_logger=their_server.run.log)


class FluteUsers:
    """The agents' data and FLUTE's workers. Whoever is first to train from a model has all who are asked trained at
    once, on the points that were broadcast; who delivers another number, or has a model of its own, is trained on its
    own."""

    def __init__(self, server: IncentiveServer, session: Session, agents: list[str]) -> None:
        self.server, self.session, self.agents = server, session, agents
        self.model, self.data = server.worker_trainer.model, _train_data()
        _refuse(self.model)
        self.most = int(server.config["client_config"]["data_config"]["train"]["desired_max_samples"])
        self._from: Update | None = None
        self._trained: dict[tuple[str, int], Update] = {}
        self.sites = [self._site(index) for index in range(len(agents))]

    def _site(self, index: int) -> LossSite:
        settings, host, agent = self.session.settings, self.session.host, self.agents[index]
        own, held = points_of(settings.seed, agent, int(self.data.num_samples[index]), host.held_out)
        if len(own) > self.most:
            raise SettingError(
                f"client_config.data_config.train.desired_max_samples is {self.most}, but agent {agent!r} has "
                f"{len(own)} points and would be paid for more than FLUTE trains on: raise it."
            )
        if not len(own):
            raise SettingError(f"Agent {agent!r} has no training data.")
        tests = part(_user(self.data, index), held) if host.held_out else self._validation(agent)
        train, loss = partial(self.train, agent), partial(self.loss, tests)
        classes, w0 = host.classes, lambda: model_of(self.model)
        return LossSite.of(settings, agent, len(own), train, loss, classes=classes, w0=w0)

    def _validation(self, agent: str) -> Any:
        server = self.server
        data = get_dataset(server.data_path, server.config, server.config["server_config"]["task"], "val", True)
        users = [str(user) for user in data.user_list]
        if agent not in users:
            raise SettingError(
                f"incentive.held_out is false, but the validation data has no user {agent!r} to value models with: "
                "leave it true."
            )
        return _user(data, users.index(agent))

    def loss(self, data: Any, w: Update) -> float:
        """The mean loss on an agent's own data, by the model's own `loss`."""
        config = self.server.config["server_config"]
        set_model(self.model, w)
        loader = make_val_dataloader(config["data_config"]["val"], None, config["task"], data)
        return float(run_validation_generic(self.model, loader)[1]["loss"]["value"])

    def train(self, agent: str, w: Update, points: np.ndarray, step: int) -> Update:
        if w is not self._from:
            self._from, self._trained = w, {}
            center = self.server.center
            alone = center is None or center.own_models
            asked = {} if alone else {name: round(center.run.s[name]) for name in center.missing}
            self._dispatch({**asked, agent: len(points)}, w, step)
        if (agent, len(points)) not in self._trained:
            self._dispatch({agent: len(points)}, w, step)
        return self._trained[agent, len(points)]

    def _dispatch(self, asked: dict[str, int], w: Update, step: int) -> None:
        """Train these agents on this many points each, in FLUTE's workers."""
        numbers = {name: self.agents.index(name) for name, points in asked.items() if points > 0}
        counts = torch.zeros(len(self.agents))
        for name, number in numbers.items():
            counts[number] = asked[name]
        server = self.server
        sent = [torch.from_numpy(np.array(w[name])) for name, _ in self.model.named_parameters()]
        data = server.initial_lr_client * server.lr_weight, [*sent, counts], step
        left = dict(numbers)
        for output in server.process_clients(list(numbers.values()), data, server.single_worker):
            if not isinstance(output, dict):  # in one process FLUTE goes on after an error in a client
                raise RunError(f"The training of agent {next(iter(left))!r} failed; its error is above.")
            *gradients, number = output["pl"]["gradients"]
            agent = self.agents[int(number)]
            del left[agent]
            self._trained[agent, asked[agent]] = changes_of(dict(self.model.named_parameters()), gradients)


def _train_data() -> Any:
    return their_client.train_dataset


def _user(dataset: Any, index: int) -> Any:
    """One user's data as FLUTE hands it to a client."""
    return their_client.Client.get_data([index], dataset)[0]


def _refuse(model: torch.nn.Module) -> None:
    """What FLUTE's messages cannot carry: they are the parameters alone, as float32 between processes."""
    if left := [name for name in model.state_dict() if name not in dict(model.named_parameters())]:
        raise SettingError(
            f"The model has {left[0]!r} beside its parameters. FLUTE sends parameters alone, so every process would "
            "keep a value of its own: use a layer without such state (GroupNorm instead of BatchNorm)."
        )
    other = [name for name, p in model.named_parameters() if p.dtype != torch.float32]
    if other and federated.size() > 1:
        raise SettingError(f"The parameter {other[0]!r} is not float32, which FLUTE's workers need: use one process.")


def model_of(model: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: p.detach().cpu().numpy().copy() for name, p in model.named_parameters()}


def set_model(model: torch.nn.Module, w: Update) -> None:
    for name, p in model.named_parameters():
        p.data = torch.from_numpy(np.array(w[name])).to(p.device)
