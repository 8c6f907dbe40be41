"""An entry: all postings of one (run, round, kind), the rule that made them and that rule's inputs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .compiled import compiled
from .errors import LedgerError

VERSION = 1  # of the body's format; it is part of what is hashed
BALANCED = "budget-balanced"
COMMITMENT, CORRECTION = "commitment", "correction"  # kinds that no payment writes; payments declare theirs
TREASURY = "treasury"  # the account that takes the other side where a payment does not balance
ESCROW = "escrow"  # the account that holds the agents' deposits
RESERVED = (TREASURY, ESCROW)  # the center's own accounts: no agent has such a name
LIMIT = 2**63 - 1  # every amount fits a signed 64-bit column in every store
NAME_LENGTH = 200  # characters in a run's or an account's name
POSTINGS = ',"postings":{'
DEPTH = 6  # of nesting in inputs
FIELDS = ("run", "round", "kind", "rule", "inputs", "postings", "claims")


@dataclass(frozen=True)
class Entry:
    """One balanced entry. Its bytes are fixed when it is made; an entry that breaks a rule cannot be made.

    >>> e = Entry("demo", 3, "settlement", "contribution/1", {"beta": "2"}, {"a": 5, "b": -5}, ("budget-balanced",))
    >>> Entry.from_json(e.to_json()) == e
    True
    """

    run: str
    round: int
    kind: str
    rule: str  # name/version, such as "tranche/1": `verify --recompute` derives the amounts by it
    inputs: Mapping[str, Any]
    postings: Mapping[str, int]  # account -> minor units; plus is paid to it, minus is charged; sums to 0
    claims: tuple[str, ...] = ()
    body: str = field(init=False, repr=False, compare=True)  # canonical JSON, what is stored and hashed

    def __post_init__(self) -> None:
        keep = object.__setattr__
        keep(self, "inputs", plain("inputs", self.inputs))
        keep(self, "postings", plain("postings", self.postings))
        keep(self, "claims", tuple(plain("claims", list(self.claims))))
        _check(self)
        said = {field: getattr(self, field) for field in FIELDS}
        keep(self, "body", canonical({**said, "version": VERSION}))

    def __hash__(self) -> int:
        return hash(self.body)

    @property
    def corrects(self) -> int:
        """The number of the entry that this correction corrects; 0 for all other kinds."""
        return int(self.inputs["corrects"]) if self.kind == CORRECTION else 0

    def to_json(self) -> str:
        """The canonical body, to be kept in a saved state; `from_json` gives the same entry back."""
        return self.body

    @classmethod
    def from_json(cls, text: str) -> Entry:
        """The entry whose `to_json` is `text`; anything but its exact bytes is refused."""
        try:
            body = json.loads(text)
            version = body.pop("version")
            entry = cls(**{**body, "claims": tuple(body["claims"])})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise LedgerError(f"This is not a ledger entry: {error}") from error
        if version != VERSION or entry.body != text:
            raise LedgerError(f"This is not a ledger entry in canonical form, version {VERSION}: {text[:80]!r}...")
        return entry


def canonical(value: Any) -> str:
    """The one way to write a value: JSON with sorted keys, ASCII only, no spaces.

    >>> canonical({"b": [1, "\\u00e9"], "a": 2})
    '{"a":2,"b":[1,"\\\\u00e9"]}'
    """
    if (write := compiled("canonical")) is not None and (text := write(value)) is not None:
        return str(text)
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def posted_text(body: str) -> str:
    """The part of a canonical body that holds the postings. Keys are in order and quotes inside strings are escaped, so
    the last marks are the top level's own.

    >>> posted_text(Entry("demo", 3, "settlement", "x/1", {"postings": {}}, {"a": 5, "b": -5}).body)
    '{"a":5,"b":-5}'
    """
    return body[body.rindex(POSTINGS) + len(POSTINGS) - 1 : body.rindex(',"round":')]


def copied(value: Any) -> Any:
    """A copy of plain JSON values: of its dicts and lists, as nothing else in them can change."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def difference(path: str, old: Any, new: Any) -> tuple[str, str, str]:
    """The first place, in key order, where two JSON values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(set(old) | set(new)):
            at = f"{path}.{key}" if path else key
            if key not in old or key not in new:
                return at, repr(old.get(key, "nothing")), repr(new.get(key, "nothing"))
            if old[key] != new[key]:
                return difference(at, old[key], new[key])
    return path, repr(old), repr(new)


def plain(path: str, value: Any, depth: int = DEPTH) -> Any:
    """A copy of `value` made of dicts, lists, strings and 64-bit ints; everything else is refused by its path."""
    if (copy := compiled("plain_copy")) is not None and (made := copy(value, depth)) is not None:
        return made
    kind = type(value)
    if kind is int:
        if not -LIMIT <= value <= LIMIT:
            raise LedgerError(f"{path} is {value}, which 64 bits do not hold.")
        return value
    if kind is str:
        if not value.isprintable():
            raise LedgerError(f"{path} is {value!r}: text in a ledger must be printable.")
        return value
    if depth and isinstance(value, Mapping):
        for key in value:
            if type(key) is not str or not key or not key.isprintable():
                raise LedgerError(f"{path} has the key {key!r}; keys are printable non-empty strings.")
        return {key: plain(f"{path}.{key}", item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, (list, tuple)):
        return [plain(f"{path}[{k}]", item, depth - 1) for k, item in enumerate(value)]
    remedy = "only ints, strings, lists and mappings enter a ledger" if depth else "it is nested too deeply"
    raise LedgerError(f"{path} is {value!r} ({kind.__name__}); {remedy}.")


def _check(entry: Entry) -> None:
    if type(entry.run) is not str or not entry.run or not entry.run.isprintable() or len(entry.run) > NAME_LENGTH:
        raise LedgerError(f"run is {entry.run!r}; it must be a printable name of at most {NAME_LENGTH} characters.")
    if type(entry.round) is not int or not 0 <= entry.round <= LIMIT:
        raise LedgerError(f"round is {entry.round!r}; it must be an int from 0 on.")
    if type(entry.kind) is not str or not re.fullmatch(r"[a-z][a-z0-9-]{0,39}", entry.kind):
        raise LedgerError(f"kind is {entry.kind!r}; it must be a short name in small letters, such as 'tranche'.")
    if type(entry.rule) is not str or not re.fullmatch(r"[a-z][a-z0-9-]*/[1-9][0-9]*", entry.rule):
        raise LedgerError(f"rule is {entry.rule!r}; it must be a name and a version, such as 'tranche/1'.")
    if not isinstance(entry.inputs, dict) or not isinstance(entry.postings, dict):
        raise LedgerError("inputs and postings must be mappings.")
    _check_postings(entry)
    if entry.kind == CORRECTION and (type(entry.inputs.get("corrects")) is not int or entry.inputs["corrects"] < 1):
        raise LedgerError("A correction must say in inputs.corrects which entry (seq) it corrects.")


def _check_postings(entry: Entry) -> None:
    key = f"run {entry.run!r}, round {entry.round}, {entry.kind}"
    for account, amount in entry.postings.items():
        if type(amount) is not int:
            raise LedgerError(f"postings.{account} is {amount!r} ({type(amount).__name__}); amounts are ints.")
        if len(account) > NAME_LENGTH:
            raise LedgerError(f"The account {account[:20]!r}... is longer than {NAME_LENGTH} characters.")
    total = sum(entry.postings.values())
    if total:
        raise LedgerError(f"The postings of {key} sum to {total} minor units, not 0.")
    if entry.kind == COMMITMENT and entry.postings:
        raise LedgerError(f"{key}: a commitment is a memo and moves no money.")
    if any(type(claim) is not str for claim in entry.claims):
        raise LedgerError(f"{key}: claims must be strings, not {entry.claims!r}.")
    if BALANCED in entry.claims and TREASURY in entry.postings:
        raise LedgerError(
            f"{key} claims to be {BALANCED} but posts {entry.postings[TREASURY]} minor units to the treasury."
        )
