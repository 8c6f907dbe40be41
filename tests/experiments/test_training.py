"""Training together is training one by one: the same updates, the same losses, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedincentive.experiments import models
from fedincentive.experiments.data import Dataset, read
from fedincentive.experiments.training import Grouped, Local, Losses, Plain, Shard, batches


def shards(data: Dataset, model: torch.nn.Module, sizes: list[int]) -> dict[str, Shard]:
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    x = model.prepare(x) if hasattr(model, "prepare") else x
    found, start = {}, 0
    for k, size in enumerate(sizes):
        cut, end = start + size, start + size + 7 + k
        found[f"agent-{k}"] = Shard(x[start:cut], y[start:cut], x[cut:end], y[cut:end])
        start = end
    return found


def tweets() -> Dataset:
    rng = np.random.default_rng(3)
    return Dataset("tweets", rng.integers(0, 40, (400, 25)), rng.integers(0, 2, 400), 2, None, 40)


CASES = {"patches": read("digits"), "words": tweets()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("local", ["epochs", "gradient"])
@pytest.mark.parametrize("memory", [2**30, 1])
def test_grouped_updates_are_the_plain_ones(name: str, local: str, memory: int) -> None:
    """Sizes that leave short batches, single points, nobody's points; `memory` 1 trains one agent per pass."""
    data = CASES[name]
    model = models.build(name, data, 1)
    held = shards(data, model, [50, 1, 8, 33, 16])
    settings = Local(local, epochs=2, batch=8, learning_rate=0.5, seed=4)
    requests = [("agent-0", np.arange(50)), ("agent-1", np.arange(1)), ("agent-2", np.arange(0))]
    requests += [("agent-3", np.arange(33)[::-1]), ("agent-4", np.arange(9)), ("agent-0", np.arange(13))]
    w = models.weights(model)
    plain = Plain(model, held, settings).updates(w, requests, step=2)
    grouped = Grouped(model, held, settings, memory).updates(w, requests, step=2)
    for (agent, drawn), one, other in zip(requests, plain, grouped, strict=True):
        assert list(one) == list(other) == list(w)
        for key in w:
            assert one[key].dtype == other[key].dtype == np.float32
            assert np.allclose(one[key], other[key], atol=2e-6), (agent, key)
            assert np.any(one[key]) or not len(drawn) or key == "embedding.weight"
    assert not np.allclose(plain[0]["out.weight"], plain[5]["out.weight"])


@pytest.mark.parametrize("local", ["epochs", "gradient"])
def test_two_agents_at_a_time_are_the_same_bytes_as_one(local: str) -> None:
    data = Dataset("images", np.random.default_rng(1).random((90, 3, 32, 32), np.float32), np.arange(90) % 10, 10)
    model = models.build("cifar", data, 1)
    held, settings = shards(data, model, [20, 9, 13]), Local(local, batch=8, learning_rate=0.1)
    w = models.weights(model)
    requests = [("agent-0", np.arange(20)), ("agent-1", np.arange(0)), ("agent-2", np.arange(13))]
    one, two = (Plain(model, held, settings, workers).updates(w, requests, 1) for workers in (1, 2))
    for a, b in zip(one, two, strict=True):
        assert all(a[name].flags.c_contiguous and a[name].tobytes() == b[name].tobytes() for name in w)
    losses = [Losses(model, held, workers).all(w) for workers in (1, 2)]
    assert losses[0] == losses[1]


def test_an_epoch_is_sgd_written_out() -> None:
    data = CASES["patches"]
    model = models.build("patches", data, 2)
    held = shards(data, model, [20])
    settings = Local(batch=8, learning_rate=0.3, seed=1)
    w = models.weights(model)
    (d,) = Plain(model, held, settings).updates(w, [("agent-0", np.arange(20))], step=5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for rows in batches("agent-0", np.arange(20), 5, settings):
        optimizer.zero_grad()
        shard = held["agent-0"]
        torch.nn.functional.cross_entropy(model(shard.x[rows]), shard.y[rows]).backward()
        optimizer.step()
    for key, after in models.weights(model).items():
        assert np.allclose(w[key] + d[key], after, atol=1e-6)


def test_batches_cover_every_point_once_per_epoch_and_depend_on_agent_and_step() -> None:
    settings = Local(epochs=3, batch=10, seed=9)
    found = batches("agent-1", np.arange(100, 125), 4, settings)
    assert [len(rows) for rows in found] == [10, 10, 5] * 3
    for epoch in range(3):
        assert sorted(np.concatenate(found[3 * epoch : 3 * epoch + 3])) == list(range(100, 125))
    for other in (
        batches("agent-2", np.arange(100, 125), 4, settings),
        batches("agent-1", np.arange(100, 125), 5, settings),
    ):
        assert not np.array_equal(found[0], other[0])


def test_losses_of_all_are_the_losses_of_each(monkeypatch) -> None:
    data = CASES["patches"]
    model = models.build("patches", data, 3)
    losses = Losses(model, shards(data, model, [5, 6, 7]))
    w = models.weights(model)
    together = losses.all(w)
    monkeypatch.setattr("fedincentive.experiments.training.EVALUATED", 4)
    assert together == pytest.approx(losses.all(w), rel=1e-6)
    assert together == pytest.approx({agent: losses.one(w, agent) for agent in together}, rel=1e-6)


def test_memory_bounds_the_agents_of_one_pass() -> None:
    data = CASES["patches"]
    model = models.build("patches", data, 3)
    grouped = Grouped(model, shards(data, model, [5, 5]), Local(), memory=10_000_000)
    assert 1 < grouped.chunk(32) < grouped.chunk(1)
    assert Grouped(model, grouped.shards, Local(), memory=1).chunk(32) == 1
