"""What owners of nodes rely on: names bound to Flower's node keys, and the run's files at their own node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from fedincentive.plugins.flower import strategic
from flower_task import FAST, deployed, size, started, task
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes

from fedincentive.errors import RunError, SettingError
from fedincentive.ledger import standalone

SSH = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH


class Keys:
    """Flower's node keys, and a grid that tells them as the SuperLink does."""

    def __init__(self, grid_class: Any, *names: str) -> None:
        public = {name: generate_key_pairs()[1] for name in names}
        self.told = {name: public_key_to_bytes(key) for name, key in public.items()}
        bound = {f"incentive.node-keys.{name}": key.public_bytes(*SSH).decode() for name, key in public.items()}
        held = self.held = {}

        class Authenticated(grid_class):
            def get_nodes(self) -> Any:
                return [NodeInfo(node_id=node, public_key=held.get(node, b"")) for node in self.get_node_ids()]

        self.grid = Authenticated({**FAST, "incentive.agents": 2, "incentive.join-timeout": 2.0, **bound})

    def join(self, name: str, index: int, key: str | None) -> int:
        app = strategic(task([]), size=size, classes=10)
        node = self.grid.join(app, agent=name, partition_id=index, num_partitions=2)
        if key is not None:
            self.held[node] = self.told[key]
        return node


def test_a_name_belongs_to_the_node_with_its_key(grid: Any, tmp_path: Path, caplog: Any) -> None:
    keys = Keys(grid, "north", "south")
    thief = keys.join("south", 1, "north")
    keys.join("north", 0, "north")
    south = keys.join("south", 1, "south")
    with caplog.at_level("INFO", "flwr.fedincentive"):
        strategy, _ = started(keys.grid, tmp_path)
    assert strategy.outcome.status == "complete" and strategy.nodes.by_agent["south"] == south
    assert f"Node {thief}: agent 'south' is bound to a key" in caplog.text and "that of 'north'" in caplog.text
    assert "has no keys: whoever reaches this server" not in caplog.text


@pytest.mark.parametrize(
    ("name", "key", "words"),
    [("south", None, "no key that the SuperLink tells"), ("suoth", "south", "Did you mean 'south'")],
)
def test_who_has_no_key_or_no_name_has_no_part(grid: Any, tmp_path: Path, name: str, key: Any, words: str) -> None:
    keys = Keys(grid, "north", "south")
    keys.join("north", 0, "north")
    keys.join(name, 1, key)
    with pytest.raises(RunError, match=words):
        started(keys.grid, tmp_path)


def test_a_node_with_the_key_takes_its_name_over_at_once(grid: Any, tmp_path: Path) -> None:
    keys = Keys(grid, "north", "south")
    keys.join("north", 0, "north")
    old, moved = keys.join("south", 1, "south"), []

    def again(message: Any) -> None:
        if message.metadata.message_type == "train" and not moved:
            moved.append(keys.join("south", 1, "south"))
            keys.grid.mute.add(old)

    keys.grid.before_send = again
    strategy, _ = started(keys.grid, tmp_path)
    assert strategy.nodes.by_agent["south"] == moved[0] and not strategy.rounds[-1].absent


def test_what_is_no_key_is_refused(grid: Any, tmp_path: Path) -> None:
    made = deployed(grid, 2, [], **{"node_keys.agent-1": "ssh-rsa AAAA"})
    with pytest.raises(SettingError, match=r"incentive.node-keys.agent-1 must be an ECDSA public key"):
        started(made, tmp_path)


def test_the_runs_files_are_at_the_nodes_that_keep_them(grid: Any, tmp_path: Path, caplog: Any) -> None:
    made = grid({**FAST, "incentive.agents": 2, "incentive.handout": True})
    app = strategic(task([]), size=size, classes=10)
    made.join(app, partition_id=0, num_partitions=2, keep=str(tmp_path / "mine"))
    made.join(app, partition_id=1, num_partitions=2)
    with caplog.at_level("INFO", "flwr.fedincentive"):
        strategy, result = started(made, tmp_path / "server")
    folder = tmp_path / "mine" / "r"
    assert "are kept at the nodes of: agent-1\n" in caplog.text
    assert {file.name for file in folder.iterdir()} == {"ledger.jsonl", "outcome.json", "model.npz"}
    with np.load(folder / "model.npz") as model:
        assert np.array_equal(model["w"], result.arrays["w"].numpy())
    said = json.loads((folder / "outcome.json").read_text())
    assert said["outcome"]["status"] == "complete" and said["certificate"]
    checked = subprocess.run(
        [sys.executable, standalone.__file__, folder / "ledger.jsonl"], capture_output=True, text=True, check=True
    )
    assert strategy.outcome.checkpoint.split(":")[-1][:16] in checked.stdout + checked.stderr


def test_without_the_setting_nothing_is_handed_out(grid: Any, tmp_path: Path) -> None:
    made = deployed(grid, 2, [])
    started(made, tmp_path)
    assert not any(message.metadata.message_type == "query.handout" for message in made.sent)
