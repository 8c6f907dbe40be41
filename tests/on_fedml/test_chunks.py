"""Large frames travel in parts: whole, once, few at a time, and again from the first where the receiver lost them."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from fedincentive.plugins.fedml.transports import chunks, over_grpc
from fedincentive.plugins.fedml.transports.chunks import Assembly, Busy, Lost, Oversized, divide
from fedincentive.plugins.fedml.transports.over_grpc import GrpcTransport
from fedml.core.distributed.communication.grpc import grpc_comm_manager_pb2 as pb2
from fedml.core.distributed.communication.grpc import grpc_comm_manager_pb2_grpc as service
from fedml_runs import grpc_table
from ports import free_port


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "PART", 1000)


def frame(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(size)


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 2000, 123_457])
def test_frames_come_whole(small_parts: None, size: int) -> None:
    sent, assembly = frame(size), Assembly()
    *before, last = [assembly.add(part, "a") for part in divide(sent)]
    assert bytes(last) == sent and all(answer is None for answer in before)


def test_a_part_that_comes_twice_counts_once(small_parts: None) -> None:
    sent, assembly = frame(3500), Assembly()
    first, *others, last = divide(sent)
    for part in (first, first, *others, first, *others):
        assert assembly.add(part, "a") is None
    assert bytes(assembly.add(last, "a")) == sent
    assert assembly.add(last, "a") is None and assembly.add(first, "a") is None


def test_a_part_without_its_beginning_is_lost(small_parts: None) -> None:
    assembly, pieces = Assembly(), list(divide(frame(3500)))
    for wrong in (pieces[1], pieces[0][:20], pieces[0][: chunks.HEAD.size]):
        with pytest.raises(Lost):
            assembly.add(wrong, "a")
    assembly.add(pieces[0], "a")
    with pytest.raises(Lost):
        assembly.add(pieces[2], "a")
    beyond = chunks.HEAD.pack(chunks.MAGIC, pieces[0][4:20], 1000, 3500) + bytes(9000)
    with pytest.raises(Lost):
        assembly.add(beyond, "a")


def test_only_so_many_at_a_time_and_the_silent_give_way(small_parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assembly = Assembly()
    one, two, three = (list(divide(frame(2500, seed))) for seed in range(3))
    assembly.add(one[0], "a")
    assembly.add(two[0], "b")
    with pytest.raises(Busy):
        assembly.add(three[0], "c")
    assert assembly.add(b"small ones pass", "c") == b"small ones pass"
    for part in one[1:]:
        done = assembly.add(part, "a")
    assert done is not None
    with pytest.raises(Busy):  # it is complete, but still in use
        assembly.add(three[0], "c")
    assembly.release()
    assert assembly.add(three[0], "c") is None
    monkeypatch.setattr(chunks, "SILENCE", 0.0)
    four = divide(frame(2500, 4))
    assert assembly.add(four[0], "d") is None
    with pytest.raises(Lost):
        assembly.add(two[1], "b")


def test_a_size_that_no_memory_has_or_no_message_of_this_run_is_turned_away() -> None:
    part = chunks.HEAD.pack(chunks.MAGIC, bytes(16), 0, 2**62) + bytes(chunks.PART)
    with pytest.raises(Busy):
        Assembly(2**63).add(part, "a")
    with pytest.raises(Oversized):
        Assembly().add(part, "a")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as the test sets it."""
    told = [0.0]
    monkeypatch.setattr(chunks, "time", SimpleNamespace(monotonic=lambda: told[0]))
    return told


def test_crumbs_and_repetitions_keep_no_place(small_parts: None, now: list[float]) -> None:
    assembly = Assembly()
    one, two, three = (list(divide(frame(2500, seed))) for seed in range(3))
    for _ in range(3):
        with pytest.raises(Lost):
            assembly.add(one[0][:-1], "a")  # one byte less than a part
    assembly.add(one[0], "a")
    assembly.add(two[0], "b")
    for _ in range(5):
        now[0] += 0.9 * chunks.SILENCE
        assembly.add(one[0], "a")
    now[0] += 1
    assert assembly.add(three[0], "c") is None
    with pytest.raises(Lost):
        assembly.add(one[1], "a")


def test_one_sender_never_has_two_places(small_parts: None, now: list[float]) -> None:
    assembly = Assembly()
    one, two, other = (list(divide(frame(2500, seed))) for seed in range(3))
    assembly.add(one[0], "a")
    with pytest.raises(Busy):
        assembly.add(two[0], "a")
    assert assembly.add(other[0], "b") is None
    now[0] += chunks.SILENCE  # it was cut off, and begins again
    assert assembly.add(two[0], "a") is None


def test_parts_that_trickle_hold_no_place_from_others(now: list[float]) -> None:
    """A part every 29 seconds: where another waits it has the place after a minute, not after hours."""
    assembly, size = Assembly(), 400 * chunks.PART
    tricklers = {sender: chunks.HEAD.pack(chunks.MAGIC, sender.encode() * 16, 0, size) for sender in "ab"}
    part = np.zeros(chunks.PART, np.uint8).tobytes()
    for sender, head in tricklers.items():
        assembly.add(head + part, sender)
    honest, waited = list(divide(frame(3 * chunks.PART))), 0.0
    for number in range(1, 400):
        now[0] = 29.0 * number
        for sender, head in tricklers.items():
            with contextlib.suppress(Lost):
                assembly.add(chunks.HEAD.pack(chunks.MAGIC, head[4:20], number * chunks.PART, size) + part, sender)
        try:
            done = [assembly.add(each, "honest") for each in honest]
        except Busy:
            continue
        waited = now[0]
        break
    assert bytes(done[-1]) == b"".join(each[chunks.HEAD.size :] for each in honest)
    assert waited <= 2 * chunks.SILENCE + 29


def test_where_all_are_slow_all_get_through(
    small_parts: None, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three honest clients at half the least rate, for two places: each begins again until it is through."""
    monkeypatch.setattr(chunks, "RATE", 125)  # eight seconds for a part, as of 8 MB
    assembly, seconds = Assembly(), chunks.PART / (chunks.RATE / 2)
    frames = {sender: list(divide(frame(12 * chunks.PART, seed))) for seed, sender in enumerate("abc")}
    sent, done = dict.fromkeys(frames, 0), set()
    for _ in range(500):
        now[0] += seconds
        for sender in sorted(set(frames) - done):
            try:
                whole = assembly.add(frames[sender][sent[sender]], sender)
            except Busy:
                continue
            except Lost:
                sent[sender] = 0
                continue
            sent[sender] += 1
            if whole is not None:
                assembly.release()
                done.add(sender)
    assert done == set(frames)


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(grpc_table(tmp_path, [free_port() for _ in range(5)]))


def test_four_clients_send_more_than_fits_at_once(table: str) -> None:
    """Real gRPC: 20 MB from each of four ranks at the same time, in parts of 8, two frames at a time."""
    server = GrpcTransport(table, 0, 5)
    clients = [GrpcTransport(table, rank, 5) for rank in range(1, 5)]
    frames = {rank: frame(20 * 2**20 + rank, rank) for rank in range(1, 5)}
    threads = [threading.Thread(target=link.send, args=(0, frames[link.rank], 5.0)) for link in clients]
    try:
        for thread in threads:
            thread.start()
        received = []
        while len(received) < 4:
            item = server.receive(300.0)
            assert item is not None
            assert len(server._assembly._incoming) + server._assembly._held <= chunks.FRAMES
            received.append(bytes(item[1]))
        assert sorted(received) == sorted(frames.values())
        server.send(1, frames[2], 300.0)
        item = clients[0].receive(300.0)
        assert item is not None and bytes(item[1]) == frames[2] and "rank 0" in item[0]
    finally:
        for thread in threads:
            thread.join()
        for link in (server, *clients):
            link.close()


def test_a_restarted_server_gets_the_whole_frame(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client, sent, halfway = GrpcTransport(table, 1, 5), frame(60 * 2**20), threading.Event()
    servers = [GrpcTransport(table, 0, 5)]
    add = Assembly.add

    def noticed(self: Assembly, message: bytes, sender: str) -> object:
        answer = add(self, message, sender)
        if any(one.filled > 20 * 2**20 for one in self._incoming.values()):
            halfway.set()
        return answer

    monkeypatch.setattr(over_grpc.Assembly, "add", noticed)
    thread = threading.Thread(target=client.send, args=(0, sent, 300.0))
    thread.start()
    try:
        assert halfway.wait(300)
        servers[0].close()
        servers.append(GrpcTransport(table, 0, 5))
        item = servers[1].receive(300.0)
        assert item is not None and bytes(item[1]) == sent
    finally:
        thread.join()
        for link in (client, servers[-1]):
            link.close()


def trickle(link: GrpcTransport, size: int, pause: float, stop: threading.Event) -> list[str]:
    """Parts of ever new frames of this size, one after a pause; what the server answers."""
    stub, answers = service.gRPCCommManagerStub(grpc.insecure_channel(link._addresses[0].reached)), []
    while not stop.is_set():
        for part in divide(bytes(size)):
            try:
                stub.sendMessage(pb2.CommRequest(client_id=link.rank, message=part), timeout=10)
            except grpc.RpcError as error:
                answers.append(error.code().name)
                break
            if stop.wait(pause):
                break
        stop.wait(pause / 10)
    return answers


def test_an_honest_client_gets_through_beside_tricklers(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real gRPC, with a second for half a minute: two connections trickle parts of frames that would take an hour."""
    for name, value in {"PART": 1000, "SILENCE": 1.0, "RATE": 50_000}.items():
        monkeypatch.setattr(chunks, name, value)
    server, honest = GrpcTransport(table, 0, 5), GrpcTransport(table, 1, 5)
    # What stands for the hour: at a part in 0.9 seconds, 4,000 parts.
    rogues, stop = [GrpcTransport(table, rank, 5) for rank in (2, 3)], threading.Event()
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda link=link: answers.extend(trickle(link, 4_000_000, 0.9, stop)))  # type: ignore[misc]
        for link in rogues
    ]
    try:
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        for seed in range(3):
            sent = frame(20_000, seed)
            sending = threading.Thread(target=honest.send, args=(0, sent, 2.0))
            begun = time.monotonic()
            sending.start()
            item = server.receive(60.0)
            assert item is not None and bytes(item[1]) == sent
            assert time.monotonic() - begun < 30.0
            sending.join()
        server.receive(0.01)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for link in (server, honest, *rogues):
            link.close()
    assert {"FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"} <= set(answers)  # a place was lost, and none was doubled


def test_a_slow_client_gets_through_where_nobody_waits(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PART": 1000, "SILENCE": 0.1, "RATE": 10**6}.items():
        monkeypatch.setattr(chunks, name, value)
    server, slow, sent = GrpcTransport(table, 0, 5), GrpcTransport(table, 1, 5), frame(8_000)
    stub = service.gRPCCommManagerStub(grpc.insecure_channel(slow._addresses[0].reached))
    try:
        for part in divide(sent):
            stub.sendMessage(pb2.CommRequest(client_id=1, message=part), timeout=10)
            time.sleep(0.15)
        item = server.receive(10.0)
        assert item is not None and bytes(item[1]) == sent
    finally:
        for link in (server, slow):
            link.close()


def test_a_message_larger_than_any_of_the_run_is_turned_away_at_once(table: str) -> None:
    server, client = GrpcTransport(table, 0, 5, limit=10 * 2**20), GrpcTransport(table, 1, 5)
    try:
        with pytest.raises(ConnectionError, match="larger than any of this run"):
            client.send(0, bytes(10 * 2**20 + 1), 60.0)
        client.send(0, bytes(10 * 2**20), 60.0)
        assert server.receive(60.0) is not None
    finally:
        for link in (server, client):
            link.close()
