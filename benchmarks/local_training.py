"""Prints how fast agents train on this processor: against its peak, against its convolutions alone, and against a plain
PyTorch loop.

    python benchmarks/local_training.py [--turns N] [--agents N] [--points N] [--skip-tweets]

All candidates of a model take turns in this one process, on all cores: ours with one agent per core, the plain loop
(one DataLoader, model and optimizer per agent) with torch's threads, the convolutions with one stack per core, and for
the peak one product of large matrices per core. A ratio is the median over the turns of what both took in the same one.
Random images: training takes as long on them as on real ones. All keep the memory they free (`keep_memory`), the plain
loop too, which gains as much by it. The tweets' round is played by the center, updates and server Adam included, dense
and with the rows in use.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from fedincentive.experiments import models
from fedincentive.experiments.data import WORDS, Dataset
from fedincentive.experiments.federation import Federation, Layout
from fedincentive.experiments.flops import convolutions, per_example
from fedincentive.experiments.training import Local, Losses, Plain, Shard, keep_memory

CORES = os.cpu_count() or 1
BATCH, RATE = 32, 0.05


def take_turns(candidates: dict[str, Callable[[], object]], turns: int) -> dict[str, np.ndarray]:
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(turns + 1):
        for name, run in candidates.items():
            torch.set_num_threads(CORES if name == "plain loop" else 1)
            start = time.perf_counter()
            run()
            if turn:  # the first one warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: np.array(taken) for name, taken in seconds.items()}


def plain_loop(model: torch.nn.Module, shards: dict[str, Shard], w: dict[str, np.ndarray]) -> None:
    """What one writes first: per agent a copy of the model, a loader, an optimizer."""
    for shard in shards.values():
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(torch.from_numpy(w[name]))
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        for x, y in DataLoader(TensorDataset(shard.x, shard.y), batch_size=BATCH, shuffle=True):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def stack(model: torch.nn.Module, example: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
    """Input, weight, padding and gradient of each convolution of a model, as oneDNN likes them best."""
    found = []
    for layer, inside in convolutions(model, example.expand(BATCH, *example.shape[1:])):
        x = torch.randn_like(inside).contiguous(memory_format=torch.channels_last)
        weight = torch.randn_like(layer.weight).contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            grad = torch.randn_like(functional.conv2d(x, weight, padding=layer.padding))
        found.append((x, weight, torch.tensor(layer.padding), grad))
    return found


def product(size: int = 1024) -> Callable[[], float]:
    """A product of two square matrices per core, which is as fast as a processor gets; returns how many FLOP."""
    square = torch.randn(size, size)
    out = [torch.empty(size, size) for _ in range(CORES)]
    pool = ThreadPoolExecutor(CORES, initializer=torch.set_num_threads, initargs=(1,))

    def run() -> float:
        list(pool.map(lambda each: [torch.mm(square, square, out=each) for _ in range(8)], out))
        return 8 * CORES * 2.0 * size**3

    return run


def convolutions_alone(layers: list[tuple[torch.Tensor, ...]], batches: int) -> None:
    torch.set_num_threads(1)
    with torch.no_grad():
        for _ in range(batches):
            for k, (x, weight, padding, grad) in enumerate(layers):
                functional.conv2d(x, weight, padding=padding.tolist())
                torch.ops.aten.convolution_backward(
                    grad, x, weight, None, [1, 1], padding.tolist(), [1, 1], False, [0, 0], 1, [k > 0, True, False]
                )


def images(name: str, shape: tuple[int, ...], turns: int, agents: int, points: int) -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((agents, points, *shape), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 10, (agents, points)))
    data = Dataset(name, x[0].numpy(), y[0].numpy(), 10)
    model, peer = models.build(name, data), models.build(name, data)
    w = models.weights(model)
    held = points // 4
    shards = {f"agent-{a}": Shard(x[a], y[a], x[a, :held], y[a, :held]) for a in range(agents)}
    ours = Plain(model, shards, Local(batch=BATCH, learning_rate=RATE), CORES)
    losses = Losses(model, shards, CORES)
    requests = [(agent, np.arange(points)) for agent in shards]
    layers, count = stack(model, x[0, :1]), agents * -(-points // BATCH)
    pool = ThreadPoolExecutor(CORES)
    shares = [count // CORES + (k < count % CORES) for k in range(CORES)]
    peak = product()
    seconds = take_turns(
        {
            "peak": peak,
            "convolutions": lambda: list(pool.map(lambda n: convolutions_alone(layers, n), shares)),
            "plain loop": lambda: plain_loop(peer, shards, w),
            "ours": lambda: ours.updates(w, requests, 0),
            "held out": lambda: losses.all(w),
        },
        turns,
    )
    whole, alone = per_example(model, x[0, :1]), per_example(model, x[0, :1], only=torch.nn.Conv2d)
    trained = whole * agents * points
    work = {"peak": peak(), "convolutions": alone * count * BATCH, "plain loop": trained, "ours": trained}
    speed = {n: f / seconds[n] / 1e9 for n, f in work.items()}
    print(f"{name}: {models.size(model):,} parameters, {whole / 1e6:.0f} MFLOP to train on an example, batch {BATCH}")
    for n, rate in speed.items():
        print(f"  {n:<13} {np.median(rate):6.1f} GFLOP/s on {CORES} cores")
    part = np.median(speed["ours"] / speed["peak"])
    print(f"  ours / peak, the largest product of matrices: {part:.2f}")
    part = np.median(speed["ours"] / speed["convolutions"])
    print(f"  ours / convolutions alone: {part:.2f} of their GFLOP/s (bar 0.50)")
    print(f"  plain loop / ours: {np.median(seconds['plain loop'] / seconds['ours']):.2f} in time (bar 2)")
    part = np.median(seconds["held out"] / seconds["ours"])
    print(f"  a quarter of the examples held out: evaluating them takes {part:.2f} of the time of training", flush=True)


def tweets(turns: int, agents: int = 2, points: int = 80) -> None:
    rng = np.random.default_rng(0)
    words = np.minimum(rng.zipf(1.3, (agents * points, WORDS)), models.TWITTER_VOCABULARY - 1)
    y = rng.integers(0, 2, agents * points)
    data = Dataset("tweets", words.astype(np.int64), y, 2, None, models.TWITTER_VOCABULARY)
    given = {"mechanism": "fedavg", "rounds": 1, "server_optimizer": "adam", "eta": 1e-5, "learning_rate": RATE}
    layout = Layout("tweets", "tweets", agents=agents, points=points)
    made = {kind: Federation(data, layout, 0, sparse=kind == "rows in use") for kind in ("dense", "rows in use")}
    seconds = take_turns({kind: lambda one=one: _again(one, given) for kind, one in made.items()}, turns)
    sizes = {kind: sum(array.nbytes for array in one.w0.values()) / 1e6 for kind, one in made.items()}
    print(f"tweets: {models.size(made['dense'].model):,} parameters, {agents} agents of {points} texts, one round")
    for kind, taken in seconds.items():
        print(f"  {kind:<13} {np.median(taken):7.2f} s, {sizes[kind]:6.1f} MB an update")
    faster, smaller = np.median(seconds["dense"] / seconds["rows in use"]), sizes["dense"] / sizes["rows in use"]
    print(f"  dense / rows in use: {faster:.1f} in time, {smaller:.1f} in bytes (bars 5 and 5)")


def _again(one: Federation, given: dict[str, object]) -> None:
    one.memory._kept.clear()
    one._groups.clear()
    one.play(given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--points", type=int, default=320)
    parser.add_argument("--skip-tweets", action="store_true", help="leave out the LSTM (about 6 GB of memory, dense)")
    given = parser.parse_args()
    keep_memory()
    images("cifar", (3, 32, 32), given.turns, given.agents, given.points)
    images("femnist", (1, 28, 28), given.turns, given.agents, given.points)
    if not given.skip_tweets:
        tweets(min(given.turns, 3))


if __name__ == "__main__":
    main()
