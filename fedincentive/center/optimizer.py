"""How the center turns an aggregated update into the next model. Only parameters pass through it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..messages import Update

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Optimizer:
    """SGD: w + eta d. Adam: w + eta m^/(sqrt(v^) + epsilon), with m (`first`) and v (`second`) kept between rounds.

    Buffers take w + d as it is, since Adam would drive a variance negative; so do integer entries, always.

    >>> Optimizer("sgd", 0.5).step({"w": np.ones(1)}, {"w": np.ones(1)})[0]["w"]
    array([1.5])
    """

    name: str
    eta: float
    steps: int = 0
    first: Mapping[str, np.ndarray] = field(default_factory=dict)
    second: Mapping[str, np.ndarray] = field(default_factory=dict)
    last: Mapping[str, np.ndarray] = field(default_factory=dict)  # the last aggregated update, where a rule needs it

    def step(
        self, w: Update, d: Update, buffers: Collection[str] = (), *, keep: bool = False, spend: bool = False
    ) -> tuple[dict[str, np.ndarray], Optimizer]:
        """The next model, and the optimizer to use after it. It may `keep` d, or `spend` d's memory on the model."""
        first, second, steps = dict(self.first), dict(self.second), self.steps + 1
        new = {}
        for name, array in w.items():
            if name in buffers or array.dtype.kind != "f":
                new[name] = np.asarray(array + d[name]).astype(array.dtype, copy=False)
                continue
            move = d[name]
            if self.name == "adam":
                first[name] = BETA1 * first.get(name, np.zeros_like(array)) + (1 - BETA1) * move
                second[name] = BETA2 * second.get(name, np.zeros_like(array)) + (1 - BETA2) * move**2
                hat = first[name] / (1 - BETA1**steps)
                move = hat / (np.sqrt(second[name] / (1 - BETA2**steps)) + EPSILON)
            room = d[name] if spend and d[name].dtype == array.dtype else None
            if self.eta != 1:
                move = np.multiply(move, self.eta, out=room)
            new[name] = np.asarray(np.add(array, move, out=room)).astype(array.dtype, copy=False)
        return new, Optimizer(self.name, self.eta, steps, first, second, d if keep else {})
