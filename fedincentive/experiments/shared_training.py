"""Agents of one simulation: each has its own site, but what they compute from the same broadcast is computed once.

An agent asks for its own update and its own value, as anywhere else. The group answers the first one that asks by
training everyone from the broadcast w on everyone's broadcast contribution, and keeps the answers: of this round, and
in a bounded memory of earlier ones. 2P-UPBReD's second phase is FedAvg byte for byte, so runs that are compared with
each other train once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..agent import Agent, LossSite, digest
from ..messages import Broadcast, Report, Update
from .training import Grouped, Losses, Plain

REMEMBERED = 2**29  # bytes of updates that are kept for other runs


class Memory:
    """Updates by what they were computed from; the oldest go when there are more than `limit` bytes."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self.limit, self.bytes = limit, 0
        self.hits = self.misses = 0
        self._kept: OrderedDict[tuple, list[Update]] = OrderedDict()

    def get(self, key: tuple) -> list[Update] | None:
        found = self._kept.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._kept.move_to_end(key)
        return found

    def put(self, key: tuple, updates: list[Update]) -> None:
        size = _bytes(updates)
        if size > self.limit:
            return
        self._kept[key] = updates
        self.bytes += size
        while self.bytes > self.limit:
            _, old = self._kept.popitem(last=False)
            self.bytes -= _bytes(old)


def _bytes(updates: list[Update]) -> int:
    return sum(array.nbytes for update in updates for array in update.values())


class Group:
    """What the agents of one simulation share: trainer, held-out losses, and what was computed already."""

    def __init__(self, trainer: Plain | Grouped, losses: Losses, w0: Update, memory: Memory | None = None) -> None:
        self.trainer, self.losses, self.w0 = trainer, losses, w0
        self.memory = Memory() if memory is None else memory
        self.orders: dict[str, np.ndarray] = {}
        self._w: Update = w0
        self._digest = digest(w0)
        self._s: Mapping[str, float] = {}
        self._updates: dict[tuple[str, int, int], Update] = {}
        self._values: dict[str, float] = {}

    def hear(self, broadcast: Broadcast) -> None:
        """The broadcast that all agents answer next; contribute rounds carry no model, they are about w0."""
        w = self.w0 if broadcast.w is None else broadcast.w
        if w is not self._w:
            self._w, self._digest, self._values = w, digest(w), {}
        if broadcast.s is not self._s:
            self._s, self._updates = broadcast.s, {}

    def update(self, agent: str, w: Update, points: int, step: int) -> Update:
        if w is not self._w:
            return self.trainer.updates(w, [(agent, self.orders[agent][:points])], step)[0]
        if (agent, points, step) not in self._updates:
            for (name, size), d in self._ask(self._plan(agent, points), step):
                self._updates[name, size, step] = d
        return self._updates[agent, points, step]

    def loss(self, agent: str, w: Update) -> float:
        if w is not self._w:
            return self.losses.one(w, agent)
        if not self._values:
            self._values = self.losses.all(w)
        return self._values[agent]

    def _plan(self, agent: str, points: int) -> list[tuple[str, int]]:
        """Everyone's points when this agent asks for `points`: as far from the broadcast s as it asks for itself."""
        offset = points - round(self._s[agent])
        plan = []
        for name, s in self._s.items():
            here = round(s)
            there = here + offset if 0 <= here + offset <= len(self.orders[name]) else max(here - offset, 0)
            plan.append((name, points if name == agent else min(there, len(self.orders[name]))))
        return plan

    def _ask(self, plan: Sequence[tuple[str, int]], step: int) -> list[tuple[tuple[str, int], Update]]:
        key = (self._digest, step, tuple(plan))
        found = self.memory.get(key)
        if found is None:
            requests = [(name, self.orders[name][:points]) for name, points in plan]
            found = self.trainer.updates(self._w, requests, step)
            self.memory.put(key, found)
        return list(zip(plan, found, strict=True))


class GroupSite(LossSite):
    """A loss-based site whose training and evaluation are done with those of the others in its group."""

    def __init__(self, name: str, group: Group, size: int, **settings: object) -> None:
        super().__init__(size, self._alone, lambda w: group.loss(name, w), w0=group.w0, **settings)  # type: ignore[arg-type]
        self.name, self.group = name, group
        group.orders[name] = self.order

    def update(self, w: Update, points: float, step: int, s: Mapping[str, float]) -> Update:
        return self.group.update(self.name, w, round(points), step)

    def _alone(self, w: Update, drawn: np.ndarray, step: int) -> Update:
        return self.group.trainer.updates(w, [(self.name, drawn)], step)[0]


class GroupAgent(Agent):
    """An agent that tells its group which broadcast it answers."""

    def respond(self, broadcast: Broadcast, *seen: Any) -> Report | None:
        self.site.group.hear(broadcast)  # type: ignore[attr-defined]
        return super().respond(broadcast, *seen)
