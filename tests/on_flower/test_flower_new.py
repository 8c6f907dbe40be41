"""`fedincentive new flower`: its two apps play as they are, on a grid in this process, and everyone gains."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from commands import command
from flwr.app import Context, RecordDict
from flwr.common.config import get_fused_config_from_dir
from gains import contribute_rounds, gains


@pytest.fixture
def project(tmp_path: Path) -> Path:
    done = command("new", "flower", tmp_path / "first-try")
    assert done.output.splitlines()[-1].endswith("flwr run . local --stream --federation-config 'num-supernodes=4'")
    return tmp_path / "first-try"


def test_the_command_it_prints_runs_at_once_in_flowers_own_simulation(flower: Any) -> None:
    """In a shell without any of the variables that these tests use to keep Flower from the network."""
    flower.env = {name: value for name, value in flower.env.items() if not name.startswith("FLWR_DISABLE")}
    typed = flower.run("fedincentive new flower first-try").split("Try it: ")[1]
    said = flower.run(typed)
    assert "Before the first round" in said and "ended: complete" in said, said[-3000:]
    (run,) = (flower.app / "first-try" / "fedincentive-runs").iterdir()
    assert len(found := gains(run, cost=0.05)) == 4 and min(found.values()) > 0.0


def played(project: Path, grid: Any, **incentive: Any) -> None:
    """With the run config as Flower reads it from the project's pyproject.toml."""
    config = {**get_fused_config_from_dir(project, {}), "incentive.output": str(project / "runs")}
    config |= {f"incentive.{name}": value for name, value in incentive.items()}
    nodes = grid(config)
    nodes.join_all(runpy.run_path(str(project / "client_app.py"))["app"], 4)
    runpy.run_path(str(project / "server_app.py"))["app"](nodes, Context(1, 1, {}, RecordDict(), config))


def test_a_new_project_plays_as_it_is(project: Path, grid: Any) -> None:
    played(project, grid)
    (run,) = (project / "runs").iterdir()
    assert len(found := gains(run, cost=0.05)) == 4 and min(found.values()) > 0.0
    assert contribute_rounds(run) <= 5


@pytest.mark.parametrize(
    "incentive", [{"value-per-nat": 0.1}, {"cost": 1.0, "beta": "1.1"}], ids=["worthless", "dearer than ln(10) nats"]
)
def test_a_config_in_which_most_lose_stops_with_the_page(incentive: dict, project: Path, grid: Any) -> None:
    with pytest.raises(Exception, match=r"agents lose[\s\S]*Before the first round[\s\S]*accept_losses to true"):
        played(project, grid, **incentive)
