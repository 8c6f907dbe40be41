"""Files: replaced whole or left as they were, opened as many as the system allows, and why where that fails."""

from __future__ import annotations

import errno
import os
import re
import resource
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

FILES_OF_OTHERS = 64  # descriptors that are left to the rest of the program where there can be more
PARTIAL = ".fedincentive-*.partial"  # a file that is not whole yet
FORMULAS = frozenset("=+-@\t\r\n'\uff1d\uff0b\uff0d\uff20")  # with full-width ones, which some spreadsheets take too
STREAMS = {Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd")}  # what is named here is open already, even a file


def unique(folder: Path) -> Path:
    """A name there that nobody else takes."""
    return folder / PARTIAL.replace("*", secrets.token_hex(8))


def replace(path: Path, write: Callable[[BinaryIO], Any], *, durable: bool = True, private: bool = False) -> None:
    """Write a file so that after a crash either the old or the new one is there, whole.

    It keeps who may read it; a new one that is `private` is for its owner only. A link stays and what it leads to is
    replaced; a pipe or a device is written to.
    """
    if path.exists() and (not path.is_file() or path.parent in STREAMS):
        with open(path, "wb") as file:
            write(file)
        return
    target = Path(os.path.realpath(path))
    partial = unique(target.parent)
    try:
        with open(partial, "xb", opener=private_opener if private else None) as file:
            if target.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error  # the name that was asked for
        raise
    if durable:
        sync_directory(target.parent)


def read_bounded(path: Path, most: int = 64 * 2**20) -> bytes:
    """All of a small file; one that is larger, or a device without end, is an OSError and never fills the memory."""
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes", str(path))
    return data


def private_opener(path: str, flags: int) -> int:
    """For `open`: a file that only its owner may read, whatever the umask."""
    return os.open(path, flags, 0o600)


def sync_directory(path: Path) -> None:
    """Force the names in a directory to the disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def open_file(path: str | Path, flags: int) -> int:
    """A descriptor. Before this process has no more of them, for others either, it asks for twice as many."""
    try:
        file = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno != errno.EMFILE or not more_files():
            raise
        return open_file(path, flags)
    if is_among_the_last(file):
        more_files()
    return file


def is_among_the_last(file: int) -> bool:
    """Whether a descriptor had better be left to the rest of the program."""
    return file + FILES_OF_OTHERS >= resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def more_files() -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * soft if hard == resource.RLIM_INFINITY else min(2 * soft, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):
        return False
    return wanted > soft


def reason(error: OSError) -> str:
    """Why, and what helps where the system's own words do not say it."""
    remedies = {
        errno.EMFILE: "; allow this process more (ulimit -n)",
        errno.ENOSPC: "; make room",
        errno.EDQUOT: "; make room",
    }
    return f"{error.strerror}{remedies.get(error.errno or 0, '')}"


def cell(value: Any) -> Any:
    """A value for a CSV table. A text that a spreadsheet would take for a formula gets an apostrophe before it, and so
    does one that begins with an apostrophe: a reader who takes one leading apostrophe away has every text back.

    >>> cell("=SUM(A1)"), cell("-x"), cell("'t"), cell("ann"), cell(-5)
    ("'=SUM(A1)", "'-x", "''t", 'ann', -5)
    """
    if not isinstance(value, str) or re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", value):
        return value
    starts = value[:1] in FORMULAS or value.lstrip()[:1] in FORMULAS
    return f"'{value}" if value and starts else value
