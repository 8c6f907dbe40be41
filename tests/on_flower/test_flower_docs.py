"""The documentation of the Flower host says what the code does."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

from defaults import written
from fedincentive.plugins.flower.settings import FlowerSettings, nested, read

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # Flower needs it there too

ROOT = Path(__file__).parents[2]


def test_the_table_of_host_settings_is_the_schema() -> None:
    text = (ROOT / "docs" / "flower.md").read_text()
    table = dict(re.findall(r"^\| `([a-z-]+)` \| (\S+) \|", text, flags=re.M))
    fields = {field.name.replace("_", "-"): field.default for field in dataclasses.fields(FlowerSettings)}
    assert {key: value.strip('`"') for key, value in table.items()} == {
        key: written(value) for key, value in fields.items()
    }


def test_the_examples_run_config_is_valid() -> None:
    project = tomllib.loads((ROOT / "examples" / "flower" / "pyproject.toml").read_text())
    table = project["tool"]["flwr"]["app"]["config"]["incentive"]
    flat = {f"incentive.{key}": value for key, value in table.items()}  # as Flower hands it over
    assert nested(flat)["mechanism"] == "2p-upbred"
    settings, host = read(flat)
    assert settings.mechanism == "2p-upbred" and host.agents == 2
