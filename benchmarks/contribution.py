"""What contribution values cost, beyond the evaluations: 10 agents, 1.25 million parameters; and what GTG saves.

    python benchmarks/contribution.py [--agents 10] [--parameters 1250858] [--games 20]

Exact Shapley visits 2^n models; with a utility that costs nothing the time is what is spent on the models themselves.
GTG is then compared with the exact values of small federations whose utility saturates, and of real ones: softmax
regression on scikit-learn's digits, a few kinds of digits to an agent, valued by loss or accuracy on held-out ones.
Last, how many evaluations GTG needs there for 5 % error, where its own stopping rule is not asked.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Collection, Iterator

import numpy as np

from fedincentive.contribution import Coalitions, exact, gtg, shapley_weights


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


def digits(n: int, rounds: int, seed: int = 0) -> Iterator[tuple[Coalitions, dict[str, Callable[[dict], float]]]]:
    """(coalitions, utilities) of each round of FedAvg among n agents whose labels differ."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x, y = np.hstack([data.data / 16.0, np.ones((len(data.target), 1))]), np.eye(10)[data.target]
    order = np.random.default_rng(seed).permutation(len(x))
    held, rest = order[:400], order[400:]
    rest = rest[np.argsort(data.target[rest], kind="stable")]
    pieces = np.array_split(rest, 2 * n)
    parts = [np.concatenate([pieces[i], pieces[(i + n) % (2 * n)]]) for i in range(n)]

    def softmax(w: np.ndarray, points: np.ndarray) -> np.ndarray:
        z = points @ w
        z = np.exp(z - z.max(axis=1, keepdims=True))
        return z / z.sum(axis=1, keepdims=True)

    def minus_loss(model: dict) -> float:
        return float(np.mean(np.log(np.maximum((softmax(model["w"], x[held]) * y[held]).sum(axis=1), 1e-12))))

    def accuracy(model: dict) -> float:
        return float(np.mean(softmax(model["w"], x[held]).argmax(axis=1) == data.target[held]))

    w = np.zeros((65, 10))
    for _ in range(rounds):
        updates = {}
        for i, part in enumerate(parts):
            local = w.copy()
            for batch in np.array_split(np.random.default_rng(seed + i).permutation(part), max(len(part) // 16, 1)):
                local -= 0.5 * x[batch].T @ (softmax(local, x[batch]) - y[batch]) / len(batch)
            updates[f"{i:02d}"] = {"w": local - w}
        coalitions = Coalitions({"w": w}, updates)
        yield coalitions, {"loss": minus_loss, "accuracy": accuracy}
        w = coalitions.model(list(updates))["w"]


def saved_on_digits(n: int, rounds: int, by: str) -> tuple[float, float, float]:
    """(mean share of evaluations, mean error against the round's largest value, share of rounds that are skipped)."""
    parts, errors, skipped = [], [], 0
    for step, (coalitions, utilities) in enumerate(digits(n, rounds)):
        true, found = exact(coalitions, utilities[by]), gtg(coalitions, utilities[by], seed=step)
        parts.append(found.evaluations / 2**n)
        skipped += found.orders == 0
        scale = max(abs(value) for value in true.values.values())
        errors.append(np.mean([abs(true.values[a] - found.values[a]) / scale for a in true.values]))
    return float(np.mean(parts)), float(np.mean(errors)), skipped / rounds


class Evaluated(Coalitions):
    """Coalitions whose utilities are known: a model is its mask."""

    def __init__(self, real: Coalitions, utility: Callable[[dict], float]) -> None:
        super().__init__(real.w, real.updates)
        self.known = {mask: utility(model) for mask, model in real.walk()}

    def model(self, members: Collection[str]) -> dict:
        return {"mask": sum(1 << self.agents.index(agent) for agent in members)}

    def utility(self, model: dict) -> float:
        return self.known[model["mask"]]


def needed(n: int, rounds: int, by: str, error: float = 0.05) -> tuple[float, float]:
    """(mean share of evaluations, mean error) with the fewest orders that bring the mean error below `error`; where
    none of those tried does, with the most."""
    played = [Evaluated(coalitions, utilities[by]) for coalitions, utilities in digits(n, rounds)]
    weights = shapley_weights(n)
    true = [weights @ np.array([one.known[mask] for mask in range(2**n)]) for one in played]
    for times in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64):
        found = [
            gtg(one, one.utility, skip=0.0, tolerance=0.0, most=times * n, seed=step) for step, one in enumerate(played)
        ]
        errors = [
            np.mean(np.abs(exactly - [values.values[a] for a in one.agents])) / np.abs(exactly).max()
            for exactly, values, one in zip(true, found, played, strict=True)
        ]
        if np.mean(errors) <= error:
            break
    return float(np.mean([one.evaluations for one in found])) / 2**n, float(np.mean(errors))


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
    for n in (6, 8, 10):
        for by in ("loss", "accuracy"):
            part, error, skips = saved_on_digits(n, 5, by)
            print(
                f"gtg on digits by {by}, {n} agents: {part:.0%} of {2**n} evaluations, error {error:.1%} of the "
                f"largest value, {skips:.0%} of rounds skipped"
            )
    for n in (6, 8, 10, 12):
        for by in ("loss", "accuracy"):
            part, error = needed(n, 5, by)
            said = "needs" if error <= 0.05 else "does not reach it with"
            print(f"gtg on digits by {by}, {n} agents, for 5 % error {said} {part:.0%} of evaluations ({error:.1%})")
