"""All draws of a run come from here, by (seed, labels): a repeated or resumed round, and another host, draw the same.

The order of an agent's points, the part it holds out, the seed of its local training and who is audited: none of them
depends on the host, so the same data gives the same training everywhere. Who is sampled, agents may not know before:
that follows from the center's hash chain (`provenance/beacon.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def generator(seed: int, *labels: str | int) -> np.random.Generator:
    """A generator that depends on the seed and the labels alone, such as (seed, agent, step).

    >>> int(generator(0, "agent-1", 3).integers(1000)) == int(generator(0, "agent-1", 3).integers(1000))
    True
    """
    return np.random.Generator(_bits(seed, *labels))


def _bits(seed: int, *labels: str | int) -> np.random.PCG64:
    text = "\x1f".join(str(label) for label in (seed, *labels)).encode()
    return np.random.PCG64(int.from_bytes(hashlib.sha256(text).digest()[:16], "big"))


def order(seed: int, agent: str, size: int) -> NDArray[np.intp]:
    """The order in which an agent gives its points: a contribution of s is the first s of them, so more only adds.

    >>> sorted(order(0, "agent-1", 4).tolist())
    [0, 1, 2, 3]
    """
    return generator(seed, "order", agent).permutation(size)


def held_out(seed: int, agent: str, size: int, part: float = 0.2) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(points to train on, points kept back for the agent's own valuation), for hosts that give it no test data.

    >>> [len(points) for points in held_out(0, "agent-1", 10)]
    [8, 2]
    """
    mixed = generator(seed, "held out", agent).permutation(size)
    cut = max(1, round(part * size))
    return mixed[cut:], mixed[:cut]


def local_seed(seed: int, agent: str, step: int) -> int:
    """The seed of an agent's local training in a step, for a framework's own generators.

    >>> 0 <= local_seed(0, "agent-1", 3) < 2**31
    True
    """
    # What generator(seed, "train", agent, step).integers(2**31) gives, at a third of the cost
    return (int(_bits(seed, "train", agent, step).random_raw()) & 0xFFFFFFFF) >> 1


def sample(seed: int, step: int, agents: Sequence[str], size: int | None) -> tuple[str, ...]:
    """Who was asked in a training round of an older release, by (seed, step) alone: agents could know before. Today
    `provenance.beacon.asked` draws them."""
    if size is None or size >= len(agents):
        return tuple(agents)
    chosen = generator(seed, "sample", step).choice(len(agents), size, replace=False)
    return tuple(agents[i] for i in sorted(chosen))


def audited(secret: int, agent: str, step: int, chance: float) -> bool:
    """Whether this agent is audited in this step; the seed is the center's secret, so that nobody can know before."""
    return chance >= 1.0 or bool(generator(secret, "audit", agent, step).random() < chance)
