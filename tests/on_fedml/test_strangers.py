"""What someone who only reaches the port can do to a run without keys, and what one frame can cost: real servers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fedincentive.plugins.fedml import wire
from fedincentive.plugins.fedml.transports.over_grpc import GrpcTransport
from fedml_runs import write_config
from keyring import folder_of
from parity import GAME, INCENTIVE, ROUNDS, head_of, in_engine, ledger_of
from ports import free_port
from worst_frames import worst

from fedincentive import ledger
from fedincentive.identity import answers, broadcast, read_keys, signed
from fedincentive.ledger.verify import verify
from fedincentive.messages import Broadcast, Enrol
from fedincentive.provenance import receipts
from fedincentive.provenance.keys import PrivateKey

HERE = Path(__file__).parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "game.yaml").write_text(yaml.safe_dump({"game": GAME}))
    return tmp_path


def test_a_malformed_report_in_anyones_name_costs_nobody_its_round(start: Any, folder: Path) -> None:
    incentive = {**INCENTIVE, "game": "game.yaml", "heartbeat": 0.5, "round_timeout": 300.0}
    cf = write_config(folder, "GRPC", "upbred", rounds=ROUNDS, incentive=incentive)
    server, *honest = (start.rank(folder, cf, rank) for rank in range(3))
    stranger = start(folder, HERE / "stranger.py", "--agent", "practice", "--rank", 3, log="stranger")
    for process in (stranger, server, *honest):
        process.ends_well(100)
    text = server.text()
    assert text.count("Agent 'practice' reports s = nan") == ROUNDS
    assert "absent" not in "".join(line for line in text.splitlines() if "(train): contributions" in line)
    assert head_of(ledger_of(folder)) == in_engine("upbred", folder)
    assert text.count("whoever reaches this server can speak for any agent") == 1


def forgeries(stranger: PrivateKey) -> Iterator[Broadcast]:
    """What would end, silence or deceive a client, unsigned and with a key that is not the center's."""
    names = [agent["name"] for agent in GAME["agents"]]
    s, settings, model = dict.fromkeys(names, 1.0), {"rounds": 3}, {"w": np.zeros(2)}
    for told in (
        Broadcast("run", 0, 0, "done", None, s, settings),
        Broadcast("run", 10**9, 10**9, "train", model, s, settings),
        Broadcast("run", 5, 0, "contribute", None, s, settings),
        Broadcast("run", 0, 0, "accept", None, s, {**settings, "terms": {"agents": {}, "scale": 1}}),
    ):
        yield told
        yield dataclasses.replace(told, signature=signed(stranger, broadcast(told, answers(told, "0" * 64))))


def test_in_a_signed_run_a_client_answers_its_center_alone(start: Any, folder: Path) -> None:
    names = [agent["name"] for agent in GAME["agents"]]
    folder_of(folder / "keys", names)
    incentive = {**INCENTIVE, "game": "game.yaml", "heartbeat": 0.5, "round_timeout": 300.0, "keys": "keys"}
    cf = write_config(folder, "GRPC", "2p-upbred", rounds=ROUNDS, incentive=incentive)
    table = folder / "stranger.csv"
    table.write_text((folder / "grpc_ipconfig.csv").read_text().rstrip() + f"\n4,4,127.0.0.1,{free_port()}\n")
    clients = [start.rank(folder, cf, rank) for rank in (1, 2, 3)]
    for client in clients:
        client.says("listens on")
    link = GrpcTransport(str(table), 4, 5)
    try:
        frames = [wire.encode(forged) for forged in forgeries(PrivateKey("center"))]
        for frame in frames:
            link.send(1, frame, 60.0)
        server = start.rank(folder, cf, 0)
        server.says("(contribute)")
        for frame in frames:
            link.send(1, frame, 60.0)
        for process in (server, *clients):
            process.ends_well(150)
    finally:
        link.close()
    assert clients[0].text().count("Refused a broadcast from") == 2 * len(frames)
    assert "absent" not in "".join(line for line in server.text().splitlines() if "contributions" in line)
    assert "[signed]" in server.text() and "can speak for any agent" not in server.text()
    with ledger.read(ledger_of(folder)) as book:
        found, paid = verify(book, recompute=True), book.balances()
    assert found.clean and not found.unbound
    center = read_keys(folder / "keys").public["center"]
    for name in names:
        kept = (ledger_of(folder).parent / "receipts" / name).glob("receipt-*.json")
        proven = [receipts.verify(path.read_text(), center)[0] for path in kept]
        assert sum(one.entry.postings.get(name, 0) for one in proven) == paid[name]


def memory(pid: int) -> int:
    """The most bytes a process has had in memory."""
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_no_frame_costs_a_server_more_than_seconds_or_128_megabytes(start: Any, folder: Path) -> None:
    """The costliest frames that could be thought of; the game's model has two numbers, so none may be large."""
    cf = write_config(folder, "GRPC", "upbred", incentive={**INCENTIVE, "game": "game.yaml", "join_timeout": 300.0})
    server = start.rank(folder, cf, 0)
    server.says("listens on")
    link = GrpcTransport(str(folder / "grpc_ipconfig.csv"), 1, 4)
    try:
        probe(link, server, "at first")
        before = memory(server.pid)
        for kind, frame in worst().items():
            spent = cpu_seconds(server.pid)
            with contextlib.suppress(ConnectionError):
                link.send(0, frame, 60.0)
            probe(link, server, kind)
            assert cpu_seconds(server.pid) - spent < 4.0, kind  # 0.4 s on a quiet machine
        assert memory(server.pid) - before < 128 * 2**20
        flood(link, worst()["a long name"])
        probe(link, server, "at last")
        assert memory(server.pid) - before < 512 * 2**20
    finally:
        link.close()
        server.kill()


def probe(link: GrpcTransport, server: Any, name: str) -> None:
    """The server answers a stranger who is not of the run, so it has read what was sent before."""
    link.send(0, wire.encode(wire.Hello("run", Enrol(name, 1.0, 1.0))), 60.0)
    server.says(f"which enrols as {name!r}")


def flood(link: GrpcTransport, frame: bytes) -> None:
    """More frames at once than would fit its inbox."""
    threads = [threading.Thread(target=link.send, args=(0, frame, 120.0)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
