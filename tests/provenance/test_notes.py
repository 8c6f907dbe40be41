"""Notes of others are read as they meant them, ours are read by others, and no changed note passes."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from fedincentive.errors import ProvenanceError
from fedincentive.provenance.keys import PrivateKey, PublicKey, words
from fedincentive.provenance.notes import Head, Note

# Go's sumdb/note: the key in its tests and the note that it signs
PETER = PublicKey.parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
PETERS_SECRET = "gQoUAtUUbI2E8kQzMPVAgOv5juF9nHT2JS/F1ccoMXM="
PETERS_NOTE = """If you think cryptography is the answer to your problem,
then you don't know what your problem is.

— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=
"""
# C2SP's example of a cosigned checkpoint. It is one of Go's checksum database under another name.
SOFA = """example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==
"""  # noqa: E501
GO = PublicKey.parse("sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8")
# A checkpoint of a Certificate Transparency log, cosigned by a public witness
NAVIGLI = PublicKey.parse("witness.navigli.sunlight.geomys.org+a3e00fe2+BNy/co4C1Hn1p+INwJrfUlgz7W55dSZReusH/GhUhJ/G")
HORSES = """coachandhorses2026h1.staging.certificate.transparency.goog
185550722
YXAM0VmnrfvLaBCOOYSJhCaE5F10oGBOo+hkbDa1kng=

— coachandhorses2026h1.staging.certificate.transparency.goog MpXgsHy8ZwxXnO+WjtVrPxAzL49Rs1gWTkNVNeEa//5peAzaocRCB3qt3EaibjzY5GILLtGgBP7dBhgcSHy+JQh0OAc=
— witness.navigli.sunlight.geomys.org o+AP4gAAAABqb7DzNrGFRJnQ9vrJ8xpnwZytnr/ZYczDIsvwvouiSjwOjn7a72ccxBk+lKnZ7dKqkYKER1s/KxLTaVwQD7lJZTC/CQ==
"""  # noqa: E501

LOG, CLINIC = PrivateKey("example.org/ledger"), PrivateKey("St. Mary + 1")
HEAD = Head("example.org/ledger", 3, b"\x07" * 32)


def test_gos_note() -> None:
    note = Note.parse(PETERS_NOTE)
    assert note.is_signed_by(PETER) and str(note) == PETERS_NOTE
    key = PrivateKey("PeterNeumann", Ed25519PrivateKey.from_private_bytes(base64.b64decode(PETERS_SECRET)))
    assert key.public == PETER and str(Note(note.text).signed(key)) == PETERS_NOTE


def test_c2sps_example() -> None:
    note = Note.parse(SOFA)
    assert (note.head.origin, note.head.size, note.head.text) == ("example.com/behind-the-sofa", 20852163, note.text)
    assert str(note) == SOFA and note.signatures[1].key_id.hex() == "8d66cf3f"
    assert int.from_bytes(note.signatures[1].blob[:8], "big") == 1679315147
    renamed = SOFA.replace("— example.com/behind-the-sofa", "— sum.golang.org")
    gos = renamed.replace("example.com/behind-the-sofa", "go.sum database tree")
    assert Note.parse(gos).is_signed_by(GO) and not Note.parse(renamed).is_signed_by(GO)


def test_the_cosignature_of_a_public_witness() -> None:
    note = Note.parse(HORSES)
    assert note.cosigned_at(NAVIGLI) == 1785704691
    assert Note.parse(HORSES.replace("185550722", "185550723")).cosigned_at(NAVIGLI) is None
    assert note.cosigned_at(PublicKey("another.name", NAVIGLI.raw)) is None and not note.is_signed_by(NAVIGLI)


def test_sigstore_reads_and_verifies_our_notes() -> None:
    from sigstore._internal.rekor.checkpoint import SignedCheckpoint
    from sigstore._internal.trust import Keyring
    from sigstore.errors import VerificationError
    from sigstore_models.common.v1 import PublicKey as TheirKey
    from sigstore_models.common.v1 import PublicKeyDetails

    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    der = Ed25519PublicKey.from_public_bytes(LOG.public.raw).public_bytes(*form)
    ring: Any = Keyring([TheirKey(raw_bytes=base64.b64encode(der), key_details=PublicKeyDetails.PKIX_ED25519)])
    for size in range(100):
        head = Head("example.org/ledger", size, bytes([size]) * 32, ("more",) * (size % 3))
        note = Note(head.text).signed(LOG).cosigned(CLINIC, 1_700_000_000 + size)
        theirs = SignedCheckpoint.from_text(str(note))
        assert (theirs.checkpoint.origin, theirs.checkpoint.log_size) == (head.origin, size)
        assert theirs.checkpoint.log_hash == head.root.hex() and theirs.checkpoint.other_content == list(head.more)
        theirs.signed_note.verify(ring, LOG.public.key_id())  # type: ignore[arg-type]
        with pytest.raises(VerificationError):
            changed = str(note).replace(f"\n{size}\n", f"\n{size + 1}\n", 1)
            SignedCheckpoint.from_text(changed).signed_note.verify(ring, LOG.public.key_id())  # type: ignore[arg-type]


@given(
    st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32), st.lists(st.text("ab é—", min_size=1), max_size=3)
)
def test_notes_come_back_as_they_were(number: int, root: bytes, more: list[str]) -> None:
    head = Head("example.org/ledger", number, root, tuple(more))
    note = Note(head.text).signed(LOG).cosigned(CLINIC, number)
    back = Note.parse(str(note).encode())
    assert back == note and back.head == head
    assert back.is_signed_by(LOG.public) and back.cosigned_at(CLINIC.public) == number


def test_signing_again_gives_the_same_bytes() -> None:
    assert str(Note(HEAD.text).signed(LOG)) == str(Note(HEAD.text).signed(LOG))
    assert len(str(Note(HEAD.text).signed(LOG)).encode()) < 200


def test_unknown_signatures_are_kept_and_forged_ones_spoil() -> None:
    note = (
        Note(HEAD.text).signed(PrivateKey("stranger")).signed(LOG).cosigned(PrivateKey("other"), 5).cosigned(CLINIC, 9)
    )
    assert str(Note.parse(str(note))) == str(note) and len(note.signatures) == 4
    assert note.is_signed_by(LOG.public) and note.cosigned_at(CLINIC.public) == 9
    assert note.cosigned(CLINIC, 4).cosigned_at(CLINIC.public) == 4
    thief = PrivateKey(LOG.name)
    assert not note.is_signed_by(thief.public) and note.signed(thief).is_signed_by(LOG.public)
    bad = note.signatures[1], note.signatures[3]
    for line, spoiled in zip(bad, ("signed", "cosigned"), strict=True):
        forged = type(line)(line.name, line.key_id, line.blob[:-1] + bytes([line.blob[-1] ^ 1]))
        with_both = Note(note.text, (*note.signatures, forged))
        assert with_both.is_signed_by(LOG.public) == (spoiled != "signed")
        assert (with_both.cosigned_at(CLINIC.public) is None) == (spoiled == "cosigned")


def test_no_signature_of_one_kind_passes_for_another() -> None:
    note = Note(HEAD.text).signed(CLINIC)
    assert note.cosigned_at(CLINIC.public) is None and not Note(HEAD.text).cosigned(CLINIC, 1).is_signed_by(
        CLINIC.public
    )
    for origin in ("cosignature/v1", "fedincentive/report/1", "fedincentive/key/1"):
        with pytest.raises(ProvenanceError, match="kept for other signatures"):
            Head(origin, 1, bytes(32))
    assert words("report", {}).startswith(b"fedincentive/report/1\n")


def test_a_thousand_changed_notes_and_cosignatures_fail() -> None:
    draw = random.Random(4)
    note = str(Note(HEAD.text).signed(LOG).cosigned(CLINIC, 1_700_000_000))
    clean = note.encode()
    done = 0
    while done < 1000:
        at, way = draw.randrange(len(clean)), draw.randrange(4)
        swap = bytes([clean[at] ^ 1 << draw.randrange(8)])
        new = [
            clean[:at] + swap + clean[at + 1 :],
            clean[:at] + clean[at + 1 :],
            clean[:at] + swap + clean[at:],
            clean[:at],
        ][way]
        if new == clean:
            continue
        done += 1
        try:
            read = Note.parse(new)
            signed, time = read.is_signed_by(LOG.public), read.cosigned_at(CLINIC.public)
        except ProvenanceError:
            continue
        # a change within one line of a signature leaves the other alone, and never the text
        assert not (signed and time is not None) and (read.text == HEAD.text or not (signed or time is not None))
    for time in range(1_700_000_001, 1_700_001_001):  # the same signature with another time
        line = Note.parse(note).signatures[1]
        moved = type(line)(line.name, line.key_id, time.to_bytes(8, "big") + line.blob[8:])
        assert Note(HEAD.text, (moved,)).cosigned_at(CLINIC.public) is None


LINE = str(Note(HEAD.text).signed(LOG).signatures[0])
ROOT = HEAD.text.split("\n")[2]
MALFORMED = {
    "no signature": HEAD.text + "\n",
    "no empty line": HEAD.text + LINE + "\n",
    "no last end": HEAD.text + "\n" + LINE,
    "carriage return": HEAD.text.replace("\n", "\r\n") + "\n" + LINE + "\n",
    "tab": HEAD.text + "a\tb\n\n" + LINE + "\n",
    "next line": HEAD.text + "a\x85b\n\n" + LINE + "\n",
    "delete": HEAD.text + "a\x7fb\n\n" + LINE + "\n",
    "zero": HEAD.text + "a\0b\n\n" + LINE + "\n",
    "surrogate": HEAD.text + "a\ud800b\n\n" + LINE + "\n",
    "hyphen": HEAD.text + "\n" + LINE.replace("—", "-") + "\n",
    "two spaces": HEAD.text + "\n" + LINE.replace(" ", "  ", 1) + "\n",
    "space at the end": HEAD.text + "\n" + LINE + " \n",
    "wide space in the name": HEAD.text + "\n" + LINE.replace("/", "\u3000", 1) + "\n",
    "plus in the name": HEAD.text + "\n" + LINE.replace("/", "+", 1) + "\n",
    "base64 for the web": HEAD.text + "\n— x " + "-_8" * 8 + "\n",
    "base64 not filled": HEAD.text + "\n" + LINE.rstrip("=") + "\n",
    "base64 in another writing": HEAD.text + "\n— x AAAAAAF=\n",
    "too short": HEAD.text + "\n— x AAAAAA==\n",
    "too long": HEAD.text + "\n— x " + "AAAA" * 4000 + "\n",
    "one key too often": HEAD.text + "\n" + 17 * (LINE + "\n"),
    "text after": HEAD.text + "\n" + LINE + "\nmore\n",
    "only an end": "\n",
    "nothing": "",
    "empty text": "\n\n" + LINE + "\n",
    "huge": "a" * 2**23,
}
NO_HEADS = {
    "two lines": "a\n1\n",
    "leading zero": f"a\n01\n{ROOT}\n",
    "plus": f"a\n+1\n{ROOT}\n",
    "minus": f"a\n-1\n{ROOT}\n",
    "space": f"a\n1 \n{ROOT}\n",
    "underscore": f"a\n1_0\n{ROOT}\n",
    "other digits": f"a\n١\n{ROOT}\n",
    "no size": f"a\n\n{ROOT}\n",
    "too large": f"a\n{2**63}\n{ROOT}\n",
    "endless": f"a\n{'9' * 5000}\n{ROOT}\n",
    "short root": "a\n1\nAAAA\n",
    "other root": f"a\n1\n{ROOT.replace('c=', 'd=')}\n",  # the same bytes in another writing
    "no origin": f"\n1\n{ROOT}\n",
    "empty line": f"a\n1\n{ROOT}\n\nb\n",
    "no end": f"a\n1\n{ROOT}",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_notes(what: str) -> None:
    with pytest.raises(ProvenanceError, match="not a signed note"):
        Note.parse(MALFORMED[what])


@pytest.mark.parametrize("what", NO_HEADS)
def test_malformed_checkpoints(what: str) -> None:
    with pytest.raises(ProvenanceError):
        Head.parse(NO_HEADS[what])


@pytest.mark.parametrize("note", [None, 7, b"\xff", [], {}, ["\n"], b"\xe2\x80"])
def test_what_is_no_text(note: Any) -> None:
    with pytest.raises(ProvenanceError):
        Note.parse(note)


@pytest.mark.parametrize("time", [-1, 2**63, 1.0, True, None, "1"])
def test_times_that_are_none(time: Any) -> None:
    with pytest.raises(ProvenanceError, match="time of a cosignature"):
        Note(HEAD.text).cosigned(CLINIC, time)
