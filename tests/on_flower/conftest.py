"""Shared by the Flower suite: a grid in this process, and the programs of Flower as its users start them."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flower_task import identified
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from ports import free_port
from programs import PATH, shell, text_of, wait_for_words, waited

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


class LoopbackGrid(Grid):
    """A grid whose nodes are ClientApps in this process; they can go offline, be mute, come back with another id."""

    def __init__(self, run_config: dict[str, Any] | None = None) -> None:
        identified()
        self.run_config = run_config or {}
        self.nodes: dict[int, tuple[ClientApp, Context]] = {}
        self.offline: set[int] = set()
        self.mute: set[int] = set()
        self.sent: list[Message] = []
        self.before_send: Callable[[Message], None] = lambda message: None
        self.before_answer: Callable[[Message], None] = lambda message: None
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
            reply = app(message, context)
            self.before_answer(reply)
            return reply
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


class Flower:
    """Flower's programs in a home of their own. What they leave behind is found by that home, and ended by id."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.app = home / "app"
        shutil.copytree(EXAMPLE, self.app, ignore=shutil.ignore_patterns("__pycache__", "fedincentive-runs"))
        self.port = free_port()  # of the SuperLink that `flwr run ... local` uses
        self.env = {
            **os.environ,
            "HOME": str(home),
            "FLWR_HOME": str(home / ".flwr"),
            "PATH": PATH,
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(self.port),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONUNBUFFERED": "1",
        }

    def start(self, command: str, log: str) -> subprocess.Popen[bytes]:
        """A program that keeps running; its output goes to a file."""
        with open(self.home / f"{log}.log", "ab") as out:
            return subprocess.Popen(
                f"exec {command}",
                shell=True,
                cwd=self.app,
                env=self.env,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def superlink(self, command: str, port: int, log: str) -> None:
        process = self.start(command, log)
        assert waited(lambda: listening(port) or process.poll() is not None, 300), f"{log} does not listen on {port}"
        assert process.poll() is None, self.log(log)

    def run(self, command: str, timeout: float = 1800) -> str:
        """A program that ends; its output. A failure shows it."""
        return shell(command, cwd=self.app, env=self.env, together=True, timeout=timeout).stdout

    def log(self, name: str) -> str:
        return text_of(self.home / f"{name}.log")

    def says(self, name: str, words: str, timeout: float, process: subprocess.Popen[bytes]) -> None:
        """Wait until the program's log holds these words; one that ended without them fails at once."""
        wait_for_words(self.home / f"{name}.log", words, timeout, lambda: process.poll() is not None)

    def left(self) -> list[int]:
        """Processes that were started in this home, however far they have drifted from us."""
        mark, found = f"FLWR_HOME={self.env['FLWR_HOME']}".encode(), []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                try:
                    if mark in (folder / "environ").read_bytes().split(b"\0"):
                        found.append(int(folder.name))
                except OSError:
                    continue
        return found

    def end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.left():
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            waited(lambda: not self.left(), 10)


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    """A home for Flower's programs. Whatever the tests start or Flower leaves behind is ended, and that is checked."""
    flower = Flower(tmp_path_factory.mktemp("flower"))
    yield flower
    flower.end()
    assert flower.left() == []
