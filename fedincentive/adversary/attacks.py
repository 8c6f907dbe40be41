"""Attacks on updates: what a Byzantine agent sends instead of d_i, by name and seeded.

| name | sent | reference |
|---|---|---|
| sign-flip | -size d_i | |
| gaussian | N(0, size^2) in every coordinate | Blanchard et al. 2017 |
| zero | 0 | |
| scaled | size d_i | Bagdasaryan et al. 2020 |
| alie | mean - size std of the honest updates: a little, and in every coordinate | Baruch et al. 2019 |
| ipm | -size times the mean of the honest updates | Xie et al. 2020 |
| copy | the first honest update, another agent's | |
| replay | size times the last step of the model, which everybody knows | |
| nan, inf | d_i with one coordinate not a number, or infinite | |
| all-inf | infinity in every coordinate | |

`strongest` finds the size at which alie or ipm moves a given rule the most (Shejwalkar and Houmansadr, 2021).

Flipped labels are an attack on the data: `flip_labels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..checks import nearest
from ..errors import SettingError
from ..messages import Update

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Attack:
    """One attack. `omniscient` ones are made from the honest updates of the round and need to be shown them.

    >>> attack("sign-flip")({"w": np.array([1.0, -2.0])})["w"]
    array([-1.,  2.])
    """

    name: str
    size: float
    seed: int = 0

    @property
    def omniscient(self) -> bool:
        return self.name in OMNISCIENT

    def __call__(
        self, update: Update, honest: Sequence[Update] = (), *, step: int = 0, last: Update | None = None
    ) -> Arrays:
        """What is sent instead of `update`; integer entries (counters) are left alone. `last` is the last global step,
        None in the first round."""
        if self.omniscient and not honest:
            raise SettingError(
                f"Attack {self.name!r} is made from the honest updates, but this host shows it none: play it with "
                "engine.play, or choose another attack."
            )
        rng = np.random.default_rng([self.seed, step])
        make = ATTACKS[self.name][0]
        sent = {}
        for name, array in update.items():
            if array.dtype.kind != "f":
                sent[name] = array
                continue
            others = np.stack([other[name] for other in honest]) if self.omniscient else array[None]
            if self.name == "replay":
                others = (array if last is None else last[name])[None]
            sent[name] = np.asarray(make(array, others, self.size, rng)).astype(array.dtype)
        return sent


def _gaussian(d: np.ndarray, honest: np.ndarray, size: float, rng: np.random.Generator) -> np.ndarray:
    return size * rng.standard_normal(d.shape)


def _spoilt(value: float) -> Callable[..., np.ndarray]:
    def make(d: np.ndarray, honest: np.ndarray, size: float, rng: np.random.Generator) -> np.ndarray:
        spoilt = d.copy()
        if spoilt.size:
            spoilt.flat[int(rng.integers(spoilt.size))] = value
        return spoilt

    return make


# name -> (what is sent, default size)
ATTACKS: dict[str, tuple[Callable[..., np.ndarray], float]] = {
    "sign-flip": (lambda d, honest, size, rng: -size * d, 1.0),
    "gaussian": (_gaussian, 1.0),
    "zero": (lambda d, honest, size, rng: np.zeros_like(d), 1.0),
    "scaled": (lambda d, honest, size, rng: size * d, 100.0),
    "alie": (lambda d, honest, size, rng: honest.mean(axis=0) - size * honest.std(axis=0), 1.5),
    "ipm": (lambda d, honest, size, rng: -size * honest.mean(axis=0), 1.0),
    "copy": (lambda d, honest, size, rng: honest[0], 1.0),
    "replay": (lambda d, honest, size, rng: size * honest[0], 1.0),
    "nan": (_spoilt(np.nan), 1.0),
    "inf": (_spoilt(np.inf), 1.0),
    "all-inf": (lambda d, honest, size, rng: np.full_like(d, np.inf), 1.0),
}
OMNISCIENT = ("alie", "ipm", "copy")


def attack(name: str, size: float | None = None, seed: int = 0) -> Attack:
    """The attack called `name`; `size` is its strength where it has one."""
    if name not in ATTACKS:
        raise SettingError(f"There is no attack {name!r}.{nearest(name, ATTACKS)}")
    return Attack(name, ATTACKS[name][1] if size is None else float(size), seed)


def strongest(
    name: str,
    honest: Sequence[Update],
    aggregate: Callable[[list[Update]], Update],
    f: int,
    *,
    evaluations: int = 20,
    step: float = 10.0,
    ratio: float = 0.8,
) -> Attack:
    """The attack of that name and of the size, found by a line search, with which f agents that all send it move the
    aggregate farthest from the honest mean. It is for those who know the rule and all updates.

    >>> honest = [{"w": np.array([1.0 + i])} for i in range(3)]
    >>> strongest("ipm", honest, lambda updates: {"w": np.mean([u["w"] for u in updates], axis=0)}, 1).size > 1000
    True
    """
    floating = [key for key, array in honest[0].items() if array.dtype.kind == "f"]
    middle = {key: np.mean([update[key] for update in honest], axis=0) for key in floating}

    def reached(size: float) -> float:
        sent = attack(name, size)(honest[0], honest)
        found = aggregate([*honest, *[sent] * f])
        return float(np.sqrt(sum(float(np.sum((found[key] - middle[key]) ** 2)) for key in floating)))

    best, farthest, growing = 0.0, reached(0.0), True
    for _ in range(evaluations - 1):
        moved = reached(best + step)
        further = moved > farthest
        if further:
            best, farthest = best + step, moved
        growing = growing and further
        step *= 2 if growing else ratio
    return attack(name, best)


def flip_labels(labels: np.ndarray, classes: int) -> np.ndarray:
    """y -> classes - 1 - y, for an agent that trains honestly on wrong labels.

    >>> flip_labels(np.array([0, 3, 9]), 10)
    array([9, 6, 0])
    """
    labels = np.asarray(labels)
    if labels.size and not (labels.min() >= 0 and labels.max() < classes):
        raise SettingError(f"Labels must be between 0 and {classes - 1}, not {labels.min()} to {labels.max()}.")
    return classes - 1 - labels
