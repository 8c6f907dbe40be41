"""A Merkle tree over the ledger's entries (RFC 6962): short proofs that an entry is in it and that it only ever grew.

    leaf k    = sha256(0x00 h_k), h_k the hash of entry k in the ledger's chain, in its 64 hexadecimal digits
    node      = sha256(0x01 left right); the left side of n leaves has the largest power of two below n
    empty     = sha256()

The leaves hold the chain's hashes, so chain and tree cannot tell two stories. Entry `seq` is the leaf `seq - 1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from .hashing import nodes

EMPTY = sha256().digest()
LARGEST = 2**63 - 1  # leaves; more than any ledger holds
Span = tuple[int, int]


def leaf(entry_hash: str) -> bytes:
    """The leaf of an entry, from its hash in the chain."""
    return sha256(b"\x00" + entry_hash.encode("ascii")).digest()


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


class Tree:
    """A tree that grows: two hashes an entry, kept, so that any past root and any proof take few more.

    >>> tree = Tree(["aa" * 32, "bb" * 32, "cc" * 32])
    >>> check_inclusion(leaf("bb" * 32), 1, 3, tree.inclusion(1, 3), tree.root(3))
    True
    >>> check_consistency(2, 3, tree.consistency(2, 3), tree.root(2), tree.root(3))
    True
    """

    def __init__(self, entry_hashes: Iterable[str] = ()) -> None:
        self._levels: list[bytearray] = [bytearray()]  # the whole nodes above 1, 2, 4 ... leaves, 32 bytes each
        self.extend(entry_hashes)

    def __len__(self) -> int:
        return len(self._levels[0]) // 32

    def append(self, entry_hash: str) -> None:
        self.extend([entry_hash])

    def extend(self, entry_hashes: Iterable[str]) -> None:
        """Entries that follow in the chain; what they complete is hashed once and for all."""
        self._grow(b"".join([sha256(b"\x00" + entry_hash.encode("ascii")).digest() for entry_hash in entry_hashes]))

    @classmethod
    def over(cls, leaves: bytes) -> Tree:
        """The tree over leaves that are hashed already, 32 bytes each."""
        tree = cls()
        tree._grow(leaves)
        return tree

    def _grow(self, hashed: bytes) -> None:
        level = 0
        while hashed:
            if level == len(self._levels):
                self._levels.append(bytearray())
            row = self._levels[level]
            unpaired = bytes(row[len(row) // 64 * 64 :]) + hashed
            row += hashed
            hashed = nodes(unpaired)
            level += 1

    def root(self, size: int) -> bytes:
        """The root when the tree had `size` leaves."""
        return self._over(0, self._known("size", size, len(self)))

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """The path that proves leaf `index` in the tree of `size` leaves, from the leaf up."""
        self._known("index", index, self._known("size", size, len(self)) - 1)
        path, start, end = [], 0, size
        while end - start > 1:
            middle = start + split(end - start)
            if index < middle:
                path.append(self._over(middle, end))
                end = middle
            else:
                path.append(self._over(start, middle))
                start = middle
        return path[::-1]

    def consistency(self, old: int, new: int) -> list[bytes]:
        """What proves that the tree of `new` leaves begins with the tree of `old` leaves."""
        return self.nodes(self.consistency_spans(old, new))

    def consistency_spans(self, old: int, new: int) -> list[Span]:
        """The leaves below each node of that proof; proofs from many old sizes share most of them."""
        self._known("old size", old, self._known("new size", new, len(self)))
        path, start, end = list[Span](), 0, new
        if old in (0, new):
            return []
        while old != end:
            middle = start + split(end - start)
            if old <= middle:
                path.append((middle, end))
                end = middle
            else:
                path.append((start, middle))
                start = middle
        return ([(start, end)] if start else []) + path[::-1]

    def nodes(self, spans: Iterable[Span]) -> list[bytes]:
        """The nodes over these leaves, from the first to the one before the last of each."""
        return [self._over(start, end) for start, end in spans]

    def _over(self, start: int, end: int) -> bytes:
        """The node over the leaves from `start` to `end`, where `start` is where such a node begins."""
        parts = []
        while start < end:
            level = (end - start).bit_length() - 1
            at = (start >> level) * 32
            parts.append(bytes(self._levels[level][at : at + 32]))
            start += 1 << level
        total = parts.pop() if parts else EMPTY
        while parts:
            total = node(parts.pop(), total)
        return total

    @staticmethod
    def _known(what: str, number: int, most: int) -> int:
        if type(number) is not int or not 0 <= number <= most:
            raise IndexError(f"The {what} is {number!r}; this tree knows 0 to {most}.")
        return number


def split(size: int) -> int:
    """How many of `size` leaves are on the left: the largest power of two below."""
    return 1 << (size - 1).bit_length() - 1


def check_inclusion(leaf_hash: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether `path` proves that the tree of `size` leaves and this root has the leaf at `index` (RFC 9162, 2.1.3.2).

    Anything may be given; what is not a proof is False.
    """
    if not _sizes(index, size) or index == size or not is_path([leaf_hash, root]) or not is_path(path):
        return False
    at, last, total = index, size - 1, leaf_hash
    for sibling in path:
        if last == 0:
            return False
        if at & 1 or at == last:
            total = node(sibling, total)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            total = node(total, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and total == root


def check_consistency(old: int, new: int, path: Sequence[bytes], old_root: bytes, new_root: bytes) -> bool:
    """Whether `path` proves that the tree of `new` leaves begins with the tree of `old` ones (RFC 9162, 2.1.4.2).

    Anything may be given; what is not a proof is False. Every tree begins with the empty one.
    """
    if not _sizes(old, new) or not is_path([old_root, new_root]) or not is_path(path):
        return False
    if old in (0, new):
        return not path and old_root == (new_root if old == new else EMPTY) and (new > 0 or new_root == EMPTY)
    nodes = [old_root, *path] if old & (old - 1) == 0 else list(path)
    if len(nodes) < 2:
        return False
    at, last = old - 1, new - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    before = after = nodes[0]
    for sibling in nodes[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            before, after = node(sibling, before), node(sibling, after)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            after = node(after, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and before == old_root and after == new_root


def _sizes(small: object, large: object) -> bool:
    return type(small) is int and type(large) is int and 0 <= small <= large <= LARGEST


def is_path(values: object) -> bool:
    """Whether something has the form of a proof: a list of hashes, not longer than any proof."""
    if not isinstance(values, (list, tuple)) or len(values) > 128:
        return False
    return all(type(value) is bytes and len(value) == 32 for value in values)
