"""Training agents together against one by one, and sharing what runs have in common against running each for itself.

    pytest benchmarks/test_experiments.py --benchmark-only

Both sides of a ratio are measured in this run, alternating, and the median is printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import pytest
import torch

from fedincentive.experiments.data import read
from fedincentive.experiments.federation import Federation, Layout
from fedincentive.experiments.shared_training import Memory
from fedincentive.experiments.training import Grouped, Local, Plain

REPEATS = 5


def ratio(slow: Callable[[], object], fast: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median over repeats of slow / fast, measured one after the other."""
    slow(), fast()
    found = []
    for _ in range(repeats):
        seconds = []
        for call in (slow, fast):
            start = time.process_time()
            call()
            seconds.append(time.process_time() - start)
        found.append(seconds[0] / seconds[1])
    return median(found)


@pytest.mark.parametrize(("agents", "points", "batch"), [(10, 150, 32), (40, 40, 16), (40, 40, 8)])
def test_grouped_training(benchmark, agents: int, points: int, batch: int) -> None:
    torch.set_num_threads(1)
    federation = Federation(read("digits"), Layout("digits", "patches", agents=agents, points=points), 0)
    local = Local(batch=batch)
    requests = [(name, federation.orders[name]) for name in federation.names]
    grouped, plain = (kind(federation.model, federation.shards, local) for kind in (Grouped, Plain))
    gain = ratio(lambda: plain.updates(federation.w0, requests, 0), lambda: grouped.updates(federation.w0, requests, 0))
    benchmark.extra_info["plain / grouped"] = round(gain, 2)
    print(f"\n{agents} agents, {points} points, batch {batch}: plain loop / grouped = {gain:.2f}")
    benchmark(grouped.updates, federation.w0, requests, 0)


def test_held_out_losses_together(benchmark) -> None:
    torch.set_num_threads(1)
    federation = Federation(read("digits"), Layout("digits", "patches", agents=40, points=40), 0)
    gain = ratio(
        lambda: [federation.losses.one(federation.w0, name) for name in federation.names],
        lambda: federation.losses.all(federation.w0),
    )
    benchmark.extra_info["one by one / together"] = round(gain, 2)
    print(f"\nheld-out losses of 40 agents: one by one / together = {gain:.2f}")
    benchmark(federation.losses.all, federation.w0)


def test_a_sweep_of_mechanisms_that_share_their_training(benchmark) -> None:
    """FedAvg and 2P-UPBReD at six betas: grouped and remembered, against a plain loop that remembers nothing."""
    torch.set_num_threads(1)
    data, layout = read("digits"), Layout("digits", "patches", agents=12, points=60)
    settings = {"rounds": 5, "server_optimizer": "adam", "eta": 0.01, "slope": "paper", "when_short": "train"}

    def sweep(shared: bool) -> list[float]:
        federation = Federation(data, layout, 0, memory=None if shared else Memory(0))
        if not shared:
            local = Local()
            federation.group(local).trainer = Plain(federation.model, federation.shards, local)
        runs = [("fedavg", "2"), *(("2p-upbred", beta) for beta in ("0.4", "0.8", "1", "1.2", "1.5", "2"))]
        return [federation.play({**settings, "mechanism": m, "beta": beta}).welfare for m, beta in runs]

    assert sweep(True) == pytest.approx(sweep(False), abs=0.05)
    gain = ratio(lambda: sweep(False), lambda: sweep(True), repeats=1)
    benchmark.extra_info["plain / shared"] = round(gain, 2)
    print(f"\na sweep of seven runs: plain loop / grouped and shared = {gain:.2f}")
    benchmark.pedantic(sweep, args=(True,), rounds=1)
