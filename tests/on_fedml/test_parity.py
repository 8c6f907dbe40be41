"""The same game gives the same ledger in the in-process engine and in every backend of FedML."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedincentive import engine, game, ledger, mechanisms
from fedincentive.agent import Agent, ClosedFormSite
from fedincentive.aggregation import StoredUpdate
from fedincentive.center import Center

HERE = Path(__file__).parent
RUN = "run"
BACKENDS = ("sp", "GRPC", "TRPC", "MPI")
SEVERAL = HERE / "several.py"
TRAINED = ("2p-upbred", "t-upbred")
MECHANISMS = ("upbred", "t-upbred", "2p-upbred", "trim-2p-upbred", "fedavg-strategic")
ROUNDS = 4
INCENTIVE = {"beta": "0.5", "gamma": 40.0, "alpha": 0.3, "round_limit": 60, "when_short": "train"}
GAME = {
    "kind": "data-value",
    "each": {"cost": 0.01, "b": 20.0},
    "w0": [0.25, -1.0],
    "agents": [
        {"name": "hospital", "s_max": 400, "s0": 100, "ideal": [1.0, 2.0]},
        {"name": "clinic", "s_max": 250.5, "s0": 50.125, "ideal": [0.5, 1.5]},
        {"name": "practice", "s_max": 700, "s0": 333, "ideal": [1 / 3, 0.1]},
    ],
}


def in_engine(mechanism: str, folder: Path) -> str:
    """The ledger's head after the same game in the core alone."""
    settings = mechanisms.Settings.read({**INCENTIVE, "mechanism": mechanism, "rounds": ROUNDS, "run": RUN})
    played = game.read({"game": GAME})
    sites = ClosedFormSite.of(played)
    agents = [Agent(site.name, site, s0=float(s0)) for site, s0 in zip(sites, played.s0, strict=True)]
    with ledger.open(folder / "engine.sqlite") as book:
        enrolled = [agent.enrol() for agent in agents]
        center = Center(settings, mechanisms.get(mechanism, settings), enrolled, {"w": played.w0}, book)
        engine.run(center, agents)
        return f"{book.head().count}:{book.head().hash}"


def head_of(folder: Path) -> str:
    with ledger.open(folder / "fedincentive-runs" / RUN / "ledger.sqlite") as book:
        return f"{book.head().count}:{book.head().hash}"


def model_of(folder: Path) -> dict[str, np.ndarray]:
    state = folder / "fedincentive-runs" / RUN / "state"
    with StoredUpdate(next(state.glob("model-*.safetensors"))) as file:
        return dict(file)


@pytest.fixture(scope="module")
def runs(start: Any, config: Any, needs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every game and training in every backend, in root/kind/backend/mechanism; the backends work side by side."""
    root = tmp_path_factory.mktemp("runs")
    files: dict[str, list[Path]] = {backend: [] for backend in BACKENDS}
    for kind, names, incentive in (
        ("game", MECHANISMS, {**INCENTIVE, "game": "game.yaml"}),
        ("training", TRAINED, {"beta": "0.5", "gamma": 200.0, "cost": 0.1, "start": 0.4}),
    ):
        for backend in BACKENDS:
            for name in names:
                folder = root / kind / backend / name
                folder.mkdir(parents=True)
                (folder / "game.yaml").write_text(yaml.safe_dump({"game": GAME}))
                files[backend].append(config(folder, backend, name, rounds=ROUNDS, incentive=incentive))
    mpirun = [needs("mpirun"), "--allow-run-as-root", "--oversubscribe", "-np", "4", sys.executable, str(SEVERAL)]
    mpi = subprocess.Popen(
        [*mpirun, *map(str, files["MPI"])], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    side_by_side = [start(root, SEVERAL, *files["sp"], log="sp")]
    for backend in ("GRPC", "TRPC"):
        for rank, role in ((1, "client"), (2, "client"), (3, "client"), (0, "server")):
            options = ("--", "--rank", rank, "--role", role)
            side_by_side.append(start(root, SEVERAL, *files[backend], *options, log=f"{backend}-{rank}"))
    for process in side_by_side:
        process.ends_well(timeout=500)
    out, _ = mpi.communicate(timeout=500)
    assert mpi.returncode == 0, out[-4000:]
    return root


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_closed_form_game_gives_the_engines_ledger(runs: Path, mechanism: str, backend: str, tmp_path: Path) -> None:
    assert head_of(runs / "game" / backend / mechanism) == in_engine(mechanism, tmp_path)


def test_mechanisms_differ(runs: Path) -> None:
    """Or the test above would compare nothing. Trimming changes the model, not who gave what."""
    outcomes = set()
    for mechanism in MECHANISMS:
        model = model_of(runs / "game" / "sp" / mechanism)
        outcomes.add((head_of(runs / "game" / "sp" / mechanism), *(array.tobytes() for array in model.values())))
    assert len(outcomes) == len(MECHANISMS)


@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("mechanism", TRAINED)
def test_real_training_gives_the_same_payments_and_model(runs: Path, mechanism: str, backend: str) -> None:
    here, there = runs / "training" / backend / mechanism, runs / "training" / "sp" / mechanism
    for folder in (here, there):
        with ledger.open(folder / "fedincentive-runs" / RUN / "ledger.sqlite") as book:
            assert book.head().count >= ROUNDS
    expected, got = model_of(there), model_of(here)
    assert list(got) == list(expected)
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], atol=1e-5)
    assert entries(here) == entries(there)


def entries(folder: Path) -> list[tuple[str, dict[str, int], Any]]:
    """Contributions to the unit; truthful payments follow losses, which float noise may move by their last digits."""
    with ledger.open(folder / "fedincentive-runs" / RUN / "ledger.sqlite") as book:
        found = []
        for entry in book.entries(RUN):
            coarse = entry.kind == "truthful"
            found.append((entry.kind, {a: round(v, -2) if coarse else v for a, v in entry.postings.items()}))
        return found
