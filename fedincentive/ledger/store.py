"""What every store promises: append once, never change, read back in order."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, NamedTuple

from ..entry import VERSION, Entry, difference, posted_text
from ..errors import LedgerConflict, LedgerDamaged, LedgerError
from . import chain
from .chain import Checkpoint

REVERSAL, SIGNED_REVERSAL = "reversal/1", "reversal/2"


@dataclass(frozen=True)
class Receipt:
    """Where an entry stands; `created` is False when the same entry was there already."""

    seq: int
    hash: str
    created: bool
    ledger: str = field(default="", compare=False)  # which ledger it is, as checkpoints name it


@dataclass(frozen=True)
class Record:
    """An entry as it stands in the chain."""

    seq: int
    hash: str
    entry: Entry

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "entry":
            raise AttributeError(name)
        return getattr(self.entry, name)


class Row(NamedTuple):
    """An entry as it is stored, unchecked."""

    seq: int
    run: str
    round: int
    kind: str
    corrects: int
    body: str
    hash: str

    def follows(self, previous: str) -> bool:
        """Whether its hash is that of its number, its body and the hash before it."""
        try:
            return chain.link(self.seq, previous, self.body) == self.hash
        except (UnicodeEncodeError, AttributeError):  # it holds something else than text
            return False


class Ledger(ABC):
    """A ledger opened for appending and reading, or for reading only."""

    address: str  # as a person would name it; never with a password
    minor: int

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def append(self, entry: Entry) -> Receipt:
        """Add the entry durably, all or nothing. The same entry again is a no-op; other contents are a conflict."""
        return self.append_all([entry])[0]

    def append_all(self, entries: Sequence[Entry]) -> list[Receipt]:
        """Add these entries in one transaction: all of them or none."""
        if not entries:
            return []
        with self._writing():
            receipts = [self._add(entry) for entry in entries]
        return receipts

    def restore(self, records: Iterable[Record]) -> None:
        """Fill an empty ledger with the entries of another one, all or nothing; their hashes come out the same."""
        with self._writing():
            if count := self._head()[0]:
                raise LedgerError(f"{self.address} holds {count} entries; restore into a new ledger.")
            for record in records:
                receipt = self._add(record.entry)
                if (receipt.seq, receipt.hash) != (record.seq, record.hash):
                    raise LedgerError(f"Entry {record.seq} is not the one its hash was made of; nothing was restored.")

    def _add(self, entry: Entry) -> Receipt:
        """Within `_writing`."""
        if taken := self._taken(entry):
            return replace(existing(entry, taken), ledger=self._identity())
        if entry.corrects:
            corrected(entry, self._row_at(entry.corrects), self._corrections(entry.corrects))
        count, previous = self._head()
        seq = count + 1
        row = Row(seq, entry.run, entry.round, entry.kind, entry.corrects, entry.body, "")
        row = row._replace(hash=chain.link(seq, previous, entry.body))
        self._insert(row, entry)
        # a rule, a view or a trigger of somebody else's may have swallowed or changed it
        if self._row_at(seq) != row or not same_postings(self.posted(seq), entry):
            raise LedgerDamaged(
                f"{self.address} did not keep run {entry.run!r}, round {entry.round}, {entry.kind} as it was given: "
                "the database was tampered with. Nothing was written; `fedincentive ledger verify` says what changed."
            )
        return Receipt(seq, row.hash, created=True, ledger=self._identity())

    @abstractmethod
    def _writing(self) -> AbstractContextManager[object]:
        """One transaction of the only writer: durable when it is left, undone when something is raised."""

    @abstractmethod
    def _insert(self, row: Row, entry: Entry) -> None:
        """Store the postings, then the row, so that all that is stored can be read back."""

    @abstractmethod
    def _taken(self, entry: Entry) -> Row | None:
        """The stored entry with the same key."""

    @abstractmethod
    def _row_at(self, seq: int) -> Row | None: ...

    @abstractmethod
    def _corrections(self, seq: int) -> list[Row]: ...

    @abstractmethod
    def _head(self) -> tuple[int, str]: ...

    @abstractmethod
    def _reading(self) -> AbstractContextManager[None]:
        """What the database says against reading is raised as our error."""

    @abstractmethod
    def _first(self) -> str | None:
        """The first entry's hash."""

    def _identity(self) -> str:
        return str(self._first() or "")[: chain.IDENTITY]

    def head(self) -> Checkpoint:
        """The number of entries and the last one's hash."""
        with self._reading():
            return Checkpoint(*self._head(), self._identity())

    def row(self, seq: int) -> Row | None:
        """One stored entry, unchecked."""
        with self._reading():
            return self._row_at(seq)

    @property
    def identity(self) -> str:
        """What names this ledger in checkpoints; empty before the first entry."""
        with self._reading():
            return self._identity()

    @abstractmethod
    def rows(self, run: str | None = None) -> Iterator[Row]:
        """The stored entries in order, unchecked."""

    @abstractmethod
    def posted(self, seq: int) -> str:
        """The stored postings of one entry as a JSON object in name order, unchecked; a name may be there twice."""

    @abstractmethod
    def counts(self) -> tuple[int, int]:
        """How many entries and postings are stored, counted without an index."""

    @abstractmethod
    def orphans(self) -> list[int]:
        """The numbers that have postings but no entry."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """Everything read inside sees the ledger at one moment, while others go on writing."""

    @abstractmethod
    def catalogue(self) -> Iterator[str]:
        """Everything in which tables, indexes, triggers and the like are not as the schema file makes them."""

    @abstractmethod
    def damage(self) -> Iterator[tuple[str, str]]:
        """(name, message) of everything else that is wrong with the store itself: its pages, types and own row."""

    @abstractmethod
    def close(self) -> None:
        """Give the connection back; nothing is pending, every append was durable when it returned."""

    @property
    def genesis(self) -> str:
        return chain.genesis(self.minor)

    @abstractmethod
    def _hashes(self, after: int) -> list[tuple[int, str]]:
        """The stored numbers and hashes after this number, in order, read without the bodies."""

    def hashes(self, after: int = 0) -> list[str]:
        """The hashes of the entries after the first `after` ones, unchecked; none is missing in between."""
        with self._reading():
            found = self._hashes(after)
        for expected, (seq, _) in enumerate(found, after + 1):
            if seq != expected:
                raise self._unsound(f"entry {expected} is missing.")
        return [digest for _, digest in found]

    def entries(self, run: str | None = None) -> Iterator[Record]:
        """The entries in order; one whose stored body is no entry raises (see `verify`)."""
        for row in self.rows(run):
            yield Record(row.seq, row.hash, Entry.from_json(row.body))

    def chained(self, run: str | None = None) -> Iterator[Record]:
        """The entries in order, read from nothing but the bodies that the chain of hashes covers: what people are told
        about money. A ledger whose tables or chain are not sound raises; `verify` says all that is wrong with it."""
        for message in self.catalogue():
            raise self._unsound(message)
        previous, expected = self.genesis, 1
        for row in self.rows():
            if row.seq != expected or not row.follows(previous):
                raise self._unsound(f"entry {row.seq} does not follow from the one before it.")
            previous, expected = row.hash, expected + 1
            entry = Entry.from_json(row.body)
            if run in (None, entry.run):
                yield Record(row.seq, row.hash, entry)

    def _unsound(self, message: str) -> LedgerDamaged:
        return LedgerDamaged(f"{self.address} was tampered with: {message} See `fedincentive ledger verify`.")

    def balances(self, run: str | None = None) -> dict[str, int]:
        """What each account has received less what it was charged, in minor units, over the ledger or one run."""
        totals: dict[str, int] = {}
        for record in self.chained(run):
            for account, amount in record.entry.postings.items():
                totals[account] = totals.get(account, 0) + amount
        return dict(sorted(totals.items()))


def pairs(text: str) -> list[tuple[str, int]]:
    """The postings in a JSON object; a name that is there twice comes twice."""
    return [(account, amount) for account, amount in json.loads(text, object_pairs_hook=list)]


def same_postings(text: str, entry: Entry) -> bool:
    return text == posted_text(entry.body) or sorted(pairs(text)) == sorted(entry.postings.items())


def existing(entry: Entry, row: Row) -> Receipt:
    """The receipt for an entry whose key is taken: the old one if the bytes agree, else a conflict."""
    if row.body == entry.body:
        return Receipt(row.seq, row.hash, created=False)
    field, old, new = difference("", stored_body(row), json.loads(entry.body))
    raise LedgerConflict(
        f"Run {entry.run!r}, round {entry.round}, {entry.kind} is entry {row.seq} already, with another {field}: "
        f"{old} there, {new} here. Nothing was written; a change needs a correction.",
        field,
    )


def stored_body(row: Row) -> dict[str, Any]:
    """The body of a stored entry that something depends on."""
    try:
        return dict(json.loads(row.body))
    except (ValueError, TypeError, RecursionError) as error:
        raise LedgerDamaged(f"Entry {row.seq} is no entry any more ({error}): it was tampered with.") from error


def power_of_ten(minor: object) -> int:
    """The minor units of a new ledger: a power of ten, so that amounts are exact decimals for people."""
    if type(minor) is not int or minor < 1 or str(minor).rstrip("0") != "1" or minor > 10**15:
        raise LedgerError(f"minor is {minor!r}; a ledger counts 1, 10, ... or 10**15 minor units per unit of money.")
    return minor


def other_format(address: str, version: object) -> str:
    """What to do about a ledger that this release does not read."""
    told = f"{address} has ledger format {version}, this release reads {VERSION}"
    if isinstance(version, int) and version > VERSION:
        return f"{told}; install a newer fedincentive, or export it there as JSONL and import that here."
    return f"{told}; export it as JSONL with the release that wrote it and `fedincentive ledger import` that here."


def corrected(entry: Entry, target: Row | None, earlier: list[Row]) -> None:
    """A correction must point at an entry of its own run by number and hash, and reverses nothing twice."""
    seq, digest = entry.inputs["corrects"], entry.inputs.get("hash")
    if target is None:
        raise LedgerError(f"The correction points at entry {seq}, which does not exist.")
    if target.run != entry.run:
        raise LedgerError(f"The correction of run {entry.run!r} points at entry {seq} of run {target.run!r}.")
    if target.hash != digest:
        raise LedgerError(f"The correction points at entry {seq} with hash {digest}, but its hash is {target.hash}.")
    for row in earlier:
        if {entry.rule, stored_body(row).get("rule")} <= {REVERSAL, SIGNED_REVERSAL}:
            raise LedgerError(f"Entry {seq} was reversed already, by entry {row.seq}.")
