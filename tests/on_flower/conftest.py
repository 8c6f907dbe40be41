"""Shared by the Flower suite: a grid in this process, and the processes that Flower starts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class LoopbackGrid(Grid):
    """A grid whose nodes are ClientApps in this process; they can go offline, be mute, come back with another id."""

    def __init__(self, run_config: dict[str, Any] | None = None) -> None:
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # what Flower's own hosts set
        self.run_config = run_config or {}
        self.nodes: dict[int, tuple[ClientApp, Context]] = {}
        self.offline: set[int] = set()
        self.mute: set[int] = set()
        self.sent: list[Message] = []
        self.before_send: Callable[[Message], None] = lambda message: None
        self._ids = itertools.count(1)
        self._replies: dict[str, Message] = {}

    def join(self, app: ClientApp, **node_config: Any) -> int:
        """A new node with this app; keys are written with underscores."""
        node = 1000 + next(self._ids)
        config = {key.replace("_", "-"): value for key, value in node_config.items()}
        self.nodes[node] = app, Context(1, node, config, RecordDict(), dict(self.run_config))
        return node

    def join_all(self, app: ClientApp, n: int) -> list[int]:
        return [self.join(app, partition_id=i, num_partitions=n) for i in range(n)]

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.nodes if node not in self.offline]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        accepted = []
        for message in messages:
            self.before_send(message)
            self.sent.append(message)
            name = f"message-{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = name
            node = message.metadata.dst_node_id
            if node in self.offline:
                self._replies[name] = Message(Error(3, "node unavailable"), reply_to=message)
            elif node not in self.mute:
                self._replies[name] = self._answer(message, node)
            accepted.append(name)
        return accepted

    def _answer(self, message: Message, node: int) -> Message:
        app, context = self.nodes[node]
        try:
            return app(message, context)
        except Exception as error:  # as Flower's own hosts do
            return Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(name) for name in list(message_ids) if name in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def get_nodes(self) -> Iterable[Any]:
        raise NotImplementedError


@pytest.fixture
def grid() -> type[LoopbackGrid]:
    return LoopbackGrid
