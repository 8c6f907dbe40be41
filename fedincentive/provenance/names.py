"""Pseudonyms: what a ledger calls somebody, and the map that says who it is.

    pseudonym,name,salt
    p-5f0c2ab19d3e4477,St. Mary's Hospital,9b1f...

A pseudonym is "p-" and 16 hexadecimal digits of HMAC-SHA256(salt, name), with 32 random bytes of salt for each name.
The salts are in the map alone: with its line gone nobody can tell, or test, whose the pseudonym was, and nothing in the
ledger changes. Copies and backups of the map have to be erased too.
"""

from __future__ import annotations

import csv
import hmac
import io
import secrets
from collections.abc import Mapping
from pathlib import Path

from ..errors import ProvenanceError
from ..files import reason, replace
from .keys import check_name

TITLES = ["pseudonym", "name", "salt"]


def pseudonym(name: str, salt: bytes) -> str:
    """What a ledger calls `name`.

    >>> pseudonym("St. Mary's", bytes(32))
    'p-7aae6b0d4686e5e8'
    """
    return f"p-{hmac.new(salt, name.encode(), 'sha256').hexdigest()[:16]}"


class Names:
    """The map in a file that only its owner may read."""

    def __init__(self, path: Path, salts: Mapping[str, bytes] | None = None) -> None:
        self.path, self.salts = path, dict(salts or {})  # salts by name

    @classmethod
    def read(cls, path: str | Path) -> Names:
        path = Path(path)
        try:
            mode, text = path.stat().st_mode, path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = reason(error) if isinstance(error, OSError) else "it is not text"
            raise ProvenanceError(f"The map of names {path} cannot be read: {why}.") from error
        if mode & 0o077:
            raise ProvenanceError(
                f"The map of names {path} may be read by others; close it with: chmod 600 {str(path)!r}"
            )
        rows = list(csv.reader(io.StringIO(text)))
        try:
            if rows[:1] != [TITLES] or any(
                pseudonym(name, bytes.fromhex(salt)) != alias for alias, name, salt in rows[1:]
            ):
                raise ValueError("a pseudonym is not that of its name and salt")
        except ValueError as error:
            raise ProvenanceError(f"{path} is not a map of names ({error}): restore it from a backup.") from error
        return cls(path, {name: bytes.fromhex(salt) for _, name, salt in rows[1:]})

    @property
    def pseudonyms(self) -> dict[str, str]:
        """By name."""
        return {name: pseudonym(name, salt) for name, salt in self.salts.items()}

    def account(self, name: str) -> str:
        """What the ledger calls somebody who may be named by either."""
        return self.pseudonyms.get(name, name)

    def name(self, account: str) -> str:
        """Who an account is; itself where the map does not say, or not any more."""
        return {alias: name for name, alias in self.pseudonyms.items()}.get(account, account)

    def new(self, name: str) -> str:
        """The pseudonym of a name, made where there is none."""
        if name not in self.salts:
            self.salts[check_name(name)] = secrets.token_bytes(32)
            self._write()
        return self.pseudonyms[name]

    def erase(self, name: str) -> None:
        if name not in self.salts:
            raise ProvenanceError(f"{name!r} is not in {self.path}; `fedincentive names show` lists who is.")
        del self.salts[name]
        self._write()

    def _write(self) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(TITLES)
        for name, salt in sorted(self.salts.items()):
            writer.writerow([pseudonym(name, salt), name, salt.hex()])
        replace(self.path, lambda file: file.write(text.getvalue().encode()), private=True)
