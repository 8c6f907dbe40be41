"""Ed25519 keys with names: who signed, and the folder that holds everybody's public keys and one's own private ones.

    NAME.key   PKCS#8 PEM, which only its owner may read (0600); it never leaves the machine
    NAME.pub   one line, a C2SP signed-note verifier key:  name+8 hex digits+base64(type, 32 bytes of key)

In file names everything but ASCII letters, digits and _ - ~ . is percent-encoded; inside verifier keys only the
space, + and %, which signed notes do not allow in names.
"""

from __future__ import annotations

import base64
import os
import re
import stat
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ..entry import NAME_LENGTH, canonical
from ..errors import ProvenanceError
from ..files import reason, sync_directory, unique
from . import rfc8032

SIGNATURE, COSIGNATURE = 0x01, 0x04  # C2SP's types: Ed25519 over a note, and over a checkpoint with the time
FILE_NAME = 200  # bytes of a name in a file name; systems allow 255 with the ending
LARGEST_FILE = 4096  # bytes of a key's file


def words(kind: str, said: Any) -> bytes:
    """The bytes that are signed for a statement of a kind; no signature of one kind can pass for another's.

    >>> words("report", {"s": 2, "agent": "a"})
    b'fedincentive/report/1\\n{"agent":"a","s":2}'
    """
    return f"fedincentive/{kind}/1\n{canonical(said)}".encode("ascii")


def check_name(name: str) -> str:
    if type(name) is not str or not name or not name.isprintable() or len(name) > NAME_LENGTH:
        raise ProvenanceError(f"The name {str(name)[:40]!r} must be printable and have 1 to {NAME_LENGTH} characters.")
    return name


def name_in_notes(name: str) -> str:
    """A name as signed notes allow it.

    >>> name_in_notes("St. Mary + 1/2")
    'St.%20Mary%20%2B%201/2'
    """
    return check_name(name).replace("%", "%25").replace(" ", "%20").replace("+", "%2B")


def name_from_notes(text: str) -> str:
    name = text.replace("%20", " ").replace("%2B", "+").replace("%25", "%")
    if name_in_notes(name) != text:
        raise ProvenanceError(f"The key's name {text[:80]!r} is not written as names in notes are.")
    return name


def name_in_files(name: str) -> str:
    """A name as the part of a file's name before the ending.

    >>> name_in_files("../clinic é"), name_from_files(name_in_files("../clinic é"))
    ('%2E.%2Fclinic%20%C3%A9', '../clinic é')
    """
    text = quote(check_name(name), safe="")
    text = "%2E" + text[1:] if text.startswith(".") else text
    if len(text) > FILE_NAME:
        raise ProvenanceError(f"The name {name[:40]!r}... is too long for a key's file; take a shorter one.")
    return text


def name_from_files(text: str) -> str:
    name = unquote(text, errors="replace")
    if name_in_files(name) != text:
        raise ProvenanceError(f"{text!r} is not a name as key files have it; {name_in_files(name)!r} would be.")
    return name


@dataclass(frozen=True)
class PublicKey:
    """A name and its Ed25519 public key. A key that anybody can sign for cannot be made."""

    name: str
    raw: bytes

    def __post_init__(self) -> None:
        check_name(self.name)
        if rfc8032.key_point(self.raw) is None:
            raise ProvenanceError(
                f"The public key of {self.name!r} is not a safe Ed25519 key (not on the curve, of small order or not "
                "in canonical form): ask its owner to make a new one with `fedincentive keys new`."
            )

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Whether the key's owner signed the message."""
        if type(signature) is not bytes or len(signature) != 64:
            return False
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    @cached_property
    def _key(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.raw)

    def __reduce__(self) -> tuple[type[PublicKey], tuple[str, bytes]]:
        return PublicKey, (self.name, self.raw)  # the library's own object is not copied

    @cached_property
    def in_notes(self) -> str:
        return name_in_notes(self.name)

    @cached_property
    def line_start(self) -> str:
        """How the key's lines in signed notes begin."""
        return f"— {self.in_notes} "

    @cached_property
    def _ids(self) -> dict[int, bytes]:
        start = self.in_notes.encode() + b"\n"
        return {kind: sha256(start + bytes([kind]) + self.raw).digest()[:4] for kind in (SIGNATURE, COSIGNATURE)}

    def key_id(self, kind: int = SIGNATURE) -> bytes:
        """The four bytes by which signed notes refer to the key."""
        return self._ids[kind]

    @property
    def vkey(self) -> str:
        """The key as one line to give to others."""
        key = base64.b64encode(bytes([SIGNATURE]) + self.raw).decode()
        return f"{self.in_notes}+{self.key_id().hex()}+{key}"

    @classmethod
    def parse(cls, vkey: str) -> PublicKey:
        """The key that a line says; a witness's own line (type 4) is one too.

        >>> PublicKey.parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW").name
        'PeterNeumann'
        """
        shown = f"The verifier key {str(vkey)[:120]!r}"
        name, _, rest = vkey.partition("+") if isinstance(vkey, str) else ("", "", "")
        key_id, _, text = rest.partition("+")
        try:
            blob = from_base64(text)
        except ValueError:
            raise ProvenanceError(f"{shown} is malformed; it is written name+8 hex digits+base64.") from None
        if len(blob) != 33 or blob[0] not in (SIGNATURE, COSIGNATURE):
            raise ProvenanceError(f"{shown} is not for Ed25519; make one with `fedincentive keys new`.")
        key = cls(name_from_notes(name), blob[1:])
        if key.key_id(blob[0]).hex() != key_id:
            raise ProvenanceError(f"{shown} has a wrong key id: a part of it was changed. Ask its owner for it again.")
        return key


class PrivateKey:
    """A name and its Ed25519 private key, which is never shown, copied into messages or pickled."""

    __slots__ = ("name", "_key", "public")

    def __init__(self, name: str, key: Ed25519PrivateKey | None = None) -> None:
        """The key given, or a new one."""
        self.name = name
        self._key = key or Ed25519PrivateKey.generate()
        self.public = PublicKey(name, self._key.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"PrivateKey({self.name!r})"

    def __reduce__(self) -> str:
        raise TypeError("A private key is not copied or pickled.")

    def sign(self, message: bytes) -> bytes:
        """The signature, 64 bytes; the same message gives the same bytes."""
        return self._key.sign(message)

    def write(self, path: Path) -> None:
        """Into a new file that only its owner may read, whole or not at all."""
        pem = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        create(path, pem, 0o600)

    @classmethod
    def read(cls, name: str, path: Path) -> PrivateKey:
        """From a file that nobody else may read."""
        what = f"The private key of {name!r}, {path},"
        text, mode = read_small(what, path)
        if mode & 0o077:
            raise ProvenanceError(f"{what} may be read by others; close it with: chmod 600 {str(path)!r}")
        try:
            key = serialization.load_pem_private_key(text, password=None)
        except Exception:  # whatever the library says of a secret is not repeated
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise ProvenanceError(
                f"{what} is not an Ed25519 key in PEM; restore it, or make a new one and tell the others."
            )
        return cls(name, key)


class KeyRing:
    """Everybody's public keys, the private keys that this machine owns, and statements by which keys changed."""

    def __init__(
        self, public: Iterable[PublicKey], private: Iterable[PrivateKey] = (), statements: Iterable[str] = ()
    ) -> None:
        self.public = {key.name: key for key in public}
        self.private = {key.name: key for key in private}
        self.statements = tuple(statements)
        self.revoked: frozenset[str] = frozenset()  # whose keys were revoked here and not made anew

    @classmethod
    def read(cls, directory: str | Path, need: Iterable[str] = (), own: Iterable[str] = ()) -> KeyRing:
        """All keys of a folder; those named in `need` must be there, those in `own` with their private halves."""
        folder = Path(directory)
        try:
            found = sorted(os.listdir(folder))
        except OSError as error:
            raise ProvenanceError(
                f"The folder of keys {folder} cannot be read: {reason(error)}. Make it with `fedincentive keys new`."
            ) from error
        public = {f[:-4]: read_public(folder / f) for f in found if f.endswith(".pub")}
        private = [PrivateKey.read(name_from_files(f[:-4]), folder / f) for f in found if f.endswith(".key")]
        changes = [f for f in found if re.search(r"\.(revoked|rotated)-[0-9a-f]{8}\.json$", f)]
        texts = [read_small(f"The statement {folder / f}", folder / f)[0] for f in changes]
        ring = cls(public.values(), private, [text.decode("utf-8", "replace") for text in texts])
        gone = [name_from_files(f.partition(".revoked-")[0]) for f in changes if ".revoked-" in f]
        ring.revoked = frozenset(gone) - set(ring.public)
        ring._check(folder, {*need, *own}, set(own))
        return ring

    def _check(self, folder: Path, need: set[str], own: set[str]) -> None:
        owners: dict[bytes, str] = {}
        for name, key in self.public.items():
            if other := owners.get(key.raw):
                raise ProvenanceError(
                    f"{other!r} and {name!r} have one and the same key in {folder}; each needs its own."
                )
            owners[key.raw] = name
        for name in sorted(own - set(self.private)):
            raise ProvenanceError(
                f"The private key of {name!r} is missing: {folder / name_in_files(name)}.key is not there. Make it "
                f"with `fedincentive keys new {name!r} --dir {str(folder)!r}`, or copy it here."
            )
        for name in sorted((need | set(self.private)) - set(self.public)):
            where = f"{folder / name_in_files(name)}.pub"
            remedy = f"run `fedincentive keys new {name!r} --dir {str(folder)!r}`, which writes it from the private key"
            if name not in self.private:
                remedy = f"ask {name!r} for it and copy it there"
            raise ProvenanceError(f"The public key of {name!r} is missing: {where} is not there; {remedy}.")
        for name, private in self.private.items():
            if private.public != self.public[name]:
                where = f"{folder / name_in_files(name)}.pub"
                raise ProvenanceError(
                    f"{where} is not the public half of the private key of {name!r} beside it. If that key is the "
                    f"right one, remove {where} and run `fedincentive keys new {name!r} --dir {str(folder)!r}`."
                )


def make(name: str, directory: str | Path) -> tuple[PrivateKey, bool]:
    """A key's two files, and whether the key is new; where only the public half is missing, it is written again."""
    stem = Path(directory) / name_in_files(name)
    public, private = Path(f"{stem}.pub"), Path(f"{stem}.key")
    if public.exists():
        raise ProvenanceError(
            f"{name!r} has a key already: {public}. It is not overwritten; `fedincentive keys rotate` replaces it."
        )
    if is_new := not private.exists():
        key = PrivateKey(name)
        public.parent.mkdir(parents=True, exist_ok=True)
        key.write(private)
    else:
        key = PrivateKey.read(name, private)
    create(public, f"{key.public.vkey}\n".encode(), 0o644)
    return key, is_new


def read_public(path: Path) -> PublicKey:
    """The key in NAME.pub, whose name inside must be the file's."""
    name = name_from_files(path.name.removesuffix(".pub"))
    text, _ = read_small(f"The public key of {name!r}, {path},", path)
    try:
        lines = text.decode().split("\n")
        if len(lines) > 2 or lines[1:] not in ([], [""]):
            raise ValueError("it must be one line")
        key = PublicKey.parse(lines[0])
    except ValueError as error:
        raise ProvenanceError(f"{path}, the public key of {name!r}, cannot be used: {error}") from error
    if key.name != name:
        raise ProvenanceError(f"{path} should hold the key of {name!r} but holds that of {key.name!r}; rename it.")
    return key


def read_small(what: str, path: Path) -> tuple[bytes, int]:
    """The bytes of a key's file and who may read it, both of the same file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(file, "rb") as opened:
            mode = os.fstat(file).st_mode
            if not stat.S_ISREG(mode):
                raise ProvenanceError(f"{what} is not a file.")
            text = opened.read(LARGEST_FILE + 1)
    except OSError as error:
        remedy = "Let this user read it (ls -l)."
        if isinstance(error, FileNotFoundError):
            remedy = "Make it with `fedincentive keys new`, or copy it there."
        raise ProvenanceError(f"{what} cannot be read: {reason(error)}. {remedy}") from error
    if len(text) > LARGEST_FILE:
        raise ProvenanceError(f"{what} is larger than any key's file.")
    return text, mode


def create(path: Path, content: bytes, mode: int) -> None:
    """A new file, there whole or not at all, with its rights from the first moment; what exists is never replaced."""
    partial = unique(path.parent)
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)
    except FileExistsError:
        raise ProvenanceError(f"{path} is there already and is not overwritten.") from None
    except OSError as error:
        raise ProvenanceError(f"{path} cannot be written: {reason(error)}.") from error
    finally:
        with suppress(OSError):
            partial.unlink()
    sync_directory(path.parent)


def from_base64(text: str) -> bytes:
    """The bytes of a text that is their only standard encoding; ValueError otherwise."""
    blob = a2b_base64(text)
    if b2a_base64(blob, newline=False).decode() != text:
        raise ValueError("there is another way to write these bytes")
    return blob
