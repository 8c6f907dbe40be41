"""The task: softmax regression on scikit-learn's digits, in NumPy. Knows nothing of Flower or fedincentive."""

from __future__ import annotations

from functools import cache

import numpy as np

CLASSES, FEATURES = 10, 64


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """All images, in one fixed shuffled order."""
    from sklearn.datasets import load_digits  # a second to import: only where data is needed

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    return (data.data[order] / 16).astype(np.float32), data.target[order]


def split(partition: int, partitions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Node `partition`'s own train and test data: shares grow with the index, a fifth of each is for testing."""
    x, y = digits()
    share = np.arange(2, partitions + 2)
    cuts = np.concatenate([[0], np.cumsum(share) / share.sum() * len(y)]).astype(int)
    x, y = x[cuts[partition] : cuts[partition + 1]], y[cuts[partition] : cuts[partition + 1]]
    held_out = len(y) // 5
    return x[held_out:], y[held_out:], x[:held_out], y[:held_out]


def first_model() -> dict[str, np.ndarray]:
    return {"weight": np.zeros((FEATURES, CLASSES), np.float32), "bias": np.zeros(CLASSES, np.float32)}


def train(
    w: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray, epochs: int, rate: float, seed: int
) -> dict[str, np.ndarray]:
    """Some epochs of mini-batch SGD from w."""
    w = {name: array.copy() for name, array in w.items()}
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(y))
        for batch in np.array_split(order, max(1, len(y) // 32)):
            error = probabilities(w, x[batch])
            error[np.arange(len(batch)), y[batch]] -= 1
            w["weight"] -= np.float32(rate / len(batch)) * (x[batch].T @ error)
            w["bias"] -= np.float32(rate / len(batch)) * error.sum(axis=0)
    return w


def evaluate(w: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Mean loss in nats, and accuracy."""
    p = probabilities(w, x)
    loss = -np.log(np.maximum(p[np.arange(len(y)), y], 1e-9)).mean()
    return float(loss), float((p.argmax(axis=1) == y).mean())


def probabilities(w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    scores = x @ w["weight"] + w["bias"]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)
