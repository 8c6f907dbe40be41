"""Where a run stands: what the center writes, and mechanisms and payments read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .entry import copied
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
    drawn: tuple[str, ...] = ()  # for a training round; those of them who failed an audit are not asked
    contributed: int = 0  # contribute rounds closed
    trained: int = 0  # training rounds closed
    moves: dict[str, int] = field(default_factory=dict)  # each agent's move of s, since somebody last moved far
    misses: dict[str, int] = field(default_factory=dict)  # contribute rounds in a row that an agent was absent from
    delivered: dict[str, int] = field(default_factory=dict)  # last, per agent: the unsampled keep theirs
    delivered_total: dict[str, int] = field(default_factory=dict)
    balances: dict[str, int] = field(default_factory=dict)  # all payments so far, the treasury's too
    valuations: dict[str, int] = field(default_factory=dict)  # last reported, minor units
    memory: dict[str, dict[str, Any]] = field(default_factory=dict)  # each payment's own, plain JSON values
    terms: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)  # signed run: each agent's last claim of its s
    changed: list[dict[str, Any]] = field(default_factory=list)  # signed run: statements on keys, each with its round
    witnessed: dict[str, int] = field(default_factory=dict)  # signed run: the size of the log each agent saw last
    followed: list[int] = field(default_factory=list)  # signed run: sizes of the log that agents saw in earlier runs
    cosigned: str = ""  # signed run: the last checkpoint with the agents' cosignatures
    alone: dict[str, float] = field(default_factory=dict)  # what training alone is worth, of those who said it
    far: dict[str, int] = field(default_factory=dict)  # agent -> rounds in which its update was far from the aggregate
    most_far: list[int] = field(default_factory=lambda: [0, 0])  # in one round, and of how many answers
    slope: float | None = None  # the least d v_i/d s_i that agents' moves of s speak of
    status: str = "running"
    short: tuple[str, ...] = ()
    failed: dict[str, int] = field(default_factory=dict)  # agent -> the first step whose audit it did not pass
    anchors: dict[str, str] = field(default_factory=dict)  # of the agents' hash chains, in an audited run
    links: dict[str, str] = field(default_factory=dict)  # the last link each agent and the center has shown
    audits: list[dict[str, Any]] = field(default_factory=list)  # steps not settled: reports, drawn agents, verdicts
    checked: dict[str, int] = field(default_factory=dict)  # agent-steps in all, those audited, and records opened
    then: Phase = "done"  # what follows the audit that is open
    enrolled: dict[str, dict[str, Any]] = field(default_factory=dict)  # what each agent enrolled with
    duplicates: dict[str, dict[str, int]] = field(default_factory=dict)  # records of an agent that others have, by them
    declined: dict[str, str] = field(default_factory=dict)  # who left before the run began, and why

    @property
    def n(self) -> int:
        return len(self.agents)

    @property
    def signed(self) -> bool:
        """Whether every report is signed: the terms then name everybody's key."""
        return "center" in self.terms

    @property
    def lost(self) -> tuple[str, ...]:
        """The agents that phase 1 goes on without: they missed too many of its rounds, and keep their last s."""
        return tuple(name for name in self.agents if self.misses.get(name, 0) >= self.settings.misses)

    @property
    def present(self) -> tuple[str, ...]:
        """The agents that phase 1 waits for."""
        lost = set(self.lost)
        return tuple(name for name in self.agents if name not in lost)

    @property
    def full(self) -> bool:
        """Everyone who is present contributes all it has."""
        return all(self.s[name] == self.s_max[name] for name in self.present)

    @property
    def nearly_full(self) -> bool:
        """Everyone who is present keeps back less than the slack."""
        return all(self.s_max[name] - self.s[name] < self.slack(name) for name in self.present)

    def slack(self, name: str) -> float:
        """What an agent may keep back and still counts as giving all, in fixed point."""
        return min(self.settings.slack * self.settings.scale, self.s_max[name] / 10)

    def stands(self, name: str, move: int) -> bool:
        """Whether an agent's move of s counts as none: |g| <= tol, read off the step, |s' - s| = gamma |g|; where each
        agent has its own step size, at most tol of its s_max."""
        gamma, tol, scale = self.settings.gamma, self.settings.tol, self.settings.scale
        return move <= (tol * self.s_max[name] if gamma is None else gamma * tol * scale)

    @property
    def moved(self) -> int | None:
        """The largest move of s; None while it is not known of everyone who is present."""
        if not all(name in self.moves for name in self.present):
            return None
        return max(self.moves[name] for name in self.present)

    @property
    def resting(self) -> bool:
        return self.moved is not None and all(self.stands(name, self.moves[name]) for name in self.present)

    @property
    def speed(self) -> str:
        """How fast s still moves, in words: the largest slope, or the largest move where gamma is not set."""
        moved = (self.moved or 0) / self.settings.scale
        gamma = self.settings.gamma
        return f"s moves by up to {moved:.3g} points" if gamma is None else f"|g| = {moved / gamma:.3g}"

    @property
    def at_limit(self) -> bool:
        return self.contributed >= self.settings.round_limit

    def copy(self) -> Run:
        """A run that can move on while this one stays as it is."""
        mutable: dict[str, Any] = {
            f.name: dict(v) for f in fields(self) if isinstance(v := getattr(self, f.name), dict)
        }
        deep = {"memory": copied(self.memory), "audits": [_open_step(step) for step in self.audits]}
        return replace(self, **{**mutable, **deep, "terms": self.terms})

    def points(self, fixed: Mapping[str, int]) -> dict[str, float]:
        """Fixed-point points as numbers, in name order; all an agent has is exactly the s_max it enrolled with."""
        scale = self.settings.scale
        return {a: self.limits[a] if fixed[a] == self.s_max[a] else fixed[a] / scale for a in self.agents}


def _open_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a step that is not settled. Only what auditors found is added to it; all else may be shared, and with
    everybody's signatures it is too much to copy in every round."""
    tasks = None if step["tasks"] is None else {agent: list(heard) for agent, heard in step["tasks"].items()}
    return {**step, "tasks": tasks, "heard": list(step["heard"])}


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
    declined: str = ""  # why it does not take part
