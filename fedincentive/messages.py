"""What the center and the agents say to each other. A host only carries these four messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Phase = Literal["accept", "contribute", "train", "value", "confirm", "audit", "done"]
PHASES: tuple[Phase, ...] = ("accept", "contribute", "train", "value", "confirm", "audit", "done")  # as they follow
SCALARS = ("accept", "contribute", "confirm", "done")  # phases in which no model travels
Update = Mapping[str, np.ndarray]  # ordered, the same names and shapes as the model w


@dataclass(frozen=True)
class Enrol:
    """An agent joins before round 0: the most it can give and where it starts."""

    agent: str
    s_max: float
    s0: float
    commitment: str | None = None  # an optional digest of the agent's data, kept in the ledger
    key: str | None = None  # its public key, in a signed run
    anchor: str | None = None  # of its hash chain, in an audited run
    budget: float | None = None  # the most money it can put at stake while it delivers, its deposit included
    alone: float | None = None  # what training alone is worth to it
    tags: str | None = None  # of its records, by which those that others have too are found
    seen: int | None = None  # how long this center's log was when the agent saw it last, in an earlier run


@dataclass(frozen=True)
class Broadcast:
    """What every agent is told now. `round` counts the whole run, `step` the training rounds. One with `models` is for
    the agents whose model it carries."""

    run: str
    round: int
    step: int
    phase: Phase
    w: Update | None  # None in SCALARS: the model never travels for numbers
    s: Mapping[str, float]  # every agent's contribution as the center keeps it (quantised)
    settings: Mapping[str, Any]
    log: Mapping[str, Any] | None = None  # the ledger's signed checkpoint, proofs and new entries, in a signed run
    signature: str | None = None  # the center's
    reveal: str | None = None  # the center's link of this step: who is asked follows from it
    audits: Sequence[Mapping[str, Any]] = ()  # in an audit: what each auditor is to look at
    models: Mapping[str, str] | None = None  # digests of the agents' own models, where each is sent another


@dataclass(frozen=True)
class Report:
    """One agent's answer. It echoes (run, round, phase); a late or foreign one is dropped."""

    run: str
    round: int
    phase: Phase
    agent: str
    s: float | None = None  # the contribution it chooses next
    delivered: float | None = None  # the points it trained on in this round
    update: Update | None = None  # d_i
    valuation: float | None = None
    nonce: str | None = None
    signature: str | None = None
    cosignature: str | None = None  # of the checkpoint in the broadcast
    reveal: str | None = None  # the agent's link of this step, in an audited run
    declined: str | None = None  # accept: why it does not take part
    verdicts: Sequence[Mapping[str, Any]] = ()  # audit: what an auditor found


@dataclass(frozen=True)
class RoundResult:
    """How a round ended: what the next broadcast builds on, and what hosts log."""

    round: int
    step: int
    phase: Phase
    s: Mapping[str, float]
    payments: Mapping[str, int]  # minor units posted in this round
    absent: tuple[str, ...]
    head: str | None  # the ledger's head hash after this round
    metrics: Mapping[str, float] = field(default_factory=dict)
    worth: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # each update's value and half its interval
    repeated: bool = False  # below quorum: the same round is asked again
