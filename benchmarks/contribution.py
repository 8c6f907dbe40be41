"""What contribution values cost, beyond the evaluations: 10 agents, 1.25 million parameters; and what GTG saves.

    python benchmarks/contribution.py [--agents 10] [--parameters 1250858] [--games 20]

Exact Shapley visits 2^n models; with a utility that costs nothing the time is what is spent on the models themselves.
GTG is then compared with the exact values of small federations whose utility saturates.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from fedincentive.contribution import Coalitions, exact, gtg


def seconds(n: int, parameters: int) -> float:
    rng = np.random.default_rng(0)
    w = {"w": rng.normal(size=parameters).astype(np.float32)}
    updates = {f"agent-{i:02d}": {"w": rng.normal(size=parameters).astype(np.float32)} for i in range(n)}
    began = time.process_time()
    exact(Coalitions(w, updates), lambda model: float(model["w"][0]))
    return time.process_time() - began


def saved(n: int, games: int) -> tuple[float, float]:
    """(mean share of evaluations that GTG makes, mean error against the largest value)."""
    parts, errors = [], []
    for seed in range(games):
        rng = np.random.default_rng(seed)
        gains = rng.uniform(0.2, 1.8, n)
        updates = {f"{i:02d}": {"w": n * gains[i] * np.eye(n)[i]} for i in range(n)}
        coalitions = Coalitions({"w": np.zeros(n)}, updates)

        def utility(model: dict) -> float:
            return float(1.0 - np.exp(-np.sum(model["w"])))

        true, found = exact(coalitions, utility), gtg(coalitions, utility, cut=0.01, seed=seed)
        scale = max(abs(v) for v in true.values.values())
        errors.append(np.mean([abs(true.values[a] - found.values[a]) / scale for a in updates]))
        parts.append(found.evaluations / 2**n)
    return float(np.mean(parts)), float(np.mean(errors))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--parameters", type=int, default=1_250_858)
    parser.add_argument("--games", type=int, default=20)
    given = parser.parse_args()
    spent = seconds(given.agents, given.parameters)
    what = f"{given.agents} agents, {given.parameters} parameters"
    print(f"exact, {what}: {spent:.1f} s of a core beside {2**given.agents} evaluations")
    for n in (6, 8, 10, 12):
        part, error = saved(n, given.games)
        print(f"gtg, {n} agents: {part:.0%} of {2**n} evaluations, error {error:.1%} of the largest value")
