"""The server's and the client's loops over a link inside one process: what the network rarely does, done on purpose."""

from __future__ import annotations

import dataclasses
import logging
import queue
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedincentive.plugins.fedml import wire
from fedincentive.plugins.fedml.client import Client
from fedincentive.plugins.fedml.server import Server
from fedincentive.plugins.fedml.settings import FedmlSettings
from table import agents_of, opened, play

from fedincentive import game, ledger, mechanisms
from fedincentive.agent import Away
from fedincentive.errors import RunError
from fedincentive.hosting import Session
from fedincentive.messages import Broadcast, Enrol, Report
from fedincentive.settings import Settings

GAME = game.repaired_example()
HOST = FedmlSettings(heartbeat=0.2, round_timeout=300.0, server_timeout=60.0, join_timeout=300.0)
SETTINGS = Settings.read({"mechanism": "upbred", "rounds": 4, "run": "loops", "gamma": 0.1})
SESSION = Session(SETTINGS, HOST, logging.getLogger("test"))


class Inside:
    """A link between threads; `lose` says which frames never arrive."""

    concurrent = True

    def __init__(self, inboxes: list[queue.Queue[tuple[str, bytes]]], rank: int, lose=lambda to, frame: False) -> None:  # type: ignore[no-untyped-def]
        self.inboxes, self.rank, self.lose = inboxes, rank, lose

    def send(self, rank: int, frame: bytes, timeout: float) -> None:
        if not self.lose(rank, frame):
            self.inboxes[rank].put((f"rank {self.rank}", frame))

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        try:
            return self.inboxes[self.rank].get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None: ...

    abort = close


def center(folder: Path, enrolled: list[Any], settings: Settings = SETTINGS) -> Any:
    book = ledger.open(folder / "ledger.sqlite")
    return opened(settings, settings.mechanism, enrolled, {"w": GAME.w0}, book, folder / "state")


def over_links(folder: Path, lose=lambda to, frame: False, settings=SETTINGS, host=HOST):  # type: ignore[no-untyped-def]
    """The whole run with a server and two clients; returns the outcome and what the server saw of each round."""
    inboxes = [queue.Queue() for _ in range(3)]
    seen = []
    ranks = {name: rank for rank, name in enumerate(GAME.agents, start=1)}
    server = Server(
        Inside(inboxes, 0, lose),
        ranks,
        host,
        lambda e: center(folder, e, settings),
        session=Session(settings, host, logging.getLogger("test")),
        progress=lambda _, result: seen.append(result),
    )
    clients = [
        Client(Inside(inboxes, rank, lose), [agent], "loops", host, folder / f"{rank}.json", resume=False)
        for rank, agent in enumerate(agents_of(GAME), start=1)
    ]
    threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    outcome = server.run().outcome
    server.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return outcome, seen


def test_loops_play_what_the_engine_plays(tmp_path: Path) -> None:
    outcome, seen = over_links(tmp_path)
    (tmp_path / "engine").mkdir()
    agents = agents_of(GAME)
    expected = play(center(tmp_path / "engine", agents), agents)
    assert (outcome.head, outcome.digest) == (expected.head, expected.digest)
    assert not any(result.absent for result in seen)


def test_a_client_out_of_reach_in_phase_one_costs_three_time_outs(tmp_path: Path) -> None:
    """And the ledger is the engine's, where the same agent stays away."""
    settings = Settings.read({"beta": "0.5", "gamma": 1.0, "rounds": 2, "run": "loops"})

    def phase_one(to: int, frame: bytes) -> bool:
        message = wire.decode(frame)
        return to == 1 and isinstance(message, Broadcast) and message.phase == "contribute"

    outcome, seen = over_links(tmp_path, phase_one, settings, dataclasses.replace(HOST, round_timeout=0.5))
    assert [result.absent for result in seen if result.absent] == [(GAME.agents[0],)] * 3
    assert outcome.status == "complete" and outcome.lost == (GAME.agents[0],) and outcome.contributed > 4
    (tmp_path / "engine").mkdir()
    agents = agents_of(GAME, strategies={GAME.agents[0]: Away(phases=("contribute",))})
    expected = play(center(tmp_path / "engine", agents, settings), agents)
    assert (outcome.head, outcome.digest) == (expected.head, expected.digest)


def test_a_lost_message_is_sent_again(tmp_path: Path) -> None:
    lost: set[bytes] = set()

    def first_time(to: int, frame: bytes) -> bool:
        """Every broadcast to client 1 and every report of it is lost once."""
        message = wire.decode(frame)
        if isinstance(message, wire.Hello) or getattr(message, "phase", "") == "done":
            return False  # gRPC confirms what it delivers; a lost end would look like a dead server
        concerned = to == 1 or (isinstance(message, Report) and message.agent == GAME.agents[0])
        if not concerned or frame in lost:
            return False
        lost.add(frame)
        return True

    outcome, seen = over_links(tmp_path, first_time)
    assert len(lost) > 8
    assert outcome.status == "complete" and not any(result.absent for result in seen)


def test_a_client_answers_its_own_run_in_order_and_the_same_question_the_same(tmp_path: Path) -> None:
    inboxes = [queue.Queue() for _ in range(2)]
    client = Client(Inside(inboxes, 1), agents_of(GAME)[:1], "loops", HOST, tmp_path / "1.json", resume=False)
    public = mechanisms.get("upbred", SETTINGS).public()
    s = dict(zip(GAME.agents, map(float, GAME.s0), strict=True))

    def asked(run: str, round_: int) -> bytes:
        return wire.encode(Broadcast(run, round_, round_, "train", {"w": np.array([0.5, 1.5])}, s, public))

    for frame in (asked("other", 0), b"noise", asked("loops", 2), asked("loops", 1), asked("loops", 2)):
        inboxes[1].put(("somebody", frame))
    inboxes[1].put(("somebody", wire.encode(Broadcast("other", 9, 9, "done", None, s, public))))
    inboxes[1].put(("somebody", wire.encode(Broadcast("loops", 9, 9, "done", None, s, public))))
    client.run()
    answers = [wire.decode(inboxes[0].get_nowait()[1]) for _ in range(inboxes[0].qsize())]
    assert [type(answer) for answer in answers] == [wire.Hello, Report, Report]
    assert [answer.round for answer in answers[1:]] == [2, 2]
    assert wire.encode(answers[1]) == wire.encode(answers[2])


def test_a_client_s_damaged_memory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "1.json"

    def client() -> Client:
        return Client(Inside([], 1), agents_of(GAME)[:1], "loops", HOST, path, resume=True)

    client()._remember()
    assert (
        client().agents[GAME.agents[0]].state() == agents_of(GAME)[0].state() and path.stat().st_mode & 0o777 == 0o600
    )
    path.write_bytes(path.read_bytes().replace(b'"memory": {', b'"memory": {"actual": 1'))
    with pytest.raises(RunError, match="1.json is damaged .its checksum is wrong"):
        client()


@pytest.mark.parametrize("s_max", [float("nan"), -1.0, 0.0, 9e12, 1e300, float("inf")])
def test_an_impossible_enrolment_is_not_taken(tmp_path: Path, s_max: float) -> None:
    server = Server(
        Inside([queue.Queue()], 0),
        {"a": 1},
        HOST,
        lambda e: center(tmp_path, e),
        session=SESSION,
        progress=lambda *_: None,
    )
    hello = wire.Hello("loops", Enrol("a", s_max, 0.0))
    assert "s_max" in server._wrong_with(hello)
    assert "no such agent" in server._wrong_with(wire.Hello("loops", Enrol("b", 1.0, 0.0)))
    assert "commitment" in server._wrong_with(wire.Hello("loops", Enrol("a", 1.0, 0.5, "line\nline")))
    assert server._wrong_with(wire.Hello("loops", Enrol("a", 1.0, 0.5))) == ""
    server.close()


def test_no_message_ends_the_server(tmp_path: Path, monkeypatch: Any) -> None:
    """Whatever taking one message raises is logged with its sender; only an error of the run itself ends it."""
    inbox: queue.Queue[Any] = queue.Queue()
    server = Server(Inside([inbox], 0), {"a": 1}, HOST, lambda e: center(tmp_path, e), session=SESSION, progress=print)
    hello = wire.encode(wire.Hello("loops", Enrol("a", 1.0, 0.5)))
    monkeypatch.setattr(server, "_hello", lambda *_: 1 // 0)
    for frame in (b"", b"noise", hello):
        inbox.put(("somebody", frame))
        server._receive(1.0)

    def full(*_: Any) -> None:
        raise RunError("the disk is full")

    monkeypatch.setattr(server, "_hello", full)
    inbox.put(("somebody", hello))
    with pytest.raises(RunError):
        server._receive(1.0)
    server.close()
