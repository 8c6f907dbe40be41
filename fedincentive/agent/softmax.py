"""Softmax regression in NumPy: a site with real data that needs no framework."""

from __future__ import annotations

import math

import numpy as np

from .. import draws
from ..messages import Update
from ..settings import Settings
from .sites import LossSite


def first_model(features: int, classes: int) -> dict[str, np.ndarray]:
    """w0 = 0: every class equally likely, a loss of ln(classes)."""
    return {"weight": np.zeros((features, classes)), "bias": np.zeros(classes)}


def loss_and_gradient(w: Update, x: np.ndarray, y: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """Mean cross-entropy of softmax(x weight + bias), and its gradient.

    >>> round(loss_and_gradient(first_model(2, 10), np.ones((3, 2)), np.array([0, 1, 2]))[0], 4)
    2.3026
    """
    scores = x @ w["weight"] + w["bias"]
    scores = scores - scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = -float(np.mean(np.log(np.maximum(chances[rows, y], 1e-300))))
    chances[rows, y] -= 1.0
    return loss, {"weight": x.T @ chances / len(y), "bias": chances.mean(axis=0)}


def accuracy(w: Update, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(np.argmax(x @ w["weight"] + w["bias"], axis=1) == y))


class SoftmaxSite(LossSite):
    """An agent with points (x, y), a fifth of which it keeps to itself for its valuation unless `held_out` is given.

    Local work as the settings say: `epochs` of mini-batches (d_i = w_local - w), or one `gradient` of its value.
    """

    def __init__(
        self,
        name: str,
        x: np.ndarray,
        y: np.ndarray,
        classes: int,
        settings: Settings,
        held_out: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        if held_out is None:
            kept, held = draws.held_out(settings.seed, name, len(y))
            held_out, x, y = (x[held], y[held]), x[kept], y[kept]
        self.name, self.x, self.y, self.held_out, self.settings = name, x, y, held_out, settings
        super().__init__(
            len(y),
            self._work,
            lambda w: loss_and_gradient(w, *self.held_out)[0],
            order=draws.order(settings.seed, name, len(y)),
            reward=math.log(classes),
            cost_per_point=settings.cost_of(name),
            value_per_nat=settings.value_per_nat,
            loss_cap=settings.loss_cap,
            w0=first_model(x.shape[1], classes),
            records=lambda: [point.tobytes() + label.tobytes() for point, label in zip(self.x, self.y, strict=True)],
        )

    def _work(self, w: Update, points: np.ndarray, step: int) -> Update:
        s = self.settings
        if s.local == "gradient":
            _, gradient = loss_and_gradient(w, self.x[points], self.y[points])
            return {name: -s.value_per_nat * array for name, array in gradient.items()}
        local = {name: array.copy() for name, array in w.items()}
        draw = np.random.default_rng(draws.local_seed(s.seed, self.name, step))
        for _ in range(s.epochs):
            shuffled = points[draw.permutation(len(points))]
            for k in range(0, len(shuffled), s.batch):
                batch = shuffled[k : k + s.batch]
                _, gradient = loss_and_gradient(local, self.x[batch], self.y[batch])
                for name in local:
                    local[name] -= s.learning_rate * gradient[name]
        return {name: local[name] - w[name] for name in w}
