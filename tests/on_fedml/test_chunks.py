"""Large frames travel in parts: whole, once, few at a time, and again from the first where the receiver lost them."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fedincentive.plugins.fedml.transports import chunks, over_grpc
from fedincentive.plugins.fedml.transports.chunks import Assembly, Busy, Lost, divide
from fedincentive.plugins.fedml.transports.over_grpc import GrpcTransport
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
    *before, last = [assembly.add(part) for part in divide(sent)]
    assert bytes(last) == sent and all(answer is None for answer in before)


def test_a_part_that_comes_twice_counts_once(small_parts: None) -> None:
    sent, assembly = frame(3500), Assembly()
    first, *others, last = divide(sent)
    for part in (first, first, *others, first, *others):
        assert assembly.add(part) is None
    assert bytes(assembly.add(last)) == sent
    assert assembly.add(last) is None and assembly.add(first) is None


def test_a_part_without_its_beginning_is_lost(small_parts: None) -> None:
    assembly, pieces = Assembly(), list(divide(frame(3500)))
    for wrong in (pieces[1], pieces[0][:20], pieces[0][: chunks.HEAD.size]):
        with pytest.raises(Lost):
            assembly.add(wrong)
    assembly.add(pieces[0])
    with pytest.raises(Lost):
        assembly.add(pieces[2])
    beyond = chunks.HEAD.pack(chunks.MAGIC, pieces[0][4:20], 1000, 3500) + bytes(9000)
    with pytest.raises(Lost):
        assembly.add(beyond)


def test_only_so_many_at_a_time_and_the_silent_give_way(small_parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assembly = Assembly()
    one, two, three = (list(divide(frame(2500, seed))) for seed in range(3))
    assembly.add(one[0])
    assembly.add(two[0])
    with pytest.raises(Busy):
        assembly.add(three[0])
    assert assembly.add(b"small ones pass") == b"small ones pass"
    for part in one[1:]:
        done = assembly.add(part)
    assert done is not None
    with pytest.raises(Busy):  # it is complete, but still in use
        assembly.add(three[0])
    assembly.release()
    assert assembly.add(three[0]) is None
    monkeypatch.setattr(chunks, "SILENCE", 0.0)
    four = divide(frame(2500, 4))
    assert assembly.add(four[0]) is None
    with pytest.raises(Lost):
        assembly.add(two[1])


def test_a_size_that_no_memory_has_is_turned_away() -> None:
    with pytest.raises(Busy):
        Assembly().add(chunks.HEAD.pack(chunks.MAGIC, bytes(16), 0, 2**62) + bytes(chunks.PART))


def test_crumbs_and_repetitions_keep_no_place(small_parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(chunks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assembly = Assembly()
    one, two, three = (list(divide(frame(2500, seed))) for seed in range(3))
    for _ in range(3):
        with pytest.raises(Lost):
            assembly.add(one[0][:-1])  # one byte less than a part
    assembly.add(one[0])
    assembly.add(two[0])
    for _ in range(5):
        now[0] += 0.9 * chunks.SILENCE
        assembly.add(one[0])
    now[0] += 1
    assert assembly.add(three[0]) is None
    with pytest.raises(Lost):
        assembly.add(one[1])


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

    def noticed(self: Assembly, message: bytes) -> object:
        answer = add(self, message)
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
