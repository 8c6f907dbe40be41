"""FedML as people run it: the shapes of its own examples, the users' own loaders and trainers, and what is refused."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fedml_runs import mpirun, write_config
from programs import run

from fedincentive import ledger
from fedincentive.errors import SettingError

PROGRAM = Path(__file__).parent / "shapes.py"
USERS = {"beta": "0.5", "gamma": 500.0, "cost": 0.1, "audit_seed": 7, "heartbeat": 1.0}


@pytest.fixture(scope="module")
def found(start: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("shapes")
    cases = ("refused", "names", "defaults", "server", "own_things", "defended")
    process = start(folder, PROGRAM, *cases, log="shapes")
    process.ends_well(timeout=500)
    return {**json.loads((folder / "found.json").read_text()), "log": process.text()}


def test_without_a_run_id_every_run_has_its_own(found: dict[str, Any]) -> None:
    first, second = found["names"]["ids"]
    assert first != second and first.startswith("fedavg-")
    assert f"this run is called {first}" in found["log"]


def test_a_finished_run_that_is_resumed_gives_its_trained_model(found: dict[str, Any]) -> None:
    assert found["names"]["same"] and "Run again is over already" in found["log"]


def test_the_model_file_has_plain_keys(found: dict[str, Any]) -> None:
    assert found["names"]["file"]
    assert re.search(r"Model: .*fedincentive-runs/again/model\.pt", found["log"])
    assert re.search(r"To read it: fedincentive report --out again\.html .*again/ledger\.sqlite", found["log"])


@pytest.mark.parametrize("mechanism", ["fedavg-strategic", "upbred"])
def test_with_defaults_it_ends_and_moves(found: dict[str, Any], mechanism: str) -> None:
    status, moved = found["defaults"][mechanism]
    assert status == "complete" and moved > 0.1


def test_fedmls_settings_of_the_servers_optimizer_count(found: dict[str, Any]) -> None:
    assert found["server"]["half"] < 1e-6
    assert "server_optimizer is 'yogi'" in found["server"]["yogi"]
    assert "server_momentum is 0.9" in found["server"]["momentum"]


def test_a_loader_is_put_together_again_as_it_was(found: dict[str, Any]) -> None:
    """21 points of which the last does not fill a batch of 4, BatchNorm, and another batch_size in the YAML."""
    (sizes, drop_last, workers), rate, batches = found["own_things"]["cifar"]
    assert (sizes, drop_last, workers, rate, batches) == ([4] * 5, True, 0, 0.05, 5)


def test_a_batch_size_of_minus_one_is_one_batch(found: dict[str, Any]) -> None:
    assert found["own_things"]["full batch"] == [[12], [13]]


def test_a_trainer_without_test_only_loses_the_welfare(found: dict[str, Any]) -> None:
    assert found["own_things"]["untested"] == ["complete", {}, True]
    words, nothing_agreed = found["own_things"]["untested, t-upbred"]
    assert "Untested has no test(), but t-upbred pays on what models are worth" in words and nothing_agreed


@pytest.mark.parametrize(("kind", "points"), [("stream", [14, 16]), ("dicts", [6, 6]), ("ragged", [10, 10])])
def test_points_are_counted_in(found: dict[str, Any], kind: str, points: list[int]) -> None:
    """A stream as far as FedML counts it; of 7 and 12 points without test data a fifth is held out."""
    assert list(found["own_things"][kind].values()) == points


def test_a_test_that_fails_at_the_server_does_not_end_a_run_that_is_paid(found: dict[str, Any]) -> None:
    """FedML's own aggregator reads pairs only: the dicts and the ragged batches above end with their trained model."""
    assert found["log"].count("DefaultServerAggregator.test() fails on the server's test data (") == 4
    assert "this run goes on without its numbers" in found["log"]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("few", "that needs at least 3 agents, not 2"),
        ("MQTT_S3", "with training_type cross_silo use GRPC or MPI or TRPC"),
        ("cross_device", "use cross_silo with backend GRPC"),
        ("hierarchical", "use scenario horizontal"),
        ("NCCL", "with training_type simulation use sp or MPI"),
        ("FedOpt", "use FedAvg or FedProx"),
        ("no client", "train_data_local_dict has no client 2 (agent 'agent-3')"),
        ("no data", "Agent 'agent-3' (client 2) has no training data"),
        ("server_lr", "train_args.server_lr must be greater than 0.0, not 0"),
        ("twice", "incentive.eta is 1.0, train_args.server_lr 0.5: keep one of them"),
        ("per round", "train_args.client_num_per_round must be at least 1, not 0"),
        ("misspelt rule", "Did you mean 'coordinate_median'?"),
    ],
)
def test_refused_at_once(found: dict[str, Any], what: str, words: str) -> None:
    assert found["refused"][what].startswith("SettingError") and words in found["refused"][what]
    assert found["refused"]["nothing agreed"]


@pytest.mark.parametrize("hostile", [0, 4])
@pytest.mark.parametrize("optimizer", ["FedAvg", "FedProx"])
@pytest.mark.parametrize("rule", ["coordinate_median", "coordinate_trimmed_mean", "centered_clipping"])
def test_a_defended_single_process_run_made_again_by_hand(
    found: dict[str, Any], rule: str, optimizer: str, hostile: int
) -> None:
    """Whoever is hostile, all start from the round's model, and the rule is that of the book, in NumPy."""
    case = found["defended"][f"{optimizer} {rule} {hostile}"]
    model, sent = np.array(case["start"]), np.array(case["sent"]).reshape(2, 5, -1)
    others = [i for i in range(5) if i != hostile]
    for round_ in sent:
        assert np.all(round_[hostile] == 100.0)
        assert np.abs(round_[others] - model).max() < 2.0  # not spoiled by the one before
        model = by_hand(rule, round_, model)
    assert np.allclose(case["model"], model, atol=1e-4)


def by_hand(rule: str, sent: Any, start: Any) -> Any:
    if rule == "coordinate_median":
        return np.median(sent, axis=0)
    if rule == "coordinate_trimmed_mean":
        return np.sort(sent, axis=0)[1:-1].mean(axis=0)  # 0.2 of five is one on each side
    off = sent - start
    return start + (off * np.minimum(1, 0.3 / np.linalg.norm(off, axis=1, keepdims=True))).mean(axis=0)


def test_the_table_of_addresses(tmp_path: Path) -> None:
    """With an ingress others call another address than the one that is listened on; FedML's old table has no ports."""
    from fedincentive.plugins.fedml.transports.over_grpc import read_table

    path = tmp_path / "table.csv"
    path.write_text(
        "eid,rank,grpc_server_ip,grpc_server_port,ingress_ip\n0,0,127.0.0.1,5000,gate.example\n1,1,127.0.0.1,5001,\n"
    )
    assert read_table(str(path), 2) == {
        0: ("127.0.0.1:5000", "gate.example:5000"),
        1: ("127.0.0.1:5001", "127.0.0.1:5001"),
    }
    path.write_text("receiver_id,ip\n0,127.0.0.1\n1,127.0.0.1\n")
    assert read_table(str(path), 2)[1].own == "127.0.0.1:8891"
    with pytest.raises(SettingError, match="no row with eid 2.*device_args.worker_num"):
        read_table(str(path), 3)


@pytest.fixture(scope="module")
def sp_users(start: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder = tmp_path_factory.mktemp("sp-users")
    cf = users_config(folder, "sp", 12, 3)
    start(folder, PROGRAM, "--cf", cf.name, "--run_id", "run", log="sp").ends_well()
    return ended(folder)


def users_config(folder: Path, backend: str, total: int, per_round: int, **more: Any) -> Path:
    train = {"client_num_per_round": per_round}
    device = {"worker_num": 2} if backend == "GRPC" else {}
    cf = write_config(
        folder, backend, "2p-upbred", clients=total, rounds=2, incentive=USERS, train_args=train, device_args=device
    )
    if backend == "GRPC":
        rows = (folder / "grpc_ipconfig.csv").read_text().splitlines()[:4]
        table = [f"{rows[0]},ingress_ip", *(f"{row},localhost" for row in rows[1:])]
        (folder / "grpc_ipconfig.csv").write_text("\n".join(table) + "\n")
    return cf


def ended(folder: Path) -> tuple[Any, Any]:
    manifest = json.loads((folder / "fedincentive-runs/run/state/manifest.json").read_text())
    return manifest["outcome"]["digest"], manifest["outcome"]["head"]


def test_users_in_two_silos_play_the_single_process_game(start: Any, tmp_path: Path, sp_users: Any) -> None:
    """Twelve users, three of them in a round, two client processes behind an ingress."""
    cf = users_config(tmp_path, "GRPC", 12, 3)
    server, *clients = start.all_ranks(tmp_path, cf, clients=2, main=PROGRAM)[::-1]
    assert ended(tmp_path) == sp_users
    for client in clients:
        assert "trained on" in client.text() and "The server says: Run run ended (complete)" in client.text()
    book = ledger.open(tmp_path / "fedincentive-runs/run/ledger.sqlite")
    asked = [set(entry.postings) for entry in book.entries() if entry.kind.startswith("tranche")]
    assert len(asked) == 2 and all(len(who) <= 3 for who in asked)


def test_a_client_of_another_run_or_rank_is_told(start: Any, tmp_path: Path) -> None:
    cf = users_config(tmp_path, "GRPC", 4, 2)
    values = yaml.safe_load(cf.read_text())
    values["incentive_args"]["incentive"] |= {"join_timeout": 20.0, "server_timeout": 8.0}
    cf.write_text(yaml.safe_dump(values))
    server, other, third = (
        start.rank(tmp_path, cf, rank, run=run, main=PROGRAM) for rank, run in ((0, "run"), (1, "old"), (3, "run"))
    )
    assert third.wait() == 1
    assert "2 client processes (device_args.worker_num = 2) have the ranks 1 to 2" in third.text()
    other.says("it plays run 'old', this server run 'run'; start both with the same --run_id")
    assert server.wait() == 1 and other.wait() == 1
    assert "missing: agent-1, agent-2, agent-3, agent-4" in server.text()


@pytest.mark.slow
def test_users_in_three_mpi_processes_play_the_single_process_game(
    needs: Any, home: Path, tmp_path: Path, sp_users: Any
) -> None:
    cf = users_config(tmp_path, "MPI", 12, 3)
    run(*mpirun(needs, PROGRAM, "--cf", cf.name, "--run_id", "run"), cwd=tmp_path, env=dict(os.environ), together=True)
    assert ended(tmp_path) == sp_users


@pytest.mark.slow
def test_a_thousand_users_ten_in_a_round(start: Any, tmp_path: Path) -> None:
    start(tmp_path, PROGRAM, "parrot", log="parrot").ends_well(timeout=900)
    case = json.loads((tmp_path / "found.json").read_text())["parrot"]
    assert case == {"status": "complete", "agents": 1000, "short": 0, "trained": 2}


@pytest.mark.slow
def test_a_thousand_users_in_two_silos(start: Any, tmp_path: Path) -> None:
    start.all_ranks(tmp_path, users_config(tmp_path, "GRPC", 1000, 2), clients=2, main=PROGRAM)
    digest, head = ended(tmp_path)
    assert digest and head
