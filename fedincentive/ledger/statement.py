"""An agent's statement: what it committed and delivered, what it was paid or charged, and why.

With cosigned checkpoints it also says when, and proves every line: a receipt for each under the newest checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from .. import payments, terms
from ..contribution import memo
from ..entry import COMMITMENT, Entry
from ..errors import LedgerError, ProvenanceError
from ..payments.exact import written
from ..provenance import receipts, statements
from ..provenance.keys import PublicKey
from ..provenance.merkle import Tree
from ..provenance.notes import Note
from .claims import RULE as REPORTS
from .disputes import RULE as DISPUTE
from .notes import Calendar, Dated, Keys, checked, newest
from .payout import RULE as PAYOUT
from .periods import RULE as CLOSE
from .periods import Period
from .store import Ledger, Record

OF_BOOKS = (PAYOUT, CLOSE)  # memos of the ledger's keeper, not of a run


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
    hash: str
    after: int | None = None  # the times between which cosigned checkpoints place it
    before: int | None = None
    receipt: str = ""  # what proves it under the newest checkpoint, as in a receipt's file


@dataclass(frozen=True)
class Statement:
    """All lines of one account, oldest first."""

    account: str
    minor: int
    lines: tuple[StatementLine, ...]
    currency: str = ""  # as the terms of its runs say
    note: Note | None = None  # the newest checkpoint
    opening: int = 0  # the balance before the first line, of a period
    unsigned: tuple[str, ...] = ()  # the runs in which nobody signed what agents said

    @property
    def paid(self) -> int:
        return sum(line.amount for line in self.lines if line.amount > 0)

    @property
    def charged(self) -> int:
        return -sum(line.amount for line in self.lines if line.amount < 0)

    @property
    def balance(self) -> int:
        return self.opening + self.paid - self.charged

    @property
    def delivered(self) -> str:
        """The points delivered in all rounds."""
        return f"{float(sum(Fraction(line.delivered) for line in self.lines if line.delivered)):.12g}"


def statement(
    book: Ledger,
    account: str,
    run: str | None = None,
    notes: Iterable[Note] = (),
    exchanged: Mapping[str, Sequence[PublicKey]] | None = None,
    period: Period | None = None,
) -> Statement:
    """Everything in the ledger, or in one run or closed period of it, that concerns the account.

    `notes` are checkpoints of this ledger, or LedgerError; `exchanged` are the keys by name that may have signed them.
    """
    lines: list[StatementLine] = []
    opening, balance, keys, currencies, scales = 0, 0, Keys(), list[str](), dict[str, int]()
    previous, hashes, held = book.genesis, list[str](), dict[int, tuple[str, str]]()
    signed = set[str]()  # runs
    with book.snapshot():
        for record in book.chained():
            entry = record.entry
            if entry.kind == terms.KIND:
                keys.take(entry.inputs["terms"])
                signed.update([entry.run] if "center" in entry.inputs["terms"] else [])
            elif entry.rule == statements.RULE:
                keys.change(entry.inputs)
            elif entry.kind == COMMITMENT:
                scales[entry.run] = entry.inputs.get("scale", 1)
            if run in (None, entry.run) and _concerns(record, account):
                if period is not None and record.seq <= period.after:
                    opening += entry.postings.get(account, 0)
                balance += entry.postings.get(account, 0)
                lines.append(_line(record, account, balance, book.minor, scales.get(entry.run, 1)))
                held[record.seq] = previous, entry.body
                if entry.kind == terms.KIND:
                    currencies.append(entry.inputs["terms"].get("currency", ""))
            hashes.append(record.hash)
            previous = record.hash
    currency = " and ".join(dict.fromkeys(currencies))
    if period is not None:
        lines = [line for line in lines if period.after < line.seq <= period.size]
    played = dict.fromkeys(line.run for line in lines if line.rule not in OF_BOOKS)
    unsigned = tuple(one for one in played if one not in signed)
    if not (given := list(notes)):
        return Statement(account, book.minor, tuple(lines), currency, None, opening, unsigned)
    tree = Tree(hashes)
    calendar = Calendar.of(_genuine(given, tree, hashes, keys.only(exchanged)))
    note = newest(given, len(tree))
    proven = []
    for line in lines:
        after, before = calendar.between(line.seq)
        receipt = receipts.make(tree, note, line.seq, *held[line.seq]) if line.seq <= note.head.size else ""
        proven.append(replace(line, after=after, before=before, receipt=receipt))
    return Statement(account, book.minor, tuple(proven), currency, note, opening, unsigned)


def _genuine(notes: Iterable[Note], tree: Tree, hashes: Sequence[str], keys: Keys) -> Iterator[Dated]:
    for note in notes:
        dated, wrong = checked(note, tree, hashes, keys)
        if wrong:
            raise LedgerError(f"The checkpoint of {note.head.size} entries proves nothing: {wrong[0]}.")
        yield dated


def _concerns(record: Record, account: str) -> bool:
    entry = record.entry
    if entry.inputs.get("agent") == account or (
        entry.kind == terms.KIND and account in entry.inputs["terms"]["agents"]
    ):
        return True  # its dispute, or the terms it agreed to
    return account in entry.postings or any(isinstance(v, dict) and account in v for v in entry.inputs.values())


def _line(record: Record, account: str, balance: int, minor: int, scale: int) -> StatementLine:
    e, given = record.entry, record.entry.inputs
    committed = _points(given, "s", account, scale)
    delivered = _points(given, "points" if "points" in given else "delivered", account, scale)
    amount = e.postings.get(account, 0)
    because = _because(e, account, minor)
    points = committed, delivered
    return StatementLine(record.seq, e.run, e.round, e.kind, e.rule, *points, amount, balance, because, record.hash)


def _points(given: dict[str, Any] | Any, name: str, account: str, scale: int) -> str | None:
    """In points; `scale` is that of the run's commitment, for rules whose entries do not name it."""
    points = given.get(name, {}).get(account)
    return None if points is None else f"{points / given.get('scale', scale):.12g}"


def _name(vkey: str) -> str:
    try:
        return PublicKey.parse(vkey).name
    except ProvenanceError:
        return "?"


def _because(entry: Entry, account: str, minor: int) -> str:
    """The rule with this account's numbers in it, in the words of the payment that made the entry."""
    given = entry.inputs
    if entry.kind == COMMITMENT:
        return f"memo, the price of a point is {written(given['beta'])}" if "beta" in given else "memo"
    if entry.kind == terms.KIND:
        return "memo, the terms of the run"
    if entry.rule == REPORTS:
        return "memo, what it reported, signed"
    if entry.rule == memo.RULE:
        return memo.explain(given, account)
    if "corrects" in given:
        decided = "".join(f", {who} {_name(given[who])}" for who in ("author", "approver") if who in given)
        return f"corrects entry {given['corrects']}: {given.get('reason', '')}{decided}"
    if entry.rule == DISPUTE:
        return f"disputes entry {given['disputes']}: it signed a report; who is right cannot be decided"
    payment = payments.by_rule(entry.rule)
    return entry.rule if payment is None else payment.explain(entry, account, minor)
