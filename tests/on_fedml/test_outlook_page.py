"""A config in which most agents lose stops in FedML's own runner, with the page and without a traceback."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from programs import PATH, shell

COST = "    cost: 0.05 "
WITH_LOSSES = "    accept_losses: true\n    cost: 1.0"


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Path:
    shell("fedincentive new fedml .", cwd=tmp_path, env={**os.environ, "PATH": PATH})
    return tmp_path


def play(project: Path, cost: str) -> subprocess.CompletedProcess[str]:
    """At a cost of 1 the agents lose: ln(10) nats are worth 230, fewer than their points cost; 10 nats would do."""
    settings = (project / "fedml.yaml").read_text()
    assert settings.count(COST) == 1
    (project / "fedml.yaml").write_text(settings.replace(COST, cost))
    words = ["python", "main.py", "--cf", "fedml.yaml", "--run_id", "first"]
    return subprocess.run(words, cwd=project, env={**os.environ, "PATH": PATH}, capture_output=True, text=True)


def test_most_agents_lose(project: Path) -> None:
    done = play(project, "    cost: 1.0 ")
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    assert "fedincentive: 4 of 4 agents lose in run 'first' even if the model becomes perfect" in done.stderr
    for title in ("phase 1", "price", "worth", "payments", "loses", "can owe", "not verified"):
        assert f"\n  {title:<13}" in done.stderr
    assert not (project / "fedincentive-runs" / "first" / "state").exists()


def test_unless_that_is_accepted(project: Path) -> None:
    done = play(project, WITH_LOSSES)
    assert done.returncode == 0 and "Before the first round of first" in done.stdout + done.stderr


def test_a_mistake_in_the_settings_is_one_sentence(project: Path) -> None:
    done = play(project, "    betta: 1.0\n    cost: 0.05 ")
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    assert "fedincentive: incentive has no setting 'betta'. Did you mean 'beta'?" in done.stderr
