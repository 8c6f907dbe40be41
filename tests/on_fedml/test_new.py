"""`fedincentive new fedml` runs as it is, and everyone gains by it."""

from __future__ import annotations

import os
from pathlib import Path

from gains import contribute_rounds, gains
from programs import PATH, shell


def test_a_new_project_runs_at_once_and_everyone_gains(home: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PATH": PATH}
    said = shell("fedincentive new fedml first-try", cwd=tmp_path, env=env).stdout
    done = shell(said.split("Try it: ")[1], cwd=tmp_path, env=env)
    run = tmp_path / "first-try" / "fedincentive-runs" / "first"
    assert len(found := gains(run, 0.05)) == 4 and min(found.values()) > 0.0 and contribute_rounds(run) <= 5
    assert "Before the first round of first (2p-upbred, 4 agents" in done.stdout + done.stderr
    page = shell(f"fedincentive report {run}", cwd=tmp_path, env=env).stdout.strip()
    assert "The model is worth more to every agent" in Path(page).read_text()
