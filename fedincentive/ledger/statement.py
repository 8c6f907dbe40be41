"""An agent's statement: what it committed and delivered, what it was paid or charged, and why."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .export import decimal
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
        for record in book.entries(run):
            if _concerns(record, account):
                balance += record.entry.postings.get(account, 0)
                lines.append(_line(record, account, balance, book.minor))
    return Statement(account, book.minor, tuple(lines))


def _concerns(record: Record, account: str) -> bool:
    entry = record.entry
    return account in entry.postings or any(isinstance(v, dict) and account in v for v in entry.inputs.values())


def _line(record: Record, account: str, balance: int, minor: int) -> StatementLine:
    e, given = record.entry, record.entry.inputs
    committed = _points(given, "s", account)
    delivered = _points(given, "delivered", account)
    amount = e.postings.get(account, 0)
    because = _because(e.rule, given, account, minor)
    return StatementLine(record.seq, e.run, e.round, e.kind, e.rule, committed, delivered, amount, balance, because)


def _points(given: dict[str, Any] | Any, name: str, account: str) -> str | None:
    points = given.get(name, {}).get(account)
    return None if points is None else f"{points / given.get('scale', 1):.12g}"


def _because(rule: str, given: Any, account: str, minor: int) -> str:
    """The rule with this account's numbers in it, so that a person can follow the amount."""
    if rule == "commitment/1":
        return f"memo, beta {given.get('beta', '?')} per point"
    if rule == "contribution/1":
        return (
            f"beta {given['beta']} x (s {_points(given, 's', account)} - others' mean {_others(given, 's', account)})"
        )
    if rule == "tranche/1":
        total = _points(given, "total", account)
        return (
            f"beta {given['beta']} / {given['rounds']} rounds x (delivered so far {total} - others' mean "
            f"{_others(given, 'total', account)}) - paid before"
        )
    if rule == "truthful/1" and account in given["valuations"]:
        value = _short(decimal(given["valuations"][account], minor))
        failed = given.get("failed", {}).get(account)
        return f"others' values, h {given['h']}, own value {value}, fine rule {given['phi']}" + (
            f", failed: {failed}" if failed else ""
        )
    if "corrects" in given:
        return f"corrects entry {given['corrects']}: {given.get('reason', '')}"
    return rule


def _others(given: Any, name: str, account: str) -> str:
    others = [points for agent, points in given[name].items() if agent != account]
    return f"{sum(others) / len(others) / given['scale']:.6g}" if others else "0"


def _short(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number
