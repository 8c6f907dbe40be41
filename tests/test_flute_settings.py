"""What the FLUTE host is told, without FLUTE: settings, refusals, and an agent's part of its data."""

from __future__ import annotations

import copy
import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fedincentive.plugins.flute.client import part
from fedincentive.plugins.flute.settings import FluteSettings, check, is_ours, read

from fedincentive.errors import SettingError

ROOT = Path(__file__).parents[1]
EXAMPLE = yaml.safe_load((ROOT / "examples" / "flute" / "incentive.yaml").read_text())
ROBUST = yaml.safe_load((ROOT / "examples" / "flute" / "robust.yaml").read_text())


def changed(path: str, value: Any, of: dict[str, Any] = EXAMPLE) -> dict[str, Any]:
    found = copy.deepcopy(of)
    *sections, key = path.split(".")
    place = found
    for section in sections:
        place = place.setdefault(section, {})
    place[key] = value
    return found


def test_flutes_own_settings_are_taken() -> None:
    settings, host = read(changed("output_path", "results"))
    assert (settings.mechanism, settings.rounds, settings.sampled, settings.eta) == ("2p-upbred", 5, None, 1.0)
    assert host.classes == 10 and host.output == "results/fedincentive-runs"
    assert read(changed("server_config.num_clients_per_iteration", 3))[0].sampled == 3


def test_flutes_own_names_stay_flutes() -> None:
    """Its FedAvg may be written `fedavg`, as a mechanism of ours is called."""
    assert [name for name in ("DGA", "FedAvg", "fedavg", "FEDPROX", "fedlabels", "mean") if is_ours(name)] == ["mean"]
    with pytest.raises(SettingError, match="Known: .* fedavg, fedavg-strategic"):
        check(changed("strategy", "pareto"))


@pytest.mark.parametrize("config", [EXAMPLE, ROBUST, {**EXAMPLE, "strategy": "DGA"}, {**ROBUST, "strategy": "FedProx"}])
def test_the_examples_and_flutes_own_strategies_pass(config: dict[str, Any]) -> None:
    check(config)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (changed("strategy", "2p-upbread"), "2p-upbred"),
        (changed("strategy", None), "strategy is None"),
        ([], "no server_config"),
        (changed("dp_config.enable_local_dp", True), "DGA strategy alone applies it"),
        (changed("client_config.quant_thresh", 0.5, ROBUST), "quant_thresh is 0.5"),
        (changed("server_config.wantRL", True), "wantRL"),
        (changed("server_config.type", "personalization"), "personalization"),
        (changed("server_config.send_dicts", True), "send_dicts"),
        (changed("client_config.type", "gradient"), "client_config.type"),
        (changed("privacy_metrics_config.apply_metrics", True), "apply_metrics"),
        (changed("server_config.data_config.train", {"batch_size": 1}), "data_config.train"),
        (changed("server_config.fall_back_to_best_model", True), "fall_back_to_best_model"),
        (changed("server_config.optimizer_config", {"type": "adam", "lr": 0.1}), "server_optimizer"),
        (changed("server_config.optimizer_config.momentum", 0.9), "sgd with an lr alone"),
        (changed("server_config.annealing_config.gamma", 0.5), "gamma 1.0"),
        (changed("server_config.num_clients_per_iteration", "2,4"), "one whole number"),
        (changed("server_config.incentive.rounds", 3), "server_config.max_iteration"),
        (changed("server_config.incentive.betta", "1"), "beta"),
        (changed("server_config.incentive", "2"), "incentive"),
        (changed("server_config.incentive.auditors", ["a", "b", "c"]), "auditors"),
        (changed("server_config.rule", {"trim": 1}), "incentive.aggregation"),
        (changed("server_config.incentive", {"beta": "1"}, ROBUST), "is a robust rule"),
        (changed("server_config.rule", {"trimm": 1}, ROBUST), "trimm"),
        (changed("server_config.rule", {}, ROBUST), "trim"),
        (changed("strategy", "nmn+median", ROBUST), "nnm"),
    ],
)  # fmt: skip
def test_what_would_not_work_is_refused(config: Any, said: str) -> None:
    with pytest.raises(SettingError, match=re.escape(said)):
        check(config)


def test_a_part_of_a_users_data_keeps_its_kind() -> None:
    data = {
        "users": ["ann"],
        "num_samples": [3],
        "user_data": {"ann": {"x": np.arange(6).reshape(3, 2), "text": ["a", "b", "c"]}},
        "user_data_label": {"ann": [7, 8, 9]},
    }
    found = part(data, np.array([2, 0]))
    assert found["num_samples"] == [2] and found["user_data_label"]["ann"] == [9, 7]
    assert found["user_data"]["ann"]["text"] == ["c", "a"]
    assert found["user_data"]["ann"]["x"].tolist() == [[4, 5], [0, 1]]


@pytest.mark.parametrize("values", [5, [1, 2], {"x": [1, 2, 3], "y": 4}, iter([1, 2, 3])])
def test_data_that_cannot_be_divided_is_refused(values: Any) -> None:
    data = {"users": ["ann"], "num_samples": [3], "user_data": {"ann": values}}
    with pytest.raises(SettingError, match="user_data of user 'ann'.* its 3 points"):
        part(data, np.array([0]))


def test_the_table_of_host_settings_is_the_schema() -> None:
    text = (ROOT / "docs" / "flute.md").read_text()
    table = dict(re.findall(r"^\| `([a-z_]+)` \| (\S+) \|", text, flags=re.M))
    assert {key: yaml.safe_load(value.strip('`"')) for key, value in table.items()} == {
        field.name: "none" if field.default is None else field.default for field in dataclasses.fields(FluteSettings)
    }


@pytest.mark.parametrize(("file", "said"), [(None, "run this in a checkout"), ("e2e_trainer.py", "")])
def test_the_program_says_what_is_missing(tmp_path: Path, file: str | None, said: str) -> None:
    if file:
        (tmp_path / file).touch()
    command = [sys.executable, "-m", "fedincentive.plugins.flute", "-config", "none.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert said in done.stderr and ("fedincentive[flute]" in done.stderr or "none.yaml" in done.stderr or not file)
