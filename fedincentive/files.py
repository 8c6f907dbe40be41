"""Files that are whole or as they were before, whatever happens to the process that writes them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from .errors import FedIncentiveError

PARTIAL = ".fedincentive-*.partial"  # a file that is not whole yet


def unique(folder: Path) -> Path:
    """A name there that nobody else takes."""
    return folder / PARTIAL.replace("*", secrets.token_hex(8))


def replace(path: Path, write: Callable[[BinaryIO], Any], *, durable: bool = True) -> None:
    """Write a file so that after a crash either the old or the new one is there, whole.

    A link stays and what it leads to is replaced; a pipe or a device is written to.
    """
    if path.exists() and (not path.is_file() or path.is_relative_to("/dev")):
        with open(path, "wb") as file:
            write(file)
        return
    target = Path(os.path.realpath(path))
    partial = unique(target.parent)
    try:
        with open(partial, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # the name that was asked for
        raise
    if durable:
        sync_directory(target.parent)


def sync_directory(path: Path) -> None:
    """Force the names in a directory to the disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def keep_ledgers(out: Path, ledgers: Iterable[str]) -> None:
    """Raises where writing to `out` would destroy one of the ledgers, or a part of it."""
    for ledger in ledgers:
        for part in (ledger, f"{ledger}-wal", f"{ledger}-shm"):
            if os.path.exists(part) and os.path.exists(out) and os.path.samefile(part, out):
                raise FedIncentiveError(f"{out} is the ledger {ledger} itself: write elsewhere.")
