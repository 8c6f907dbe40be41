"""The same game gives the same ledger in the in-process engine and in every backend of FedML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fedml_runs import in_backends, write_config
from parity import GAME, INCENTIVE, MECHANISMS, ROUNDS, RUN, head_of, in_engine, ledger_of

from fedincentive import ledger
from fedincentive.aggregation import StoredUpdate

HERE = Path(__file__).parent
BACKENDS = ("sp", "GRPC", "TRPC", "MPI")
SEVERAL = HERE / "several.py"
TRAINED = ("2p-upbred", "t-upbred")


def model_of(folder: Path) -> dict[str, np.ndarray]:
    state = ledger_of(folder).with_name("state")
    with StoredUpdate(next(state.glob("model-*.safetensors"))) as file:
        return dict(file)


@pytest.fixture(scope="module")
def runs(start: Any, needs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every game and training in every backend, in root/kind/backend/mechanism; the backends work side by side."""
    root = tmp_path_factory.mktemp("runs")
    files: dict[str, list[Path]] = {backend: [] for backend in BACKENDS}
    for kind, names, incentive in (
        ("game", MECHANISMS, {**INCENTIVE, "game": "game.yaml"}),
        ("training", TRAINED, {"beta": "0.5", "gamma": 200.0, "cost": 0.1, "start": 0.4, "unchecked": True}),
    ):
        for backend in BACKENDS:
            for name in names:
                folder = root / kind / backend / name
                folder.mkdir(parents=True)
                (folder / "game.yaml").write_text(yaml.safe_dump({"game": GAME}))
                files[backend].append(write_config(folder, backend, name, rounds=ROUNDS, incentive=incentive))
    in_backends(start, needs, SEVERAL, files, root)
    return root


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_closed_form_game_gives_the_engines_ledger(runs: Path, mechanism: str, backend: str, tmp_path: Path) -> None:
    assert head_of(ledger_of(runs / "game" / backend / mechanism)) == in_engine(mechanism, tmp_path)


def test_mechanisms_differ(runs: Path) -> None:
    """Or the test above would compare nothing. Trimming changes the model, not who gave what."""
    outcomes = set()
    for mechanism in MECHANISMS:
        folder = runs / "game" / "sp" / mechanism
        outcomes.add((head_of(ledger_of(folder)), *(array.tobytes() for array in model_of(folder).values())))
    assert len(outcomes) == len(MECHANISMS)


@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("mechanism", TRAINED)
def test_real_training_gives_the_same_payments_and_model(runs: Path, mechanism: str, backend: str) -> None:
    here, there = runs / "training" / backend / mechanism, runs / "training" / "sp" / mechanism
    for folder in (here, there):
        with ledger.open(ledger_of(folder)) as book:
            assert book.head().count >= ROUNDS
    expected, got = model_of(there), model_of(here)
    assert list(got) == list(expected)
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], atol=1e-5)
    assert entries(here) == entries(there)


def entries(folder: Path) -> list[tuple[str, dict[str, int], Any]]:
    """Contributions to the unit; truthful payments follow losses, which float noise may move by their last digits."""
    with ledger.open(ledger_of(folder)) as book:
        found = []
        for entry in book.entries(RUN):
            coarse = entry.kind == "truthful"
            found.append((entry.kind, {a: round(v, -2) if coarse else v for a, v in entry.postings.items()}))
        return found
