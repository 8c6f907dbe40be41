"""Every command of examples/fedml/README.md does what it says, run as a user runs it."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from fedincentive.plugins.fedml.settings import FedmlSettings
from fedml_runs import EXAMPLES, accuracy
from gains import contribute_rounds, gains
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


@pytest.mark.parametrize("sizes", ["the example's", "thousands"])
def test_everyone_gains_with_the_first_pages_yaml(folder: Path, sizes: str) -> None:
    """The YAML of the repository's README over the example's own; with 25 copies of each digit, per copy."""
    root = EXAMPLES.parents[1] / "README.md"
    (given,) = (block for block in blocks(root.read_text(), "yaml") if "federated_optimizer" in block)
    values = yaml.safe_load((folder / "single_process.yaml").read_text())
    values |= {"incentive_args": yaml.safe_load(given)["incentive_args"]}
    values["train_args"] |= yaml.safe_load(given)["train_args"] | {"comm_round": 2}
    incentive, program = values["incentive_args"]["incentive"], (folder / "main.py").read_text()
    if sizes == "thousands":
        program = program.replace(
            "TensorDataset(x[start:stop], y[start:stop])",
            "TensorDataset(x[start:stop].repeat(25, 1), y[start:stop].repeat(25))",
        )
        incentive |= {"beta": "0.02", "cost": 0.004}
    name = "first" if sizes == "thousands" else "second"
    (folder / f"{name}.py").write_text(program)
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(values))
    done = shell(
        f"python {name}.py --cf {name}.yaml --run_id {name}-page", cwd=folder, env={**os.environ, "PATH": PATH}
    )
    run = folder / "fedincentive-runs" / f"{name}-page"
    assert len(found := gains(run, incentive["cost"])) == 10 and min(found.values()) > 0.0
    assert contribute_rounds(run) == 2
    assert "nobody for certain" in done.stdout + done.stderr


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
