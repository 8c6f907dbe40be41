"""Every error fedincentive raises on purpose, in one place.

Each message names the setting or agent, the value it had, and what to do about it.
"""

from __future__ import annotations

LONGEST = 4000  # characters of a message: what a stranger sent may be part of it


class FedIncentiveError(Exception):
    """Base of all errors raised on purpose; catching it never hides a bug."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


class SettingError(FedIncentiveError, ValueError):
    """A setting is unknown, missing, or outside its range."""


class GameError(FedIncentiveError, ValueError):
    """A game is not well formed, or is asked about a point outside its domain."""


class TooLarge(GameError):
    """A game has too many agents for what is asked of it."""


class AggregationError(FedIncentiveError, ValueError):
    """The updates, weights or trim given to an aggregation rule do not fit together."""


class NativeUnavailable(FedIncentiveError, ImportError):
    """The compiled kernels could not be loaded."""


class ReportRefused(FedIncentiveError, ValueError):
    """A report an agent sent is not acceptable; the agent counts as absent."""


class BroadcastRefused(FedIncentiveError, ValueError):
    """A broadcast that an agent with a key does not act on: not its center's, not its run's, or out of order."""


class QuorumError(FedIncentiveError, RuntimeError):
    """Too few agents answered, after every permitted repeat of the round."""


class RunError(FedIncentiveError, RuntimeError):
    """A run cannot start or go on: it exists already, or its saved state does not fit."""


class LedgerError(FedIncentiveError, RuntimeError):
    """The ledger refuses an operation or cannot carry it out."""


class LedgerDamaged(LedgerError):
    """What is there was a ledger, but it cannot be read or is not as it was made: a finding, not a wrong call."""


class LedgerConflict(LedgerError):
    """The key (run, round, kind) is taken by an entry with other contents; `field` is the first that differs."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class PaymentError(FedIncentiveError, ValueError):
    """A payment rule got a value that is not exact, out of range, or does not fit the others."""


class ProvenanceError(FedIncentiveError, ValueError):
    """A key, a signed note, a proof or a receipt is missing, malformed, or not what it is said to be."""


class LogForked(FedIncentiveError, RuntimeError):
    """The ledger's signed history does not continue the one seen before; `evidence` holds both signed notes."""

    def __init__(self, message: str, evidence: dict[str, object]) -> None:
        super().__init__(message)
        self.evidence = evidence
