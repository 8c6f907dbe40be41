"""What signatures, trees, commitments and proofs cost: `python benchmarks/provenance.py [LEAVES] [SIGNATURES]`.

CPU time. Each figure stands beside its yardstick: the tree beside as many bare hashes, the plain Python verifier beside
OpenSSL, with which it must agree on every valid and every changed signature.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from fedincentive.ledger import standalone
from fedincentive.provenance import rfc8032
from fedincentive.provenance.keys import PrivateKey
from fedincentive.provenance.merkle import Tree, check_consistency, check_inclusion, leaf
from fedincentive.provenance.notes import Head, Note
from fedincentive.provenance.records import Commitment, order
from fedincentive.provenance.witness import Witness


def cpu(work: Callable[[], object], times: int = 1) -> float:
    """Seconds of one call."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def trees(size: int, draw: random.Random) -> None:
    known = [sha256(b"%d" % k).hexdigest() for k in range(size)]
    bare = cpu(lambda: [sha256(bytes(65)).digest() for _ in range(2 * size)])
    made: list[Tree] = []
    built = cpu(lambda: made.append(Tree(known)))
    tree, root = made[0], made[0].root(size)
    print(f"tree of {size} entries           {built:8.2f} s   ({2 * size} bare hashes: {bare:.2f} s)")
    one_by_one = Tree()
    print(f"append one entry               {cpu(lambda: [one_by_one.append(h) for h in known[: 10**5]]) * 10:8.2f} us")
    places = [draw.randrange(1, size) for _ in range(1000)]
    print(
        f"inclusion proof                {cpu(lambda: [tree.inclusion(k, size) for k in places]) * 1e3:8.2f} us", end=""
    )
    paths = {k: tree.inclusion(k, size) for k in places}
    print(f"   at most {max(map(len, paths.values())) * 32} bytes")
    checked = cpu(lambda: [check_inclusion(leaf(known[k]), k, size, paths[k], root) for k in places])
    print(f"  its check                    {checked * 1e3:8.2f} us")
    print(
        f"consistency proof              {cpu(lambda: [tree.consistency(k, size) for k in places]) * 1e3:8.2f} us",
        end="",
    )
    paths, roots = {k: tree.consistency(k, size) for k in places}, {k: tree.root(k) for k in places}
    print(f"   at most {max(map(len, paths.values())) * 32} bytes")
    checked = cpu(lambda: [check_consistency(k, size, paths[k], roots[k], root) for k in places])
    print(f"  its check                    {checked * 1e3:8.2f} us")


def commitments(size: int, draw: random.Random) -> None:
    """A site's records: what it takes to commit to them, to prove one, and to order them."""
    own = [draw.randbytes(100) for _ in range(size)]
    made: list[Commitment] = []
    committed = cpu(lambda: made.append(Commitment.to(own)) or str(made[0]))
    print(f"commitment to {size} records     {committed:8.2f} s")
    with tempfile.TemporaryDirectory() as at:
        (Path(at) / "own.csv").write_bytes(b"\n".join(record.hex().encode() for record in own))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["fedincentive", "attest", "commit", f"{at}/own.csv"], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"  `attest commit` from a file  {whole:8.2f} s   start of the program, reading and writing included")
    kept, text = made[0], str(made[0])
    places = [draw.randrange(size) for _ in range(1000)]
    shown = [kept.open(k, own[k]) for k in places]
    assert all(one.proves(text) for one in shown) and not shown[0].proves(text.replace("a", "b"))
    print(f"an opening                     {cpu(lambda: [kept.open(k, own[k]) for k in places]) * 1e3:8.2f} us", end="")
    print(f"   {max(16 + 32 * len(one.path) + 8 for one in shown)} bytes beside the record")
    print(f"  its check                    {cpu(lambda: [one.proves(text) for one in shown]) * 1e3:8.2f} us")
    print(f"order of {size} records          {cpu(lambda: order(1, size)):8.2f} s")


def signatures(count: int, draw: random.Random) -> None:
    key = PrivateKey("example.org/ledger")
    messages = [draw.randbytes(511) for _ in range(count)]
    signed = [key.sign(message) for message in messages]
    print(f"signature of 511 bytes         {cpu(lambda: key.sign(messages[0]), 1000) * 1e6:8.0f} us")
    pairs = list(zip(signed, messages, strict=True))
    pairs += [
        (s[:k] + bytes([s[k] ^ 1 << draw.randrange(8)]) + s[k + 1 :], m) for s, m in pairs for k in [draw.randrange(64)]
    ]
    said: list[list[bool]] = []
    openssl = cpu(lambda: said.append([key.public.verify(s, m) for s, m in pairs])) / len(pairs)
    plain = cpu(lambda: said.append([rfc8032.verify(key.public.raw, s, m) for s, m in pairs])) / len(pairs)
    raw = key.public.raw
    alone = cpu(lambda: said.append([standalone.ed25519(raw, s, m) for s, m in pairs])) / len(pairs)
    assert said[0] == said[1] == said[2] == [True] * count + [False] * count
    print(f"its check by OpenSSL           {openssl * 1e6:8.0f} us   in plain Python {plain * 1e6:.0f} us; they agree")
    print(f"  by standalone.py             {alone * 1e6:8.0f} us   100,000 of them {alone * 1e5:.0f} s")
    tree = Tree([sha256(m).hexdigest() for m in messages[:2]])
    note = Note(Head(key.name, 1, tree.root(1)).text).signed(key)
    print(f"note signed                    {cpu(lambda: Note(note.text).signed(key), 300) * 1e6:8.0f} us", end="")
    print(
        f"   {len(str(note).encode())} bytes, with a cosignature {len(str(note.cosigned(key, 1_700_000_000)).encode())}"
    )
    then, proof = str(Note(Head(key.name, 2, tree.root(2)).text).signed(key)), tree.consistency(1, 2)

    def follow() -> None:
        witness = Witness(key.name, key.public)
        witness.check(str(note))
        witness.check(then, proof)

    print(f"a witness checks a note        {cpu(follow, 200) / 2 * 1e6:8.0f} us")


def main() -> None:
    leaves, count = (*map(int, sys.argv[1:]), *(10**6, 1000)[len(sys.argv) - 1 :])
    draw = random.Random(0)
    trees(leaves, draw)
    commitments(leaves, draw)
    signatures(count, draw)


if __name__ == "__main__":
    main()
