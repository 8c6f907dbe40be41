"""What non-finite and near-overflow values cost: the time of a call over that of the same call with clean updates.

    python benchmarks/bad_values.py [--clients 10 100] [--values 400000]

Both are timed in turns in one run; medians of their ratios are printed. "raise" ends in an error after the first piece
that keeps such a value, the other policies go through all of it ("drop" twice: once to find the clients).
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import suppress

import numpy as np

from fedincentive import aggregation
from fedincentive.errors import AggregationError

SENT = {"nan": np.nan, "inf": np.inf, "huge": np.finfo(np.float32).max}


def seconds(call, updates) -> float:
    begin = time.perf_counter()
    with suppress(AggregationError):
        call(updates)
    return time.perf_counter() - begin


def ratio(call, clean, bad, turns: int = 7) -> float:
    return statistics.median(seconds(call, bad) / seconds(call, clean) for _ in range(turns))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--values", type=int, default=400_000)
    options = parser.parse_args()
    print(f"{'rule':22s} {'n':>4s} {'bad':>4s} {'value':>5s} {'raise':>6s} {'drop':>6s} {'propagate':>9s}")
    for n in options.clients:
        rng = np.random.default_rng(n)
        clean = [rng.standard_normal(options.values).astype(np.float32) for _ in range(n)]
        k, weights = n // 10, rng.integers(1, 9, n)
        rules = {
            "mean": lambda x, policy: aggregation.weighted_mean(x, nan_policy=policy),
            "trimmed mean": lambda x, policy, k=k: aggregation.trimmed_mean(x, k, nan_policy=policy),
            "weighted trimmed mean": lambda x, policy, k=k, w=weights: aggregation.trimmed_mean(
                x, k, weights=w, nan_policy=policy
            ),
            "median": lambda x, policy: aggregation.median(x, nan_policy=policy),
        }
        for name, rule in rules.items():
            for bad in (1, k + 1, n // 2 + 1, n - 1):
                for value, sent in SENT.items():
                    spoilt = [np.full_like(x, sent) if i < bad else x for i, x in enumerate(clean)]
                    ratios = [
                        ratio(lambda x, p=policy, r=rule: r(x, p), clean, spoilt)
                        for policy in ("raise", "drop", "propagate")
                    ]
                    print(
                        f"{name:22s} {n:4d} {bad:4d} {value:>5s} " + " ".join(f"{r:6.2f}" for r in ratios), flush=True
                    )


if __name__ == "__main__":
    main()
