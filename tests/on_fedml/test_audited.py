"""Audited runs in FedML, on real data: auditors are processes of their own, and a client that trains less is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fedml_runs import MAIN, mpirun, write_config
from keyring import folder_of
from parity import ledger_of
from programs import run

from fedincentive import ledger
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify
from fedincentive.provenance import audits, records

AUDITORS = ["ann", "bea", "cleo"]
AGENTS = ["agent-1", "agent-2", "agent-3"]
LIAR = Path(__file__).parent / "liar.py"


def audited(folder: Path, backend: str, **changes: Any) -> Path:
    """The configuration of an audited run, and everybody's keys."""
    folder_of(folder / "keys", [*AGENTS, *AUDITORS])
    paid = {"beta": "3", "steering": "1", "cost": 0.1}
    incentive = {"auditors": AUDITORS, "keys": "keys", "heartbeat": 0.5, "start": 1.0, **paid, **changes}
    return write_config(folder, backend, "2p-upbred", rounds=3, incentive=incentive)


def failed_in(folder: Path) -> dict[str, int]:
    """Who failed in which step, by the ledger, which both verifiers find clean and whose balances are right."""
    with ledger.open(ledger_of(folder)) as book:
        assert verify(book, recompute=True).clean
        assert standalone.check(list(to_jsonl(book)))[0] == []
        entries, balances = list(book.entries("run")), book.balances("run")
    memos = [entry.inputs for entry in entries if entry.rule == audits.RULE]
    agreed = entries[0].inputs["terms"]
    assert set(agreed["auditors"]) == set(AUDITORS) and agreed["settings"]["threads"] == 1
    for agent in agreed["agents"].values():
        assert records.read(agent["data"])[0] == agent.get("enrolled", agent["s_max"]) // agreed["scale"]
    assert len(memos) == 3
    failed = {agent: memo["step"] for memo in memos for agent in memo["failed"]}
    gave = {name: agent["s_max"] // agreed["scale"] * (name not in failed) for name, agent in agreed["agents"].items()}
    lost = {name: int(agreed["agents"][name]["deposit"]) for name in failed}
    for name in AGENTS:  # beta (s - mean of the others), without the deposits that it lost, with its share of others'
        others = [points for other, points in gave.items() if other != name]
        money = 3 * (gave[name] - sum(others) / 2) * 10**6 - lost.get(name, 0)
        money += sum(deposit for other, deposit in lost.items() if other != name) / 2
        assert abs(balances[name] - money) <= 0.5
    assert balances["escrow"] == sum(balances.values()) == 0 and all(deposit > 0 for deposit in lost.values())
    return failed


def test_a_client_that_trains_on_half_of_its_points_is_caught_over_grpc(start: Any, tmp_path: Path) -> None:
    cf = audited(tmp_path, "GRPC")
    options = ("--cf", cf.name, "--run_id", "run")
    ranks = [
        start(tmp_path, LIAR, *options, "--rank", rank, "--role", "client", log=f"run-{rank}", LIAR="2")
        for rank in range(1, 7)
    ]
    server = start(tmp_path, LIAR, *options, "--rank", 0, "--role", "server", log="run-0", LIAR="2")
    for process in (*ranks, server):
        process.ends_well()
    assert failed_in(tmp_path) == {"agent-2": 0}
    assert "agent-2 failed the audit of step 0: made again, the update is" in server.text()
    kept = tmp_path / "fedincentive-runs" / "run" / "agents" / "agent-1.records"
    assert os.stat(kept).st_mode & 0o777 == 0o600


def test_a_lazy_client_and_copies_of_another_sites_records_are_found_over_mpi(needs: Any, tmp_path: Path) -> None:
    (tmp_path / "tags.key").write_text("ab" * 32)
    cf = audited(tmp_path, "MPI", tags="tags.key")
    command = mpirun(needs, LIAR, "--cf", cf.name, "--run_id", "run", ranks=7)
    text = run(*command, cwd=tmp_path, env={**os.environ, "LIAR": "2", "COPIES": "30"}, together=True).stdout
    assert failed_in(tmp_path) == {"agent-2": 0}
    with ledger.open(ledger_of(tmp_path)) as book:
        agreed = next(book.entries("run")).inputs["terms"]
    assert (
        agreed["agents"]["agent-3"]["duplicates"] == {"agent-1": 30} and "duplicates" not in agreed["agents"]["agent-1"]
    )
    assert agreed["agents"]["agent-3"]["enrolled"] - agreed["agents"]["agent-3"]["s_max"] == 30 * agreed["scale"]
    assert "agent-2 failed the audit of step 0: made again" in text
    assert "Agent agent-3 counts with" in text and "30 of agent-1 are duplicates" in text


def test_honest_clients_pass_in_one_process(start: Any, tmp_path: Path) -> None:
    cf = audited(tmp_path, "sp")
    start(tmp_path, MAIN, "--cf", cf.name, "--run_id", "run", log="sp").ends_well()
    assert failed_in(tmp_path) == {}


@pytest.mark.parametrize(("auditors", "words"), [(["ann"], "at least 3"), (["ann", "bea", "agent-1"], "a party to")])
def test_auditors_that_cannot_be_are_refused_before_anyone_joins(
    start: Any, tmp_path: Path, auditors: list[str], words: str
) -> None:
    cf = audited(tmp_path, "sp", auditors=auditors)
    run = start(tmp_path, MAIN, "--cf", cf.name, "--run_id", "run", log="sp")
    assert run.wait() != 0 and words in run.text()
