"""FedML's own FedAvg is the same with the plugin installed, and with it turned off."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fedml_runs import MAIN, write_config


def test_fedavg_learns_the_same_with_and_without_the_plugin(python: Any, tmp_path: Path) -> None:
    cf = write_config(tmp_path, "sp", "FedAvg", rounds=4)
    results = {}
    for switch in ("1", "0"):
        done = python(MAIN, "--cf", cf.name, FEDINCENTIVE_FEDML=switch)
        results[switch] = re.findall(r"'(?:test|training)_(?:acc|loss)': ([0-9.]+)", done.stderr)
    assert len(results["0"]) == 16
    assert results["0"] == results["1"]
    assert not (tmp_path / "fedincentive-runs").exists()
