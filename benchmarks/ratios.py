"""Prints how long the aggregation rules take, as ratios measured in one run.

    python benchmarks/ratios.py [--quick] [--table] [--json FILE] [--megabytes N] [--repeats N]

--table prints only the table of speed_table.py: every rule with what is required of it.

Ours are the public functions, which allocate their result; so does the plain mean they are compared with: a C++ float32
mean with register accumulators over the same arrays, as fast as memory can be read. All candidates of a row take turns;
a ratio is the median over the turns of what both took in the same one, so a busy machine disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from aggregation_peers import installed
from speed_table import installed_torch, speed_table, take_turns
from yardstick import address, plain_mean

from fedincentive.aggregation import median, native, trimmed_mean, weighted_mean

CLIENTS = (4, 10, 20, 32, 64, 100, 128, 256, 512, 1024)
BARS = {32: (1.5, 1.15), 64: (2.0, 1.5), 128: (4.0, 2.0), 1024: (12.0, 4.0)}  # required, goal
LARGEST_MODEL = 120_255_086


def multiples(seconds: dict[str, np.ndarray], of: str) -> dict[str, float]:
    return {name: float(np.median(taken / seconds[of])) for name, taken in seconds.items() if name != of}


def read_bandwidth(data: np.ndarray, repeats: int) -> float:
    """GB/s of looking at one block of memory with all threads."""
    module, threads, isa = native.load(), native.thread_count(), native.isa()
    run = {"read": lambda: module.all_finite(address(data), data.size, 0, threads, isa)}
    return float(data.nbytes / np.median(take_turns(run, repeats)["read"]) / 1e9)


def against_mean(data: np.ndarray, n: int, repeats: int) -> dict[str, Any]:
    """Our rules in multiples of the plain mean, for n clients that share `data`."""
    m, k = data.size // n, max(1, n // 10)
    block = data[: n * m].reshape(n, m)
    rows = list(block)
    weights = np.arange(1, n + 1)
    candidates: dict[str, Callable[[], Any]] = {
        "plain": lambda: plain_mean(rows),
        "mean": lambda: weighted_mean(rows),
        "weighted mean": lambda: weighted_mean(rows, weights),
        "trimmed": lambda: trimmed_mean(rows, k),
        "trim n/4": lambda: trimmed_mean(rows, (n - 1) // 4),
        "median": lambda: median(rows),
        "weighted trimmed": lambda: trimmed_mean(rows, k, weights=weights),
    }
    torch = installed_torch()
    if torch is not None:
        tensor = torch.from_numpy(block)
        candidates["torch.mean"] = lambda: tensor.mean(dim=0)
    seconds = take_turns(candidates, repeats)
    speed = float(block.nbytes / np.median(seconds["plain"]) / 1e9)
    return {"n": n, "k": k, "m": m, "GB/s": speed, **multiples(seconds, "plain")}


def against_peers(data: np.ndarray, n: int, repeats: int) -> dict[str, Any]:
    """Peers in multiples of our trimmed mean, on the same rows."""
    m, k = data.size // n, max(1, n // 10)
    block = data[: n * m].reshape(n, m)
    rows = list(block)
    candidates: dict[str, Callable[[], Any]] = {"ours": lambda: trimmed_mean(rows, k)}
    for name, run in installed().items():
        candidates[name] = lambda run=run: run(block, k)
    seconds = take_turns(candidates, repeats)
    ratios = multiples(seconds, "ours")
    ours = float(np.median(seconds["ours"]) * 1e3)
    return {"n": n, "k": k, "m": m, "ours ms": ours, **ratios, "fastest peer": min(ratios.values())}


def linearity(largest: int, repeats: int, n: int = 10) -> list[dict[str, Any]]:
    """Nanoseconds per coordinate as models grow."""
    sizes = sorted({m for m in (10_000_000, 30_000_000, largest) if m <= largest})
    updates = {m: [np.full(m, i, np.float32) for i in range(n)] for m in sizes}
    seconds = take_turns({str(m): lambda m=m: trimmed_mean(updates[m], 1) for m in sizes}, repeats)
    return [{"n": n, "m": m, "ns per coordinate": float(np.median(seconds[str(m)]) / m * 1e9)} for m in sizes]


def summary(ours: list[dict[str, Any]], peers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What robustness costs at every size, and what it costs elsewhere."""
    by_n = {row["n"]: row for row in peers}
    rows = []
    for row in ours:
        peer = by_n.get(row["n"], {})
        names = [name for name in peer if name not in ("n", "k", "m", "ours ms", "fastest peer")]
        fastest = min(names, key=peer.__getitem__, default=None)
        rows.append(
            {
                "clients": row["n"],
                "trimmed per side": row["k"],
                "weighted mean": row["weighted mean"],
                "trimmed mean": row["trimmed"],
                "median": row["median"],
                "fastest peer's trimmed mean": f"{peer[fastest] * row['trimmed']:.0f} ({fastest})" if fastest else "",
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as a markdown table."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        cells = [f"{row[name]:.2f}" if isinstance(row.get(name), float) else str(row.get(name, "")) for name in names]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdict(rows: list[dict[str, Any]]) -> str:
    """Where the trimmed mean stands against the required bar and the goal."""
    words = []
    for limit, (required, goal) in BARS.items():
        below = [bound for bound in BARS if bound < limit]
        inside = [row["trimmed"] for row in rows if max(below, default=0) < row["n"] <= limit]
        if inside:
            words.append(f"n <= {limit}: {max(inside):.2f}x (required {required}, goal {goal})")
    return "; ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less data, fewer sizes: a smoke test, not a measurement")
    parser.add_argument("--table", action="store_true", help="only the table of all rules and what is required of them")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    parser.add_argument("--megabytes", type=int, help="updates per measurement (default 256; quick 64)")
    parser.add_argument("--repeats", type=int, help="turns of each candidate (default 15; quick 3)")
    options = parser.parse_args()
    megabytes = options.megabytes or (64 if options.quick else 256)
    repeats = options.repeats or (3 if options.quick else 15)
    clients = CLIENTS[1:6:2] if options.quick else CLIENTS
    data = np.random.default_rng(0).standard_normal(megabytes * 250_000, dtype=np.float32)

    info = native.info()
    bandwidth = read_bandwidth(data, repeats)
    print(f"{info['isa']}, {info['threads']} threads, memory reads at {bandwidth:.1f} GB/s\n")
    speeds = speed_table(data, repeats, options.quick)
    print("What the rules cost, in multiples of what they are compared with:\n")
    print(table(speeds), "\n")
    if options.table:
        return
    print("Multiples of a plain float32 mean over the same updates (GB/s: that mean):\n")
    ours = [against_mean(data, n, repeats) for n in clients]
    print(table(ours), f"\n\nTrimmed mean: {verdict(ours)}.\n", sep="\n")
    print("Peers in multiples of our trimmed mean:\n")
    part = data[: data.size // (4 if options.quick else 2)]
    peers = [against_peers(part, n, 1 if options.quick else 3) for n in clients if n <= 128]
    print(table(peers), "\n")
    print("Cost per coordinate as models grow:\n")
    growth = linearity(30_000_000 if options.quick else LARGEST_MODEL, min(repeats, 5))
    print(table(growth), "\n")
    print("In short, in multiples of a plain mean:\n")
    print(table(summary(ours, peers)))
    if options.json:
        found = {
            "info": info,
            "read GB/s": bandwidth,
            "ours": ours,
            "peers": peers,
            "speeds": speeds,
            "growth": growth,
        }
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
