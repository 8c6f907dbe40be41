"""Keys for tests: everybody's in one ring, as on a machine that plays all parts, or in folders as sites have them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedincentive.identity import CENTER
from fedincentive.provenance.keys import KeyRing, PrivateKey, make


def ring_of(agents: Iterable[str]) -> KeyRing:
    private = [PrivateKey(name) for name in (CENTER, *agents)]
    return KeyRing([key.public for key in private], private)


def folder_of(path: Path, agents: Iterable[str]) -> Path:
    """A folder with all keys, the center's too."""
    for name in (CENTER, *agents):
        make(name, path)
    return path
