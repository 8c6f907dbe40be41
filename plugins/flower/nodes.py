"""Carries messages between the center and the nodes, and knows which node speaks for which agent.

Flower's node ids change when a SuperNode is started again; agents have names. A name passes to another node only when
its old node is gone, has missed the last round it was asked in, or the newcomer proves who it is: with the agent's key,
or with the node key that its name is bound to.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from ...errors import ReportRefused, RunError
from ...hosting import Session
from ...messages import Enrol
from .node_keys import NodeKeys
from .records import INCENTIVE, MESSAGE_TYPES, read_enrol

log = logging.getLogger("flwr.fedincentive")  # shown where Flower shows its own

# Flower's own exchange asks every 3 seconds, which is most of a scalar round; each poll here is one short request, and
# waiting longer than a tenth of what an exchange has taken so far would be seen in its time.
FIRST_POLL, LAST_POLL, POLLS = 0.05, 1.0, 0.1
LOGGED = 500  # characters of what a node caused that go into the log
MEMBERSHIP = 2.0  # seconds between looks for new nodes while waiting for answers

Make = Callable[[int], Message]  # the message of this round for a node


class Nodes:
    """The nodes of one run. Enrolment closes when the first round begins: nodes may change after that, agents not."""

    def __init__(self, grid: Grid, session: Session, keys: NodeKeys | None = None) -> None:
        self.grid, self.session, self.run, self._keys = grid, session, session.settings.run, keys
        self._wanted = 0
        self.enrolled: dict[str, Enrol] = {}
        self.by_agent: dict[str, int] = {}
        self._closed = False
        self._greeted: set[int] = set()  # nodes that were asked who they are
        self._greetings: dict[str, int] = {}  # message id -> node, not answered yet
        self._claims: dict[str, int] = {}  # a name another node still holds -> the node that wants it
        self._failures: dict[int, str] = {}  # nodes that could not enrol, and why
        self._missed: set[str] = set()  # agents that did not answer the last round they were asked in
        self._refused = False
        self._looked = 0.0

    def enrol(self, wanted: int, timeout: float) -> list[Enrol]:
        """Ask every node who it is until `wanted` agents have enrolled and no asked node is still silent."""
        end, pause = time.monotonic() + timeout, FIRST_POLL
        self._wanted = wanted
        while (lacking := self._lacking(wanted)) or self._greetings:
            self._greet()
            self._hear()
            if time.monotonic() > end or self._hopeless():
                break
            if (lacking := self._lacking(wanted)) or self._greetings:
                time.sleep(pause)
                pause = min(2 * pause, LAST_POLL)
        if lacking and len(self.enrolled) >= wanted:
            raise RunError(
                f"Auditor {lacking[0]!r} is at no node after {timeout:g} seconds: start one with --node-config "
                f"'auditor=\"{lacking[0]}\" ...', or raise incentive.join-timeout."
            )
        if len(self.enrolled) < wanted:
            who = f" ({', '.join(sorted(self.enrolled))})" if self.enrolled else ""
            why = "".join(f" Node {node} could not: {reason}" for node, reason in list(self._failures.items())[:3])
            raise RunError(
                f"{len(self.enrolled)} of {wanted} agents enrolled{who}; {timeout:g} seconds were given.{why} Start "
                "the others, raise incentive.join-timeout, or lower incentive.agents."
            )
        self._closed = True
        return [self.enrolled[name] for name in sorted(self.enrolled)]

    def _lacking(self, wanted: int) -> list[str]:
        """Who is still to come: agents by their count, auditors by name."""
        auditors = [name for name in self.session.settings.auditors or () if name not in self.by_agent]
        return ["an agent"] * (wanted - len(self.enrolled)) + auditors

    def _hopeless(self) -> bool:
        """Every node failed to enrol: waiting longer only hides what is wrong with the app or its settings."""
        return bool(self._failures) and not self._greetings and not self.enrolled

    def ask(self, agents: Sequence[str], make: Make, timeout: float) -> Iterator[tuple[str, Message]]:
        """Send each agent its message and yield (agent, reply) as replies come, until all have answered or time is up.

        An agent that comes back at another node while the round is open is asked again there. One whose reply was
        refused is asked once more: Flower lets only an agent's own node reply, so no stranger's reply ends the waiting.
        """
        waiting: dict[str, str] = {}  # message id -> agent
        silent, twice = set(agents), set[str]()
        self._returned()
        self._send(agents, make, waiting)
        begun = time.monotonic()
        end = begun + timeout
        while waiting and time.monotonic() < end:
            for message in self.grid.pull_messages(list(waiting)):
                agent = waiting.pop(message.metadata.reply_to_message_id, None)
                if agent is None or agent not in silent:
                    continue
                if message.has_error():
                    log.warning("Agent %s (node %d): %s", agent, self.by_agent[agent], _short(message.error.reason))
                    continue
                silent.discard(agent)
                self._refused = False
                yield agent, message
                if self._refused and agent not in twice:
                    twice.add(agent)
                    silent.add(agent)
                    self._send([agent], make, waiting)
            if time.monotonic() - self._looked >= MEMBERSHIP:
                self._send([agent for agent in self._returned() if agent in silent], make, waiting)
            if waiting and not any(agent in silent for agent in waiting.values()):
                break
            if waiting:
                pause = min(max(FIRST_POLL, POLLS * (time.monotonic() - begun)), LAST_POLL)
                time.sleep(min(pause, max(0.0, end - time.monotonic())))
        if waiting and silent:
            log.warning("No answer after %g seconds from %s: absent.", timeout, ", ".join(sorted(silent)))
        self._missed = (self._missed - set(agents)) | silent

    @property
    def present(self) -> dict[str, int]:
        """The agents that answered when they were last asked, and their nodes."""
        return {agent: self.by_agent[agent] for agent in self.enrolled if agent not in self._missed}

    def refuse(self) -> None:
        """The reply that was just yielded is not acceptable."""
        self._refused = True

    def _send(self, agents: Sequence[str], make: Make, waiting: dict[str, str]) -> None:
        messages = {agent: make(self.by_agent[agent]) for agent in agents}
        sent = set(self.grid.push_messages(list(messages.values()))) if messages else set()
        for agent, message in messages.items():
            if message.metadata.message_id in sent:
                waiting[message.metadata.message_id] = agent
            else:
                log.warning("Agent %s: node %d takes no messages; it is absent.", agent, message.metadata.dst_node_id)

    # Who is behind which node

    def _returned(self) -> list[str]:
        """The agents that were given a new node just now."""
        self._looked = time.monotonic()
        before = dict(self.by_agent)
        self._greet()
        self._hear()
        self._settle_claims()
        return [agent for agent, node in self.by_agent.items() if before.get(agent) != node]

    def _greet(self) -> None:
        """Ask the nodes that are new who they are."""
        new = [node for node in self.grid.get_node_ids() if node not in self._greeted]
        messages = [
            Message(
                RecordDict({INCENTIVE: ConfigRecord({"run": self.run, "phase": "enrol"})}),
                dst_node_id=node,
                message_type=MESSAGE_TYPES["enrol"],
            )
            for node in new
        ]
        sent = set(self.grid.push_messages(messages)) if messages else set()
        for node, message in zip(new, messages, strict=True):
            if message.metadata.message_id in sent:
                self._greeted.add(node)
                self._greetings[message.metadata.message_id] = node

    def _hear(self) -> None:
        if not self._greetings:
            return
        for message in self.grid.pull_messages(list(self._greetings)):
            node = self._greetings.pop(message.metadata.reply_to_message_id, None)
            if node is None:
                continue
            try:
                if message.has_error():
                    raise ReportRefused(_unwrapped(_short(message.error.reason)))
                self._claim(node, *read_enrol(message.content, f"node {node}"))
            except ReportRefused as refusal:
                self._failures[node] = str(refusal)[:LOGGED]
                log.warning("Node %d did not enrol: %s", node, self._failures[node])

    def _claim(self, node: int, enrol: Enrol, signature: str | None) -> None:
        name = enrol.agent
        if name in (self.session.settings.auditors or ()):
            if wrong := self.session.wrong_with_auditor(enrol, signature):
                raise ReportRefused(f"Node {node}: {wrong}")
            self.by_agent[name] = node
            return
        if wrong := self.session.wrong_with(enrol, signature, max(self._wanted, len(self.enrolled)), self.enrolled):
            raise ReportRefused(f"Node {node}: {wrong}")
        if self._keys is not None and (wrong := self._keys.wrong_with(name, node)):
            raise ReportRefused(f"Node {node}: {wrong}")
        if name not in self.enrolled:
            if self._closed:
                raise ReportRefused(
                    f"Node {node} enrols as agent {name!r} after run {self.run!r} has begun with "
                    f"{', '.join(sorted(self.enrolled))}: it may take part in the next run."
                )
            self.enrolled[name], self.by_agent[name] = enrol, node
        elif self.session.keys is not None or self._keys is not None:
            self._move(name, node)
        else:
            self._claims[name] = node
            self._settle_claims()
            if name in self._claims:
                log.warning(
                    "Node %d claims to be agent %s, who is at node %d: it has to wait.", node, name, self.by_agent[name]
                )

    def _settle_claims(self) -> None:
        if not self._claims:
            return
        online = set(self.grid.get_node_ids())
        for name, node in list(self._claims.items()):
            if node not in online:
                del self._claims[name]
            elif self.by_agent[name] not in online or name in self._missed:
                del self._claims[name]
                self._move(name, node)

    def _move(self, name: str, node: int) -> None:
        log.info("Agent %s is back: node %d instead of %d.", name, node, self.by_agent[name])
        self.by_agent[name] = node
        self._missed.discard(name)


def _unwrapped(reason: str) -> str:
    """What Flower says where an app knows no such query: it was not made strategic."""
    if "enrol" not in reason or not ("registered" in reason or "message type" in reason):
        return reason
    return f"its ClientApp is an ordinary one; wrap it with fedincentive.plugins.flower.strategic() ({reason})"


def _short(reason: str | None) -> str:
    """The last line of a traceback: what went wrong, not where in Flower."""
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
