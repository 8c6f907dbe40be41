"""Clients that die, come early, lie or attack; servers that die and come back: over real gRPC, in real processes."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from fedml_runs import grpc_table, write_config
from keyring import folder_of
from parity import GAME, ledger_of

from fedincentive import ledger

HERE = Path(__file__).parent
# Slow enough to step in, quick enough to wait for.
SLOW = {"beta": "0.5", "gamma": 30.0, "game": "game.yaml", "heartbeat": 0.5, "server_timeout": 200.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "game.yaml").write_text(yaml.safe_dump({"game": GAME}))
    return tmp_path


def book_of(folder: Path) -> Any:
    return ledger.open(ledger_of(folder))


def test_a_dead_client_is_absent_and_charged_and_the_run_goes_on(start: Any, tmp_path: Path) -> None:
    incentive = {"beta": "0.5", "gamma": 1000.0, "round_timeout": 10.0, "heartbeat": 0.5, "cost": 0.1}
    cf = write_config(tmp_path, "GRPC", "2p-upbred", rounds=300, incentive=incentive)
    server, *clients = (start.rank(tmp_path, cf, rank) for rank in range(4))
    server.says("(train)")
    clients[2].kill()
    server.says("No answer within 10 s")
    # Absent in one round is enough to see it; nobody waits for the other 298.
    server.says("absent agent-3")
    with book_of(tmp_path) as book:
        tranches = [entry for entry in book.entries("run") if entry.kind == "tranche"]
    last = tranches[-1]
    assert sum(last.postings.values()) == 0
    delivered = last.inputs["delivered"]
    assert delivered["agent-3"] == 0 and delivered["agent-1"] > 0
    assert last.postings["agent-3"] < 0 < last.postings["agent-1"]
    for process in (server, *clients[:2]):
        process.kill()


def test_a_killed_server_resumes_without_gap_or_double_entry(start: Any, folder: Path) -> None:
    """And ends with the same ledger, to the byte, as a run that nobody disturbed."""
    incentive = {**SLOW, "resume": True}
    undisturbed = folder / "undisturbed"
    undisturbed.mkdir()
    (undisturbed / "game.yaml").write_text((folder / "game.yaml").read_text())
    calm = write_config(undisturbed, "GRPC", "2p-upbred", rounds=30, incentive=incentive)
    for process in [start.rank(undisturbed, calm, rank) for rank in (0, 1, 2, 3)]:
        process.ends_well()

    cf = write_config(folder, "GRPC", "2p-upbred", rounds=30, incentive=incentive)
    clients = [start.rank(folder, cf, rank) for rank in (1, 2, 3)]
    for words in ("(contribute) closed", "(train) closed"):
        server = start.rank(folder, cf, 0)
        server.says(words)
        server.kill()
        assert server.wait() != 0
        server.log.unlink()
    server = start.rank(folder, cf, 0)
    for process in (server, *clients):
        process.ends_well()
    with book_of(folder) as book, book_of(undisturbed) as expected:
        assert book.head() == expected.head()
        assert [entry.seq for entry in book.entries()] == list(range(1, book.head().count + 1))


def test_a_restarted_client_joins_the_round_again(start: Any, folder: Path) -> None:
    cf = write_config(
        folder, "GRPC", "2p-upbred", rounds=30, incentive={**SLOW, "resume": True, "round_timeout": 300.0}
    )
    server, *clients = (start.rank(folder, cf, rank) for rank in range(4))
    server.says("(train) closed")
    clients[0].kill()
    clients[0].wait()
    clients[0] = start.rank(folder, cf, 1)
    for process in (server, *clients):
        process.ends_well()
    assert "No answer" not in server.text()


def test_clients_of_a_dead_server_end_with_an_error(start: Any, folder: Path) -> None:
    cf = write_config(folder, "GRPC", "2p-upbred", rounds=500, incentive={**SLOW, "server_timeout": 10.0})
    server, *clients = (start.rank(folder, cf, rank) for rank in range(4))
    server.says("(train) closed")
    server.kill()
    for client in clients:
        assert client.wait() == 1
        assert "the server is not there after 10 s" in client.text()


def test_an_early_client_waits_without_spinning(start: Any, folder: Path) -> None:
    cf = write_config(folder, "GRPC", "upbred", rounds=2, incentive=SLOW)
    client = start.rank(folder, cf, 1)
    client.says("listens on")
    before, begun = cpu_seconds(client.pid), time.monotonic()
    time.sleep(4)
    share = (cpu_seconds(client.pid) - before) / (time.monotonic() - begun)
    processes = [client, *(start.rank(folder, cf, rank) for rank in (0, 2, 3))]
    for process in processes:
        process.ends_well()
    assert share < 0.3, f"an idle client uses {share:.0%} of a core"  # FedML's own loop takes 96 %


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_lies_forgeries_and_exploits_are_refused_by_name(start: Any, folder: Path) -> None:
    folder_of(folder / "keys", [agent["name"] for agent in GAME["agents"]])
    incentive = {**SLOW, "keys": "keys", "round_timeout": 15.0}
    cf = write_config(folder, "GRPC", "upbred", rounds=8, incentive=incentive)
    server, *honest = (start.rank(folder, cf, rank) for rank in range(3))
    rogue = start(folder, HERE / "rogue.py", "--agent", "practice", "--rank", 3, log="rogue")
    for process in (server, *honest, rogue):
        process.ends_well()
    text = server.text()
    assert not (folder / "touched").exists()
    assert text.count("Refused a message from ipv4:127.0.0.1") == 3 and "(says it is rank 3)" in text
    assert text.count("'practice' does not enrol with its own key") == 3  # another key, another run, no ASCII
    for words in (
        "in the name of agent 'hospital' is not signed with its key",
        "Agent 'practice' reports s = 1000000000.0",
        "Agent 'practice' sends 'w' with shape (5,)",
        "Agent 'practice' sends 'w' with 2 values that are NaN or infinite",
        "Agent 'practice' sent an unsigned report",
        "in the name of agent 'practice' is not signed with its key",
    ):
        assert words in text, words
    rounds = [line for line in text.splitlines() if "(train): contributions" in line]
    assert ["absent practice" in line for line in rounds] == [True] * 6 + [False] * 2
    assert not any("absent hospital" in line or "absent clinic" in line for line in rounds)


def test_too_few_agents_end_the_server_with_their_names(start: Any, folder: Path) -> None:
    cf = write_config(folder, "GRPC", "upbred", incentive={**SLOW, "join_timeout": 20.0, "server_timeout": 5.0})
    server, client = start.rank(folder, cf, 0), start.rank(folder, cf, 1)
    assert server.wait() == 1
    assert "1 of 3 agents enrolled within 20 s; missing: clinic, practice" in server.text()
    assert client.wait() == 1


def test_each_end_listens_on_its_configured_address_only(start: Any, folder: Path) -> None:
    cf = write_config(folder, "GRPC", "upbred", incentive={**SLOW, "join_timeout": 15.0})
    server = start.rank(folder, cf, 0)
    server.says("listens on 127.0.0.1")
    port = int((folder / "grpc_ipconfig.csv").read_text().splitlines()[1].rsplit(",", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", port), timeout=5)
    assert server.wait() == 1
    second = write_config(folder, "GRPC", "upbred", incentive=SLOW)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        grpc_table(folder, [taken.getsockname()[1], 1, 1, 1])
        clash = start.rank(folder, second, 0, run="clash")
        assert clash.wait() == 1
    assert "cannot listen on 127.0.0.1" in clash.text()
