"""How a run ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..messages import Update


@dataclass(frozen=True)
class Outcome:
    """The end of a run. `status` is "complete", "rested" or "round limit"; `advice` says what to do about the others."""

    run: str
    mechanism: str
    status: str
    w: Update
    s: Mapping[str, float]
    s_max: Mapping[str, float]
    payments: Mapping[str, int]  # every agent's balance over the run, in minor units
    treasury: int  # minor units; negative: the center paid it
    rounds: int  # of any kind
    trained: int
    short: tuple[str, ...]  # agents that contribute less than all they have
    advice: str
    claims: tuple[str, ...]
    basis: str  # "attested" when every report was signed, else "reported"
    head: str | None
    digest: str  # sha256 of the model
    counts: Mapping[str, int] = field(default_factory=dict)  # reports dropped and refused
