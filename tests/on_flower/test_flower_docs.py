"""The documentation of the Flower host says what the code does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from fedincentive.plugins.flower.settings import HostSettings, nested, read

ROOT = Path(__file__).parents[2]


def test_the_table_of_host_settings_is_the_schema() -> None:
    text = (ROOT / "docs" / "flower.md").read_text()
    table = dict(re.findall(r"^\| `([a-z-]+)` \| (\S+) \|", text, flags=re.M))
    fields = {field.name.replace("_", "-"): field.default for field in dataclasses.fields(HostSettings)}
    assert {key: value.strip('`"') for key, value in table.items()} == {
        key: f"{value:g}" if isinstance(value, (int, float)) else value for key, value in fields.items()
    }


def test_the_examples_run_config_is_valid() -> None:
    lines = (ROOT / "examples" / "flower" / "pyproject.toml").read_text().split("[tool.flwr.app.config.incentive]")[1]
    flat = {}
    for key, value in re.findall(r"^([a-z-]+) = (.*)$", lines, flags=re.M):
        flat[f"incentive.{key}"] = (
            {"true": True, "false": False}.get(value) if value in ("true", "false") else eval(value)
        )
    assert nested(flat)["mechanism"] == "2p-upbred"
    settings, host = read(flat)
    assert settings.mechanism == "2p-upbred" and host.agents == 2
