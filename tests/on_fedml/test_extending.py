"""A payment of another package (the example of docs/extending.md) in FedML, single process and gRPC."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fedml_runs import MAIN, write_config
from packages import install
from parity import ledger_of

from fedincentive import ledger
from fedincentive.ledger.statement import statement
from fedincentive.ledger.verify import verify

CODE = (Path(__file__).parents[2] / "examples" / "extending" / "payment" / "cost_sharing.py").read_text()
POINT = "[fedincentive.payments]\ncost-sharing = cost_sharing:CostSharing\n"
INCENTIVE = {
    "payment": "cost-sharing",
    "beta": "2",
    "gamma": 200.0,
    "cost": {"agent-1": 0.1, "agent-2": 0.2, "agent-3": 0.3},
}


@pytest.mark.parametrize("backend", ["sp", "GRPC"])
def test_a_payment_of_another_package(home: Any, tmp_path: Path, monkeypatch: Any, backend: str) -> None:
    site = install(tmp_path / "site", "cost_sharing", CODE, POINT)
    cf = write_config(tmp_path, backend, "2p-upbred", rounds=2, incentive=INCENTIVE)
    command = [sys.executable, str(MAIN), "--cf", str(cf), "--run_id", "run"]
    env = {**os.environ, "PYTHONPATH": str(site)}
    ranks = (
        [[]] if backend == "sp" else [["--rank", str(r), "--role", "client" if r else "server"] for r in (1, 2, 3, 0)]
    )
    processes = [
        subprocess.Popen(
            [*command, *rank], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in ranks
    ]
    said = [process.communicate(timeout=500)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said[-1][-4000:]
    assert "Certificate: 3 agents, cost-sharing, beta = 2" in said[-1]
    assert "budget-balanced       held: every posting sums to exactly 0  [exact]" in said[-1]
    monkeypatch.syspath_prepend(str(site))
    with ledger.read(ledger_of(tmp_path)) as book:
        assert [entry.kind for entry in book.entries()] == ["terms", "commitment", "cost-sharing"]
        assert verify(book, recompute=True).clean
        assert sum(book.balances().values()) == 0 and book.balances()["agent-3"] > 0 > book.balances()["agent-1"]
        assert "less the others' mean" in statement(book, "agent-2").lines[-1].because
