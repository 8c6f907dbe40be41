"""The stand-alone verifier on signed runs: the same verdicts as the package on what was signed, paid and shown."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from keyring import folder_of, ring_of
from table import BLIND, play, set_table

from fedincentive import ledger
from fedincentive.agent.strategies import Away
from fedincentive.errors import ProvenanceError
from fedincentive.game import random_data_value, repaired_example
from fedincentive.identity import CENTER
from fedincentive.ledger import Entry, standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify
from fedincentive.provenance import receipts, rfc8032
from fedincentive.provenance.keys import KeyRing, PrivateKey, PublicKey

Fields = dict[str, Any]
Names = set[str]
PHASED = {"mechanism": "2p-upbred", "rounds": 3, "beta": "0.5", "gamma": 5.0}
TRUTHFUL = {"mechanism": "t-upbred", "rounds": 3, "unchecked": True}
AWAY = Away(phases=("train", "value"))
FOUR = {**PHASED, "agents": 4, "beta": "7", "gamma": 9.0, "quorum": 0.5}
HONEST: dict[str, Fields] = {
    "tranches": PHASED,
    "at the end": {**PHASED, "settlement": "end"},
    "on commitments": {**PHASED, "settlement": "commitment"},
    "truthful": TRUTHFUL,
    "truthful, all known": {**TRUTHFUL, "oracles": None},
    "truthful, clarke": {**TRUTHFUL, "h": "clarke", "oracles": None},
    "truthful, h zero": {**TRUTHFUL, "h": "zero"},
    "upbred": {"mechanism": "upbred", "rounds": 3, "beta": "0.5"},
    "fedavg": {"mechanism": "fedavg", "rounds": 2},
    "fedavg-strategic": {"mechanism": "fedavg-strategic", "rounds": 2, "round_limit": 9, "when_short": "train"},
    "trimmed": {**FOUR, "mechanism": "trim-2p-upbred"},
    "sampled": {**FOUR, "sampled": 2},
    "absent in some rounds": {**FOUR, "strategies": {"agent-1": Away(steps=(0, 2))}},
    "absent where it is valued": {**TRUTHFUL, "agents": 4, "quorum": 0.5, "strategies": {"agent-2": AWAY}},
    "sampled and absent": {**FOUR, "sampled": 3, "quorum": 0.3, "strategies": {"agent-2": AWAY}},
}


def names(book: ledger.Ledger) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """What both find, by name and entry."""
    ours = [(finding.name, finding.seq or 0) for finding in verify(book, recompute=True).findings]
    theirs = [(name, seq) for name, seq, _ in standalone.check(list(to_jsonl(book)))[0]]
    return ours, theirs


def signed_run(folder: Path, mechanism: str, agents: int = 2, keys: KeyRing | None = None, **values: Any) -> KeyRing:
    """An honest run in folder/l.db with its receipts in folder/state; everybody's keys."""
    game = repaired_example() if agents == 2 else random_data_value(3, agents)
    ring = keys or ring_of(game.agents)
    with ledger.open(folder / "l.db") as book:
        values = {"oracles": BLIND, **values}
        play(*set_table(game, mechanism, keys=ring, book=book, folder=folder / "state", **values))
    return ring


@pytest.mark.parametrize("name", HONEST)
def test_both_find_nothing_in_an_honest_signed_run(tmp_path: Path, name: str) -> None:
    signed_run(tmp_path, **HONEST[name])
    signatures = standalone.Signatures()
    with ledger.read(tmp_path / "l.db") as book:
        assert verify(book, recompute=True).clean
        assert standalone.check(list(to_jsonl(book)), (), signatures)[0] == []
    assert signatures.count > 4 and signatures.signed == ["test"]


def rewritten(lines: list[str], first: int) -> list[str]:
    """The export with the entries from `first` on as if they were of the round after, chained anew by its owner."""
    items = [json.loads(line) for line in lines]
    for before, item in zip(items[first - 1 :], items[first:-1], strict=False):
        item["body"]["round"] += 1
        body = standalone.digest("body", standalone.canonical(item["body"]))
        item["hash"] = standalone.digest("entry", f"{item['seq']}\n{before['hash']}\n{body}")
    items[-1]["checkpoint"] = f"{len(items) - 2}:{items[-2]['hash']}"
    return [standalone.canonical(item) + "\n" for item in items]


def test_checkpoints_that_others_kept_hold_the_export(tmp_path: Path) -> None:
    signed_run(tmp_path, **FOUR)
    with ledger.read(tmp_path / "l.db") as book:
        lines = list(to_jsonl(book))
    kept = (tmp_path / "state" / "notes.jsonl").read_text("utf-8")
    notes, signatures = standalone.notes_in(kept + '{"note": "cut'), standalone.Signatures()
    assert standalone.check(lines, (), signatures, notes)[0] == [] and len(notes) == len(kept.splitlines()) > 3
    assert signatures.witnessed is not None and signatures.witnessed[0] == len(lines) - 2
    assert sorted(signatures.witnessed[1]) == ["agent-1", "agent-2", "agent-3", "agent-4"]

    def found(export: list[str], kept: str) -> list[str]:
        return [
            said for name, _, said in standalone.check(export, notes=standalone.notes_in(kept))[0] if name == "note"
        ]

    assert found([*lines[:-2], lines[-1]], kept)[-1].endswith(f"{len(lines) - 3} are here: the tail was cut")
    assert found(rewritten(lines, len(lines) - 2), kept)[-1].endswith("has another root: the chain was made anew")
    other = tmp_path / "other"
    other.mkdir()
    signed_run(other, **FOUR)
    theirs = (other / "state" / "notes.jsonl").read_text("utf-8")
    assert "another ledger's" in found(lines, theirs)[0]
    last = json.loads(kept.splitlines()[-1])["note"]
    forged = last.replace(last.split("\n")[2], notes[0].text.split("\n")[2], 1)  # with the root of an earlier one
    assert found(lines, forged) == [
        f"no center of this ledger's runs signed the checkpoint of {len(lines) - 2} entries"
    ]
    text, _, signed = last.rpartition("\n\n")
    first, *others = signed.splitlines()
    broken = others[0][:-8] + ("A" if others[0][-8] != "A" else "B") + others[0][-7:]
    assert found(lines, f"{text}\n\n{first}\n{broken}\n") == ["the cosignature of 'agent-1' is forged"]


def each(kind: str, change: Callable[[Fields], None]) -> Callable[[list[Fields]], None]:
    """Change the inputs of every entry of a kind."""

    def forge(entries: list[Fields]) -> None:
        for fields in entries:
            if fields["kind"] == kind:
                change(fields["inputs"])

    return forge


def words(name: str, value: Any, kind: str = "reports-train") -> Callable[[list[Fields]], None]:
    """Put other words into the first agent's mouth."""
    return each(kind, lambda inputs: inputs["said"]["agent-1"].update({name: value}))


def swap(inputs: Fields) -> None:
    said = inputs["said"]
    said["agent-1"], said["agent-2"] = said["agent-2"], said["agent-1"]


def replayed(entries: list[Fields]) -> None:
    """The first training round's words again, in all rounds."""
    rounds = [fields["inputs"] for fields in entries if fields["kind"] == "reports-train"]
    for inputs in rounds:
        inputs["said"] = rounds[0]["said"]


def silent(entries: list[Fields]) -> None:
    entries[:] = [fields for fields in entries if fields["kind"] != "reports-train"]


def unsigned(entries: list[Fields]) -> None:
    del entries[0]["inputs"]["terms"]["center"]


def strangers(inputs: Fields) -> None:
    inputs["said"]["mallory"] = inputs["said"]["agent-1"]


NOTHING = base64.b64encode(bytes(64)).decode()
FORGERIES: dict[str, Callable[[list[Fields]], None]] = {
    "delivered": words("delivered", 1),
    "update": words("update", "0" * 64),
    "nonce": words("nonce", "0" * 32),
    "signature": words("signature", NOTHING),
    "signature of another form": words("signature", 7),
    "no signature": each("reports-train", lambda inputs: inputs["said"]["agent-1"].pop("signature")),
    "valuation": words("valuation", 5),
    "s in the contributions": words("s", 5, "reports-contribute"),
    "round in the contributions": words("round", 5, "reports-contribute"),
    "seen in the contributions": words("seen", "1:x", "reports-contribute"),
    "s in the commitments": each("commitment", lambda inputs: inputs["s"].update({"agent-1": 4_999_999})),
    "absent": each("reports-train", lambda i: i.update(absent=["agent-1"], said={"agent-2": i["said"]["agent-2"]})),
    "absent and there": each("reports-train", lambda inputs: inputs.update(absent=["agent-1"])),
    "left out": each("reports-train", lambda inputs: inputs["said"].pop("agent-1")),
    "other terms": each("reports-train", lambda inputs: inputs.update(terms="0" * 64)),
    "other model": each("reports-train", lambda inputs: inputs.update(model="0" * 64)),
    "other checkpoint": each("reports-train", lambda inputs: inputs.update(seen="1:x")),
    "currency": each("terms", lambda inputs: inputs["terms"].update(currency="roubles")),
    "not accepted": each("terms", lambda inputs: inputs["accepted"].pop("agent-1")),
    "accepted by another": each(
        "terms", lambda inputs: inputs["accepted"].update({"agent-1": inputs["accepted"]["agent-2"]})
    ),
    "another key": each(
        "terms", lambda i: i["terms"]["agents"]["agent-1"].update(key=PrivateKey("agent-1").public.vkey)
    ),
    "no key": each("terms", lambda inputs: inputs["terms"]["agents"]["agent-1"].pop("key")),
    "swapped names": each("reports-train", swap),
    "a stranger": each("reports-train", strangers),
    "an old round again": replayed,
    "no reports": silent,
    "keys taken away": unsigned,
    "delivered in the payment": each("tranche", lambda inputs: inputs["delivered"].update({"agent-1": 4_000_000})),
    "total in the payment": each("tranche", lambda inputs: inputs["total"].update({"agent-1": 4_000_000})),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KeyRing]:
    folder = tmp_path_factory.mktemp("run")
    return folder, signed_run(folder, **PHASED)


def fields_of(folder: Path) -> list[Fields]:
    with ledger.read(folder / "l.db") as book:
        return [json.loads(record.entry.body) for record in book.entries()]


def forged(path: Path, entries: list[Fields]) -> ledger.Ledger:
    """A ledger made anew by its owner: all its hashes fit."""
    book = ledger.open(path)
    for fields in entries:
        book.append(Entry(**{key: value for key, value in fields.items() if key != "version"}))
    return book


@pytest.mark.parametrize("name", FORGERIES)
def test_both_find_what_a_center_forged(tmp_path: Path, run: tuple[Path, KeyRing], name: str) -> None:
    entries = fields_of(run[0])
    FORGERIES[name](entries)
    with forged(tmp_path / "forged.db", entries) as book:
        ours, theirs = names(book)
    assert {name for name, _ in ours} & {"signature", "claims"}
    assert set(ours) == set(theirs)


@pytest.mark.parametrize("name", ["valuations", "previous"])
def test_both_find_valuations_that_nobody_said(tmp_path: Path, name: str) -> None:
    signed_run(tmp_path, **TRUTHFUL)
    entries = fields_of(tmp_path)
    each("truthful", lambda inputs: inputs.get(name, {}).update({"agent-1": inputs["valuations"]["agent-1"] + 1}))(
        entries
    )
    with forged(tmp_path / "forged.db", entries) as book:
        ours, theirs = names(book)
    assert "claims" in {name for name, _ in ours}
    assert set(ours) == set(theirs)


def other_link(inputs: Fields) -> None:
    inputs["reveal"] = "0" * 64


def same_link(inputs: Fields) -> None:
    """A link has one writing: in capitals it would hash to the same anchor, and draw others."""
    inputs["reveal"] = inputs["reveal"].upper()


def no_link(inputs: Fields) -> None:
    del inputs["reveal"]


def someone_else(inputs: Fields) -> None:
    """Calls an agent absent that was not asked, and passes over one that was."""
    asked = sorted([*inputs["said"], *inputs["absent"]])
    inputs["said"].pop(asked[0], None)
    other = next(agent for agent in ("agent-1", "agent-2", "agent-3", "agent-4") if agent not in asked)
    inputs["absent"] = sorted({*inputs["absent"], other} - {asked[0]})


@pytest.mark.parametrize("change", [other_link, same_link, no_link, someone_else])
def test_both_know_who_was_asked(tmp_path: Path, change: Any) -> None:
    signed_run(tmp_path, **HONEST["sampled"])
    entries = fields_of(tmp_path)
    assert "draws" in entries[0]["inputs"]["terms"]
    each("reports-train", change)(entries)
    with forged(tmp_path / "forged.db", entries) as book:
        ours, theirs = names(book)
    assert "claims" in {name for name, _ in ours} and "claims" in {name for name, _ in theirs}


# Receipts


def judged(text: str, log: PublicKey, witnesses: list[PublicKey]) -> tuple[Any, Any]:
    """What both say of a receipt: the times of the cosignatures, or None where it proves nothing."""
    try:
        ours: Any = receipts.verify(text, log, witnesses)[1]
    except ProvenanceError:
        ours = None
    try:
        keys = [standalone.verifier_key(key.vkey) for key in (log, *witnesses)]
        theirs: Any = standalone.check_receipt(text, keys[:1], keys[1:])[1]
    except Exception:
        theirs = None
    return ours, theirs


def spoiled(text: str, draw: random.Random) -> str:
    """A receipt with one thing changed: a letter, a field, a line, a step of the path."""
    at = draw.randrange(len(text))
    held = json.loads(text)
    lines = held["note"].split("\n")
    ways: list[Callable[[], Any]] = [
        lambda: text[:at] + chr(draw.randrange(32, 127)) + text[at + 1 :],
        lambda: text[:at] + text[at + 1 :],
        lambda: held.update(seq=held["seq"] + draw.choice([-1, 1])),
        lambda: held.update(previous="0" * 64),
        lambda: held["path"].pop() if held["path"] else held.update(path=["AA=="]),
        lambda: held["path"].append(base64.b64encode(bytes(32)).decode()),
        lambda: held["body"].update(round=held["body"]["round"] + 1),
        lambda: held["body"].update(more=1),
        lambda: held.update(receipt=draw.choice([True, 2, "1"])),
        lambda: held.update(note=held["note"].replace("—", "-")),
        lambda: held.update(note="\n".join([lines[0], str(int(lines[1]) + 1), *lines[2:]])),
        lambda: lines.__setitem__(draw.randrange(4, len(lines) - 1), lines[4]) or held.update(note="\n".join(lines)),
    ]
    changed = draw.choice(ways)()
    return changed if isinstance(changed, str) and changed.startswith("{") else standalone.canonical(held) + "\n"


def test_both_judge_receipts_alike(run: tuple[Path, KeyRing]) -> None:
    folder, ring = run
    agents = [key for name, key in ring.public.items() if name != CENTER]
    files = sorted(folder.glob("state/receipts/*/receipt-*.json"))
    draw, refused = random.Random(5), 0
    assert len(files) > 6
    for file in files:
        text = file.read_text()
        ours, theirs = judged(text, ring.public[CENTER], agents)
        assert ours == theirs and set(ours) == {"agent-1", "agent-2"}
        assert judged(text, agents[0], agents) == (None, None)
        for _ in range(25):
            changed = spoiled(text, draw)
            ours, theirs = judged(changed, ring.public[CENTER], agents)
            assert ours == theirs, changed
            refused += ours is None
    assert refused > 20 * len(files)


def test_both_count_a_key_that_signed_many_times_alike(run: tuple[Path, KeyRing]) -> None:
    folder, ring = run
    held = json.loads(sorted(folder.glob("state/receipts/*/receipt-*.json"))[-1].read_text())
    line = held["note"].splitlines()[-1]
    for many in (1, 16, 17):
        text = standalone.canonical({**held, "note": held["note"] + f"{line}\n" * (many - 1)}) + "\n"
        ours, theirs = judged(text, ring.public[CENTER], [key for name, key in ring.public.items() if name != CENTER])
        assert ours == theirs and (ours is None) == (many > 16) and (ours is None or len(ours) == 2)


# Signatures, as others check them


def test_it_checks_signatures_as_openssl_does() -> None:
    draw, agreed = random.Random(1), [0, 0]
    keys = [PrivateKey(f"agent-{k}") for k in range(3)]
    for k in range(60):
        key, said = keys[k % 3], draw.randbytes(draw.randrange(200))
        blob = bytearray(key.sign(said))
        if k % 2:
            blob[draw.randrange(64)] ^= 1 << draw.randrange(8)
        good = key.public.verify(bytes(blob), said)
        assert standalone.ed25519(key.public.raw, bytes(blob), said) is good
        agreed[good] += 1
    assert agreed == [30, 30]


def test_weak_keys_and_second_writings_are_refused() -> None:
    key, said = PrivateKey("a"), b"said"
    blob = key.sign(said)
    s = int.from_bytes(blob[32:], "little") + standalone.ORDER
    assert not standalone.ed25519(key.public.raw, blob[:32] + s.to_bytes(32, "little"), said)
    assert not standalone.ed25519(key.public.raw, blob + b"\0", said)
    one, weak = (1).to_bytes(32, "little"), 0
    for y in (0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18, 2**255 - 1):
        for sign in (0, 1):
            raw = (y | sign << 255).to_bytes(32, "little")
            weak += rfc8032.key_point(raw) is None
            with pytest.raises(ValueError):
                standalone.point_of(raw)
    assert weak == 12
    assert Ed25519PublicKey.from_public_bytes(one) is not None  # which a library takes


# The command


def alone(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", standalone.__file__, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, env={"LC_ALL": "C"})


def test_the_command_on_a_signed_run_and_its_receipts(tmp_path: Path) -> None:
    keys = folder_of(tmp_path / "keys", repaired_example().agents)
    signed_run(tmp_path, **PHASED, keys=KeyRing.read(keys))
    with ledger.read(tmp_path / "l.db") as book:
        (tmp_path / "l.jsonl").write_text("".join(to_jsonl(book)))
    done = alone(tmp_path, "l.jsonl", "--keys", keys)
    assert done.returncode == 0 and "signatures checked" in done.stdout and done.stderr == ""
    assert "whose the keys are was not checked" in alone(tmp_path, "l.jsonl").stderr
    quick = alone(tmp_path, "l.jsonl", "--no-signatures")
    assert quick.returncode == 0 and "SIGNATURES WERE NOT CHECKED" in quick.stdout

    (tmp_path / "some.txt").write_text("# the center's only\n" + (keys / "center.pub").read_text())
    done = alone(tmp_path, "l.jsonl", "--keys", "some.txt")
    assert done.returncode == 1 and "keys: entry 1: the key of 'agent-1'" in done.stdout
    assert "'center'" not in done.stdout

    receipt = sorted(tmp_path.glob("state/receipts/agent-1/receipt-*.json"))[-1]
    done = alone(tmp_path, "receipt", receipt, "--key", keys / "center.pub", "--witness", keys, "--need", 2)
    assert done.returncode == 0 and done.stdout.count("cosigned by") == 2, done.stdout + done.stderr
    vkey = (keys / "agent-1.pub").read_text().strip()
    done = alone(tmp_path, "receipt", receipt, "--key", vkey)
    assert done.returncode == 1 and "the log did not sign" in done.stdout
    done = alone(tmp_path, "receipt", receipt, "--key", keys / "center.pub", "--witness", vkey, "--need", 2)
    assert done.returncode == 1 and "1 of the witnesses given cosigned it, 2 are needed" in done.stdout
    for wrong in (["receipt"], ["receipt", receipt], ["receipt", "none", "--key", vkey],
                  ["receipt", receipt, "--key", "x"],
                  ["l.jsonl", "--keys", "none"], ["l.jsonl", "--keys", "state"]):  # fmt: skip
        done = alone(tmp_path, *wrong)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr


def test_an_unsigned_run_is_found_where_keys_are_known(tmp_path: Path, run: tuple[Path, KeyRing]) -> None:
    values = dict(PHASED)
    with ledger.open(tmp_path / "l.db") as book:
        play(*set_table(repaired_example(), values.pop("mechanism"), book=book, oracles=BLIND, **values))
        known = [standalone.verifier_key(key.vkey) for key in run[1].public.values()]
        found = standalone.check(list(to_jsonl(book)), (), standalone.Signatures(known=known))[0]
        assert [(name, seq) for name, seq, _ in found] == [("keys", 1)]


def test_it_says_how_far_it_is(run: tuple[Path, KeyRing], monkeypatch: pytest.MonkeyPatch, tmp_path, capsys) -> None:
    with ledger.read(run[0] / "l.db") as book:
        (tmp_path / "l.jsonl").write_text("".join(to_jsonl(book)))
    monkeypatch.setattr(standalone, "EVERY", 0.0)
    assert standalone.main([str(tmp_path / "l.jsonl")]) == 0
    told = capsys.readouterr()
    count = told.out.split()[0]
    assert f"{count} of {count} signatures" in told.err and "0 s left" in told.err


def test_no_input_gives_a_traceback(run: tuple[Path, KeyRing], tmp_path: Path, capsys: Any) -> None:
    """Any value of an export replaced by any other; hashes are made anew, so that all else is read too."""
    with ledger.read(run[0] / "l.db") as book:
        lines = list(to_jsonl(book))
    draw = random.Random(3)
    odd = [None, True, -1, 2**70, 1.5, 1e308, "", "x", "1e99999999", "\u00e9\ud800", [], [[]], {}, {"": 1}, {"a": None}]

    def places(value: Any) -> list[tuple[Any, Any]]:
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return [found for key, item in list(inner) for found in [(value, key), *places(item)]]

    for _ in range(300):
        items = [json.loads(line) for line in lines]
        where, key = draw.choice(places(draw.choice(items)))
        where[key] = draw.choice(odd)
        previous = standalone.digest("ledger", standalone.canonical(items[0]))
        for seq, item in enumerate(items[1:-1], 1):
            body = standalone.digest("body", standalone.canonical(item.get("body")))
            previous = item["hash"] = standalone.digest("entry", f"{seq}\n{previous}\n{body}")
        (tmp_path / "odd.jsonl").write_text("".join(standalone.canonical(item) + "\n" for item in items))
        assert standalone.main([str(tmp_path / "odd.jsonl"), "--no-signatures"]) in (0, 1)
    for text in (
        "",
        "[]",
        "7\n",
        '{"ledger":"fedincentive","version":1,"minor":1}\n[\n',
        "null\nnull\n",
        lines[0] + "[" * 99999,
    ):
        (tmp_path / "odd.jsonl").write_text(text)
        assert standalone.main([str(tmp_path / "odd.jsonl")]) == 1
    capsys.readouterr()
