"""Payouts: what the accounts of a run, or of closed periods, still have to get or to pay, in a currency's own units.

    due_i  = apportion(balance_i) in the currency's smallest unit: rounded so that the sum stays 0
    open_i = due_i - what earlier payouts settled

More than half of the agents of each run that is paid must have cosigned a checkpoint with its payments (`witnessed`).
What rounding leaves is carried: it counts in the next balance. A payout is named by what it is made of, so making it
again gives the same name. A memo says which lines were settled; that is the payer's word, the bank has the proof:

    {"by": "run"|"period", "of": NAME, "currency", "digits", "message": ID, "at": SEQ, "paid": {account: units},
     "open": [account, ...]}
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256

from .. import terms
from ..entry import CORRECTION, RESERVED, Entry, canonical
from ..errors import LedgerError
from ..payments.exact import apportion
from ..provenance import statements
from ..provenance.keys import PublicKey
from ..provenance.merkle import Tree, leaf
from ..provenance.notes import Note
from . import periods
from .notes import Keys, checked
from .store import Ledger, Record

KIND, RULE = "payout", "payout/1"
# ISO 4217: decimals of the currencies that do not have two
DECIMALS = {
    **dict.fromkeys(
        [
            "BIF",
            "CLP",
            "DJF",
            "GNF",
            "ISK",
            "JPY",
            "KMF",
            "KRW",
            "PYG",
            "RWF",
            "UGX",
            "UYI",
            "VND",
            "VUV",
            "XAF",
            "XOF",
            "XPF",
        ],
        0,
    ),
    **dict.fromkeys(["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"], 3),
    **dict.fromkeys(["CLF", "UYW"], 4),
}


def decimals(currency: str) -> int:
    """The digits after the point of a currency by its ISO 4217 code."""
    if not re.fullmatch("[A-Z]{3}", currency, re.ASCII):
        raise LedgerError(f"The currency {currency!r} is not an ISO 4217 code, such as EUR.")
    return DECIMALS.get(currency, 2)


@dataclass(frozen=True)
class PayoutLine:
    """One account, in the currency's smallest units; plus is paid to it, minus is charged."""

    account: str
    due: int
    settled: int
    carried: Fraction  # what rounding leaves, plus is owed to it
    reference: str  # end to end, through the banks

    @property
    def open(self) -> int:
        return self.due - self.settled


@dataclass(frozen=True)
class Payout:
    """What is due by the entries up to `at`; `unwitnessed` where somebody decided to pay without cosignatures."""

    by: str
    of: str
    currency: str
    digits: int
    at: int
    lines: tuple[PayoutLine, ...]
    message: str
    unwitnessed: bool = False

    @property
    def credits(self) -> list[PayoutLine]:
        """Who is to be paid; treasury and escrow are the payer's own."""
        return [line for line in self.lines if line.open > 0 and line.account not in RESERVED]

    @property
    def invoices(self) -> list[PayoutLine]:
        return [line for line in self.lines if line.open < 0 and line.account not in RESERVED]


def payout(book: Ledger, by: str, of: str, currency: str, at: int | None = None) -> Payout:
    """The payout of a run, or of everything up to the end of a closed period; `at` an earlier entry than the last."""
    digits, records = decimals(currency), list(book.chained())
    end = _end(book, records, by, of)
    later = [one for one in (periods.closed(book) if by == "period" else ()) if one.size > end]
    counted = _counted(records, end, by, of)
    memos = _memos(records, by, of, currency)
    for name in {one.entry.inputs["of"] for one in memos} & {one.name for one in later}:
        raise LedgerError(f"Period {name!r} was paid out already, and with it all that period {of!r} came to.")
    relevant = [one.seq for one in (*counted, *memos)]
    if not counted:
        raise LedgerError(f"There is nothing to pay out: no entry of {by} {of!r} moved money.")
    at = max(relevant) if at is None else at
    if at not in relevant:
        raise LedgerError(f"No payout of {by} {of!r} was made at entry {at}.")
    _check_currency(records, {one.entry.run for one in counted}, currency)
    balances: dict[str, int] = {}
    for record in counted:
        for account, amount in record.entry.postings.items() if record.seq <= at else ():
            balances[account] = balances.get(account, 0) + amount
    settled: dict[str, int] = {}
    for record in memos:
        for account, units in record.entry.inputs["paid"].items() if record.seq <= at else ():
            settled[account] = settled.get(account, 0) + units
    due = apportion({account: amount * 10**digits for account, amount in balances.items()}, book.minor)
    tip = leaf(records[at - 1].hash).hex()
    lines = tuple(
        PayoutLine(
            account,
            due[account],
            settled.get(account, 0),
            Fraction(balances[account] * 10**digits, book.minor) - due[account],
            f"FI{sha256(f'{tip} {by} {of} {account}'.encode()).hexdigest()[:32]}",
        )
        for account in sorted(balances)
    )
    content = {
        "by": by,
        "of": of,
        "currency": currency,
        "tip": tip,
        "open": {line.account: line.open for line in lines},
    }
    message = f"FI-{at}-{sha256(canonical(content).encode()).hexdigest()[:16]}"
    return Payout(by, of, currency, digits, at, lines, message)


def settle(book: Ledger, by: str, of: str, currency: str, message: str, unpaid: Collection[str] = ()) -> Entry:
    """The memo that a payout was settled, but for the lines of the accounts in `unpaid`."""
    found = re.fullmatch(r"FI-(\d{1,12})-[0-9a-f]{16}", message, re.ASCII)
    made = payout(book, by, of, currency, int(found[1])) if found else None
    if made is None or made.message != message:
        raise LedgerError(f"{message!r} is no payout of {by} {of!r} in {currency}: give the id that its file has.")
    for account in sorted(set(unpaid) - {line.account for line in made.lines if line.open}):
        raise LedgerError(f"The payout {message} has no open line of {account!r}.")
    for record in _memos(list(book.chained()), by, of, currency):
        if record.seq > made.at and record.entry.inputs["message"] != message:
            raise LedgerError(f"Entry {record.seq} settled another payout since {message} was made: make it anew.")
    paid = {line.account: line.open for line in made.lines if line.open and line.account not in unpaid}
    if not paid:
        raise LedgerError(f"Nothing is open in the payout {message}: there is nothing to settle.")
    inputs = {"by": by, "of": of, "currency": currency, "digits": made.digits, "message": message, "at": made.at}
    inputs |= {"paid": paid, "open": sorted(unpaid)}
    run = f"{periods.RUN}{of}" if by == "period" else of
    return Entry(run, 0, f"{KIND}-{message.rpartition('-')[2]}", RULE, inputs, {})


def witnessed(
    book: Ledger,
    by: str,
    of: str,
    notes: Iterable[Note] = (),
    exchanged: Mapping[str, Sequence[PublicKey]] | None = None,
) -> str:
    """Who saw what is paid, for people; LedgerError unless more than half of the agents of every paid run cosigned a
    checkpoint with all its payments. Corrections may come after it: two persons signed those.

    The checkpoints are those given and those that closed a period.
    """
    records = list(book.chained())
    hashes = [record.hash for record in records]
    tree, found = Tree(hashes), []
    agreed = {one.entry.run: one.entry.inputs["terms"] for one in records if one.entry.kind == terms.KIND}
    known = [*notes, *(periods.note_of(one.entry.inputs) for one in records if one.entry.rule == periods.RULE)]
    last: dict[str, int] = {}
    for record in _counted(records, _end(book, records, by, of), by, of):
        signed = record.entry.kind == CORRECTION and "signatures" in record.entry.inputs
        last[record.entry.run] = last.get(record.entry.run, 0) if signed else record.seq
    for run, seq in sorted(last.items()):
        names, keys = agreed.get(run, {}).get("agents", {}), Keys()
        for other in agreed.values():
            keys.take({"center": other.get("center"), "agents": {}})
        keys.take({"agents": names})
        for one in records:
            if one.entry.run == run and one.entry.rule == statements.RULE:
                keys.change(one.entry.inputs)
        who: set[str] = set()
        for note in known:
            dated, wrong = checked(note, tree, hashes, keys.only(exchanged))
            if not wrong and dated.size >= seq:
                who = max(who, set(dated.times), key=len)
        told = f"{len(who)} of the {len(names)} agents of run {run!r} cosigned a checkpoint with its payments"
        if 2 * len(who) <= len(names):
            raise LedgerError(
                f"{told}; more than half must have. Give the run's notes.jsonl with --note, or decide to pay without "
                "them by --unwitnessed, which the bank's file then says."
            )
        found.append(f"{told}.")
    return "\n".join(found)


def _end(book: Ledger, records: list[Record], by: str, of: str) -> int:
    return periods.find(book, of).size if by == "period" else len(records)


def _counted(records: list[Record], end: int, by: str, of: str) -> list[Record]:
    """The entries that moved the money of a run, or of all runs up to the end of a period."""
    return [one for one in records if one.seq <= end and one.entry.postings and (by == "period" or one.entry.run == of)]


def _memos(records: list[Record], by: str, of: str, currency: str) -> list[Record]:
    """What was settled of this run, or of periods; a ledger is paid out one way and in one currency, or some twice."""
    memos = [record for record in records if record.entry.rule == RULE]
    for record in memos:
        given = record.entry.inputs
        if given["by"] != by:
            raise LedgerError(
                f"This ledger is paid out by {given['by']} (entry {record.seq}), not by {by}: some would be paid twice."
            )
        if (by == "period" or given["of"] == of) and given["currency"] != currency:
            raise LedgerError(f"Entry {record.seq} settled a payout in {given['currency']}, not in {currency}.")
    return [record for record in memos if by == "period" or record.entry.inputs["of"] == of]


def _check_currency(records: list[Record], runs: set[str], currency: str) -> None:
    for record in records:
        if record.entry.kind == terms.KIND and record.entry.run in runs:
            agreed = record.entry.inputs["terms"].get("currency")
            if agreed != currency:
                raise LedgerError(f"The terms of run {record.entry.run!r} are in {agreed!r}, not in {currency}.")
