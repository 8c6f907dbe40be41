"""The client's loop: each broadcast is given to the agents of this process, their reports go back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from ...agent import Agent
from ...audit import Auditor
from ...errors import BroadcastRefused, RunError
from ...identity import carries_model_of
from ...messages import PHASES, SCALARS, Broadcast, Report
from ...provenance import beacon
from ...sealed import read_json, write_json
from . import wire
from .settings import UNGIVEN, FedmlSettings
from .transports import Transport

log = logging.getLogger("fedincentive")
SERVER = 0
KEPT = 2**20  # bytes of an answer that is kept for a second asking; a larger one of many is made again


class Client:
    """The agents of one process, or an auditor, behind a link. `memory` is the file of what they must remember after a
    crash; `sampled` is how many agents of the run a training round asks, where it does not ask all."""

    def __init__(
        self,
        link: Transport,
        agents: Sequence[Agent | Auditor],
        run: str,
        host: FedmlSettings,
        memory: Path,
        *,
        resume: bool,
        sampled: int | None = None,
    ) -> None:
        self.link, self.run_id, self.host, self.memory, self.sampled = link, run, host, memory, sampled
        self.agents = {agent.name: agent for agent in agents}
        self._latest: tuple[int, int] = (-1, -1)
        self._answers: dict[str, bytes] = {}  # to the latest broadcast
        self._signature: str | None = None
        self._heard = ""  # the last thing the server said
        if resume and memory.exists():
            for name, state in read_json(memory).items():
                if name in self.agents:
                    self.agents[name].restore(state)

    def run(self) -> None:
        names = ", ".join(list(self.agents)[:3]) + (f" and {len(self.agents) - 3} more" if len(self.agents) > 3 else "")
        log.info("Run %s: %s enrols, and waits for the server", self.run_id, names)
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
            if isinstance(message, wire.Notice):
                self._hear(message)
            elif not isinstance(message, Broadcast):
                log.warning("Refused a message from %s: a %s is not for a client", sender, type(message).__name__)
            elif message.run != self.run_id and not self._takes_part_in(message):
                log.warning("Refused a broadcast from %s: run %r is not ours, %r", sender, message.run, self.run_id)
            else:
                try:
                    self._respond(message)
                except BroadcastRefused as refusal:
                    log.warning("Refused a broadcast from %s: %s", sender, refusal)
                    continue
                if message.phase == "done":
                    log.info("Run %s is over", self.run_id)
                    return

    def _takes_part_in(self, broadcast: Broadcast) -> bool:
        """A client that was given no run_id plays the first run it is asked for."""
        if self.run_id == UNGIVEN and self._latest < (0, 0):
            self.run_id = broadcast.run
            log.info("This client was given no --run_id and takes part in run %s", self.run_id)
        return broadcast.run == self.run_id

    def _hear(self, notice: wire.Notice) -> None:
        """Anybody may say such things, so nothing but a line of the log comes of it, once."""
        if notice.run == self.run_id and notice.words != self._heard:
            self._heard = notice.words
            log.warning("The server says: %s", " ".join(notice.words.split()))

    def _respond(self, broadcast: Broadcast) -> None:
        """A broadcast that comes twice (the server was restarted, a message was lost) gets the same answers again."""
        when = (broadcast.round, PHASES.index(broadcast.phase))
        if when < self._latest:
            raise BroadcastRefused(f"round {broadcast.round} ({broadcast.phase}) comes after a later one.")
        # With another signature it is a restarted server, which shows more than before.
        new = when > self._latest or broadcast.signature != self._signature
        known = {} if new else self._answers
        asked, refusal = self._asked(broadcast), None
        for batch in [asked] if broadcast.phase in SCALARS else [[agent] for agent in asked]:
            made = {}
            for agent in batch:
                try:
                    made[agent.name] = known.get(agent.name) or self._answer(agent, broadcast)
                except BroadcastRefused as error:
                    refusal = error
            if made:
                self._latest, self._answers, self._signature = when, known, broadcast.signature
                self._remember()
            for name, answer in made.items():
                if answer:
                    self._send(answer)
                if len(answer) <= KEPT or len(self.agents) == 1:
                    known[name] = answer
        if refusal is not None:
            raise refusal

    def _answer(self, agent: Agent | Auditor, broadcast: Broadcast) -> bytes:
        report = agent.respond(broadcast)
        if report is None:
            return b""
        if broadcast.phase == "train" or broadcast.round == 0:
            log.info("Round %d (%s): %s", broadcast.round, broadcast.phase, words(report, broadcast))
        return wire.encode(report)

    def _asked(self, broadcast: Broadcast) -> list[Agent | Auditor]:
        """Whose answer is wanted: in a training round perhaps a sample only, which follows from the center's link, and
        of agents with models of their own those whose model this is."""
        own = {name: agent for name, agent in self.agents.items() if carries_model_of(broadcast, name)}
        if broadcast.phase != "train" or broadcast.reveal is None or self.sampled is None:
            return list(own.values())
        drawn = beacon.asked(broadcast.reveal, broadcast.s, self.sampled)
        return [own[name] for name in drawn if name in own]

    def _hello(self) -> None:
        """Enrol everybody, or later show that this client is alive and waiting; an absent server is noticed here."""
        everybody = list(self.agents.values())
        for agent in everybody if self._latest < (0, 0) else everybody[:1]:
            self._send(wire.encode(wire.Hello(self.run_id, agent.enrol(), agent.enrolment(self.run_id))))

    def _send(self, frame: bytes) -> None:
        try:
            self.link.send(SERVER, frame, self.host.server_timeout)
        except ConnectionError as error:
            raise RunError(
                f"Agent {next(iter(self.agents))!r} gives up: the server is not there after "
                f"{self.host.server_timeout:g} s ({error}). Start it again with the same run_id and resume: true, or "
                "raise incentive.server_timeout."
            ) from None

    def _remember(self) -> None:
        self.memory.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.memory, {name: agent.state() for name, agent in self.agents.items()})


def words(report: Report, broadcast: Broadcast) -> str:
    """What an agent's people read of its answer."""
    said = [] if report.delivered is None else [f"trained on {report.delivered:g} points"]
    said += [] if report.s is None else [f"will give {report.s:g}"]
    said += [] if report.valuation is None else [f"values the model at {report.valuation:.6g}"]
    said += [] if report.declined is None else [f"declines: {report.declined}"]
    return f"{report.agent} {', '.join(said) or 'answers'}"
