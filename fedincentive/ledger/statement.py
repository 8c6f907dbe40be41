"""An agent's statement: what it committed and delivered, what it was paid or charged, and why."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .. import payments
from ..entry import COMMITMENT, Entry
from ..errors import ProvenanceError
from ..provenance.keys import PublicKey
from .disputes import RULE as DISPUTE
from .store import Ledger, Record


@dataclass(frozen=True)
class StatementLine:
    """One entry from one account's point of view. Points are decimals, amounts minor units."""

    seq: int
    run: str
    round: int
    kind: str
    rule: str
    committed: str | None
    delivered: str | None
    amount: int
    balance: int
    because: str


@dataclass(frozen=True)
class Statement:
    """All lines of one account, oldest first."""

    account: str
    minor: int
    lines: tuple[StatementLine, ...]

    @property
    def paid(self) -> int:
        return sum(line.amount for line in self.lines if line.amount > 0)

    @property
    def charged(self) -> int:
        return -sum(line.amount for line in self.lines if line.amount < 0)

    @property
    def balance(self) -> int:
        return self.paid - self.charged

    @property
    def delivered(self) -> str:
        """The points delivered in all rounds."""
        return f"{float(sum(Fraction(line.delivered) for line in self.lines if line.delivered)):.12g}"


def statement(book: Ledger, account: str, run: str | None = None) -> Statement:
    """Everything in the ledger, or in one run of it, that concerns the account."""
    lines: list[StatementLine] = []
    balance = 0
    with book.snapshot():
        for record in book.chained(run):
            if _concerns(record, account):
                balance += record.entry.postings.get(account, 0)
                lines.append(_line(record, account, balance, book.minor))
    return Statement(account, book.minor, tuple(lines))


def _concerns(record: Record, account: str) -> bool:
    entry = record.entry
    if entry.inputs.get("agent") == account:  # its dispute
        return True
    return account in entry.postings or any(isinstance(v, dict) and account in v for v in entry.inputs.values())


def _line(record: Record, account: str, balance: int, minor: int) -> StatementLine:
    e, given = record.entry, record.entry.inputs
    committed = _points(given, "s", account)
    delivered = _points(given, "delivered", account)
    amount = e.postings.get(account, 0)
    because = _because(e, account, minor)
    return StatementLine(record.seq, e.run, e.round, e.kind, e.rule, committed, delivered, amount, balance, because)


def _points(given: dict[str, Any] | Any, name: str, account: str) -> str | None:
    points = given.get(name, {}).get(account)
    return None if points is None else f"{points / given.get('scale', 1):.12g}"


def _name(vkey: str) -> str:
    try:
        return PublicKey.parse(vkey).name
    except ProvenanceError:
        return "?"


def _because(entry: Entry, account: str, minor: int) -> str:
    """The rule with this account's numbers in it, in the words of the payment that made the entry."""
    given = entry.inputs
    if entry.kind == COMMITMENT:
        return f"memo, beta {given.get('beta', '?')} per point"
    if "corrects" in given:
        decided = "".join(f", {who} {_name(given[who])}" for who in ("author", "approver") if who in given)
        return f"corrects entry {given['corrects']}: {given.get('reason', '')}{decided}"
    if entry.rule == DISPUTE:
        return f"disputes entry {given['disputes']}: it signed a report; who is right cannot be decided"
    payment = payments.by_rule(entry.rule)
    return entry.rule if payment is None else payment.explain(entry, account, minor)
