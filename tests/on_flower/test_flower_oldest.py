"""The README's commands for the oldest Flower that works, in an environment of its own: `make test-flower-oldest`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import flwr
import pytest
from parity import head_of, ledger_of
from ports import free_port
from programs import blocks

SECTION = (Path(__file__).parents[2] / "examples" / "flower" / "README.md").read_text().split("## The same with ")[1]
OLDEST = re.match(r"Flower (\S+)\n", SECTION)[1]  # type: ignore[index]
PORTS = ("9190", "9191", "9192", "9193", "9194", "9195")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def commands(flower: Any) -> list[str]:
    """Those of the section, on ports that are free here, in an app that has its federations."""
    assert flwr.__version__.startswith(f"{OLDEST}."), "make test-flower-oldest"
    (federations,), (lines,) = blocks(SECTION, "toml"), blocks(SECTION, "sh")
    for port in PORTS:
        free = str(free_port())
        federations, lines = federations.replace(f":{port}", f":{free}"), lines.replace(f":{port}", f":{free}")
    with open(flower.app / "pyproject.toml", "a") as file:
        file.write(f"\n{federations}")
    return lines.splitlines()


def test_simulation(flower: Any, commands: list[str]) -> None:
    said = flower.run(commands[0])
    assert "10 agents enrolled: agent-01, " in said and "(2p-upbred) ended: complete" in said
    assert "agent-10: 244 of 244 points, balance +66.600000" in said  # as with the newest
    ends_well(flower, "ten", said)


def test_deployment(flower: Any, commands: list[str]) -> None:
    superlink, north, south, run = commands[1:]
    flower.superlink(superlink, int(re.search(r"control-api-address \S+:(\d+)", superlink)[1]), "superlink")  # type: ignore[index]
    for name, line in (("north", north), ("south", south)):
        flower.start(line, name)
    said = flower.run(run)
    assert "2 agents enrolled: north, south" in said and "(2p-upbred) ended: complete" in said
    ends_well(flower, "two", said)


def ends_well(flower: Any, run: str, said: str) -> None:
    path = ledger_of(flower.app, run)
    assert head_of(path).split(":")[1] in said
    flower.run(f"fedincentive ledger verify {path} --recompute")
