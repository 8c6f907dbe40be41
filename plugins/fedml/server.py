"""The server's loop: broadcasts out, reports in, until the center is done. It decides nothing about the game."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from ...center import Center
from ...checks import nearest
from ...errors import FedIncentiveError, QuorumError, ReportRefused
from ...hosting import Session
from ...messages import Enrol, Report, RoundResult
from . import wire
from .settings import FedmlSettings
from .transports import Transport

log = logging.getLogger("fedincentive")
POLL = 0.5
LOGGED = 500  # characters of what a sender caused that go into the log
Ranks = Mapping[str, int]  # agent -> the rank of its client


class Server:
    """Rank 0. `start(enrolled)` makes the center once everyone has enrolled; a resumed run has one already."""

    def __init__(
        self,
        link: Transport,
        ranks: Ranks,
        host: FedmlSettings,
        start: Callable[[list[Enrol]], Center],
        *,
        session: Session,
        resumed: Center | None = None,
        progress: Callable[[Center, RoundResult], None],
        auditors: Ranks | None = None,
    ) -> None:
        self.link, self.ranks, self.host, self.session = link, ranks, host, session
        self.auditors = auditors or {}
        self._everybody = {**ranks, **self.auditors}
        self.progress = progress
        self._start, self.center = start, resumed
        self._enrolled: dict[str, Enrol] = {}
        self._refused: set[str] = set()  # agents whose own answer in this round is not acceptable
        self._said: dict[str, str] = {}  # the last refusal of each in this round
        self._frame: bytes = b""
        self._sent: dict[str, float] = {}  # when the broadcast last went to each agent
        self._under_way: dict[str, Future[None]] = {}
        self._senders = ThreadPoolExecutor(2 * len(self._everybody)) if link.concurrent else None

    def run(self) -> Center:
        if self.center is None:
            self.center = self._start(self._enrol_all())
        while not self.center.done:
            self._round(self.center)
        self._tell_the_end(self.center)
        return self.center

    def _enrol_all(self) -> list[Enrol]:
        """Wait until every agent has enrolled: payments compare each one with all others."""
        end = time.monotonic() + self.host.join_timeout
        while len(self._enrolled) < len(self.ranks):
            if time.monotonic() > end:
                missing = ", ".join(sorted(set(self.ranks) - set(self._enrolled)))
                raise QuorumError(
                    f"{len(self._enrolled)} of {len(self.ranks)} agents enrolled within {self.host.join_timeout:g} s; "
                    f"missing: {missing}. Start their clients, or raise incentive.join_timeout."
                )
            self._receive(POLL)
        return list(self._enrolled.values())

    def _round(self, center: Center) -> None:
        broadcast = center.broadcast()
        self._frame = wire.encode(broadcast)
        self._refused.clear()
        self._said.clear()
        for agent in center.missing:
            self._send(agent, self._frame, self.host.round_timeout)
        end = time.monotonic() + self.host.round_timeout
        while set(center.missing) - self._refused and (left := end - time.monotonic()) > 0:
            self._receive(min(left, POLL))
        late = ", ".join(sorted(set(center.missing) - self._refused))
        if late:
            log.warning("No answer within %g s in round %d: %s", self.host.round_timeout, broadcast.round, late)
        self.progress(center, center.close())

    def _tell_the_end(self, center: Center) -> None:
        self._frame = wire.encode(dataclasses.replace(center.broadcast(), w=None))  # they need no model to end
        pending = [self._send(agent, self._frame, self.host.heartbeat) for agent in self._everybody]
        for sent in pending:
            if sent is not None:
                sent.result()

    # Messages

    def _receive(self, timeout: float) -> None:
        item = self.link.receive(timeout)
        if item is None:
            return
        sender, frame = item
        try:
            self._take(sender, wire.decode(frame))
        except wire.WireError as error:
            log.warning("Refused a message from %s: %s", sender, str(error)[:LOGGED])
        except FedIncentiveError:
            raise  # the run itself cannot go on: a full disk, say
        except Exception as error:  # whatever one message does, the others' run goes on
            log.warning("A message from %s was dropped: %s: %s", sender, type(error).__name__, str(error)[:LOGGED])

    def _take(self, sender: str, message: wire.Message) -> None:
        if isinstance(message, wire.Hello):
            self._hello(sender, message)
        elif isinstance(message, Report):
            self._report(sender, message)
        else:
            log.warning("Refused a message from %s: a %s is not for the server", sender, type(message).__name__)

    def _report(self, sender: str, report: Report) -> None:
        if self.center is None:
            return
        try:
            self.center.submit(report)
        except ReportRefused as refusal:
            words = str(refusal)[:LOGGED]
            if self._said.get(report.agent) != words:  # it is asked again with every heartbeat, and may say the same
                log.warning("Refused a report from %s: %s", sender, words)
            if report.agent in self._everybody:
                self._said[report.agent] = words
            # Only the agent itself can end the waiting for it. Without keys nobody knows who wrote this, so the round
            # waits for a better one until its time is up.
            if self.center.claimed(report):
                self._refused.add(report.agent)

    def _hello(self, sender: str, hello: wire.Hello) -> None:
        """Enrol a new client; send the current broadcast to one that was restarted or lost a message."""
        agent, wrong = hello.enrol.agent, self._wrong_with(hello)
        if wrong:
            log.warning("Refused %s, which enrols as %r: %s", sender, agent, wrong)
        elif self.center is None:
            if agent in self.ranks and self._enrolled.setdefault(agent, hello.enrol) is hello.enrol:
                log.info("Agent %s enrols from %s: s_max %g", agent, sender, hello.enrol.s_max)
        elif self._frame and self._is_stuck(agent, self.center):
            self._send(agent, self._frame, self.host.heartbeat)

    def _is_stuck(self, agent: str, center: Center) -> bool:
        """An idle client that has not answered: it was restarted, or the broadcast or its answer was lost."""
        awaited = self._everybody if center.done else set(center.missing) - self._refused
        under_way = self._under_way.get(agent)
        if agent not in awaited or (under_way is not None and not under_way.done()):
            return False
        return time.monotonic() - self._sent.get(agent, -math.inf) > self.host.heartbeat / 2

    def _wrong_with(self, hello: wire.Hello) -> str:
        enrol = hello.enrol
        if enrol.agent in self.auditors:
            return self.session.wrong_with_auditor(enrol, hello.signature)
        if enrol.agent not in self.ranks:
            return "there is no such agent in this run" + nearest(enrol.agent, self.ranks)
        if wrong := self.session.wrong_with(enrol, hello.signature, len(self.ranks)):
            return wrong
        if self.center is not None and self.center.run.limits[enrol.agent] != enrol.s_max:
            return f"s_max = {enrol.s_max!r}, but it joined this run with {self.center.run.limits[enrol.agent]!r}"
        return ""

    def _send(self, agent: str, frame: bytes, timeout: float):  # type: ignore[no-untyped-def]
        """Never waits for one slow or dead client while the others could work."""
        self._sent[agent] = time.monotonic()
        if self._senders is not None:
            self._under_way[agent] = self._senders.submit(self._send_now, agent, frame, timeout)
            return self._under_way[agent]
        self._send_now(agent, frame, timeout)
        return None

    def _send_now(self, agent: str, frame: bytes, timeout: float) -> None:
        try:
            self.link.send(self._everybody[agent], frame, timeout)
        except ConnectionError as error:
            log.warning("Agent %s cannot be reached: %s", agent, error)

    def close(self) -> None:
        if self._senders is not None:
            self._senders.shutdown(wait=False, cancel_futures=True)
