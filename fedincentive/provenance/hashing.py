"""Many SHA-256 hashes at once: compiled where the kernels can be loaded, with the same result one by one elsewhere."""

from __future__ import annotations

from hashlib import sha256
from struct import iter_unpack

from ..compiled import compiled


def leaves(salts: bytes, records: list[bytes]) -> bytes:
    """sha256(0x00 salt record) of each record, whose salts are of one size.

    >>> leaves(b"salt", [b"record"]) == sha256(b"\\x00saltrecord").digest()
    True
    """
    if not records:
        return b""
    size, more = divmod(len(salts), len(records))
    if more or not size:
        raise ValueError(f"{len(salts)} bytes are no salts for {len(records)} records.")
    if (at_once := compiled("sha256_leaves")) is not None:
        return bytes(at_once(salts, records))
    pairs = zip(iter_unpack(f"{size}s", salts), records, strict=True)
    return b"".join([sha256(b"\x00" + salt + record).digest() for (salt,), record in pairs])


def nodes(hashes: bytes) -> bytes:
    """sha256(0x01 left right) of each pair of hashes; one that is left over has no node yet.

    >>> nodes(b"l" * 32 + b"r" * 32 + b"?" * 32) == sha256(b"\\x01" + b"l" * 32 + b"r" * 32).digest()
    True
    """
    if (at_once := compiled("sha256_nodes")) is not None:
        return bytes(at_once(hashes))
    return b"".join(
        [sha256(b"\x01" + pair).digest() for (pair,) in iter_unpack("64s", hashes[: len(hashes) // 64 * 64])]
    )
