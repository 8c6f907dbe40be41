"""The payment ledger: exact, append-only, hash-chained, checkable by anyone.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, open(f"{folder}/payments.db") as book:
...     receipt = book.append(Entry("demo", 0, "refund", "refund/1", {"reason": "agreed"}, {"a": -500, "b": 500}))
...     receipt.seq, book.balances()
(1, {'a': -500, 'b': 500})
"""

from __future__ import annotations

from pathlib import Path

from ..entry import BALANCED, Entry
from ..payments import MINOR
from .address import is_address
from .chain import Checkpoint
from .corrections import reversal, transfer
from .store import Ledger, Receipt, Record

__all__ = [
    "BALANCED",
    "Checkpoint",
    "Entry",
    "Ledger",
    "Receipt",
    "Record",
    "open",
    "read",
    "reversal",
    "transfer",
]


def open(target: str | Path, *, minor: int | None = MINOR) -> Ledger:
    """The ledger at a path (SQLite) or a postgresql:// address, made if it is not there."""
    return _store(target, minor, create=True)


def read(target: str | Path) -> Ledger:
    """An existing ledger for reading only; a missing one is an error and nothing is made."""
    return _store(target, None, create=False)


def _store(target: str | Path, minor: int | None, *, create: bool) -> Ledger:
    if isinstance(target, str) and is_address(target):
        from .postgres import PostgresLedger

        return PostgresLedger(target, minor, create=create)
    from .sqlite import SQLiteLedger

    return SQLiteLedger(target, minor, create=create)
