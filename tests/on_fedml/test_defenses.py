"""Our robust rules behind FedML's own switch, where its rules of similar names fail."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedml_runs import accuracy, mpirun, write_config
from packages import install_shrunk_mean
from programs import run

HERE = Path(__file__).parent

RULES = """
import json, sys
from collections import OrderedDict
from types import SimpleNamespace
import torch, fedml
from fedml.core.security.fedml_defender import FedMLDefender
from fedml.ml.aggregator.agg_operator import FedMLAggOperator

def updates(values, counts):
    return [(n, OrderedDict(w=torch.tensor([float(v)]), seen=torch.tensor(n))) for v, n in zip(values, counts)]

def result(name, values=(1, 2, 3, 4, 1000), counts=(5, 1, 9, 2, 7), **settings):
    args = SimpleNamespace(enable_defense=True, defense_type=name, federated_optimizer="FedAvg", **settings)
    defender = FedMLDefender.get_instance()
    defender.init(args)
    raw = updates(values, counts)
    kept = [model["w"].clone() for _, model in raw]
    before = OrderedDict(w=torch.zeros(1), seen=torch.tensor(0))
    raw = defender.defend_before_aggregation(raw, before)
    model = defender.defend_on_aggregation(raw, FedMLAggOperator.agg, before)
    model = defender.defend_after_aggregation(model)
    same = all(torch.equal(a, model["w"]) for a, (_, model) in zip(kept, raw))
    return [float(model["w"]), int(model["seen"]), same, len(defender.get_benign_client_idxs(list(range(5))))]

found = {
    "coordinate_trimmed_mean": result("coordinate_trimmed_mean", beta=0.2),
    "coordinate_median": result("coordinate_median"),
    "robust_krum": result("robust_krum", byzantine_client_num=1),
    "multi_krum": result("multi_krum", byzantine_client_num=1, krum_param_m=2),
    "geometric_median": result("geometric_median"),
    "centered_clipping": result("centered_clipping", tau=2.5),
    "weighted_mean": result("weighted_mean"),
    "by share": result("coordinate_trimmed_mean", share=0.3, cap=0.4),
    "nnm+coordinate_median": result("nnm+coordinate_median", byzantine_client_num=1),
    "meamed": result("meamed", byzantine_client_num=1),
    "robust_bulyan": result("robust_bulyan", (1, 2, 3, 4, 5, 6, 1000), (1,) * 7, byzantine_client_num=1),
    "shrunk_mean": result("shrunk_mean", tau=0.25),
}
defender = FedMLDefender.get_instance()
defender.init(SimpleNamespace(enable_defense=False))
found["off"] = [defender.is_defense_enabled(), defender.is_defense_on_aggregation()]
try:
    defender.init(SimpleNamespace(enable_defense=True, defense_type="coordinate_trimed_mean"))
except Exception as error:
    found["misspelt"] = str(error)
try:
    result("robust_krum")
except Exception as error:
    found["unsaid"] = str(error)
sys.stderr.write("found " + json.dumps(found) + chr(10))
"""


@pytest.fixture(scope="module")
def rules(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = install_shrunk_mean(tmp_path_factory.mktemp("rules"))
    done = run(sys.executable, "-c", RULES, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)})
    return json.loads(re.findall(r"^found (.*)$", done.stderr, re.M)[-1])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("coordinate_trimmed_mean", 3.0),
        ("coordinate_median", 3.0),
        ("geometric_median", 3.0),
        ("weighted_mean", (5 * 1 + 1 * 2 + 9 * 3 + 2 * 4 + 7 * 1000) / 24),
        ("by share", 3.1875),  # of 24 samples 7.2 go on each side: 7.8 of the 3s and 1.8 of the 4s are left
        ("nnm+coordinate_median", 2.5),
        ("meamed", 2.5),
    ],
)
def test_rule_gives(rules: dict[str, Any], name: str, expected: float) -> None:
    value, seen, unchanged, benign = rules[name]
    assert value == pytest.approx(expected, rel=1e-5)
    assert (seen, unchanged, benign) == (9, True, 5)  # counters take the largest, no client's update is touched


@pytest.mark.parametrize("name", ["robust_krum", "multi_krum", "centered_clipping", "robust_bulyan"])
def test_rule_withstands_the_outlier(rules: dict[str, Any], name: str) -> None:
    value, _, unchanged, _ = rules[name]
    assert 0.5 <= value <= 4.0 and unchanged


def test_a_rule_of_another_package_is_a_defense(rules: dict[str, Any]) -> None:
    assert rules["shrunk_mean"][0] == pytest.approx(0.25 * (1 + 2 + 3 + 4 + 1000) / 5)


def test_switch_off_and_mistakes(rules: dict[str, Any]) -> None:
    assert rules["off"] == [False, False]
    assert rules["misspelt"].endswith("Did you mean 'coordinate_trimmed_mean'?")
    assert "byzantine_client_num is required" in rules["unsaid"]


def test_a_byzantine_client_0_breaks_fedmls_rfa_and_not_ours(start: Any, tmp_path: Path) -> None:
    """Three silos with equal counts, the first one hostile, FedML's own FedAvg over its own gRPC backend."""
    reached = {}
    for name in ("rfa", "geometric_median", "coordinate_median"):
        folder = tmp_path / name
        folder.mkdir()
        defense = {"enable_defense": True, "defense_type": name}
        cf = write_config(folder, "GRPC", "FedAvg", rounds=4, defense_args=defense)
        server = start.rank(folder, cf, 0, main=HERE / "byzantine.py")
        server.says("Started gRPC server")  # FedML's clients die when they come before their server
        clients = [start.rank(folder, cf, rank, main=HERE / "byzantine.py") for rank in (1, 2, 3)]
        for process in (server, *clients):
            process.ends_well()
        reached[name] = accuracy(server.text())
        if name == "coordinate_median":
            assert_median_by_hand(folder, hostile=0)
    assert reached["rfa"] < 0.4, reached
    assert reached["geometric_median"] > 0.8 and reached["coordinate_median"] > 0.8, reached


@pytest.mark.parametrize("backend", ["sp", "MPI"])
def test_fedavg_is_defended_in_every_simulator(
    start: Any, needs: Any, home: Path, tmp_path: Path, backend: str
) -> None:
    """FedML's sp ignores enable_defense and its MPI simulator stops on it.

    The last client is the hostile one: in the first round of FedML's sp every client starts from the model the one
    before it made, so that a hostile first client spoils all others, whatever the rule.
    """
    defense = {"enable_defense": True, "defense_type": "coordinate_median"}
    cf = write_config(tmp_path, backend, "FedAvg", rounds=4, defense_args=defense)
    if backend == "sp":
        process = start(tmp_path, HERE / "byzantine.py", "--cf", cf.name, log="sp", HOSTILE="2")
        process.ends_well()
        text = process.text()
    else:
        command = mpirun(needs, HERE / "byzantine.py", "--cf", cf.name)
        text = run(*command, cwd=tmp_path, env={**os.environ, "HOSTILE": "2"}, together=True).stdout
    assert accuracy(text) > 0.8
    assert_median_by_hand(tmp_path, hostile=2)


def assert_median_by_hand(folder: Path, *, hostile: int, clients: int = 3, rounds: int = 4) -> None:
    """Each round begins, for everyone, with the median of what all sent in the round before, in NumPy."""
    seen = [[np.load(folder / f"{client}-{step}.npz") for client in range(clients)] for step in range(rounds)]
    for before, after in zip(seen, seen[1:], strict=False):
        sent = np.array([of["sent"] for of in before])
        assert np.abs(sent[hostile]).max() > 10 > np.abs(np.delete(sent, hostile, axis=0)).max()
        for got in after:
            np.testing.assert_allclose(got["got"], np.median(sent, axis=0), atol=1e-6)
