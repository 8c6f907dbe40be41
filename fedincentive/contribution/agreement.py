"""Correlated agreement (Shnayder et al. 2016): what agents' models say of shared items that nobody has labelled.

    score_i = mean_{j != i} sum_{a, b} S_ij(a, b) (P_ij(a, b) - P_i(a) P_j(b))

P_ij is how often i says a and j says b of the same item; S_ij(a, b) is 1 where the two are said together more often
than by chance. S comes from one half of the items and the rest of the formula from the other, and the other way
round, so that labels without relation score 0 in the mean. Who always says the same scores 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import draws
from ..errors import SettingError
from .estimates import NORMAL_95, Contributions

Labels = NDArray[np.int64]
ITEMS = 400  # shared by the agents of a closed-form game


def agreement(labels: Mapping[str, Any]) -> Contributions:
    """The score of every agent by its labels of the same items, in the same order.

    >>> same = [0, 0, 1, 1, 0, 0, 1, 1]
    >>> agreement({"a": same, "b": same, "lazy": [1] * 8}).values
    {'a': 0.25, 'b': 0.25, 'lazy': 0.0}
    """
    agents = tuple(sorted(labels))
    said = {agent: _read(agent, labels[agent]) for agent in agents}
    if len({len(one) for one in said.values()}) > 1:
        counts = ", ".join(f"{agent!r} {len(one)}" for agent, one in said.items())
        raise SettingError(f"Agreement compares labels of the same items, but their numbers differ: {counts}.")
    values, spread = dict.fromkeys(agents, 0.0), dict.fromkeys(agents, 0.0)
    if len(agents) < 2 or len(said[agents[0]]) < 4:
        return Contributions(values, spread)
    kinds, told_as = np.unique(np.stack(list(said.values())), return_inverse=True)
    said = dict(zip(agents, told_as.reshape(len(agents), -1), strict=True))
    told = {agent: np.eye(len(kinds))[one] for agent, one in said.items()}
    halves = (slice(0, None, 2), slice(1, None, 2))
    for i in agents:
        items, score = np.zeros(len(said[i])), 0.0
        for j in agents:
            for learn, count in (halves, halves[::-1]) if j != i else ():
                together = _beyond_chance(told[i][learn], told[j][learn]) > 0.0
                score += float((together * _beyond_chance(told[i][count], told[j][count])).sum()) / 2.0
                items[count] += together[said[i][count], said[j][count]]
        values[i] = score / (len(agents) - 1)
        spread[i] = NORMAL_95 * float(np.std(items, ddof=1)) / (len(agents) - 1) / len(items) ** 0.5
    return Contributions(values, spread, evaluations=len(agents))


def _beyond_chance(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    return x.T @ y / len(x) - np.outer(x.mean(axis=0), y.mean(axis=0))


def _read(agent: str, given: Any) -> Labels:
    found = np.asarray(given)
    if found.ndim != 1 or found.dtype.kind not in "iu" or (found.size and found.min() < 0):
        raise SettingError(f"The labels of {agent!r} must be whole numbers from 0, one for each shared item.")
    return found.astype(np.int64)


def labels_by_effort(agent: str, part: float) -> Labels:
    """What an agent of a closed-form game says of two kinds of shared items: the truth of this part of them, and the
    toss of a coin of the others."""
    truth, own = draws.generator(0, "items").integers(0, 2, ITEMS), draws.generator(0, "labels", agent)
    return np.where(own.uniform(size=ITEMS) < part, truth, own.integers(0, 2, ITEMS))
