"""The command as a person meets it: help, unknown commands, errors without tracebacks, the doctor's word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedincentive.cli import COMMANDS


def command(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "fedincentive.cli", *args]
    return subprocess.run(program, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)


def test_help_names_every_command(tmp_path: Path) -> None:
    shown = command("--help", cwd=tmp_path)
    assert shown.returncode == 0
    for name, (_, line) in COMMANDS.items():
        assert name in shown.stdout and line.split(".")[0][:40] in shown.stdout


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_loads_and_has_help(name: str, tmp_path: Path) -> None:
    shown = command(name, "--help", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "Usage: fedincentive " + name in shown.stdout


def test_an_unknown_command_points_to_the_nearest(tmp_path: Path) -> None:
    done = command("ledgr", cwd=tmp_path)
    assert done.returncode == 2
    assert "Did you mean 'ledger'?" in done.stderr


def test_our_errors_are_one_line(tmp_path: Path) -> None:
    done = command("ledger", "head", "nowhere.db", cwd=tmp_path)
    assert done.returncode != 0
    assert "nowhere.db" in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_doctor_finds_the_kernels(tmp_path: Path) -> None:
    done = command("doctor", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    parts = {found["part"]: found for found in json.loads(done.stdout)["findings"]}
    assert "scalar" in parts["kernels"]["facts"] and not parts["kernels"]["problems"]
    assert {"kernels", "cuda", "ledger", "plots", "fedml"} <= set(parts)


def test_without_fedml_its_hook_is_no_problem(tmp_path: Path) -> None:
    done = command("doctor", cwd=tmp_path, FEDINCENTIVE_FEDML="0")
    assert done.returncode == 0
    assert "- FedML is not installed: pip install 'fedincentive[fedml]'" in done.stdout


def test_doctor_obeys_the_instruction_set_switch(tmp_path: Path) -> None:
    assert "kernels  scalar of" in command("doctor", cwd=tmp_path, FEDINCENTIVE_ISA="scalar").stdout
    refused = command("doctor", cwd=tmp_path, FEDINCENTIVE_ISA="avx9")
    assert refused.returncode == 1 and "FEDINCENTIVE_ISA='avx9'" in refused.stderr and "Traceback" not in refused.stderr
