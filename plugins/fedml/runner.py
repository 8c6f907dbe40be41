"""What FedMLRunner.run() calls for our mechanisms: all agents in one process, or this process's part of the run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ... import engine
from ...center import Center, Outcome
from ...errors import SettingError
from ...files import replace
from ...game import max_regret
from ...messages import SCALARS, RoundResult
from .arrays import set_model, to_tensors
from .client import Client
from .dispatch import told_plainly
from .host import Host
from .metrics import record
from .server import Server
from .transports import connect

log = logging.getLogger("fedincentive")


class Runner:
    """Stands in for FedML's simulators and managers; `FedMLRunner(...).runner` is one under our mechanisms.

    On the server's side, `watchers` are told how each round ended, and `outcome` is how the run ended.
    """

    def __init__(
        self, args: Any, device: Any, dataset: Any, model: Any, client_trainer: Any, server_aggregator: Any
    ) -> None:
        show_in_fedml_log()
        self.host = Host(args, device, dataset, model, client_trainer, server_aggregator)
        self.args = args
        self.watchers: list[Callable[[RoundResult], None]] = []
        self.outcome: Outcome | None = None
        self._untested = False  # whether a failing test of the server's was shown in full

    @told_plainly()
    def run(self) -> None:
        try:
            if self.args.training_type == "simulation" and self.args.backend == "sp":
                self._single_process()
            else:
                self._distributed()
        finally:
            self.host.session.close()

    def _single_process(self) -> None:
        host = self.host
        host.session.preflight(host.agents, network=False)
        agents = [host.agent(i, beside=True) for i in range(host.n)]
        center = host.center([agent.enrol() for agent in agents])
        auditors = [host.auditor(name) for name in host.auditors]
        engine.run(center, [*agents, *auditors], progress=lambda result: self._progress(center, result))
        self._end(center)

    def _distributed(self) -> None:
        host, rank = self.host, int(self.args.rank)
        size = 1 + host.silos + len(host.auditors)
        if not 0 <= rank < size:
            raise SettingError(
                f"Rank {rank} has no part in this run: {host.silos} client processes ({host.silos_from}) have the "
                f"ranks 1 to {host.silos}, the server has 0" + (", auditors follow." if host.auditors else ".")
            )
        link = connect(self.args, rank, size, host.host, lambda: host.largest_message(rank))
        try:
            if rank == 0:
                self._serve(link)
            else:
                self._answer(link, rank)
        except BaseException as error:
            log.error("The run ends with an error on rank %d", rank, exc_info=not isinstance(error, SettingError))
            link.abort()
            raise
        link.close()

    def _serve(self, link: Any) -> None:
        host = self.host
        host.session.preflight(host.agents)
        server = Server(
            link,
            {agent: host.rank_of(index) for index, agent in enumerate(host.agents)},
            host.host,
            host.center,
            session=host.session,
            resumed=host.saved_center(),
            progress=self._progress,
            auditors={auditor: rank for rank, auditor in enumerate(host.auditors, start=host.silos + 1)},
        )
        try:
            self._end(server.run())
        finally:
            server.close()

    def _answer(self, link: Any, rank: int) -> None:
        host = self.host
        if rank > host.silos:
            agents = [host.auditor(host.auditors[rank - host.silos - 1])]
        else:
            agents = [host.agent(index) for index in range(host.n) if host.rank_of(index) == rank]
        memory = host.session.directory / "agents" / f"{rank}.json"
        resume, sampled = host.settings.resume, host.settings.sampled
        Client(link, agents, host.settings.run, host.host, memory, resume=resume, sampled=sampled).run()

    # How it went

    def _progress(self, center: Center, result: RoundResult) -> None:
        regret = self._regret(center, result)
        self.host.session.note(result, regret=regret)
        record(self.args, result, self.host.settings.minor, regret)
        for watcher in self.watchers:
            watcher(result)
        if result.phase == "train" and not result.repeated and self.host.game is None:
            self._test(center, result.step)

    def _regret(self, center: Center, result: RoundResult) -> float | None:
        """Known in closed-form games only: the center of a real federation knows neither costs nor valuations."""
        game = self.host.game
        if game is None or result.phase in SCALARS:
            return None
        s = np.array([result.s[agent] for agent in game.agents])
        return max_regret(game, center.w["w"], s, [p for p in center.mechanism.payments if p.steers]).value

    def _test(self, center: Center, step: int) -> None:
        """FedML's own tests of the new model, as often as `frequency_of_the_test` says."""
        host, args = self.host, self.args
        set_model(host.aggregator, center.w)
        args.round_idx = step
        often = int(getattr(args, "frequency_of_the_test", 0) or 0)
        if not often or step % often and step != host.settings.rounds - 1:
            return
        try:
            host.aggregator.test_all(host.train_local, host.test_local, host.device, args)
            if host.test_global is not None:
                host.aggregator.test(host.test_global, host.device, args)
        except Exception as error:  # the round is paid: its numbers may be lost, not the run
            log.warning(
                "%s.test() fails on the server's test data (%s: %s): this run goes on without its numbers. A "
                "server_aggregator with a test() of your own reads data that are not pairs of inputs and labels.",
                type(host.aggregator).__name__, type(error).__name__, error, exc_info=not self._untested,
            )  # fmt: skip
            self._untested = True

    def _end(self, center: Center) -> None:
        """The trained model is in the user's own model object and in a file; also where a finished run is resumed."""
        host, files = self.host, {}
        if host.game is None:
            set_model(host.aggregator, center.w)
            path = host.session.directory / "model.pt"
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, lambda file: torch.save(to_tensors(center.w), file))
            files["Model"] = path
        self.outcome = host.session.conclude(center, files)


def show_in_fedml_log() -> None:
    """FedML puts its own logger in the place of the root one; ours must follow to be seen where its users look."""
    ours = logging.getLogger("fedincentive")
    if ours.parent is not logging.root:
        ours.parent = logging.root
        ours.setLevel(logging.INFO)
