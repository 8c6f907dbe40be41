"""Every command of examples/fedml/README.md does what it says, run as a user runs it."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from fedincentive.plugins.fedml.settings import FedmlSettings
from fedml_runs import EXAMPLES, accuracy
from ports import free_port
from programs import PATH, blocks, shell

README = (EXAMPLES / "README.md").read_text()
BLOCKS = blocks(README, "bash")
ENDS = {
    "single_process": ["clean: 12 entries", "agent-10"],
    "mpi.yaml": ["clean: 12 entries"],
    "grpc.yaml": ["clean: 12 entries"],
    "trpc.yaml": ["clean: 12 entries"],
    "robust.yaml": [],
}


@pytest.fixture(scope="module")
def folder(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples as they are; only the ports are free ones of this machine."""
    copy = tmp_path_factory.mktemp("examples") / "fedml"
    shutil.copytree(EXAMPLES, copy)
    for table in copy.glob("*.csv"):
        table.write_text(re.sub(r"(?<=127\.0\.0\.1,)\d+", lambda _: str(free_port()), table.read_text()))
    return copy


@pytest.mark.parametrize("name", ENDS)
def test_readme_commands_run(folder: Path, needs: Any, name: str) -> None:
    block = next(block for block in BLOCKS if name in block)
    if "mpirun" in block:
        needs("mpirun")
    done = shell(block, cwd=folder, env={**os.environ, "PATH": PATH})
    for words in ENDS[name]:
        assert words in done.stdout
    assert accuracy(done.stderr) > 0.85


def test_no_command_of_the_readme_is_left_out() -> None:
    assert len(BLOCKS) == len(ENDS)
    assert all(sum(name in block for name in ENDS) == 1 for block in BLOCKS)


def test_the_readme_lists_every_setting_of_the_host() -> None:
    for field in dataclasses.fields(FedmlSettings):
        default = "" if field.default is None else f"`{field.default}`"
        assert f"| `{field.name}` | {default} | {field.metadata['help']} |" in README


def test_every_configuration_is_in_the_readme() -> None:
    assert {file.name for file in EXAMPLES.glob("*.yaml")} - {"gpu_mapping.yaml"} == set(
        re.findall(r"--cf (\S+\.yaml)", README)
    )
