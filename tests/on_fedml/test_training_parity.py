"""Training on real data gives the engine's contributions, ledger and model, bit for bit, in every backend of FedML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from data_parity import EXPECTED, INCENTIVE, LEVEL, MECHANISMS, OWN_MODELS, ROUNDS, SEED, found_in, own_models_in_engine
from fedml_runs import in_backends, write_config
from keyring import folder_of
from parity import ledger_of

from fedincentive import ledger
from fedincentive.ledger.verify import verify
from fedincentive.provenance import statements

PROGRAM = Path(__file__).parent / "training_parity.py"
BACKENDS = ("sp", "GRPC", "MPI")
SHAPING = "accuracy-shaping"
CONFIG = {"rounds": ROUNDS, "train_args": {"learning_rate": 0.1}}


@pytest.fixture(scope="module")
def runs(start: Any, needs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("training")
    files: dict[str, list[Path]] = {backend: [] for backend in BACKENDS}
    for backend in BACKENDS:
        for name in (*MECHANISMS, *OWN_MODELS):
            folder = root / backend / name
            folder.mkdir(parents=True)
            incentive = {**INCENTIVE, "seed": SEED, **({"options": OWN_MODELS[name]} if name in OWN_MODELS else {})}
            files[backend].append(write_config(folder, backend, name, incentive=incentive, **CONFIG))
    in_backends(start, needs, PROGRAM, files, root)
    return root


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_training_gives_the_engines_ledger_and_model(runs: Path, mechanism: str, backend: str) -> None:
    assert found_in(runs / backend / mechanism / "fedincentive-runs" / "run") == EXPECTED[mechanism]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mechanism", OWN_MODELS)
def test_so_it_does_where_each_agent_has_a_model_of_its_own(
    runs: Path, mechanism: str, backend: str, tmp_path: Path
) -> None:
    expected = own_models_in_engine(mechanism, tmp_path)
    assert found_in(runs / backend / mechanism / "fedincentive-runs" / "run") == expected


def test_agents_of_one_client_process_are_sent_their_own_models(runs: Path, start: Any, tmp_path: Path) -> None:
    """Signed, three agents at two ranks: nobody answers to another's model, so nobody was absent."""
    folder_of(tmp_path / "keys", ["agent-1", "agent-2", "agent-3"])
    own = {"seed": SEED, "options": {"level": LEVEL}, "keys": str(tmp_path / "keys")}
    more = {**CONFIG, "device_args": {"worker_num": 2}}
    cf = write_config(tmp_path, "GRPC", SHAPING, incentive={**INCENTIVE, **own}, **more)
    processes = [
        start(tmp_path, PROGRAM, cf, "--", "--rank", rank, "--role", role, log=f"rank-{rank}")
        for rank, role in ((1, "client"), (2, "client"), (0, "server"))
    ]
    for process in processes:
        process.ends_well()
    with ledger.open(ledger_of(tmp_path)) as book:
        assert verify(book, recompute=True, keys=statements.known_keys(tmp_path / "keys")).findings == ()
        entries = [record.entry for record in book.entries()]
    assert [e.inputs["absent"] for e in entries if e.kind == "reports-train"] == [[]] * ROUNDS
    with ledger.open(ledger_of(runs / "sp" / SHAPING)) as book:
        alone = [record.entry.inputs for record in book.entries() if record.entry.kind == "level"]
    assert [e.inputs for e in entries if e.kind == "level"] == alone and len(set(alone[-1]["levels"].values())) == 3
