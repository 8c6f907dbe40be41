"""Commitments to a site's records: what it has is fixed before anyone knows in which order it will be asked for.

    leaf j  = sha256(0x00 salt_j record_j), the salt 16 random bytes, so that a leaf tells nothing of its record
    root    = the Merkle root over the leaves (RFC 6962), enrolled as records/1:COUNT:ROOT

The order of points is drawn after the commitment: "delivered s" means the first s of it. An opening shows one record
with its salt and its path to the root. Tags tell which records two sites share without showing any.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import ProvenanceError
from ..files import read_bounded, reason
from . import beacon
from .hashing import leaves
from .keys import create
from .merkle import Tree, check_inclusion

NAME = "records/1:"
SALT, LEAF, TAG = 16, 32, 12  # bytes
LARGEST = 2**32  # bytes of a commitment's file


def read(text: str) -> tuple[int, bytes] | None:
    """How many records an enrolment commits to, and their root; None where it is no commitment to records.

    >>> read("records/1:2:" + "00" * 32)[0]
    2
    """
    count, _, root = text.removeprefix(NAME).partition(":")
    digits = text.startswith(NAME) and count.isascii() and count.isdecimal() and len(count) < 16
    try:
        blob = bytes.fromhex(root)
    except ValueError:
        return None
    return (int(count), blob) if digits and len(blob) == LEAF and text == f"{NAME}{int(count)}:{blob.hex()}" else None


def leaf(salt: bytes, record: bytes) -> bytes:
    return sha256(b"\x00" + salt + record).digest()


@dataclass(frozen=True)
class Opening:
    """One record, shown: with its salt and the path that proves it under the root."""

    index: int
    salt: bytes
    record: bytes
    path: tuple[bytes, ...]

    def proves(self, commitment: str) -> bool:
        """Whether the record is under the root that was enrolled. Anything may be given; what is no proof is False."""
        known = read(commitment)
        if known is None or len(self.salt) != SALT:
            return False
        return check_inclusion(leaf(self.salt, self.record), self.index, known[0], self.path, known[1])


class Commitment:
    """A site's salts and leaves. The file that keeps them is for its owner only: salts tell what leaves hide."""

    def __init__(self, salts: bytes, leaves: bytes) -> None:
        self.salts, self.leaves = salts, leaves

    @classmethod
    def to(cls, records: Iterable[bytes], salts: bytes | None = None) -> Commitment:
        """A new commitment to records, or with salts that are known the same one again.

        >>> made = Commitment.to([b"ann, 61", b"bob, 58"])
        >>> made.open(1, b"bob, 58").proves(str(made)), made.open(1, b"bob, 85").proves(str(made))
        (True, False)
        """
        known = list(records)
        salts = os.urandom(SALT * len(known)) if salts is None else salts
        return cls(salts, leaves(salts, known))

    def __len__(self) -> int:
        return len(self.leaves) // LEAF

    @cached_property
    def tree(self) -> Tree:
        return Tree.over(self.leaves)

    @property
    def root(self) -> bytes:
        return self.tree.root(len(self))

    def __str__(self) -> str:
        """What is enrolled."""
        return f"{NAME}{len(self)}:{self.root.hex()}"

    def salt(self, index: int) -> bytes:
        return self.salts[SALT * index : SALT * (index + 1)]

    def open(self, index: int, record: bytes) -> Opening:
        return Opening(index, self.salt(index), record, tuple(self.tree.inclusion(index, len(self))))

    def strange(self, records: Sequence[bytes], indices: Iterable[int]) -> int | None:
        """The first of these records that is not the committed one; None where all are."""
        asked = [int(j) for j in indices]
        again = leaves(b"".join([self.salt(j) for j in asked]), [records[j] for j in asked])
        for k, j in enumerate(asked):
            if again[LEAF * k : LEAF * (k + 1)] != self.leaves[LEAF * j : LEAF * (j + 1)]:
                return j
        return None

    def write(self, path: Path) -> None:
        """Into a new file that only its owner may read."""
        head = json.dumps({"commitment": str(self), "salts": sha256(self.salts).hexdigest()}).encode() + b"\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        create(path, head + self.salts + self.leaves, 0o600)

    @classmethod
    def read(cls, path: Path) -> Commitment:
        """From its file; ProvenanceError where that is damaged."""
        try:
            if path.stat().st_size > LARGEST:
                raise ValueError("it is larger than any commitment")
            head, _, rest = path.read_bytes().partition(b"\n")
            count, more = divmod(len(rest), SALT + LEAF)
            found = cls(rest[: SALT * count], rest[SALT * count :])
            said = json.loads(head)
            if more or [str(found), sha256(found.salts).hexdigest()] != [said["commitment"], said["salts"]]:
                raise ValueError("its salts and leaves are not those of its first line")
        except OSError as error:
            raise ProvenanceError(f"The commitment {path} cannot be read: {reason(error)}.") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ProvenanceError(f"The commitment {path} is damaged ({error}): restore it from a backup.") from error
        return found


def kept(path: Path, records: Sequence[bytes]) -> Commitment:
    """The commitment that a site keeps in this file, made now where there is none. It must be to these records."""
    if not path.exists():
        check_different(records)
        Commitment.to(records).write(path)
    found = Commitment.read(path)
    if len(found) != len(records) or found.strange(records, range(len(records))) is not None:
        raise ProvenanceError(
            f"{path} is a commitment to {len(found)} records, and not to the {len(records)} that are here now: bring "
            "back the data it was made from, or remove the file before a new run."
        )
    return found


def check_different(records: Sequence[bytes]) -> None:
    """ProvenanceError where a record comes twice: an audit that finds both in what was delivered fails the site."""
    if not (copies := len(records) - len(set(records))):
        return
    seen: dict[bytes, int] = {}
    j = next(j for j, record in enumerate(records) if seen.setdefault(record, j) != j)
    raise ProvenanceError(
        f"Record {j} is record {seen[records[j]]} again, and {copies} of {len(records)} are such copies: who delivers "
        "a record twice fails an audit. Remove the copies; where two are rightly equal, give each something of its "
        "own, such as a number."
    )


def order_seed(value: str, agent: str) -> int:
    """What draws the order of an agent's points, from the beacon's first value."""
    return beacon.number(value, f"order\n{agent}")


def order(seed: int, count: int) -> NDArray[np.intp]:
    """The order of points from a seed: argsort of splitmix64(seed, j).

    >>> order(1, 5).tolist()
    [4, 3, 0, 1, 2]
    """
    with np.errstate(over="ignore"):
        z = np.uint64(seed % 2**64) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.argsort(z ^ (z >> np.uint64(31)), kind="stable")


def tags(key: bytes, records: Iterable[bytes]) -> list[str]:
    """HMAC(key, record)[:12] of each record, in hexadecimal digits. Sites and auditors know the key, the center does
    not: equal records have equal tags, and a tag alone tells nothing."""
    if len(key) < SALT:
        raise ProvenanceError(f"The key of the tags has {len(key)} bytes; it needs at least {SALT}, drawn at random.")
    return [hmac.digest(key, record, "sha256")[:TAG].hex() for record in records]


def duplicates(lists: Mapping[str, Iterable[str]]) -> dict[str, dict[str, int]]:
    """How many of each holder's tags were shown before by whom: an earlier holder, or it itself. The later one's count
    drops.

    >>> duplicates({"first": ["a", "b"], "second": ["b", "c", "c"]})
    {'first': {}, 'second': {'first': 1, 'second': 1}}
    """
    seen: dict[str, str] = {}
    found: dict[str, dict[str, int]] = {}
    for holder, own in lists.items():
        found[holder] = {}
        for tag in own:
            if tag in seen:
                found[holder][seen[tag]] = found[holder].get(seen[tag], 0) + 1
            seen.setdefault(tag, holder)
    return found


def tag_key(path: str | Path) -> bytes:
    """The key that the sites and the auditors share, in hexadecimal digits."""
    try:
        return bytes.fromhex(read_bounded(Path(path), 1000).decode("ascii", "replace").strip())
    except (OSError, ValueError) as error:
        raise ProvenanceError(
            f"The key of the tags, {path}, cannot be read ({error}): make one with `fedincentive attest tags --new`."
        ) from error


def enrolled_tags(key: bytes, records: Iterable[bytes]) -> str:
    """The tags of a site's records as they are enrolled: one text."""
    return base64.b64encode(bytes.fromhex("".join(tags(key, records)))).decode()


def read_tags(text: str) -> list[str] | None:
    """The tags in an enrolment; None where it has others."""
    try:
        blob = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    if len(blob) % TAG or base64.b64encode(blob).decode() != text:
        return None
    return [blob[at : at + TAG].hex() for at in range(0, len(blob), TAG)]


def tags_digest(text: str) -> str:
    """What the terms say of a site's tags, which auditors make again at the site."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()
