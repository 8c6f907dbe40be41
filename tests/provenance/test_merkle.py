"""Trees and proofs as RFC 6962 has them: published vectors, two libraries of others, and no forged proof passes."""

from __future__ import annotations

import random
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedincentive.provenance.merkle import EMPTY, Tree, check_consistency, check_inclusion, leaf, node

# The tree that the Certificate Transparency projects publish; its leaves happen to be ASCII.
LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAF_1 = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
LEAF_4 = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
LEAF_6 = "b08693ec2e721597130641e8211e7eedccb4c26413963eee6c1e2ed16ffb1a5f"
NODE_23 = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
NODE_45 = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"
NODE_67 = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"
RIGHT = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"
INCLUSION = {
    (0, 1): [],
    (0, 8): [LEAF_1, NODE_23, RIGHT],
    (5, 8): [LEAF_4, NODE_67, ROOTS[4]],
    (2, 3): [ROOTS[2]],
    (1, 5): [ROOTS[1], NODE_23, LEAF_4],
}
CONSISTENCY = {
    (1, 1): [],
    (1, 8): [LEAF_1, NODE_23, RIGHT],
    (6, 8): [NODE_45, NODE_67, ROOTS[4]],
    (2, 5): [NODE_23, LEAF_4],
    (6, 7): [NODE_45, LEAF_6, ROOTS[4]],
}


def hashes(count: int, seed: int = 0) -> list[str]:
    return [sha256(b"%d %d" % (seed, k)).hexdigest() for k in range(count)]


def test_the_published_tree() -> None:
    texts = [bytes.fromhex(text).decode("ascii") for text in LEAVES]
    tree = Tree(texts)
    assert [tree.root(size).hex() for size in range(9)] == ROOTS
    for (index, size), path in INCLUSION.items():
        assert [one.hex() for one in tree.inclusion(index, size)] == path
        assert check_inclusion(leaf(texts[index]), index, size, tree.inclusion(index, size), tree.root(size))
    for (old, new), path in CONSISTENCY.items():
        assert [one.hex() for one in tree.consistency(old, new)] == path


def test_every_proof_of_small_trees_and_two_libraries_agree() -> None:
    from pymerkle import InmemoryTree, verify_consistency
    from sigstore._internal.merkle import verify_merkle_inclusion

    known = hashes(33)
    tree, peer = Tree(), InmemoryTree(algorithm="sha256")
    for size in range(34):
        if size:
            tree.append(known[size - 1])
            peer.append_entry(known[size - 1].encode())
            assert peer.get_root(size) == tree.root(size)
        for index in range(size):
            path = tree.inclusion(index, size)
            assert peer.prove_inclusion(index + 1, size).path == [leaf(known[index]), *path]
            assert check_inclusion(leaf(known[index]), index, size, path, tree.root(size))
            proof = SimpleNamespace(log_index=index, tree_size=size, hashes=path, root_hash=tree.root(size))
            body = known[index].encode()
            verify_merkle_inclusion(
                SimpleNamespace(_inner=SimpleNamespace(inclusion_proof=proof, canonicalized_body=body))
            )
        for old in range(size + 1):
            path = tree.consistency(old, size)
            assert check_consistency(old, size, path, tree.root(old), tree.root(size))
            if old:
                theirs = peer.prove_consistency(old, size)
                verify_consistency(tree.root(old), tree.root(size), theirs)  # their proofs are of another form


@given(st.integers(0, 3000), st.data())
def test_random_sizes(size: int, data: st.DataObject) -> None:
    known = hashes(size)
    cut = data.draw(st.integers(0, size))
    tree = Tree(known[:cut])
    tree.extend(iter(known[cut:]))
    old = data.draw(st.integers(0, size))
    assert tree.root(old) == Tree(known[:old]).root(old) == recursive(known[:old])
    assert check_consistency(old, size, tree.consistency(old, size), tree.root(old), tree.root(size))
    assert tree.consistency(old, size) == (subproof(old, known, True) if old else [])
    if size:
        index = data.draw(st.integers(0, size - 1))
        assert check_inclusion(leaf(known[index]), index, size, tree.inclusion(index, size), tree.root(size))


def recursive(known: list[str]) -> bytes:
    """The definition in RFC 6962."""
    if len(known) < 2:
        return leaf(known[0]) if known else EMPTY
    middle = 1
    while 2 * middle < len(known):
        middle *= 2
    return node(recursive(known[:middle]), recursive(known[middle:]))


def subproof(old: int, known: list[str], seen: bool) -> list[bytes]:
    """The definition of consistency proofs there."""
    if old == len(known):
        return [] if seen else [recursive(known)]
    middle = 1
    while 2 * middle < len(known):
        middle *= 2
    if old <= middle:
        return [*subproof(old, known[:middle], seen), recursive(known[middle:])]
    return [*subproof(old - middle, known[middle:], False), recursive(known[:middle])]


def mutated(draw: random.Random, tree: Tree, proof: list[Any]) -> list[Any]:
    """[place, size, hash, root, path] with one thing changed. The size goes with its root: a note signs both."""
    place, size, value, root, path = proof
    way = draw.randrange(8)
    if way == 0:
        place += draw.choice([-2, -1, 1, 2, 2**70])
    elif way == 1:
        size = draw.choice([other for other in range(len(tree) + 1) if other != size])
        root = tree.root(size)
    elif way == 2:
        value = flipped(draw, value)
    elif way == 3:
        root = flipped(draw, root)
    elif way == 4 and path:
        k = draw.randrange(len(path))
        path = [*path[:k], flipped(draw, path[k]), *path[k + 1 :]]
    elif way == 5 and path:
        k = draw.randrange(len(path))
        path = path[:k] + path[k + 1 :]
    elif way == 6 and len(path) > 1:
        path = path[::-1]
    else:
        path = [*path, draw.choice([value, root, bytes(32), EMPTY])]
    return [place, size, value, root, path]


def flipped(draw: random.Random, value: bytes) -> bytes:
    k = draw.randrange(len(value))
    return value[:k] + bytes([value[k] ^ 1 << draw.randrange(8)]) + value[k + 1 :]


def test_a_thousand_forged_proofs_of_each_kind_fail() -> None:
    draw, known = random.Random(2), hashes(130)
    tree = Tree(known)
    for _ in range(1000):
        size = draw.randrange(1, 131)
        index, old = draw.randrange(size), draw.randrange(1, size + 1)
        good = [index, size, leaf(known[index]), tree.root(size), tree.inclusion(index, size)]
        index, new, value, root, path = mutated(draw, tree, good)
        assert not check_inclusion(value, index, new, path, root)
        good = [old, size, tree.root(old), tree.root(size), tree.consistency(old, size)]
        old, new, value, root, path = mutated(draw, tree, good)
        assert not check_consistency(old, new, path, value, root)


def test_a_rewritten_history_has_no_proof() -> None:
    """A thousand histories with one entry changed: nothing that the forger can compute proves consistency."""
    draw, known = random.Random(3), hashes(64)
    honest = Tree(known)
    for k in range(1000):
        old, new = sorted(draw.sample(range(1, 65), 2))
        changed = draw.randrange(old)
        forged = Tree(known[:changed] + hashes(64 - changed, seed=k + 1))
        for path in (forged.consistency(old, new), honest.consistency(old, new), []):
            assert not check_consistency(old, new, path, honest.root(old), forged.root(new))


HOSTILE = [
    None,
    True,
    -1,
    1.0,
    "1",
    2**63,
    10**400,
    [],
    b"",
    b"x" * 32,
    [b"x"],
    [None],
    {},
    "x" * 32,
    [b"x" * 32] * 5000,
]


def test_anything_may_be_given_to_the_checks() -> None:
    tree = Tree(hashes(5))
    inclusion = [leaf(hashes(5)[2]), 2, 5, tree.inclusion(2, 5), tree.root(5)]
    consistency = [3, 5, tree.consistency(3, 5), tree.root(3), tree.root(5)]
    for check, good in ((check_inclusion, inclusion), (check_consistency, consistency)):
        assert check(*good)
        for place in range(5):
            for value in HOSTILE:
                assert check(*good[:place], value, *good[place + 1 :]) is False


def test_there_is_no_leaf_after_the_last() -> None:
    for size in range(1, 40):
        tree = Tree(hashes(size))
        assert not check_inclusion(leaf(hashes(size)[-1]), size, size, tree.inclusion(size - 1, size), tree.root(size))


def test_a_tree_says_what_it_does_not_know() -> None:
    tree = Tree(hashes(3))
    calls = (tree.root, 4), (tree.inclusion, 3, 3), (tree.inclusion, 0, 0), (tree.consistency, 3, 2), (tree.root, -1)
    for call, *numbers in calls:
        with pytest.raises(IndexError, match="this tree knows 0 to"):
            call(*numbers)
