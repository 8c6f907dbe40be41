"""A witness notices every fork, keeps what convicts, and never accuses an honest log."""

from __future__ import annotations

import json
import random
from hashlib import sha256
from typing import Any

import pytest

from fedincentive.errors import LogForked, ProvenanceError
from fedincentive.provenance.keys import PrivateKey
from fedincentive.provenance.merkle import Tree
from fedincentive.provenance.notes import Head, Note
from fedincentive.provenance.witness import NO_PROOF, REMEMBERED, TWO_ROOTS, Witness, convicts

ORIGIN = "example.org/ledger"
LOG = PrivateKey(ORIGIN)


def hashes(count: int, seed: int = 0) -> list[str]:
    return [sha256(b"%d %d" % (seed, k)).hexdigest() for k in range(count)]


def note(tree: Tree, size: int, key: PrivateKey = LOG, origin: str = ORIGIN) -> str:
    return str(Note(Head(origin, size, tree.root(size)).text).signed(key))


def again(witness: Witness) -> Witness:
    """The witness after its agent's restart."""
    return Witness(ORIGIN, LOG.public, json.loads(json.dumps(witness.state)))


def test_an_honest_log_is_never_accused() -> None:
    draw, tree = random.Random(5), Tree(hashes(600))
    for _ in range(30):
        witness, seen = Witness(ORIGIN, LOG.public), 0
        for size in sorted(draw.choices(range(600), k=20)):
            proof = tree.consistency(seen, size) if witness.last else []
            assert witness.check(note(tree, size), proof).size == size
            assert witness.check(note(tree, size)).size == size  # the same again, without a proof
            seen = size
            witness = again(witness) if draw.random() < 0.3 else witness
        for old in range(0, seen, 37):
            with pytest.raises(ProvenanceError, match="this note is old"):
                witness.check(note(tree, old), draw.choice([[], tree.consistency(old, seen)]))
        assert witness.last is not None and witness.last.size == seen


def test_a_thousand_forked_histories_are_noticed() -> None:
    draw, known = random.Random(6), hashes(40)
    honest, found = Tree(known), {TWO_ROOTS: 0, NO_PROOF: 0}
    for k in range(1000):
        seen, shown = draw.randrange(1, 41), draw.randrange(1, 41)
        shown = max(seen, shown)
        cut = draw.randrange(seen)
        forged = Tree(known[:cut] + hashes(40 - cut, seed=k + 1))
        witness = Witness(ORIGIN, LOG.public)
        witness.check(note(honest, seen))
        before = witness.state
        with pytest.raises(LogForked, match="Keep the evidence") as caught:
            witness.check(note(forged, shown), forged.consistency(seen, shown))
        evidence = json.loads(json.dumps(caught.value.evidence))
        assert evidence["reason"] == (TWO_ROOTS if seen == shown else NO_PROOF)
        assert convicts(evidence, LOG.public) == (seen == shown)
        assert witness.state == before  # it goes on from what it knows
        found[evidence["reason"]] += 1
    assert min(found.values()) > 200


def test_two_witnesses_who_compare_convict_a_split_view() -> None:
    """Neither sees anything wrong alone; the two notes of one size, side by side, are the evidence."""
    one, two = Tree(hashes(9)), Tree(hashes(8) + hashes(1, seed=1))
    a, b = Witness(ORIGIN, LOG.public), Witness(ORIGIN, LOG.public)
    a.check(note(one, 9))
    b.check(note(two, 9))
    with pytest.raises(LogForked) as caught:
        a.check(b.state["notes"][-1])
    assert convicts(caught.value.evidence, LOG.public)


def test_an_old_size_with_another_root_convicts() -> None:
    tree, other = Tree(hashes(20)), Tree(hashes(20, seed=1))
    witness = Witness(ORIGIN, LOG.public)
    for size in (5, 9, 20):
        witness.check(note(tree, size), tree.consistency(witness.last.size, size) if witness.last else [])
    with pytest.raises(LogForked) as caught:
        again(witness).check(note(other, 9))
    assert convicts(caught.value.evidence, LOG.public)
    with pytest.raises(ProvenanceError, match="this note is old"):  # of 7 entries nothing is known
        witness.check(note(other, 7))


def test_nobody_else_can_make_a_witness_accuse() -> None:
    tree, other = Tree(hashes(9)), Tree(hashes(9, seed=1))
    witness = Witness(ORIGIN, LOG.public)
    witness.check(note(tree, 5))
    thief = PrivateKey(ORIGIN)
    forged = [
        note(other, 5, thief),
        note(other, 9, thief),
        note(tree, 9, thief),
        note(other, 5, LOG, "example.org/other"),
    ]
    forged += [note(other, 5).replace("\n5\n", "\n6\n"), "", note(tree, 5)[:-2]]
    for text in forged:
        with pytest.raises(ProvenanceError):
            witness.check(text)
    empty = str(Note(Head(ORIGIN, 0, bytes(32)).text).signed(LOG))
    with pytest.raises(ProvenanceError, match="says that it is empty"):
        Witness(ORIGIN, LOG.public).check(empty)


@pytest.mark.parametrize("proof", [None, 7, "x", [None], [b"x"], b"x" * 32, [b"x" * 32] * 1000, {}])
def test_whatever_is_sent_as_a_proof_ends_in_an_accusation(proof: Any) -> None:
    tree = Tree(hashes(9))
    witness = Witness(ORIGIN, LOG.public)
    witness.check(note(tree, 5))
    with pytest.raises(LogForked) as caught:
        witness.check(note(tree, 9), proof)
    evidence = json.loads(json.dumps(caught.value.evidence))
    assert not convicts(evidence, LOG.public) and "proof" not in evidence


def test_evidence_that_convicts_nobody() -> None:
    tree, other = Tree(hashes(9)), Tree(hashes(9, seed=1))
    thief = PrivateKey(ORIGIN)
    pairs = [
        (note(tree, 5), note(tree, 5)),
        (note(tree, 5), note(other, 6)),
        (note(tree, 5), note(other, 5, thief)),
        (note(tree, 5), note(other, 5, LOG, "example.org/other")),
        (note(tree, 5), ""),
    ]
    for seen, shown in pairs:
        assert not convicts({"seen": seen, "shown": shown}, LOG.public)
    for nonsense in ({}, [], None, {"seen": 1, "shown": None}):
        assert not convicts(nonsense, LOG.public)  # type: ignore[arg-type]
    assert convicts({"seen": note(tree, 5), "shown": note(other, 5)}, LOG.public)


def test_what_it_remembers_is_bounded_and_its_own() -> None:
    tree = Tree(hashes(200))
    witness = Witness(ORIGIN, LOG.public)
    for size in range(1, 201):
        witness.check(note(tree, size), tree.consistency(size - 1, size))
    assert len(witness.state["notes"]) == REMEMBERED and len(json.dumps(witness.state)) < 20_000
    for changed in ({**witness.state, "origin": "x"}, {**witness.state, "key": PrivateKey("x").public.vkey}, [], "x"):
        with pytest.raises(ProvenanceError, match="is not of this log"):
            Witness(ORIGIN, LOG.public, changed)  # type: ignore[arg-type]
    with pytest.raises(ProvenanceError, match="did not sign"):
        Witness(ORIGIN, LOG.public, {**witness.state, "notes": [note(tree, 3, PrivateKey(ORIGIN))]})
