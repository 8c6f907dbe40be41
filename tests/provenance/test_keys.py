"""Keys and their folder: safe names, closed files, and words for whatever is wrong."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from fedincentive.cli import main
from fedincentive.errors import ProvenanceError
from fedincentive.provenance import keys
from fedincentive.provenance.keys import KeyRing, PrivateKey, PublicKey, make, name_in_files
from fedincentive.provenance.statements import make_statement, read_statement

PETER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"  # of Go's sumdb/note
NAVIGLI = (
    "witness.navigli.sunlight.geomys.org+a3e00fe2+BNy/co4C1Hn1p+INwJrfUlgz7W55dSZReusH/GhUhJ/G"  # a public witness
)


def test_a_key_signs_and_its_public_half_verifies() -> None:
    key = PrivateKey("clinic")
    signature = key.sign(b"words")
    assert len(signature) == 64 and key.public.verify(signature, b"words")
    assert not key.public.verify(signature, b"other words") and not PrivateKey("clinic").public.verify(
        signature, b"words"
    )
    for wrong in (b"", signature[:-1], signature + b"\0", None, "x" * 64):
        assert not key.public.verify(wrong, b"words")  # type: ignore[arg-type]


def test_verifier_keys_of_others() -> None:
    assert PublicKey.parse(PETER).vkey == PETER
    witness = PublicKey.parse(NAVIGLI)
    assert witness.key_id(keys.COSIGNATURE).hex() == "a3e00fe2" and PublicKey.parse(witness.vkey) == witness


def test_no_part_and_no_change_of_a_verifier_key_is_one() -> None:
    parts = {PETER[i:j] for i in range(len(PETER)) for j in range(i, len(PETER) + 1)} - {PETER}
    changed = {PETER[:i] + chr(ord(c) + d) + PETER[i + 1 :] for i, c in enumerate(PETER) for d in (-1, 1)}
    for text in [*parts, *changed, PETER + "\n", " " + PETER, PETER + "=", "é" + PETER, None, 7, b"x"]:
        with pytest.raises(ProvenanceError):
            PublicKey.parse(text)  # type: ignore[arg-type]


names = st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), min_size=1, max_size=60)


@given(names)
def test_names_come_back_from_files_and_notes(name: str) -> None:
    if len(name.encode()) * 3 <= keys.FILE_NAME:
        stem = name_in_files(name)
        assert keys.name_from_files(stem) == name and stem.isascii() and "/" not in stem and stem[0] != "."
    text = keys.name_in_notes(name)
    assert keys.name_from_notes(text) == name and not set(text) & set(" +")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, "\u2028", None, 7])
def test_names_that_are_none(name: object) -> None:
    with pytest.raises(ProvenanceError, match="must be printable"):
        PrivateKey(name)  # type: ignore[arg-type]


def test_files_are_closed_whole_and_never_overwritten(tmp_path: Path) -> None:
    for name in ("clinic", "St. Mary / Röntgen", "..", "a%20b", "a b"):
        key, is_new = make(name, tmp_path / "keys")
        file = tmp_path / "keys" / f"{name_in_files(name)}.key"
        assert is_new and stat.S_IMODE(file.stat().st_mode) == 0o600
        before = file.read_bytes()
        with pytest.raises(ProvenanceError, match="has a key already"):
            make(name, tmp_path / "keys")
        with pytest.raises(ProvenanceError, match="not overwritten"):
            PrivateKey(name).write(file)
        assert file.read_bytes() == before
    assert len(os.listdir(tmp_path / "keys")) == 10 and os.listdir(tmp_path) == ["keys"]
    ring = KeyRing.read(tmp_path / "keys", need=["clinic", ".."], own=["a b"])
    assert ring.public.keys() == ring.private.keys() == {"clinic", "St. Mary / Röntgen", "..", "a%20b", "a b"}
    assert ring.private["clinic"].sign(b"x") and ring.private["a b"].public == ring.public["a b"]


def test_a_key_is_closed_from_its_first_moment_whatever_the_umask(tmp_path: Path) -> None:
    """The folder is watched while keys are made with an open umask: no file with a secret is ever open to others."""
    code = f"""
import os, threading
from pathlib import Path
from fedincentive.provenance.keys import make
os.umask(0)
folder, modes, ended = Path({str(tmp_path)!r}), [], False
def watch():
    while not ended:
        for file in folder.iterdir():
            try:
                if b"PRIVATE" in file.read_bytes():
                    modes.append(oct(file.stat().st_mode & 0o777))
            except FileNotFoundError:
                pass
thread = threading.Thread(target=watch)
thread.start()
for k in range(50):
    make(f"k{{k}}", folder)
ended = True
thread.join()
print(len(modes) > 50, set(modes))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True {'0o600'}\n"


def test_secrets_are_in_no_text(tmp_path: Path) -> None:
    key, _ = make("clinic", tmp_path)
    secret = key._key.private_bytes_raw()
    for text in (repr(key), str(key), repr(KeyRing.read(tmp_path).__dict__), repr(vars(PublicKey)), str(key.public)):
        assert secret.hex() not in text and repr(secret)[2:-1] not in text
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not copied"):
            copying(key)
    pem = (tmp_path / "clinic.key").read_text()
    broken = pem.replace("MC4", "MC5")
    (tmp_path / "clinic.key").write_text(broken)
    with pytest.raises(ProvenanceError, match="not an Ed25519 key in PEM") as caught:
        KeyRing.read(tmp_path)
    told = repr(caught.value) + repr(caught.value.__cause__) + repr(caught.value.__context__)
    assert broken.split("\n")[1] not in told and caught.value.__context__ is None


def damage(folder: Path, how: str) -> None:
    private, public = folder / "clinic.key", folder / "clinic.pub"
    if how == "open":
        private.chmod(0o640)
    elif how == "other name inside":
        public.rename(folder / "surgery.pub")
    elif how == "one key twice":
        (folder / "surgery.pub").write_text(PublicKey("surgery", PrivateKey.read("clinic", private).public.raw).vkey)
    elif how == "public of another":
        public.write_text(PrivateKey("clinic").public.vkey + "\n")
    elif how == "two lines":
        public.write_text(public.read_text() * 2)
    elif how == "no text":
        public.write_bytes(b"\xff\xfe")
    elif how == "public is gone":
        public.unlink()
    elif how == "private is gone":
        private.unlink()
    elif how == "a folder":
        private.unlink()
        private.mkdir()
    elif how == "a pipe":
        private.unlink()
        os.mkfifo(private, 0o600)
    elif how == "a loop":
        private.unlink()
        private.symlink_to(private.name)
    elif how == "too large":
        private.write_bytes(b"x" * 5000)
    elif how == "RSA":
        other = rsa.generate_private_key(65537, 2048)
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        private.write_bytes(other.private_bytes(*form))
    elif how == "a strange name":
        public.rename(folder / "a b.pub")
    elif how == "small order":
        raw = (1).to_bytes(32, "little")
        key_id = keys.sha256(b"clinic\n\x01" + raw).hexdigest()[:8]
        public.write_text(f"clinic+{key_id}+{keys.base64.b64encode(bytes([1]) + raw).decode()}\n")
    elif how == "nothing":
        shutil.rmtree(folder)


DAMAGES = {
    "open": "private key of 'clinic'.*may be read by others.*chmod 600 '.*clinic.key'",
    "other name inside": "surgery.pub should hold the key of 'surgery' but holds that of 'clinic'; rename it",
    "one key twice": "'clinic' and 'surgery' have one and the same key.*each needs its own",
    "public of another": "clinic.pub is not the public half.*remove .*clinic.pub and run `fedincentive keys new",
    "two lines": "clinic.pub, the public key of 'clinic', cannot be used: it must be one line",
    "no text": "clinic.pub, the public key of 'clinic', cannot be used",
    "public is gone": "public key of 'clinic' is missing: .*clinic.pub is not there; run `fedincentive keys new",
    "private is gone": "private key of 'clinic' is missing: .*clinic.key is not there. Make it with",
    "a folder": "private key of 'clinic', .*clinic.key, (cannot be read: Is a directory|is not a file)",
    "a pipe": "private key of 'clinic', .*clinic.key, is not a file",
    "a loop": "private key of 'clinic', .*clinic.key, cannot be read: Too many levels",
    "too large": "clinic.key, is larger than any key's file",
    "RSA": "clinic.key, is not an Ed25519 key",
    "a strange name": "'a b' is not a name as key files have it; 'a%20b' would be",
    "small order": "clinic.pub, the public key of 'clinic', cannot be used: .*small order.*keys new",
    "nothing": "folder of keys .* cannot be read: No such file or directory. Make it with `fedincentive keys new`",
}


@pytest.mark.parametrize("how", DAMAGES)
def test_what_is_wrong_with_a_folder_is_said_with_its_remedy(tmp_path: Path, how: str) -> None:
    make("clinic", tmp_path / "keys")
    damage(tmp_path / "keys", how)
    with pytest.raises(ProvenanceError, match=DAMAGES[how]):
        KeyRing.read(tmp_path / "keys", own=["clinic"])
    if how != "private is gone":  # a folder without one's own private keys is fine to show
        shown = run("keys", "show", tmp_path / "keys")
        assert shown.exit_code == 1 and "Traceback" not in shown.output and shown.output.startswith("Error: ")


def test_a_needed_key_that_is_missing(tmp_path: Path) -> None:
    make("clinic", tmp_path)
    with pytest.raises(ProvenanceError, match="public key of 'a/b' is missing: .*a%2Fb.pub .* ask 'a/b' for it"):
        KeyRing.read(tmp_path, need=["a/b"])


def run(*words: object) -> Result:
    return CliRunner().invoke(main, list(map(str, words)))


def test_the_commands(tmp_path: Path) -> None:
    made = run("keys", "new", "clinic", "St. Mary", "recovery", "--dir", tmp_path)
    assert made.exit_code == 0 and made.output.split("\n")[1].startswith("St.%20Mary+")
    (tmp_path / "St.%20Mary.key").unlink()
    shown = run("keys", "show", tmp_path)
    assert [line[:3] for line in shown.output.splitlines()] == ["   ", "own", "own"]
    again = run("keys", "new", "clinic", "--dir", tmp_path)
    assert again.exit_code == 1 and "not overwritten" in again.output
    (tmp_path / "clinic.pub").unlink()
    assert "written again" in run("keys", "new", "clinic", "--dir", tmp_path).output
    assert run("keys", "show", tmp_path).output == shown.output
    for command in (["new", "a\nb"], ["rotate", "nobody"], ["revoke", "nobody", "--by", "recovery"], ["revoke", "x"]):
        failed = run("keys", *command, "--dir", tmp_path)
        assert failed.exit_code in (1, 2) and failed.exception.__class__ is SystemExit and "Error" in failed.output


def test_a_rotation_is_signed_by_both_keys_and_keeps_the_old_one(tmp_path: Path) -> None:
    old, _ = make("a b", tmp_path)
    assert run("keys", "rotate", "a b", "--dir", tmp_path).exit_code == 0
    ring = KeyRing.read(tmp_path, own=["a b"])
    new = ring.private["a b"]
    old_id = old.public.key_id().hex()
    said = read_statement((tmp_path / f"a%20b.rotated-{old_id}.json").read_text(), old.public)
    assert said == {"agent": "a b", "change": "rotate", "old": old.public.vkey, "new": new.public.vkey}
    kept = tmp_path / f"a%20b.key.old-{old_id}"
    assert PrivateKey.read("a b", kept).public == old.public != new.public
    assert sorted(os.listdir(tmp_path)) == ["a%20b.key", kept.name, "a%20b.pub", f"a%20b.rotated-{old_id}.json"]


@pytest.mark.parametrize("call", range(1, 8))
def test_a_rotation_that_was_killed_is_ended_by_the_next(tmp_path: Path, call: int) -> None:
    """The process dies before its call-th change of a name; both private keys are there, and the next call works."""
    old, _ = make("clinic", tmp_path)
    code = f"""
import os, signal, sys
calls = 0
def watch(event, arguments):
    global calls
    if event in ("os.rename", "os.link", "os.remove") and (calls := calls + 1) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
from fedincentive.provenance.statements import rotate
sys.addaudithook(watch)
rotate("clinic", {str(tmp_path)!r})
"""
    died = subprocess.run([sys.executable, "-c", code]).returncode == -9
    if PrivateKey.read("clinic", tmp_path / "clinic.key").public == old.public:
        assert run("keys", "rotate", "clinic", "--dir", tmp_path).exit_code == 0
    elif keys.read_public(tmp_path / "clinic.pub") == old.public:  # what is left to do is said
        message = run("keys", "show", tmp_path).output
        assert "clinic.pub and run `fedincentive keys new 'clinic'" in message
        (tmp_path / "clinic.pub").unlink()
        assert run("keys", "new", "clinic", "--dir", tmp_path).exit_code == 0
    new = KeyRing.read(tmp_path, own=["clinic"]).private["clinic"]
    (statement,) = tmp_path.glob("*.json")
    assert read_statement(statement.read_text(), old.public)["new"] == new.public.vkey
    assert PrivateKey.read("clinic", next(tmp_path.glob("clinic.key.old-*"))).public == old.public
    assert died


def test_a_revocation_is_signed_by_the_recovery_key(tmp_path: Path) -> None:
    stolen, _ = make("clinic", tmp_path)
    recovery, _ = make("recovery", tmp_path)
    assert run("keys", "revoke", "clinic", "--by", "recovery", "--reason", "stolen", "--dir", tmp_path).exit_code == 0
    (statement,) = tmp_path.glob("*.json")
    said = read_statement(statement.read_text(), recovery.public)
    assert (said["agent"], said["key"], said["reason"]) == ("clinic", stolen.public.vkey, "stolen")
    assert set(KeyRing.read(tmp_path).public) == {"recovery"}
    assert run("keys", "new", "clinic", "--dir", tmp_path).exit_code == 0
    own = run("keys", "revoke", "recovery", "--by", "recovery", "--dir", tmp_path)
    assert own.exit_code == 1 and "another key must revoke it" in own.output


def test_forged_statements_are_refused() -> None:
    old, new, thief, recovery = (PrivateKey(name) for name in ("clinic", "clinic", "clinic", "recovery"))
    other = PrivateKey("surgery")
    said = {"agent": "clinic", "change": "rotate", "new": new.public.vkey, "old": old.public.vkey}
    revoked = {"agent": "clinic", "by": recovery.public.vkey, "change": "revoke", "key": old.public.vkey}
    good, also = make_statement(said, old=old, new=new), make_statement(revoked, by=recovery)
    assert read_statement(good, old.public) == said and read_statement(also, recovery.public) == revoked
    forged = [
        (good, new.public),  # not the key known so far
        (make_statement(said, old=thief, new=new), old.public),
        (make_statement(said, old=old, new=thief), old.public),
        (make_statement(said, old=old), old.public),
        (make_statement({**said, "new": thief.public.vkey}, old=thief, new=thief), old.public),
        (make_statement({**said, "agent": "surgery"}, old=old, new=new), old.public),
        (make_statement({**said, "new": other.public.vkey}, old=old, new=other), old.public),
        (make_statement({**said, "new": old.public.vkey}, old=old, new=old), old.public),
        (make_statement({**said, "reason": "x"}, old=old, new=new), old.public),
        (make_statement({**revoked, "by": thief.public.vkey}, by=thief), recovery.public),
        (make_statement(revoked, by=thief), recovery.public),
        (good.replace(",", ", ", 1), old.public),
        (good.rstrip("\n"), old.public),
    ]
    for text, trusted in [
        *forged,
        *((text, old.public) for text in ("", "[]", "null", "{}", "[" * 100000, '{"said":1}')),
    ]:
        with pytest.raises(ProvenanceError):
            read_statement(text, trusted)
