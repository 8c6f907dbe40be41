"""Audited runs in Flower: nodes that are auditors make the agents' updates again, from committed records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedincentive.plugins.flower import IncentiveStrategy, points, strategic
from fedincentive.plugins.flower.settings import read
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from keyring import folder_of

from fedincentive.errors import RunError
from fedincentive.ledger import open as open_ledger
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify
from fedincentive.provenance import audits, records

AUDITORS = ("ann", "bea", "cleo")
AGENTS = ("agent-1", "agent-2", "agent-3")


def own(context: Context) -> np.ndarray:
    """The records of a node; some of agent-2's are those of agent-1, where the run's config says so."""
    index, copies = int(context.node_config["partition-id"]), int(context.run_config.get("copies", 0))
    mine = index + np.linspace(-1, 1, 20 * (index + 1))
    return np.r_[np.linspace(-1, 1, 20)[:copies], mine[copies:]] if index == 1 else mine


def ordinary(share: float = 1.0) -> ClientApp:
    """It moves the model towards the mean of the points that are asked for; a liar takes a share of them."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        mine = points(message, len(own(context)))
        config, w = message.content["config"], message.content["arrays"]["w"].numpy()
        mine = mine[: int(share * len(mine))]
        rate = float(config["rate"]) / float(config["server-round"])
        shuffled = own(context)[mine][np.random.default_rng(config["seed"]).permutation(len(mine))]
        new = w + rate * (np.array([shuffled.mean(), shuffled[: len(mine) // 2].mean()]) - w)
        arrays, metrics = ArrayRecord({"w": Array(new)}), MetricRecord({"num-examples": len(mine)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        gap = own(context) - message.content["arrays"]["w"].numpy()[0]
        metrics = MetricRecord({"num-examples": 5, "loss": float((gap**2).mean() / 100)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def site(share: float = 1.0) -> Any:
    return strategic(
        ordinary(share),
        size=lambda context: len(own(context)),
        classes=10,
        records=lambda context: [value.tobytes() for value in own(context)],
    )


def played(grid_class: Any, folder: Path, liar: str | None = None, copies: int = 0, **node: Any) -> dict[str, int]:
    """Who failed in which step, in a run of three agents and three auditors, each at its node."""
    folder_of(folder / "keys", [*AGENTS, *AUDITORS])
    config = {"mechanism": "fedavg", "run": "r", "rounds": 3, "agents": 3, "start": 1.0, "keys": str(folder / "keys")}
    if copies:
        (folder / "tags.key").write_text("ab" * 32)
        config["tags"] = str(folder / "tags.key")
    grid = grid_class({f"incentive.{k}": v for k, v in {**config, "auditors": "ann, bea, cleo"}.items()})
    grid.run_config["copies"] = copies
    for i, agent in enumerate(AGENTS):
        grid.join(site(0.5 if agent == liar else 1.0), partition_id=i, num_partitions=6)
    for k, auditor in enumerate(AUDITORS):
        grid.join(site(), **(node and {**node, "auditor": auditor}) or {"partition_id": 3 + k, "num_partitions": 6})
    strategy = IncentiveStrategy(*read({**grid.run_config, "incentive.output": str(folder)}))
    first = ArrayRecord({"w": Array(np.zeros(2))})
    strategy.start(grid, first, train_config=ConfigRecord({"rate": 0.5}))
    with open_ledger(folder / "r" / "ledger.sqlite") as book:
        assert verify(book, recompute=True).clean
        assert standalone.check(list(to_jsonl(book)))[0] == []
        entries = [record.entry for record in book.entries("r")]
    for agent in entries[0].inputs["terms"]["agents"].values():
        assert records.read(agent["data"]) is not None
    memos = [entry.inputs for entry in entries if entry.rule == audits.RULE]
    assert len(memos) == 3
    return {agent: memo["step"] for memo in memos for agent in memo["failed"]}


@pytest.mark.parametrize("node", [{}, {"num_partitions": 6}, {"sites": "agent-1=0 agent-2=1 agent-3=2"}])
def test_honest_nodes_pass_every_audit(grid: Any, tmp_path: Path, node: dict[str, Any]) -> None:
    assert played(grid, tmp_path, **node) == {}


def test_a_node_that_trains_on_half_of_its_points_is_caught(grid: Any, tmp_path: Path) -> None:
    assert played(grid, tmp_path, "agent-2") == {"agent-2": 0}


def test_records_of_another_node_do_not_count(grid: Any, tmp_path: Path) -> None:
    assert played(grid, tmp_path, copies=7) == {}
    with open_ledger(tmp_path / "r" / "ledger.sqlite") as book:
        agreed = next(book.entries("r")).entry.inputs["terms"]["agents"]
    assert agreed["agent-2"]["duplicates"] == {"agent-1": 7}
    assert (agreed["agent-2"]["s_max"], agreed["agent-2"]["enrolled"]) == (33 * 10**6, 40 * 10**6)


def test_an_auditor_without_a_node_is_named(grid: Any, tmp_path: Path) -> None:
    folder_of(tmp_path / "keys", [*AGENTS, *AUDITORS])
    config = {"mechanism": "fedavg", "run": "r", "agents": 2, "join-timeout": 0.5, "keys": str(tmp_path / "keys")}
    grid = grid({f"incentive.{k}": v for k, v in {**config, "auditors": "ann, bea, cleo"}.items()})
    for i in range(2):
        grid.join(site(), agent=AGENTS[i], partition_id=i, num_partitions=2)
    grid.join(site(), auditor="ann")
    grid.join(site(), auditor="cleo")
    strategy = IncentiveStrategy(*read({**grid.run_config, "incentive.output": str(tmp_path)}))
    with pytest.raises(RunError, match="Auditor 'bea' is at no node"):
        strategy.start(grid, ArrayRecord({"w": Array(np.zeros(2))}))
