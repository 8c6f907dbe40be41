"""Check a ledger from the outside: everything that is wrong comes back as data, named and placed.

| finding | what it means |
|---|---|
| integrity | the database's own structure is damaged |
| schema | a table, index, trigger or the like was dropped, added, switched off or replaced |
| types | a value is stored as another type than its column's |
| count | there are more or fewer rows than the entries in order and their bodies account for |
| gap | entries are missing in the middle |
| chain | an entry's contents, number or predecessor are not those its hash was made of |
| body | an entry's body is not canonical JSON of a known version |
| columns | an entry's columns are not those of its body |
| duplicate | two entries have the same run, round and kind |
| postings | the posting rows are not those of the body, or belong to no entry |
| zero-sum | money was made or lost |
| claims | the entry breaks what it claims |
| corrects | a correction points at nothing, or at an entry with another hash |
| rule, recompute, terms, total, previous | the amounts, or what they are derived from, do not follow from the chain |
| kind, order | an entry has another kind than its rule makes, or stands before an earlier round |
| signature | something is said in the name of somebody who did not sign it |
| beacon, audit | a link is not the one that was anchored, or who it drew was not audited as drawn and decided |
| checkpoint | the chain is shorter than, or differs from, one seen before |
| note | a signed checkpoint is of another history, or its signatures are not what they claim to be |
| keys | the keys in a run's terms or under a correction are not those that were exchanged, or there are none |
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import terms
from ..entry import BALANCED, POSTINGS, TREASURY, VERSION, canonical, difference, posted_text
from ..errors import LedgerDamaged, LedgerError, ProvenanceError
from ..provenance import statements
from ..provenance.keys import PublicKey
from ..provenance.merkle import Tree
from ..provenance.notes import Note
from . import chain, payout, periods
from .chain import Checkpoint
from .notes import Dated, Keys, checked
from .replay import Replay
from .store import Ledger, Row, pairs


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; `seq` is the entry it was found at, or None for the ledger as a whole."""

    name: str
    seq: int | None
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {'' if self.seq is None else f'entry {self.seq}: '}{self.message}"


@dataclass(frozen=True)
class Verification:
    """What was checked and what was found."""

    findings: tuple[Finding, ...]
    head: Checkpoint
    postings: int
    recomputed: bool
    checkpoints: int
    unbound: tuple[str, ...] = ()  # runs without terms: their amounts are only consistent with their inputs
    unsigned: tuple[str, ...] = ()  # runs whose inputs nobody signed
    signatures: int = 0  # that were checked
    said: tuple[str, ...] = ()  # unsigned runs with samples: who was asked is the center's word
    unfinished: Mapping[str, str] = field(default_factory=dict)  # runs without their last entries, and what they lack
    notes: tuple[Dated, ...] = ()  # the signed checkpoints that were given and hold

    @property
    def clean(self) -> bool:
        return not self.findings


def verify(
    book: Ledger,
    *,
    recompute: bool = False,
    checkpoints: Iterable[Checkpoint] = (),
    notes: Iterable[Note] = (),
    keys: Mapping[str, Sequence[PublicKey]] | None = None,
) -> Verification:
    """Check the whole ledger as it stands at this moment; with `recompute` derive every amount again.

    `notes` are signed checkpoints, `keys` what was exchanged with the contract: each name's key and those before it.
    """
    return _Check(book, recompute, list(checkpoints), list(notes), keys).run()


def unreadable(error: LedgerDamaged) -> Verification:
    """The one finding about a ledger that cannot even be opened."""
    return Verification((Finding("integrity", None, str(error)),), Checkpoint(0, ""), 0, False, 0)


class _Check:
    def __init__(
        self,
        book: Ledger,
        recompute: bool,
        checkpoints: list[Checkpoint],
        notes: list[Note],
        exchanged: Mapping[str, Sequence[PublicKey]] | None,
    ) -> None:
        self.book, self.notes, self.exchanged = book, notes, exchanged
        self.named, self.dated = Keys(), list[Dated]()
        self.signed: dict[str, bool] = {}  # by run
        self.replay = Replay(book.minor, self._body) if recompute else None
        self.checkpoints = checkpoints
        self.findings: list[Finding] = []
        self.keys: set[tuple[object, ...]] = set()
        self.hashes: list[str] = [book.genesis]  # by count, for the checkpoints
        self.postings = 0

    def run(self) -> Verification:
        try:
            with self.book.snapshot():
                self._check()
        except LedgerError as error:
            self._find("integrity", None, str(error))
        head = Checkpoint(len(self.hashes) - 1, self.hashes[-1], self._identity())
        again = self.replay
        return Verification(
            tuple(self.findings),
            head,
            self.postings,
            again is not None,
            len(self.checkpoints),
            again.unbound if again else (),
            again.unsigned if again else (),
            again.signatures if again else 0,
            again.said if again else (),
            again.unfinished if again else {},
            tuple(self.dated),
        )

    def _check(self) -> None:
        for message in self.book.catalogue():
            self._find("schema", None, message)
        for name, message in self.book.damage():
            self._find(name, None, message)
        expected = 1
        for row in self.book.rows():
            if row.seq != expected:
                self._find("gap", row.seq, f"{_missing(expected, row.seq)} before it.")
            elif not row.follows(self.hashes[-1]):
                self._find("chain", row.seq, "its contents, its number or the entry before it were changed.")
            self.hashes.append(row.hash)
            expected = row.seq + 1
            self._entry(row)
        for seq in self.book.orphans():
            self._find("postings", seq, "there are postings but no entry.")
        for name, message in self.replay.ended() if self.replay else ():
            self._find(name, None, message)
        self._count()
        for checkpoint in self.checkpoints:
            self._checkpoint(checkpoint)
        self._notes()
        for run, signed in self.signed.items() if self.exchanged is not None else ():
            if not signed:
                self._find("keys", None, f"run {run!r} has no keys in its terms: nobody signed what it says.")

    def _count(self) -> None:
        told = (len(self.hashes) - 1, self.postings)
        for what, stored, read in zip(("entries", "postings"), self.book.counts(), told, strict=True):
            if stored != read and not self.findings:  # those that were found may explain it
                self._find("count", None, f"{stored} {what} are stored, the entries in order account for {read}.")

    def _entry(self, row: Row) -> None:
        try:
            body = json.loads(row.body) if self.replay else envelope(row.body)
            for name, message in self._contents(row, body):
                self._find(name, row.seq, message)
        except LedgerError as error:
            self._find("integrity", row.seq, str(error))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            self._find("body", row.seq, f"its body is not that of an entry: {type(error).__name__} {error}.")

    def _contents(self, row: Row, body: dict[str, Any]) -> Iterator[tuple[str, str]]:
        key = (body["run"], body["round"], body["kind"], row.corrects)
        if body["version"] != VERSION:
            yield "body", f"its format is {body['version']!r}, this release checks {VERSION}."
            return
        if key[:3] != (row.run, row.round, row.kind) or (row.corrects != 0) != (body["kind"] == "correction"):
            yield "columns", f"its columns say {(row.run, row.round, row.kind, row.corrects)}, its body {key[:3]}."
        if key in self.keys:
            yield "duplicate", f"run {key[0]!r} has round {key[1]} {key[2]} already."
        self.keys.add(key)
        yield from self._amounts(row, body)
        if row.corrects:
            yield from self._correction(row)
        if self.replay:
            if canonical(body) != row.body:
                yield "body", "its body is not in canonical form."
            yield from self.replay.problems(body)
        try:
            yield from self._keys(row, body["kind"])
        except (LedgerError, ProvenanceError, KeyError, TypeError, AttributeError) as error:
            if self.exchanged is not None or body["kind"] == periods.KIND:
                yield "keys", f"its keys or its checkpoint cannot be read: {type(error).__name__} {error}."

    def _amounts(self, row: Row, body: dict[str, Any]) -> Iterator[tuple[str, str]]:
        amounts, text = body["postings"], self.book.posted(row.seq)
        self.postings += len(amounts)
        # the same text is the same postings; names beyond ASCII may be written in two ways, so another text is read
        stored = amounts
        if text != posted_text(row.body):
            rows = pairs(text)
            stored = dict(rows)
            for account in sorted(name for name, count in Counter(name for name, _ in rows).items() if count > 1):
                yield "postings", f"{account!r} has more than one row in the postings."
        if stored != amounts:
            account, written, told = difference("", stored, amounts)
            yield "postings", f"{account!r} has {written} in the postings, {told} in the body."
        if not set(map(type, amounts.values())) <= {int}:
            yield "body", "an amount is not a whole number."
        elif sum(amounts.values()) or sum(stored.values()):
            yield "zero-sum", f"its amounts sum to {sum(amounts.values())}, its postings to {sum(stored.values())}."
        if BALANCED in body["claims"] and (TREASURY in amounts or TREASURY in stored):
            yield "claims", f"it claims to be {BALANCED} but posts to the treasury."

    def _keys(self, row: Row, kind: str) -> Iterator[tuple[str, str]]:
        """Whose keys the entry names, whether they are those that were exchanged, and the checkpoint it may hold."""
        changes = kind.startswith(statements.PREFIX)
        if kind not in (terms.KIND, periods.KIND) and not row.corrects and not changes:
            if not kind.startswith(payout.KIND):
                self.signed.setdefault(row.run, False)
            return
        given, named = json.loads(row.body)["inputs"], {}
        if kind == periods.KIND:
            self.notes.append(periods.note_of(given))
        elif changes:
            said = given["statement"]["said"]
            named = {said["agent"]: said["new"]} if said["change"] == "rotate" else {}
            self.named.change(given)
        elif row.corrects:
            named = {PublicKey.parse(given[who]).name: given[who] for who in ("author", "approver") if who in given}
        else:
            agreed = given["terms"]
            self.signed[row.run] = "center" in agreed
            named = {name: one.get("key") for name, one in agreed["agents"].items()}
            named |= {**agreed.get("auditors", {}), "center": agreed.get("center")}
            named = named if self.signed[row.run] else {}
            self.named.take(agreed)
        if self.exchanged is None:
            return
        for name, vkey in named.items():
            known = [key.vkey for key in self.exchanged.get(name, ())]
            if vkey not in known:
                told = f"exchanged was {known[0]}" if known else "none was exchanged"
                yield "keys", f"the key of {name!r} is {vkey or 'not there'}, {told}."

    def _notes(self) -> None:
        if not self.notes:
            return
        try:
            tree = Tree(self.hashes[1:])
        except (UnicodeEncodeError, AttributeError):
            return  # not hashes at all: that was found already
        for note in self.notes:
            dated, wrong = checked(note, tree, self.hashes[1:], self.named)
            for message in wrong:
                self._find("note", None, f"the checkpoint of {note.head.size} entries: {message}.")
            if not wrong:
                self.dated.append(dated)

    def _correction(self, row: Row) -> Iterator[tuple[str, str]]:
        given = json.loads(row.body)["inputs"]
        target = self.book.row(row.corrects)
        if given["corrects"] != row.corrects or target is None or row.corrects >= row.seq:
            yield "corrects", f"it corrects entry {given['corrects']}, which is not there before it."
        elif given["hash"] != target.hash or target.run != row.run:
            yield "corrects", f"entry {row.corrects} is not the one it corrects: the run or the hash differs."

    def _checkpoint(self, checkpoint: Checkpoint) -> None:
        count = len(self.hashes) - 1
        if checkpoint.count > count:
            self._find("checkpoint", None, f"{checkpoint.count} entries were seen, {count} are here: the tail was cut.")
        elif self.hashes[checkpoint.count] != checkpoint.hash:
            other = checkpoint.ledger not in ("", self._identity())
            seen = f" It was seen in ledger {checkpoint.ledger}, this is {self._identity()}." if other else ""
            told = f"its hash was {checkpoint.hash}: the chain was made anew.{seen}"
            self._find("checkpoint", checkpoint.count, told)

    def _identity(self) -> str:
        return "".join(map(str, self.hashes[1:2]))[: chain.IDENTITY]

    def _body(self, seq: int) -> dict[str, Any] | None:
        row = self.book.row(seq)
        return json.loads(row.body) if row else None

    def _find(self, name: str, seq: int | None, message: str) -> None:
        self.findings.append(Finding(name, seq, message))


def envelope(body: str) -> dict[str, Any]:
    """A canonical body without its inputs. They are most of its length and only `recompute` reads them; parsing them
    here would halve the speed of a plain check.

    >>> from fedincentive.ledger import Entry
    >>> e = Entry("demo", 3, "settlement", "x/1", {"kind": "no"}, {"a": 5, "b": -5})
    >>> envelope(e.body)["kind"], envelope(e.body)["postings"]
    ('settlement', {'a': 5, 'b': -5})
    """
    before = body.index(',"inputs":{')
    after = body.rindex(',"kind":"', 0, body.rindex(POSTINGS))
    return dict(json.loads(body[:before] + body[after:]))


def _missing(first: int, found: int) -> str:
    if found < first:
        return f"entry {first} was expected"
    return f"entry {first} is missing" if found == first + 1 else f"entries {first} to {found - 1} are missing"
