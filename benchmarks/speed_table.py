"""The table of what each rule costs: in multiples of what it is compared with, and in milliseconds.

Every row's candidates take turns; a ratio is the median over the turns of what both took in the same one. What is
compared with a mean is compared with the fastest one known, ours included: the one of them with the smallest median.
Where a row covers several sizes the worst of them is shown. `required` and `goal` are what we set ourselves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from aggregation_peers import byzfl_aggregators, fedml_aggregator, key_by_key
from yardstick import plain_mean

from fedincentive.aggregation import geometric_median, krum, median, native, trimmed_mean, weighted_mean
from fedincentive.errors import AggregationError

Row = dict[str, Any]
Candidates = dict[str, Callable[[], Any]]

# rule: sizes up to which it is judged, and for each of them required and goal
BY_CLIENTS: dict[str, dict[int, tuple[float, float]]] = {
    "trimmed mean": {64: (1.2, 1.1), 128: (1.8, 1.5), 1024: (4, 3)},
    "weighted trimmed mean": {32: (1.6, 1.3), 128: (2.2, 1.8), 1024: (5, 4)},
    "trimmed by data share": {32: (2, 1.5), 128: (3.5, 2.5), 1024: (7, 5)},
    "median": {32: (1.5, 1.2), 128: (2.5, 2), 1024: (5, 4)},
}
CLIENTS = (10, 32, 64, 100, 128, 256, 1024)
MEANS = ("plain", "mean", "torch.mean")


def take_turns(candidates: Candidates, repeats: int) -> dict[str, np.ndarray]:
    """Seconds of each candidate in each turn, after one that does not count.

    Every turn has an order of its own, and waits before each candidate until the threads of the one before, which some
    libraries keep busy for a while, have gone to sleep.
    """
    seconds = {name: np.empty(repeats) for name in candidates}
    order = np.random.default_rng(0)
    for turn in range(-1, repeats):
        for name in order.permutation(list(candidates)).tolist():
            run = candidates[name]
            time.sleep(0.01)
            start = time.perf_counter()
            run()
            seconds[name][turn] = time.perf_counter() - start
    return seconds


def multiple(seconds: dict[str, np.ndarray], name: str, of: str) -> float:
    return float(np.median(seconds[name] / seconds[of]))


def milliseconds(seconds: np.ndarray) -> float:
    return float(np.median(seconds) * 1e3)


def installed_torch() -> Any:
    if find_spec("torch") is None:
        return None
    torch = import_module("torch")
    torch.set_num_threads(native.thread_count())
    return torch


def row(what: str, now: float, required: float, goal: float, ms: float, against: str, **more: Any) -> Row:
    return {"": what, "now": now, "required": required, "goal": goal, "ms": ms, "against": against, **more}


def by_clients(data: np.ndarray, repeats: int, sizes: tuple[int, ...] = CLIENTS) -> list[Row]:
    """The coordinate-wise rules against the fastest mean of the same updates, n // 10 trimmed per side."""
    measured = {n: one_size(data, n, repeats) for n in sizes}
    rows = []
    for rule, bars in BY_CLIENTS.items():
        least = 0
        for most, (required, goal) in bars.items():
            inside = {n: found[rule] for n, found in measured.items() if least < n <= most}
            least = most
            if inside:
                worst = max(inside, key=lambda n: inside[n][0])
                ratio, ms, fastest = inside[worst]
                rows.append(row(f"{rule}, n <= {most}", ratio, required, goal, ms, fastest, worst=f"n = {worst}"))
    return rows


def one_size(data: np.ndarray, n: int, repeats: int) -> dict[str, tuple[float, float, str]]:
    m, k = data.size // n, max(1, n // 10)
    block = data[: n * m].reshape(n, m)
    # each update in memory of its own, as clients' are: rows a power of two apart would share a few sets of the caches
    rows, weights = [row.copy() for row in block], np.arange(1, n + 1)
    candidates: Candidates = {
        "plain": lambda: plain_mean(rows),
        "mean": lambda: weighted_mean(rows),
        "trimmed mean": lambda: trimmed_mean(rows, k),
        "weighted trimmed mean": lambda: trimmed_mean(rows, k, weights=weights),
        "trimmed by data share": lambda: trimmed_mean(rows, share=0.1, weights=weights),
        "median": lambda: median(rows),
    }
    torch = installed_torch()
    if torch is not None:
        tensor = torch.from_numpy(block)
        candidates["torch.mean"] = lambda: tensor.mean(dim=0)
    seconds = take_turns(candidates, repeats)
    fastest = min((name for name in MEANS if name in seconds), key=lambda name: milliseconds(seconds[name]))
    shown = f"{fastest}, {milliseconds(seconds[fastest]):.1f} ms"
    return {rule: (multiple(seconds, rule, fastest), milliseconds(seconds[rule]), shown) for rule in BY_CLIENTS}


def half_precision(data: np.ndarray, repeats: int) -> list[Row]:
    """The mean of as many float16 or bfloat16 values, which are half the bytes, against float32's time."""
    found: dict[str, list[tuple[float, float, str, int]]] = {}
    for n in (10, 100):
        block = data[: n * (data.size // n)].reshape(n, -1)
        candidates: Candidates = {"float32": lambda block=block: weighted_mean(list(block))}
        halves = list(block.astype(np.float16))
        candidates["float16"] = lambda halves=halves: weighted_mean(halves)
        torch = installed_torch()
        if torch is not None:
            brains = list(torch.from_numpy(block).bfloat16())
            candidates["bfloat16"] = lambda brains=brains: weighted_mean(brains)
        seconds = take_turns(candidates, repeats)
        shown = f"float32, {milliseconds(seconds['float32']):.1f} ms"
        for name in list(candidates)[1:]:
            ratio = multiple(seconds, name, "float32")
            found.setdefault(name, []).append((ratio, milliseconds(seconds[name]), shown, n))
    worst = {name: max(some) for name, some in found.items()}
    return [
        row(f"{name} mean", ratio, 0.8, 0.55, ms, shown, worst=f"n = {n}")
        for name, (ratio, ms, shown, n) in worst.items()
    ]


def resnet_states(torch: Any, clients: int) -> list[dict[str, Any]]:
    """State_dicts of a small ResNet's size."""
    shapes = [(64, 3, 7, 7), *[(256, 256, 3, 3)] * 12, *[(512, 512, 3, 3)] * 3, *[(256,)] * 40, (1000, 512), (1000,)]
    return [{f"layer{i}": torch.randn(shape) for i, shape in enumerate(shapes)} for _ in range(clients)]


def state_dicts(repeats: int) -> list[Row]:
    """How many times faster than others a weighted mean of state_dicts is, and the mean of many small tensors."""
    torch = installed_torch()
    if torch is None:
        return []
    states, weights = resnet_states(torch, 10), [float(i + 1) for i in range(10)]
    candidates: Candidates = {
        "ours": lambda: weighted_mean(states, weights),
        "key by key": lambda: key_by_key(states, weights),
    }
    fedml = fedml_aggregator()
    if fedml is not None:
        candidates["FedML"] = lambda: fedml(states, weights)
    seconds = take_turns(candidates, repeats)
    rows = []
    for name in list(candidates)[1:]:
        ours, theirs = milliseconds(seconds["ours"]), milliseconds(seconds[name])
        faster = multiple(seconds, name, "ours")
        rows.append(row("times faster: mean of state_dicts", faster, 3, 5, ours, f"{name}, {theirs:.1f} ms"))
    lora = [{f"lora{i}": torch.randn(64) for i in range(100)} for _ in range(100)]
    names = list(lora[0])
    candidates = {
        "ours": lambda: weighted_mean(lora),
        "torch": lambda: {name: torch.stack([state[name] for state in lora]).mean(0) for name in names},
    }
    seconds = take_turns(candidates, repeats)
    ours, theirs = milliseconds(seconds["ours"]), milliseconds(seconds["torch"])
    what = "times faster: LoRA, 100 tensors x 64 values x 100 clients"
    rows.append(row(what, multiple(seconds, "torch", "ours"), 1, 3, ours, f"torch.stack, {theirs:.1f} ms"))
    return rows


def call(repeats: int, times: int = 100) -> list[Row]:
    """Microseconds of a call with 100 clients of one value each."""
    rows = list(np.random.default_rng(0).standard_normal((100, 1), dtype=np.float32))

    def repeatedly(run: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: [run() for _ in range(times)]

    calls = {
        "mean": repeatedly(lambda: weighted_mean(rows)),
        "trimmed mean": repeatedly(lambda: trimmed_mean(rows, 10)),
    }
    calls["np.stack"] = repeatedly(lambda: np.stack(rows).mean(axis=0))
    seconds = take_turns(calls, repeats)
    each = {name: milliseconds(taken) / times for name, taken in seconds.items()}
    shown = f"np.stack and mean, {each['np.stack'] * 1e3:.0f} us"
    worst = max(("mean", "trimmed mean"), key=lambda name: each[name])
    ms = each[worst]
    return [row("microseconds: call at n = 100, m = 1", ms * 1e3, 40, 25, ms, shown, worst=worst)]


def distances(data: np.ndarray, repeats: int) -> list[Row]:
    """Krum against the inner products it could be had from, and the geometric median against ByzFL's."""
    n, part = 100, data[: data.size // 4]
    block = part[: n * (part.size // n)].reshape(n, -1)
    updates, turned = list(block), block.T.copy()
    candidates: Candidates = {
        "ours": lambda: krum(updates, 20),
        "sgemm": lambda: block @ turned,
        "syrk": lambda: block @ block.T,  # what NumPy makes of it: one triangle
    }
    seconds = take_turns(candidates, repeats)
    half = f"; syrk, half the work, {milliseconds(seconds['syrk']):.1f} ms"
    shown = f"sgemm, {milliseconds(seconds['sgemm']):.1f} ms{half}"
    rows = [row("Krum, n = 100", multiple(seconds, "ours", "sgemm"), 1.2, 1, milliseconds(seconds["ours"]), shown)]
    if "byzfl" in sys.modules or find_spec("byzfl") is not None:
        few = part[: 20 * (part.size // 20)].reshape(20, -1)
        theirs = byzfl_aggregators().GeometricMedian(T=3)
        ours = list(few)
        candidates = {"ours": lambda: geometric_median(ours), "ByzFL": lambda: theirs(few)}
        seconds = take_turns(candidates, min(repeats, 7))
        shown = f"ByzFL's 3 steps, {milliseconds(seconds['ByzFL']):.1f} ms"
        ratio, ms = multiple(seconds, "ours", "ByzFL"), milliseconds(seconds["ours"])
        rows.append(row("geometric median (converged), n = 20", ratio, 0.25, 0.1, ms, shown))
    return rows


SENT = {"nan": np.nan, "inf": np.inf, "huge": np.finfo(np.float32).max}


def bad_values(repeats: int, values: int = 200_000) -> list[Row]:
    """What clients cost that send nothing but NaN, infinities or huge values: the worst number and kind of them."""
    worst: dict[tuple[str, str], tuple[float, float, str, str]] = {}
    for n in (10, 100):
        rng = np.random.default_rng(n)
        clean = [rng.standard_normal(values, dtype=np.float32) for _ in range(n)]
        k, weights = n // 10, np.arange(1, n + 1)
        rules: dict[str, Callable[[Any, str], Any]] = {
            "mean": lambda x, policy: weighted_mean(x, nan_policy=policy),
            "trimmed mean": lambda x, policy, k=k: trimmed_mean(x, k, nan_policy=policy),
            "weighted trimmed mean": lambda x, policy, k=k, w=weights: trimmed_mean(x, k, weights=w, nan_policy=policy),
            "median": lambda x, policy: median(x, nan_policy=policy),
        }
        for number in (1, k + 1, n - 1):
            for kind, sent in SENT.items():
                spoilt = [np.full_like(x, sent) if i < number else x for i, x in enumerate(clean)]
                for name, rule in rules.items():
                    candidates: Candidates = {"clean": lambda r=rule, x=clean: r(x, "raise")}
                    for policy in ("raise", "drop", "propagate"):
                        candidates[policy] = lambda r=rule, p=policy, x=spoilt: unless_refused(r, x, p)
                    seconds = take_turns(candidates, repeats)
                    shown = f"clean, {milliseconds(seconds['clean']):.1f} ms"
                    for policy in ("raise", "drop", "propagate"):
                        found = (multiple(seconds, policy, "clean"), milliseconds(seconds[policy]), shown)
                        who = f"{number} of {n} send {kind}"
                        worst[name, policy] = max(worst.get((name, policy), (0.0, 0.0, "", "")), (*found, who))
    return [
        row(f"{name} of bad values, {policy}", ratio, 2, 2, ms, shown, worst=who)
        for (name, policy), (ratio, ms, shown, who) in worst.items()
    ]


def unless_refused(rule: Callable[[Any, str], Any], updates: Any, policy: str) -> None:
    with suppress(AggregationError):
        rule(updates, policy)


def speed_table(data: np.ndarray, repeats: int, quick: bool = False) -> list[Row]:
    """All rows."""
    sizes = (10, 100) if quick else CLIENTS
    return [
        *by_clients(data, repeats, sizes),
        *half_precision(data[: data.size // 2], repeats),
        *state_dicts(repeats),
        *call(repeats),
        *distances(data, repeats),
        *bad_values(min(repeats, 5)),
    ]
