"""Training on real data gives the engine's contributions, ledger and model, bit for bit, in every backend of FedML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from data_parity import EXPECTED, INCENTIVE, MECHANISMS, ROUNDS, SEED, found_in
from fedml_runs import in_backends, write_config

PROGRAM = Path(__file__).parent / "training_parity.py"
BACKENDS = ("sp", "GRPC", "MPI")


@pytest.fixture(scope="module")
def runs(start: Any, needs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("training")
    files: dict[str, list[Path]] = {backend: [] for backend in BACKENDS}
    for backend in BACKENDS:
        for name in MECHANISMS:
            folder = root / backend / name
            folder.mkdir(parents=True)
            incentive = {**INCENTIVE, "seed": SEED}
            files[backend].append(
                write_config(
                    folder, backend, name, rounds=ROUNDS, incentive=incentive, train_args={"learning_rate": 0.1}
                )
            )
    in_backends(start, needs, PROGRAM, files, root)
    return root


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_training_gives_the_engines_ledger_and_model(runs: Path, mechanism: str, backend: str) -> None:
    assert found_in(runs / backend / mechanism / "fedincentive-runs" / "run") == EXPECTED[mechanism]
