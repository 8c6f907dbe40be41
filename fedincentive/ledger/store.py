"""What every store promises: append once, never change, read back in order."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

from ..entry import Entry, difference
from ..errors import LedgerConflict, LedgerError
from . import chain
from .chain import Checkpoint

REVERSAL = "reversal/1"


@dataclass(frozen=True)
class Receipt:
    """Where an entry stands; `created` is False when the same entry was there already."""

    seq: int
    hash: str
    created: bool


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


class Ledger(ABC):
    """A ledger opened for appending and reading, or for reading only."""

    address: str  # as a person would name it; never with a password
    minor: int

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @abstractmethod
    def append(self, entry: Entry) -> Receipt:
        """Add the entry durably, all or nothing. The same entry again is a no-op; other contents are a conflict."""

    @abstractmethod
    def head(self) -> Checkpoint:
        """The number of entries and the last one's hash."""

    @abstractmethod
    def rows(self, run: str | None = None) -> Iterator[Row]:
        """The stored entries in order, unchecked."""

    @abstractmethod
    def row(self, seq: int) -> Row | None:
        """One stored entry, unchecked."""

    @abstractmethod
    def posted(self, seq: int) -> str:
        """The stored postings of one entry as a JSON object in name order, unchecked."""

    @abstractmethod
    def orphans(self) -> list[int]:
        """The numbers that have postings but no entry."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """Everything read inside sees the ledger at one moment, while others go on writing."""

    @abstractmethod
    def balances(self, run: str | None = None) -> dict[str, int]:
        """What each account has received less what it was charged, in minor units, over the ledger or one run."""

    @abstractmethod
    def damage(self) -> Iterator[tuple[str, str]]:
        """(name, message) of everything wrong with the store itself: its pages, tables and triggers."""

    @abstractmethod
    def close(self) -> None:
        """Give the connection back; nothing is pending, every append was durable when it returned."""

    @property
    def genesis(self) -> str:
        return chain.genesis(self.minor)

    def hashes(self, after: int = 0) -> Iterator[str]:
        """The hashes of the entries after the first `after` ones."""
        for seq in range(after + 1, self.head().count + 1) if after else ():
            row = self.row(seq)
            assert row is not None, f"entry {seq} is missing"
            yield row.hash
        if not after:
            yield from (row.hash for row in self.rows())

    def entries(self, run: str | None = None) -> Iterator[Record]:
        """The entries in order; one whose stored body is no entry raises (see `verify`)."""
        for row in self.rows(run):
            yield Record(row.seq, row.hash, Entry.from_json(row.body))


def existing(entry: Entry, row: Row) -> Receipt:
    """The receipt for an entry whose key is taken: the old one if the bytes agree, else a conflict."""
    if row.body == entry.body:
        return Receipt(row.seq, row.hash, created=False)
    field, old, new = difference("", json.loads(row.body), json.loads(entry.body))
    raise LedgerConflict(
        f"Run {entry.run!r}, round {entry.round}, {entry.kind} is entry {row.seq} already, with another {field}: "
        f"{old} there, {new} here. Nothing was written; a change needs a correction.",
        field,
    )


def power_of_ten(minor: object) -> int:
    """The minor units of a new ledger: a power of ten, so that amounts are exact decimals for people."""
    if type(minor) is not int or minor < 1 or str(minor).rstrip("0") != "1" or minor > 10**15:
        raise LedgerError(f"minor is {minor!r}; a ledger counts 1, 10, ... or 10**15 minor units per unit of money.")
    return minor


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
        if entry.rule == json.loads(row.body)["rule"] == REVERSAL:
            raise LedgerError(f"Entry {seq} was reversed already, by entry {row.seq}.")
