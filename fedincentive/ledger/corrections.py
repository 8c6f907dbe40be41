"""Corrections: an entry is never changed; another one takes it back, or moves amounts that a person decided."""

from __future__ import annotations

from collections.abc import Mapping

from ..entry import CORRECTION, Entry
from ..errors import LedgerError
from .store import REVERSAL, Record

TRANSFER = "transfer/1"


def reversal(record: Record, round: int, reason: str) -> Entry:
    """A correction that takes a whole entry back."""
    inputs = {"corrects": record.seq, "hash": record.hash, "reason": _given(reason)}
    postings = {account: -amount for account, amount in record.entry.postings.items()}
    return Entry(record.entry.run, round, CORRECTION, REVERSAL, inputs, postings)


def transfer(record: Record, round: int, reason: str, amounts: Mapping[str, int]) -> Entry:
    """A correction by amounts that a person decided; the reason stands beside them for ever."""
    inputs = {"corrects": record.seq, "hash": record.hash, "reason": _given(reason), "amounts": amounts}
    return Entry(record.entry.run, round, CORRECTION, TRANSFER, inputs, amounts)


def _given(reason: str) -> str:
    if not reason.strip():
        raise LedgerError("A correction needs a reason: it stands beside the amounts for ever.")
    return reason
