"""What someone who only reaches the port can do to a run without keys, and what one frame can cost: real servers."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from fedincentive.plugins.fedml import wire
from fedincentive.plugins.fedml.transports.over_grpc import GrpcTransport
from fedml_runs import write_config
from parity import GAME, INCENTIVE, ROUNDS, head_of, in_engine, ledger_of
from worst_frames import worst

from fedincentive.messages import Enrol

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


def memory(pid: int) -> int:
    """The most bytes a process has had in memory."""
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_no_frame_costs_a_server_more_than_a_second_or_128_megabytes(start: Any, folder: Path) -> None:
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
            assert cpu_seconds(server.pid) - spent < 1.0, kind
        assert memory(server.pid) - before < 128 * 2**20
        flood(link, worst()["a long name"])
        probe(link, server, "at last")
        assert memory(server.pid) - before < 512 * 2**20
    finally:
        link.close()
        server.kill()


def probe(link: GrpcTransport, server: Any, name: str) -> None:
    """The server answers a stranger who is not of the run, so it has read what was sent before."""
    link.send(0, wire.encode(wire.Hello(Enrol(name, 1.0, 1.0))), 60.0)
    server.says(f"which enrols as {name!r}")


def flood(link: GrpcTransport, frame: bytes) -> None:
    """More frames at once than would fit its inbox."""
    threads = [threading.Thread(target=link.send, args=(0, frame, 120.0)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
