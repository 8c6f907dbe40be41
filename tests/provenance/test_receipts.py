"""A receipt proves its entry, and nothing else does."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fedincentive import ledger
from fedincentive.cli import main
from fedincentive.entry import Entry, canonical
from fedincentive.errors import ProvenanceError
from fedincentive.ledger.chain import link
from fedincentive.provenance import receipts
from fedincentive.provenance.keys import COSIGNATURE, PrivateKey, make
from fedincentive.provenance.merkle import Tree
from fedincentive.provenance.notes import Head, Note

ORIGIN = "example.org/ledger"
LOG, CLINIC, SURGERY = PrivateKey(ORIGIN), PrivateKey("St. Mary"), PrivateKey("surgery")


@pytest.fixture
def written(tmp_path: Path) -> list[str]:
    """Receipts of all entries of a real ledger."""
    with ledger.open(tmp_path / "ledger.sqlite") as book:
        for step in range(1, 8):
            book.append(
                Entry("demo é", step, "settlement", "transfer/1", {"amounts": {}}, {"clinic": step, "a": -step})
            )
        rows, previous = list(book.rows()), [ledger.chain.genesis(book.minor)]
    previous += [row.hash for row in rows]
    tree = Tree(row.hash for row in rows)
    note = Note(Head(ORIGIN, 7, tree.root(7)).text).signed(LOG).cosigned(CLINIC, 1_700_000_000).cosigned(SURGERY, 5)
    return [receipts.make(tree, note, row.seq, previous[row.seq - 1], row.body) for row in rows]


def test_every_entry_of_a_ledger_has_one(written: list[str]) -> None:
    for seq, text in enumerate(written, 1):
        proven, times = receipts.verify(text, LOG.public, [CLINIC.public, SURGERY.public, PrivateKey("x").public])
        assert proven.seq == seq and proven.entry.postings == {"clinic": seq, "a": -seq} and proven.head.size == 7
        assert times == {"St. Mary": 1_700_000_000, "surgery": 5}
        held = json.loads(text)
        assert proven.hash == link(seq, held["previous"], canonical(held["body"]))
    with pytest.raises(ProvenanceError, match="is not signed by"):
        receipts.verify(written[0], PrivateKey(ORIGIN).public)


def test_a_forged_cosignature_spoils_a_receipt(written: list[str]) -> None:
    held = json.loads(written[0])
    note = Note.parse(held["note"])
    forged = note.cosigned(PrivateKey(CLINIC.name), 7).signatures[-1]
    known = type(forged)(forged.name, CLINIC.public.key_id(COSIGNATURE), forged.blob)
    text = canonical({**held, "note": str(Note(note.text, (*note.signatures, known)))}) + "\n"
    assert receipts.verify(text, LOG.public, [SURGERY.public])[1] == {"surgery": 5}
    with pytest.raises(ProvenanceError, match="cosignature of 'St. Mary' on this receipt is forged"):
        receipts.verify(text, LOG.public, [CLINIC.public])


def test_a_thousand_changed_receipts_prove_nothing(written: list[str]) -> None:
    draw, done = random.Random(7), 0
    while done < 1000:
        text = draw.choice(written)
        at = draw.randrange(len(text))
        swap = draw.choice('0123456789abcdefABCXYZ+/= ,:{}[]"-\\\n')
        changed = draw.choice(
            [text[:at] + swap + text[at + 1 :], text[:at] + text[at + 1 :], text[:at] + swap + text[at:]]
        )
        if changed in written:
            continue
        done += 1
        try:
            proven, times = receipts.verify(changed, LOG.public, [CLINIC.public, SURGERY.public])
        except ProvenanceError:
            continue
        # a cosignature with another name or key id is a stranger's: the entry stands, with one witness less
        assert proven.entry == receipts.read(text).entry and len(times) < 2


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 0}, {"seq": 8}, {"seq": True}, {"seq": -1}, {"seq": 10**30}, {"path": []}, {"path": None},
        {"path": [1]}, {"path": "AAAA"}, {"path": {}}, {"previous": ""}, {"previous": "g" * 64}, {"previous": 3},
        {"body": {}}, {"body": None}, {"note": ""}, {"note": None}, {"receipt": 2}, {"receipt": True}, {"receipt": 1.0},
        {"more": 1},
    ],
)  # fmt: skip
def test_fields_that_are_wrong(written: list[str], change: dict[str, object]) -> None:
    with pytest.raises(ProvenanceError, match="proves nothing"):
        receipts.read(canonical({**json.loads(written[2]), **change}) + "\n")


def test_a_path_is_a_list_in_which_order_counts(written: list[str]) -> None:
    """A mapping of the same hashes, which is written in another order than it is read, is no path."""
    held = json.loads(written[2])
    assert len(held["path"]) > 1
    place = {"path": dict.fromkeys(held["path"], 0), "previous": held["previous"], "seq": held["seq"]}
    with pytest.raises(ValueError, match="not a list"):
        receipts.prove(canonical(held["body"]), note=Note.parse(held["note"]), **place)


@pytest.mark.parametrize("text", ["", "[]", "1", "null", "{}", "[" * 200_000, '{"a":1', "x" * (2**26 + 1), "1" * 9999])
def test_what_is_no_receipt(text: str) -> None:
    with pytest.raises(ProvenanceError, match="proves nothing"):
        receipts.read(text)


def test_another_writing_of_a_receipt_is_refused(written: list[str]) -> None:
    held = json.loads(written[0])
    for text in (
        json.dumps(held),
        canonical(held),
        written[0] + " ",
        written[0].replace('"seq":1}', '"seq":2,"seq":1}'),
    ):
        with pytest.raises(ProvenanceError, match="canonical form"):
            receipts.read(text)


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["receipt", "verify", *map(str, words)])


def test_the_command(written: list[str], tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    file.write_text(written[3])
    unsigned = run(file)
    assert unsigned.exit_code == 1 and "give its key with --key" in unsigned.output
    good = run(file, "--key", PrivateKey(ORIGIN).public.vkey, "--key", LOG.public.vkey, "--witness", CLINIC.public.vkey)
    assert good.exit_code == 0, good.output
    assert "Entry 4" in good.output and "'clinic' +4 minor units" in good.output and "The log signed it." in good.output
    assert "cosigned by 'St. Mary' at 2023-11-14 22:13:20 UTC" in good.output
    few = run(file, "--key", LOG.public.vkey, "--witness", CLINIC.public.vkey, "--need", "2")
    assert few.exit_code == 1 and "1 of the witnesses given cosigned it; 2 are needed" in few.output
    make("surgery", tmp_path / "keys")
    folder = run(
        file, "--key", LOG.public.vkey, "--witness", tmp_path / "keys", "--witness", tmp_path / "keys/surgery.pub"
    )
    assert folder.exit_code == 0 and "cosigned by" not in folder.output
    assert "None of the witnesses given cosigned it" in folder.output
    assert "None of the witnesses" not in good.output + run(file, "--key", LOG.public.vkey).output
    wrong = run(file, "--key", CLINIC.public.vkey)
    assert wrong.exit_code == 1 and "is not signed by" in wrong.output
    assert run(file, "--key", "nonsense").exit_code == 2
    file.write_text(written[3].replace('"clinic":4', '"clinic":5'))
    changed = run(file, "--key", LOG.public.vkey)
    assert changed.exit_code == 1 and "proves nothing" in changed.output
    file.write_bytes(b"\xff\x00")
    assert run(file, "--key", LOG.public.vkey).output.startswith("Error: This receipt proves nothing")
