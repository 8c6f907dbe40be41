"""The server's loop: broadcasts out, reports in, until the center is done. It decides nothing about the game."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from ...center import Center
from ...checks import nearest
from ...errors import FedIncentiveError, QuorumError, ReportRefused
from ...hosting import Session
from ...messages import Enrol, Report, RoundResult
from . import wire
from .settings import UNGIVEN, FedmlSettings
from .transports import Transport

log = logging.getLogger("fedincentive")
POLL = 0.5
WORD_AFTER = 10.0  # seconds of waiting before the log says for whom
LOGGED = 500  # characters of what a sender caused that go into the log
Ranks = Mapping[str, int]  # agent -> the rank of the client process that plays it, perhaps with others
SHOWN = 20  # agents that are named one by one


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
        self._frames: dict[int, list[bytes]] = {}  # the broadcasts of now by rank
        self._sent: dict[int, float] = {}  # when the broadcast last went to each rank
        self._told: dict[int, float] = {}  # when its people were last told of something refused
        self._under_way: dict[int, Future[None]] = {}
        self._senders = ThreadPoolExecutor(2 * len(set(self._everybody.values()))) if link.concurrent else None

    def run(self) -> Center:
        if self.center is None:
            self.center = self._start(self._enrol_all())
        while not self.center.done:
            self._round(self.center)
        self._tell_the_end(self.center)
        return self.center

    def _enrol_all(self) -> list[Enrol]:
        """Wait until every agent has enrolled: payments compare each one with all others."""
        end, patience = time.monotonic() + self.host.join_timeout, Patience()
        while len(self._enrolled) < len(self.ranks):
            if patience.over():
                log.info("Waiting for %s to enrol", some(set(self.ranks) - set(self._enrolled)))
            if time.monotonic() > end:
                missing = some(set(self.ranks) - set(self._enrolled))
                raise QuorumError(
                    f"{len(self._enrolled)} of {len(self.ranks)} agents enrolled within {self.host.join_timeout:g} s; "
                    f"missing: {missing}. Start their clients, or raise incentive.join_timeout."
                )
            self._receive(POLL)
        return list(self._enrolled.values())

    def _round(self, center: Center) -> None:
        broadcast = center.broadcast()
        self._frames = self._encoded(center)
        self._refused.clear()
        self._said.clear()
        for rank in self._ranks_of(center.missing):
            self._send(rank, self.host.round_timeout)
        end, patience = time.monotonic() + self.host.round_timeout, Patience()
        while set(center.missing) - self._refused and (left := end - time.monotonic()) > 0:
            self._receive(min(left, POLL))
            if patience.over():
                waiting = set(center.missing) - self._refused
                log.info("Round %d (%s): waiting for %s", broadcast.round, broadcast.phase, some(waiting))
        late = set(center.missing) - self._refused
        if late:
            log.warning("No answer within %g s in round %d: %s", self.host.round_timeout, broadcast.round, some(late))
        self.progress(center, center.close())

    def _encoded(self, center: Center) -> dict[int, list[bytes]]:
        """One frame for all; where agents are sent models of their own, one for each model at a rank."""
        if not center.own_models:
            return dict.fromkeys(self._everybody.values(), [wire.encode(center.broadcast())])
        models, frames = center.broadcast().models or {}, dict[int, dict[str, bytes]]()
        for agent in center.missing:
            mine = frames.setdefault(self.ranks[agent], {})
            if models[agent] not in mine:
                mine[models[agent]] = wire.encode(center.broadcast(agent))
        return {rank: list(mine.values()) for rank, mine in frames.items()}

    def _tell_the_end(self, center: Center) -> None:
        told = wire.encode(dataclasses.replace(center.broadcast(), w=None))  # they need no model to end
        self._frames = dict.fromkeys(self._everybody.values(), [told])
        self._wait([self._say(rank, self._ended(center, rank)) for rank in self._ranks_of(self.ranks)])
        self._wait([self._send(rank, self.host.heartbeat) for rank in self._ranks_of(self._everybody)])

    def _ended(self, center: Center, rank: int) -> str:
        """How the run ended for the agents of a client process."""
        ended = center.outcome
        assert ended is not None
        own = [agent for agent in ended.s if self.ranks.get(agent) == rank]
        minor = center.settings.minor
        lines = [
            f"{agent} gave {ended.s[agent]:g} of {ended.s_max[agent]:g} points, balance "
            f"{ended.payments[agent] / minor:+.6f}"
            for agent in own[:SHOWN]
        ]
        lines += [f"and {len(own) - SHOWN} more agents"] if len(own) > SHOWN else []
        return f"Run {ended.run} ended ({ended.status}): {'; '.join(lines)}."

    def _ranks_of(self, agents: Iterable[str]) -> list[int]:
        return sorted({self._everybody[agent] for agent in agents})

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
                self._tell(report.agent, f"Refused a report of round {report.round}: {words}")
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
            self._tell(agent, f"Refused who enrols as {agent!r}: {wrong}", hello.run)
        elif self.center is None:
            if agent in self.ranks and self._enrolled.setdefault(agent, hello.enrol) is hello.enrol:
                log.info("Agent %s enrols from %s: s_max %g", agent, sender, hello.enrol.s_max)
        elif self._frames and self._is_stuck(rank := self._everybody[agent], self.center):
            self._send(rank, self.host.heartbeat)

    def _is_stuck(self, rank: int, center: Center) -> bool:
        """An idle client that has not answered: it was restarted, or the broadcast or an answer was lost."""
        under_way = self._under_way.get(rank)
        if under_way is not None and not under_way.done():
            return False
        if time.monotonic() - self._sent.get(rank, -math.inf) <= self.host.heartbeat / 2:
            return False
        return center.done or rank in self._ranks_of(set(center.missing) - self._refused)

    def _wrong_with(self, hello: wire.Hello) -> str:
        enrol = hello.enrol
        if hello.run not in (ours := self.session.settings.run, UNGIVEN):
            return f"it plays run {hello.run[:80]!r}, this server run {ours!r}; start both with the same --run_id"
        if enrol.agent in self.auditors:
            return self.session.wrong_with_auditor(enrol, hello.signature)
        if enrol.agent not in self.ranks:
            return "there is no such agent in this run" + nearest(enrol.agent, self.ranks)
        if wrong := self.session.wrong_with(enrol, hello.signature, len(self.ranks)):
            return wrong
        if self.center is not None and self.center.run.limits[enrol.agent] != enrol.s_max:
            return f"s_max = {enrol.s_max!r}, but it joined this run with {self.center.run.limits[enrol.agent]!r}"
        return ""

    def _send(self, rank: int, timeout: float) -> Future[None] | None:
        """What a rank is told now. Never waits for one slow or dead client while the others could work."""
        self._sent[rank] = time.monotonic()
        sent = None
        for frame in self._frames.get(rank, ()):
            sent = self._submit(rank, frame, timeout)
        if sent is not None:
            self._under_way[rank] = sent
        return sent

    def _tell(self, agent: str, words: str, run: str | None = None) -> None:
        """Let the people at an agent's client know; a flood of strangers in its name does not become one to it."""
        rank = self._everybody.get(agent)
        if rank is not None and time.monotonic() - self._told.get(rank, -math.inf) > POLL:
            self._told[rank] = time.monotonic()
            self._say(rank, words, run)

    def _say(self, rank: int, words: str, run: str | None = None) -> Future[None] | None:
        """A line for the log of the people at a client."""
        notice = wire.Notice(run or self.session.settings.run, words[: wire.MOST_CHARACTERS])
        return self._submit(rank, wire.encode(notice), self.host.heartbeat)

    def _submit(self, rank: int, frame: bytes, timeout: float) -> Future[None] | None:
        if self._senders is not None:
            return self._senders.submit(self._send_now, rank, frame, timeout)
        self._send_now(rank, frame, timeout)
        return None

    def _send_now(self, rank: int, frame: bytes, timeout: float) -> None:
        try:
            self.link.send(rank, frame, timeout)
        except ConnectionError as error:
            who = some(agent for agent, place in self._everybody.items() if place == rank)
            log.warning("Agent %s cannot be reached: %s", who, error)

    @staticmethod
    def _wait(pending: Iterable[Future[None] | None]) -> None:
        for sent in pending:
            if sent is not None:
                sent.result()

    def close(self) -> None:
        if self._senders is not None:
            self._senders.shutdown(wait=False, cancel_futures=True)


class Patience:
    """When to say that somebody is awaited: after a while, then less and less often."""

    def __init__(self) -> None:
        self._wait, self._begun = WORD_AFTER, time.monotonic()

    def over(self) -> bool:
        if time.monotonic() - self._begun < self._wait:
            return False
        self._wait *= 2
        return True


def some(agents: Iterable[str]) -> str:
    """Agents in a line of the log: all of a few, the first of many."""
    names = sorted(agents)
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
