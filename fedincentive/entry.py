"""An entry: all postings of one (run, round, kind), the rule that made them and that rule's inputs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

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
PLAIN = bytes(code for code in range(0x20, 0x7F) if code not in b'"\\')


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
        before = canonical({"claims": self.claims})
        after: dict[str, Any] = {"kind": self.kind, "postings": self.postings, "round": self.round}
        after |= {"rule": self.rule, "run": self.run, "version": VERSION}
        inputs = ",".join([f"{quoted(name)}:{canonical_table(value)}" for name, value in sorted(self.inputs.items())])
        keep(self, "body", f'{before[:-1]},"inputs":{{{inputs}}},{canonical(after)[1:]}')

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
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def canonical_table(value: Any) -> str:
    """`canonical`, in half the time where all rows have the same keys, as the reports of a round have: what they share
    is written once.

    >>> canonical_table({"b": {"s": 2, "agent": "x"}, "a": {"s": 1, "agent": "y"}})
    '{"a":{"agent":"y","s":1},"b":{"agent":"x","s":2}}'
    """
    if type(value) is not dict or set(map(type, value.values())) != {dict}:
        return canonical(value)
    rows = sorted(value.items())
    keys = rows[0][1].keys()
    if not keys or any(row.keys() != keys for _, row in rows):
        return canonical(value)
    ordered = sorted(keys)
    columns = [[row[key] for _, row in rows] for key in ordered]
    kinds = [set(map(type, column)) for column in columns]
    texts = [column for column, kind in zip(columns, kinds, strict=True) if kind == {str}]
    if any(kind not in ({int}, {str}) for kind in kinds) or not is_plain("".join(chain(keys, value, *texts))):
        return canonical(value)
    cells = ['"%s"' if kind == {str} else "%s" for kind in kinds]
    parts = [f'"{key.replace("%", "%%")}":{cell}' for key, cell in zip(ordered, cells, strict=True)]
    form = f'"%s":{{{",".join(parts)}}}'
    return f"{{{','.join([form % row for row in zip([name for name, _ in rows], *columns, strict=True)])}}}"


def is_plain(text: str) -> bool:
    """Whether JSON writes a text as it is: it is of printable ASCII characters but quotation marks and backslashes.

    >>> is_plain("clinic-3"), is_plain('"'), is_plain("\\u00e9")
    (True, False, False)
    """
    return text.isascii() and not text.encode().translate(None, PLAIN)


def canonical_texts(value: Any, depth: int = 3) -> str:
    """`canonical`, in a fraction of the time where long plain texts make up most of it, as entries in messages do.

    >>> canonical_texts({"b": ["x", "\\u00e9"], "a": 2})
    '{"a":2,"b":["x","\\\\u00e9"]}'
    """
    if type(value) is str:
        return f'"{value}"' if is_plain(value) else quoted(value)
    if depth and type(value) is list:
        return f"[{','.join([canonical_texts(one, depth - 1) for one in value])}]"
    if depth and type(value) is dict and set(map(type, value)) == {str}:
        parts = [f"{quoted(name)}:{canonical_texts(one, depth - 1)}" for name, one in sorted(value.items())]
        return f"{{{','.join(parts)}}}"
    return canonical(value)


def posted_text(body: str) -> str:
    """The part of a canonical body that holds the postings. Keys are in order and quotes inside strings are escaped, so
    the last marks are the top level's own.

    >>> posted_text(Entry("demo", 3, "settlement", "x/1", {"postings": {}}, {"a": 5, "b": -5}).body)
    '{"a":5,"b":-5}'
    """
    return body[body.rindex(POSTINGS) + len(POSTINGS) - 1 : body.rindex(',"round":')]


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
        return _plain_mapping(path, value, depth)
    if depth and isinstance(value, (list, tuple)):
        return [plain(f"{path}[{k}]", item, depth - 1) for k, item in enumerate(value)]
    remedy = "only ints, strings, lists and mappings enter a ledger" if depth else "it is nested too deeply"
    raise LedgerError(f"{path} is {value!r} ({kind.__name__}); {remedy}.")


def _plain_mapping(path: str, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    # the common cases at once: a round of 10,000 agents has tens of thousands of plain amounts and texts
    if _is_flat([value]):
        return dict(value)
    rows = value.values()
    if depth > 1 and set(map(type, rows)) == {dict} and _are_names(value) and _is_flat(rows):
        return {key: dict(row) for key, row in value.items()}
    for key in value:
        if not _are_names([key]):
            raise LedgerError(f"{path} has the key {key!r}; keys are printable non-empty strings.")
    return {key: plain(f"{path}.{key}", item, depth - 1) for key, item in value.items()}


def _is_flat(rows: Collection[Mapping[Any, Any]]) -> bool:
    """Whether these mappings hold nothing but plain names, texts and 64-bit ints."""
    values = list(chain.from_iterable([row.values() for row in rows]))
    if not set(map(type, values)) <= {int, str}:
        return False
    numbers = [value for value in values if type(value) is int]
    texts = [value for value in values if type(value) is str]
    return (
        is_printable("".join(texts))
        and -LIMIT <= min(numbers, default=0) <= max(numbers, default=0) <= LIMIT
        and _are_names(set().union(*rows))
    )


def _are_names(keys: Collection[Any]) -> bool:
    return all(type(key) is str and key for key in keys) and is_printable("".join(keys))


def is_printable(text: str) -> bool:
    return is_plain(text) or text.isprintable()


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
