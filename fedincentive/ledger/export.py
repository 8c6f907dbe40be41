"""The ledger as files for others: CSV for spreadsheets, JSONL for auditors, beancount for accountants."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..entry import RESERVED, canonical
from ..errors import LedgerError
from ..files import cell
from . import chain
from .chain import Checkpoint
from .store import Ledger

CURRENCY = "CREDIT"
DAY, NEXT_DAY = "2000-01-01", "2000-01-02"  # the ledger has no clock: all entries bear one date, in chain order


def keep_apart(out: Path, ledgers: Iterable[str]) -> None:
    """Raises where writing to `out` would destroy one of the ledgers, or a part of it."""
    for ledger in ledgers:
        for part in (ledger, f"{ledger}-wal", f"{ledger}-shm"):
            if os.path.exists(part) and os.path.exists(out) and os.path.samefile(part, out):
                raise LedgerError(f"{out} is the ledger {ledger} itself: write elsewhere.")


def decimal(amount: int, minor: int) -> str:
    """Minor units as an exact decimal number of units.

    >>> decimal(-1500000, 10**6), decimal(7, 1)
    ('-1.500000', '7')
    """
    whole, part = divmod(abs(amount), minor)
    digits = len(str(minor)) - 1
    sign = "-" if amount < 0 else ""
    return f"{sign}{whole}.{part:0{digits}d}" if digits else f"{sign}{whole}"


def to_csv(book: Ledger) -> Iterator[str]:
    """One line per posting; an entry without postings has one line without an account. Texts are written as `cell`
    does; the amounts stay numbers."""
    yield _csv_line("seq", "run", "round", "kind", "rule", "account", "minor_units", "units", "hash")
    for record in book.chained():
        e = record.entry
        start = (record.seq, cell(e.run), e.round, e.kind, e.rule)
        for account, amount in sorted(e.postings.items()):
            yield _csv_line(*start, cell(account), amount, decimal(amount, book.minor), record.hash)
        if not e.postings:
            yield _csv_line(*start, "", "", "", record.hash)


def to_jsonl(book: Ledger) -> Iterator[str]:
    """The header, one line per entry, and the checkpoint: all that `standalone.py` needs to check the ledger."""
    yield canonical(chain.header(book.minor)) + "\n"
    count, digest = 0, book.genesis
    for row in book.rows():
        yield f'{{"body":{row.body},"hash":"{row.hash}","seq":{row.seq}}}\n'
        count, digest = row.seq, row.hash
    yield canonical({"checkpoint": str(Checkpoint(count, digest))}) + "\n"


def to_beancount(book: Ledger) -> Iterator[str]:
    """A plain-text double-entry journal with every balance asserted at its end."""
    accounts = sorted({account for record in book.chained() for account in record.entry.postings})
    names = _beancount_names(accounts)
    yield f'option "title" "fedincentive ledger"\noption "operating_currency" "{CURRENCY}"\n\n'
    for account in accounts:
        yield f"{DAY} open {names[account]} {CURRENCY}\n  name: {_quoted(account)}\n"
    balances: dict[str, int] = dict.fromkeys(accounts, 0)
    for record in book.chained():
        e = record.entry
        yield f"\n{DAY} * {_quoted(e.run)} {_quoted(f'round {e.round} {e.kind} {e.rule}')}\n"
        yield f'  seq: {record.seq}\n  hash: "{record.hash}"\n'
        for account, amount in sorted(e.postings.items()):
            balances[account] += amount
            yield f"  {names[account]}  {decimal(amount, book.minor)} {CURRENCY}\n"
    yield "\n"
    for account in accounts:
        # "~ 0": by default a balance may be off by one unit of its last digit
        yield f"{NEXT_DAY} balance {names[account]}  {decimal(balances[account], book.minor)} ~ 0 {CURRENCY}\n"


FORMATS: dict[str, Callable[[Ledger], Iterator[str]]] = {
    "csv": to_csv,
    "jsonl": to_jsonl,
    "beancount": to_beancount,
}


def _csv_line(*values: object) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()


def _beancount_names(accounts: list[str]) -> dict[str, str]:
    """Beancount allows letters, digits and dashes; a name that has others, or clashes, gets a digest of the whole."""
    names, used = {}, set()
    for account in accounts:
        plain = re.sub(r"[^A-Za-z0-9-]", "-", account)
        clashes = plain != account or plain.lower() in used
        used.add(plain.lower())
        tail = f"-{hashlib.sha256(account.encode()).hexdigest()[:16]}" if clashes else ""
        names[account] = f"Equity:{account.title()}" if account in RESERVED else f"Liabilities:Agents:A-{plain}{tail}"
    return names


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
