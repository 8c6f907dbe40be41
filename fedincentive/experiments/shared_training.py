"""Agents of one simulation: each has its own site, but what they compute from the same broadcast is computed once.

An agent asks for its own update and its own value, as anywhere else. The group answers the first one that asks by
training everyone from the broadcast w on everyone's broadcast contribution, and keeps the answers: of this round, and
in a bounded memory of earlier ones. 2P-UPBReD's second phase is FedAvg byte for byte, so runs that are compared with
each other train once. Which rounds a run had from another one is remembered, and the seconds they took there.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..agent import Agent, LossSite, digest
from ..messages import Broadcast, Report, Update
from .training import Grouped, Losses, Plain

REMEMBERED = 2**29  # bytes of updates that are kept for other runs


@dataclass(frozen=True)
class Trained:
    """The updates of all agents from one model, the run that trained them, and its processor seconds."""

    updates: list[Update]
    run: str = ""
    seconds: float = 0.0

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for update in self.updates for array in update.values())


class Memory:
    """Updates by what they were computed from; the oldest go when there are more than `limit` bytes."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self.limit, self.bytes = limit, 0
        self.hits = self.misses = 0
        self._kept: OrderedDict[tuple, Trained] = OrderedDict()

    def get(self, key: tuple) -> Trained | None:
        found = self._kept.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._kept.move_to_end(key)
        return found

    def put(self, key: tuple, trained: Trained) -> None:
        if trained.bytes > self.limit:
            return
        self.clear(trained.bytes)
        self._kept[key] = trained
        self.bytes += trained.bytes

    def clear(self, room: int) -> None:
        """Forget the oldest until there is room for so many bytes."""
        while self._kept and self.bytes + room > self.limit:
            _, old = self._kept.popitem(last=False)
            self.bytes -= old.bytes


class Group:
    """What the agents of one simulation share: trainer, held-out losses, and what was computed already."""

    def __init__(self, trainer: Plain | Grouped, losses: Losses, w0: Update, memory: Memory | None = None) -> None:
        self.trainer, self.losses, self.w0 = trainer, losses, w0
        self.memory = Memory() if memory is None else memory
        self.orders: dict[str, np.ndarray] = {}
        self.shared: dict[str, dict[str, list[int]]] = {}  # run -> run that trained for it -> training rounds
        self.lent = 0.0  # seconds that went into what was not computed again
        self._w: Update = w0
        self._digest = digest(w0)
        self._s: Mapping[str, float] = {}
        self._run, self._phase = "", ""
        self._updates: dict[tuple[str, int, int], Update] = {}
        self._values: dict[str, float] = {}
        self._valued = self._owed = 0.0  # seconds of these values, and what is to be lent with them

    def hear(self, broadcast: Broadcast) -> None:
        """The broadcast that all agents answer next; contribute rounds carry no model, they are about w0."""
        self._run, self._phase = broadcast.run, broadcast.phase
        w = self.w0 if broadcast.w is None else broadcast.w
        if w is not self._w:
            self._w, before, self._digest = w, self._digest, digest(w)
            if self._digest == before:
                self._owed = self._valued
            else:
                self._values, self._valued, self._owed = {}, 0.0, 0.0
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
            start = time.process_time()
            self._values = self.losses.all(w)
            self._valued = time.process_time() - start
        self.lent += self._owed
        self._owed = 0.0
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
        key = (self.trainer.local, self._digest, step, tuple(plan))
        found = self.memory.get(key)
        if found is None:
            self.memory.clear(self.round_bytes)
            start = time.process_time()
            updates = self.trainer.updates(self._w, [(name, self.orders[name][:points]) for name, points in plan], step)
            found = Trained(updates, self._run, time.process_time() - start)
            self.memory.put(key, found)
        elif found.run != self._run:
            self.lent += found.seconds
            if self._phase == "train":
                rounds = self.shared.setdefault(self._run, {}).setdefault(found.run, [])
                if step not in rounds:  # agents with fewer points than the others ask apart from them
                    rounds.append(step)
        return list(zip(plan, found.updates, strict=True))

    @property
    def round_bytes(self) -> int:
        """The size of everyone's update."""
        return len(self.orders) * sum(array.nbytes for array in self.w0.values())


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
