"""The client's loop: each broadcast is given to the agent, its report goes back."""

from __future__ import annotations

import logging
from pathlib import Path

from ...agent import Agent
from ...audit import Auditor
from ...errors import BroadcastRefused, RunError
from ...messages import PHASES, Broadcast
from ...sealed import read_json, write_json
from . import wire
from .settings import FedmlSettings
from .transports import Transport

log = logging.getLogger("fedincentive")
SERVER = 0


class Client:
    """One agent, or auditor, behind a link. `memory` is the file that keeps what it must remember after a crash."""

    def __init__(
        self,
        link: Transport,
        agent: Agent | Auditor,
        run: str,
        host: FedmlSettings,
        memory: Path,
        *,
        resume: bool,
    ) -> None:
        self.link, self.agent, self.run_id, self.host, self.memory = link, agent, run, host, memory
        self._latest, self._answer = (-1, -1), b""
        self._signature: str | None = None
        if resume and memory.exists():
            agent.restore(read_json(memory))

    def run(self) -> None:
        self._hello()
        while True:
            item = self.link.receive(self.host.heartbeat)
            if item is None:
                self._hello()
                continue
            sender, frame = item
            try:
                message = wire.decode(frame)
            except wire.WireError as error:
                log.warning("Refused a message from %s: %s", sender, error)
                continue
            if not isinstance(message, Broadcast):
                log.warning("Refused a message from %s: a %s is not for a client", sender, type(message).__name__)
            elif message.run != self.run_id:
                log.warning("Refused a broadcast from %s: run %r is not ours, %r", sender, message.run, self.run_id)
            else:
                try:
                    self._respond(message)
                except BroadcastRefused as refusal:
                    log.warning("Refused a broadcast from %s: %s", sender, refusal)
                    continue
                if message.phase == "done":
                    return

    def _respond(self, broadcast: Broadcast) -> None:
        """A broadcast that comes twice (the server was restarted, a message was lost) gets the same answer again."""
        when = (broadcast.round, PHASES.index(broadcast.phase))
        if when < self._latest:
            raise BroadcastRefused(f"round {broadcast.round} ({broadcast.phase}) comes after a later one.")
        if (
            when > self._latest or broadcast.signature != self._signature
        ):  # or a restarted server shows more than before
            report = self.agent.respond(broadcast)
            self._latest, self._answer = when, b"" if report is None else wire.encode(report)
            self._signature = broadcast.signature
            self._remember()
        if self._answer:
            self._send(self._answer)

    def _hello(self) -> None:
        """Enrol, or show that this client is alive and waiting; an absent server is noticed here."""
        self._send(wire.encode(wire.Hello(self.agent.enrol(), self.agent.enrolment(self.run_id))))

    def _send(self, frame: bytes) -> None:
        try:
            self.link.send(SERVER, frame, self.host.server_timeout)
        except ConnectionError as error:
            raise RunError(
                f"Agent {self.agent.name!r} gives up: the server is not there after {self.host.server_timeout:g} s "
                f"({error}). Start it again with the same run_id and resume: true, or raise incentive.server_timeout."
            ) from None

    def _remember(self) -> None:
        self.memory.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.memory, self.agent.state())
