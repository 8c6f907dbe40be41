"""Where a run stands: what the center writes, and mechanisms and payments read."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .messages import Phase, Update
from .settings import Settings


@dataclass
class Run:
    """The state of a run. Points are integers in fixed point, money is in minor units."""

    settings: Settings
    agents: tuple[str, ...]  # in name order
    limits: dict[str, float]  # s_max as enrolled
    s_max: dict[str, int]
    s0: dict[str, int]
    s: dict[str, int]
    commitments: dict[str, str] = field(default_factory=dict)  # digests given at enrolment
    audit_seed: int = 0
    round: int = 0
    step: int = 0
    phase: Phase = "train"
    asked: tuple[str, ...] = ()
    contributed: int = 0  # contribute rounds closed
    trained: int = 0  # training rounds closed
    moved: int | None = None  # largest move of s in the last contribute round; None when somebody was absent
    delivered: dict[str, int] = field(default_factory=dict)  # last, per agent: the unsampled keep theirs
    delivered_total: dict[str, int] = field(default_factory=dict)
    balances: dict[str, int] = field(default_factory=dict)  # all payments so far, the treasury's too
    valuations: dict[str, int] = field(default_factory=dict)  # last reported, minor units
    memory: dict[str, dict[str, Any]] = field(default_factory=dict)  # each payment's own, plain JSON values
    terms: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)  # signed run: each agent's last claim of its s
    witnessed: dict[str, int] = field(default_factory=dict)  # signed run: the size of the log each agent saw last
    followed: list[int] = field(default_factory=list)  # signed run: sizes of the log that agents saw in earlier runs
    cosigned: str = ""  # signed run: the last checkpoint with the agents' cosignatures
    status: str = "running"
    short: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        return len(self.agents)

    @property
    def signed(self) -> bool:
        """Whether every report is signed: the terms then name everybody's key."""
        return "center" in self.terms

    @property
    def full(self) -> bool:
        """Everyone contributes all it has."""
        return self.s == self.s_max

    @property
    def resting(self) -> bool:
        """||g||_inf <= tol, read off the step s takes: |s' - s| = gamma |g|."""
        if self.moved is None:
            return False
        return self.moved <= self.settings.gamma * self.settings.tol * self.settings.scale

    @property
    def at_limit(self) -> bool:
        return self.contributed >= self.settings.round_limit

    def copy(self) -> Run:
        """A run that can move on while this one stays as it is."""
        mutable: dict[str, Any] = {
            f.name: dict(v) for f in fields(self) if isinstance(v := getattr(self, f.name), dict)
        }
        return replace(self, **{**mutable, "memory": copy.deepcopy(self.memory), "terms": self.terms})

    def points(self, fixed: Mapping[str, int]) -> dict[str, float]:
        """Fixed-point points as numbers, in name order; all an agent has is exactly the s_max it enrolled with."""
        scale = self.settings.scale
        return {a: self.limits[a] if fixed[a] == self.s_max[a] else fixed[a] / scale for a in self.agents}


@dataclass(frozen=True)
class Answer:
    """A report that was accepted, with its numbers as the integers that count: fixed-point points, minor units."""

    s: int | None = None
    delivered: int = 0
    update: Update = field(default_factory=dict)
    valuation: int | None = None
    claim: Mapping[str, Any] = field(default_factory=dict)  # what was signed, in a signed run
    signature: str = ""
    cosignature: str | None = None
