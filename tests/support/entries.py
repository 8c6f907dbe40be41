"""A small entry for tests of the ledger."""

from __future__ import annotations

from fedincentive.ledger import Entry


def simple(round: int = 0, amount: int = 5, **changes) -> Entry:
    fields = {"run": "demo", "kind": "settlement", "rule": "x/1", "inputs": {}, "postings": {"a": amount, "b": -amount}}
    return Entry(**{**fields, "round": round, **changes})
