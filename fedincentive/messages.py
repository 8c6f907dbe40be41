"""What the center and the agents say to each other. A host only carries these four messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Phase = Literal["accept", "contribute", "train", "value", "confirm", "done"]
PHASES: tuple[Phase, ...] = ("accept", "contribute", "train", "value", "confirm", "done")  # as they follow in a round
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


@dataclass(frozen=True)
class Broadcast:
    """What every agent is told now. `round` counts the whole run, `step` the training rounds."""

    run: str
    round: int
    step: int
    phase: Phase
    w: Update | None  # None in SCALARS: the model never travels for numbers
    s: Mapping[str, float]  # every agent's contribution as the center keeps it (quantised)
    settings: Mapping[str, Any]
    log: Mapping[str, Any] | None = None  # the ledger's signed checkpoint, proofs and new entries, in a signed run
    signature: str | None = None  # the center's


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
