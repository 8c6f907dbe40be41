"""Commitments to records: what is committed can be proven, nothing else can, and nobody chooses the order."""

from __future__ import annotations

import dataclasses
import hmac
import os
import random
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from fedincentive.errors import ProvenanceError
from fedincentive.provenance import records
from fedincentive.provenance.records import Commitment, duplicates, kept, order, read, tags


def root_of(leaves: list[bytes]) -> bytes:
    """RFC 6962, as it is written there."""
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return sha256(b"\x01" + root_of(leaves[:k]) + root_of(leaves[k:])).digest()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 100])
def test_the_root_is_that_of_rfc_6962_and_every_record_can_be_opened(count: int) -> None:
    own = [b"record %d" % j for j in range(count)]
    made = Commitment.to(own)
    leaves = [sha256(b"\x00" + made.salt(j) + own[j]).digest() for j in range(count)]
    assert str(made) == f"records/1:{count}:{root_of(leaves).hex()}"
    for j in range(count):
        shown = made.open(j, own[j])
        assert shown.proves(str(made))
        for wrong in (
            {"record": own[j] + b"x"},
            {"salt": bytes(16)},
            {"salt": made.salt(j)[:15]},
            {"index": j + 1},
            {"index": -1},
            {"path": (*shown.path, bytes(32))},
            {"path": shown.path[:-1] if shown.path else (bytes(32),)},
        ):
            assert not dataclasses.replace(shown, **wrong).proves(str(made))
    assert not made.open(0, own[0]).proves("records/1:0:00")


def test_equal_records_have_other_leaves_and_other_commitments() -> None:
    made = Commitment.to([b"same", b"same"])
    assert made.leaves[:32] != made.leaves[32:]
    assert str(Commitment.to([b"same", b"same"])) != str(made)
    assert str(Commitment.to([b"same", b"same"], made.salts)) == str(made)


@pytest.mark.parametrize(
    "text",
    ["", "records/1:", "records/1:1:00", "records/1:+1:" + "0" * 64, "records/1:01:" + "0" * 64,
     "records/2:1:" + "0" * 64, "records/1:1:" + "A" * 64, "records/1:\u0661:" + "0" * 64,
     "records/1:1: " + "0" * 63, "sha256:" + "0" * 64],
)  # fmt: skip
def test_what_is_no_commitment_is_not_read(text: str) -> None:
    assert read(text) is None


def test_a_file_keeps_it_for_its_owner_and_damage_is_named(tmp_path: Path) -> None:
    own = [os.urandom(20) for _ in range(50)]
    path = tmp_path / "deep" / "site.records"
    made = kept(path, own)
    assert path.stat().st_mode & 0o777 == 0o600
    assert str(kept(path, own)) == str(made) == str(Commitment.read(path))
    with pytest.raises(ProvenanceError, match="not to the 50 that are here now"):
        kept(path, [*own[:-1], b"another"])
    with pytest.raises(ProvenanceError, match="not to the 49"):
        kept(path, own[:-1])
    with pytest.raises(ProvenanceError, match="not overwritten"):
        made.write(path)
    blob = path.read_bytes()
    for damaged in (blob[:-1], blob + b"x", blob[:200] + bytes([blob[200] ^ 1]) + blob[201:], b"", b"{}\n", b"\xff"):
        path.write_bytes(damaged)
        with pytest.raises(ProvenanceError, match="damaged"):
            Commitment.read(path)
    path.unlink()
    with pytest.raises(ProvenanceError, match="cannot be read"):
        Commitment.read(path)


def test_records_that_no_audit_would_pass_are_not_committed_to(tmp_path: Path) -> None:
    path = tmp_path / "site.records"
    with pytest.raises(ProvenanceError, match="Record 2 is record 0 again, and 2 of 4 are such copies"):
        kept(path, [b"a", b"b", b"a", b"a"])
    assert not path.exists()
    Commitment.to([b"a", b"a"]).write(path)  # by an older release: it is kept, auditors say what they find
    assert len(kept(path, [b"a", b"a"])) == 2


def splitmix64(state: int) -> int:
    """Steele, Lea and Flood 2014, in plain integers: the first output after this state."""
    mask = 2**64 - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_splitmix64_is_the_published_one() -> None:
    assert splitmix64(0) == 0xE220A8397B1DCDAF  # the first value from the seed 0


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1, 0xDEADBEEF])
def test_the_order_sorts_the_generators_numbers(seed: int) -> None:
    golden, count = 0x9E3779B97F4A7C15, 500
    numbers = [splitmix64((seed + j * golden) % 2**64) for j in range(count)]
    assert order(seed, count).tolist() == sorted(range(count), key=numbers.__getitem__)


def test_the_order_is_even(draws: int = 2000) -> None:
    """Where record 0 lands, over seeds: each of ten places a tenth of the time."""
    places = [int(np.flatnonzero(order(random.Random(k).getrandbits(64), 10) == 0)[0]) for k in range(draws)]
    expected = draws / 10
    chi = sum((places.count(k) - expected) ** 2 / expected for k in range(10))
    assert chi < 27.9  # 0.1 % of a chi-square with nine degrees of freedom


def test_duplicates_across_sites_are_counted_for_the_later_holder() -> None:
    key = os.urandom(32)
    first = [b"ann", b"bob", b"eve"]
    second = [b"bob", b"dan", b"eve", b"fay"]
    lists = {"first": tags(key, first), "second": tags(key, second), "third": tags(key, [b"fay", b"fay", b"gus"])}
    assert lists["first"][0] == hmac.new(key, b"ann", "sha256").digest()[:12].hex()
    assert duplicates(lists) == {"first": {}, "second": {"first": 2}, "third": {"second": 2}}
    assert set(tags(os.urandom(32), first)).isdisjoint(lists["first"])  # another key tells nothing
    with pytest.raises(ProvenanceError, match="at least 16"):
        tags(b"short", first)


def test_tags_travel_in_one_writing_and_anything_else_is_none() -> None:
    key, own = os.urandom(32), [b"ann", b"bob", b"eve"]
    text = records.enrolled_tags(key, own)
    assert records.read_tags(text) == tags(key, own) and records.read_tags("") == []
    for wrong in (text[:-4], text + "AAAA", text + "\n", f" {text}", "=", "\ud800", "a" * 15, text[:-1] + "="):
        assert records.read_tags(wrong) is None
        assert len(records.tags_digest(wrong)) == 64


def test_a_million_records_take_seconds_only() -> None:
    """A tenth of them here, with room for a busy machine; `benchmarks/provenance.py` measures the whole."""
    import time

    own = [os.urandom(100) for _ in range(10**5)]
    began = time.process_time()
    made = str(Commitment.to(own))
    assert time.process_time() - began < 1.0 and read(made)[0] == 10**5
    assert records.NAME == "records/1:"
