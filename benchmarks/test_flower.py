"""Our FedTrimmedAvg beside Flower's, on the same replies: the whole path from messages to the next ArrayRecord.

Run in the Flower environment: pytest benchmarks/test_flower.py --benchmark-enable -s
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import pytest

flower = pytest.importorskip("flwr.serverapp.strategy")

NODES, BETA, ROUNDS = 20, 0.1, 7
# The CIFAR network of the paper: 1,250,858 parameters
SHAPES = {
    "conv1.weight": (32, 3, 3, 3), "conv1.bias": (32,), "conv2.weight": (32, 32, 3, 3), "conv2.bias": (32,),
    "conv3.weight": (64, 32, 3, 3), "conv3.bias": (64,), "conv4.weight": (64, 64, 3, 3), "conv4.bias": (64,),
    "hidden.weight": (512, 2304), "hidden.bias": (512,), "out.weight": (10, 512), "out.bias": (10,),
}  # fmt: skip


def test_flower_trimmed_average(benchmark: object) -> None:
    """Prints the ratio; at least 5 is the goal."""
    from fedincentive.plugins.flower import FedTrimmedAvg

    models = updates()
    pairs = []
    for _ in range(ROUNDS):  # in turns, so that both meet the same machine
        theirs, expected = timed(flower.FedTrimmedAvg(beta=BETA), replies(models))
        ours, got = timed(FedTrimmedAvg(beta=BETA), replies(models))
        pairs.append((theirs, ours))
    for name in expected:
        np.testing.assert_allclose(got[name].numpy(), expected[name].numpy(), rtol=1e-5, atol=1e-6)
    ratio = statistics.median(theirs / ours for theirs, ours in pairs)
    theirs, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    m = sum(int(np.prod(shape)) for shape in SHAPES.values())
    print(f"\nn={NODES} m={m:,} beta={BETA}: Flower {theirs:.3f} s, fedincentive {ours:.3f} s, ratio {ratio:.1f}")
    benchmark.extra_info["ratio"] = ratio  # type: ignore[attr-defined]
    benchmark.pedantic(  # type: ignore[attr-defined]
        lambda answers: FedTrimmedAvg(beta=BETA).aggregate_train(1, answers),
        setup=lambda: ((replies(models),), {}),
        rounds=ROUNDS,
    )


def updates() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()} for _ in range(NODES)]


def replies(models: list[dict[str, np.ndarray]]) -> list:
    """Fresh messages: Flower's own strategy empties the ones it aggregates."""
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    made = []
    for node, model in enumerate(models, start=1):
        asked = Message(RecordDict(), dst_node_id=node, message_type="train")
        record = ArrayRecord({name: Array(array) for name, array in model.items()})
        content = RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 10})})
        made.append(Message(content, reply_to=asked))
    return made


def timed(strategy: object, answers: list) -> tuple[float, dict]:
    begun = time.perf_counter()
    arrays, _ = strategy.aggregate_train(1, answers)  # type: ignore[attr-defined]
    return time.perf_counter() - begun, dict(arrays)
