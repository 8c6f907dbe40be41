"""Entries for tests of the ledger: a small one, and those of the payments with inputs of the test's own."""

from __future__ import annotations

from typing import Any

from fedincentive.ledger import BALANCED, Entry
from fedincentive.payments import MINOR, SCALE, Contribution, Truthful, rate


def simple(round: int = 0, amount: int = 5, **changes) -> Entry:
    fields = {"run": "demo", "kind": "settlement", "rule": "x/1", "inputs": {}, "postings": {"a": amount, "b": -amount}}
    return Entry(**{**fields, "round": round, **changes})


def settlement(run: str, round: int, *, beta: Any, s: Any, scale: int = SCALE, minor: int = MINOR) -> Entry:
    """p(s) in one sum."""
    inputs = {"beta": str(rate("beta", beta)), "s": s, "scale": scale}
    return _made(Contribution, run, round, "settlement", "contribution/1", inputs, {}, minor)


def tranche(
    run: str,
    round: int,
    *,
    beta: Any,
    rounds: int,
    delivered: Any,
    total: Any,
    posted: Any,
    scale: int = SCALE,
    minor: int = MINOR,
) -> Entry:
    """One training round: `total` is all delivered so far, this round's included, `posted` all paid before."""
    inputs = {"beta": str(rate("beta", beta)), "rounds": rounds, "scale": scale, "delivered": delivered, "total": total}
    return _made(Contribution, run, round, "tranche", "tranche/1", inputs, {"paid": dict(posted)}, minor)


def truthful(run: str, round: int, *, minor: int = MINOR, **given: Any) -> Entry:
    """One value exchange; what is not given has no fine and pays improvements."""
    told = {name: value for name, value in given.items() if value is not None}
    inputs = {"h": "previous", "phi": "none", "fine": 0, "tolerance": 0, **told}
    return _made(Truthful, run, round, "truthful", "truthful/1", inputs, {}, minor)


def _made(payment: Any, run: str, round: int, kind: str, rule: str, inputs: Any, memory: Any, minor: int) -> Entry:
    amounts = payment.amounts({"round": round, "rule": rule, "inputs": inputs}, memory, minor)
    return Entry(run, round, kind, rule, inputs, amounts, (BALANCED,) if payment.balanced else ())
