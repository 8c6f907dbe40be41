"""Words about keys: a rotation, signed by the old and the new key, and a revocation, signed by the recovery key.

    {"said": {"agent": NAME, "change": "rotate", "new": VKEY, "old": VKEY},
     "signatures": {"new": BASE64, "old": BASE64}}

    {"said": {"agent": NAME, "by": VKEY, "change": "revoke", "key": VKEY, "reason": TEXT},
     "signatures": {"by": BASE64}}

Each signature is over "fedincentive/key/1\\n" and the canonical JSON of what is said; `reason` may be left out. A file
holds one statement in canonical JSON and a newline. It counts from its place in the ledger on, not from a date. A run
whose keys changed has an entry for each statement, `key-N` by rule key/1, with {"statement": {...}, "terms": DIGEST}.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any

from ..entry import canonical
from ..errors import ProvenanceError
from ..files import replace, sync_directory
from .keys import KeyRing, PrivateKey, PublicKey, create, from_base64, name_in_files, read_public, words

RECOVERY = "recovery"  # the name of the key that may revoke the agents' keys; a run may have none
RULE, PREFIX = "key/1", "key-"  # of the entries that keep statements
SIGNERS = {"rotate": {"old", "new"}, "revoke": {"by"}}
KEYS = {"rotate": {"old", "new"}, "revoke": {"by", "key"}}


def make_statement(said: dict[str, str], **signers: PrivateKey) -> str:
    signatures = {role: base64.b64encode(key.sign(words("key", said))).decode() for role, key in signers.items()}
    return canonical({"said": said, "signatures": signatures}) + "\n"


def read_statement(text: str, trusted: PublicKey) -> dict[str, Any]:
    """What a statement says, when everyone signed who must; ProvenanceError otherwise.

    `trusted` is the key known so far for a rotation (it is the old one), the recovery key for a revocation.
    """
    try:
        held = json.loads(text)
        said, signatures = held["said"], held["signatures"]
        change = said["change"]
        keys = {role: PublicKey.parse(said[role]) for role in KEYS[change]}
        blobs = {role: from_base64(signatures[role]) for role in SIGNERS[change]}
        known = {"agent", "change", *KEYS[change], *({"reason"} & set(said) if change == "revoke" else ())}
        if (
            set(said) != known
            or set(signatures) != set(blobs)
            or any(type(value) is not str for value in said.values())
        ):
            raise ValueError("it has other fields than it should")
        if canonical(held) + "\n" != text:
            raise ValueError("it is not in canonical form")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ProvenanceError(f"This is not a statement about a key: {error}") from error
    own = [key for role, key in keys.items() if role != "by"]
    if any(key.name != said["agent"] for key in own) or len({key.raw for key in keys.values()}) < len(keys):
        raise ProvenanceError(f"The statement for {said['agent']!r} names another's key, or one key twice.")
    if keys["old" if change == "rotate" else "by"] != trusted:
        raise ProvenanceError(f"The statement for {said['agent']!r} is not by {trusted.vkey}.")
    for role, blob in blobs.items():
        if not keys[role].verify(blob, words("key", said)):
            raise ProvenanceError(f"The {role} key did not sign the statement for {said['agent']!r}.")
    return said


class KeysInForce:
    """Which key of each agent counts in which round of a run: its terms' one, until a statement changes it."""

    def __init__(self, keys: Mapping[str, str], recovery: str | None = None) -> None:
        self.recovery = recovery
        self._since: dict[str, list[tuple[int, PublicKey | None]]] = {}
        for agent, vkey in keys.items():
            with suppress(ProvenanceError):
                self._since[agent] = [(0, PublicKey.parse(vkey))]

    def at(self, agent: str, number: int) -> PublicKey | None:
        """None where there is none: the terms do not name one, or it was revoked."""
        return next((key for since, key in reversed(self._since.get(agent, ())) if since <= number), None)

    def all_of(self, agent: str) -> list[PublicKey]:
        """Every key that it has had."""
        return [key for _, key in self._since.get(agent, ()) if key is not None]

    def change(self, statement: Mapping[str, Any], number: int) -> None:
        """Take a statement in, from this round on; ProvenanceError where it changes nothing here."""
        agent, change = statement["said"]["agent"], statement["said"]["change"]
        known = self._since.get(agent, [(0, None)])[-1][1]
        if known is None:
            raise ProvenanceError(f"{agent!r} has no key in this run that could be changed.")
        if change != "rotate" and self.recovery is None:
            raise ProvenanceError(f"The terms name no recovery key, which alone could revoke the key of {agent!r}.")
        trusted = known if change == "rotate" else PublicKey.parse(self.recovery or "")
        said = read_statement(canonical(statement) + "\n", trusted)
        if change == "revoke" and said["key"] != known.vkey:
            raise ProvenanceError(f"The key that is revoked is not the one that {agent!r} has now, {known.vkey}.")
        new = PublicKey.parse(said["new"]) if change == "rotate" else None
        if new in self.all_of(agent):
            raise ProvenanceError(f"{agent!r} had the key {said['new']} before: a key that was replaced stays so.")
        self._since[agent].append((number, new))

    def follow(self, statements: Sequence[str], number: int) -> list[dict[str, Any]]:
        """Take in those of these statements that change a key of this run, each after the one it follows from."""
        taken, left = list[dict[str, Any]](), list(statements)
        for _ in statements:
            for text in left:
                try:
                    self.change(statement := json.loads(text), number)
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                    continue
                taken.append(statement)
                left.remove(text)
                break
        return taken


def rotate(name: str, directory: str | Path) -> tuple[PrivateKey, Path]:
    """A new key in the place of the old one, which is kept as NAME.key.old-ID, and the file with the statement.

    After a crash both private keys are there, and calling it again ends what was begun.
    """
    stem = Path(directory) / name_in_files(name)
    public, private = Path(f"{stem}.pub"), Path(f"{stem}.key")
    old = PrivateKey.read(name, private)
    if read_public(public) != old.public:
        raise ProvenanceError(
            f"{public} is not the public half of {private}; `fedincentive keys show` says what to do."
        )
    old_id = old.public.key_id().hex()
    statement = Path(f"{stem}.rotated-{old_id}.json")
    if statement.exists():  # an earlier call ended before its key was in place
        new_id = PublicKey.parse(read_statement(statement.read_text(), old.public)["new"]).key_id().hex()
        new = PrivateKey.read(name, coming := Path(f"{private}.new-{new_id}"))
    else:
        new = PrivateKey(name)
        new.write(coming := Path(f"{private}.new-{new.public.key_id().hex()}"))
        said = {"agent": name, "change": "rotate", "new": new.public.vkey, "old": old.public.vkey}
        create(statement, make_statement(said, old=old, new=new).encode(), 0o644)
    with suppress(FileExistsError):
        os.link(private, f"{private}.old-{old_id}")
    os.replace(coming, private)
    replace(public, lambda file: file.write(f"{new.public.vkey}\n".encode()))
    return new, statement


def revoke(name: str, directory: str | Path, recovery: PrivateKey, why: str = "") -> Path:
    """The file with the statement that a key counts no more; its own files get other endings and are not read again."""
    stem = Path(directory) / name_in_files(name)
    key = read_public(Path(f"{stem}.pub"))
    said = {"agent": name, "by": recovery.public.vkey, "change": "revoke", "key": key.vkey}
    if key.raw == recovery.public.raw:
        raise ProvenanceError(f"The key of {name!r} is the recovery key itself: another key must revoke it.")
    if why:
        said["reason"] = why
    ending = f"revoked-{key.key_id().hex()}"
    statement = Path(f"{stem}.{ending}.json")
    if not statement.exists():  # else an earlier call ended before the files got their endings
        create(statement, make_statement(said, by=recovery).encode(), 0o644)
    for file in (f"{stem}.key", f"{stem}.pub"):
        with suppress(FileNotFoundError):
            os.rename(file, f"{file}.{ending}")
    sync_directory(statement.parent)
    return statement


def known_keys(directory: str | Path) -> dict[str, list[PublicKey]]:
    """Everybody's key in a folder, and the ones it replaced by the rotations that are kept there."""
    folder = Path(directory)
    keys = {name: [key] for name, key in KeyRing.read(folder).public.items()}
    for name, known in keys.items():
        files = sorted(folder.glob(f"{escape(name_in_files(name))}.rotated-*.json"))
        said = [_rotation(file) for file in files]
        while older := [old for old, new in said if new in known and old not in known]:
            known.extend(older)
    for file in sorted(folder.glob("*.revoked-*.json")):
        if (key := _revoked(file, keys)) is not None and key not in keys.setdefault(key.name, []):
            keys[key.name].append(key)
    return keys


def _revoked(file: Path, keys: Mapping[str, Sequence[PublicKey]]) -> PublicKey | None:
    """The key that the recovery key of this folder revoked: it was its owner's until then."""
    text = file.read_text("utf-8", errors="replace")
    try:
        by = PublicKey.parse(json.loads(text)["said"]["by"])
        key = PublicKey.parse(read_statement(text, by)["key"])
        return key if by.name == RECOVERY and by in keys.get(RECOVERY, ()) else None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ProvenanceError(
            f"{file} does not prove that a key was revoked: {error} Remove it, or ask for it again."
        ) from error


def _rotation(file: Path) -> tuple[PublicKey, PublicKey]:
    """The old and the new key of a rotation, which both signed."""
    text = file.read_text("utf-8", errors="replace")
    try:
        old = PublicKey.parse(json.loads(text)["said"]["old"])
        return old, PublicKey.parse(read_statement(text, old)["new"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ProvenanceError(
            f"{file} does not prove that a key was rotated: {error} Remove it, or ask for it again."
        ) from error
