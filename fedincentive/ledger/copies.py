"""A second copy of a ledger: made while others write, checked before it is kept, and made a ledger again."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from .. import files
from ..entry import Entry
from ..errors import LedgerError
from . import open as open_ledger
from . import read as read_ledger
from . import standalone
from .chain import Checkpoint
from .export import keep_apart, to_jsonl
from .sqlite import FAILURES, SQLiteLedger
from .store import Ledger, Record
from .verify import verify

BESIDE = ("-wal", "-shm", "-journal")


def backup(book: Ledger, out: Path, *, force: bool = False) -> Checkpoint:
    """Write a checked copy: of a SQLite file one file without a log beside it, of another ledger its JSONL export."""
    keep_apart(out, [book.address])
    if out.exists() and not force:
        raise LedgerError(f"{out} exists already: name another file, or replace it with --force.")
    for beside in (Path(f"{out}{end}") for end in BESIDE):
        if beside.exists():
            raise LedgerError(f"{beside} belongs to a ledger that is in use at {out}: name another file.")
    if not out.parent.is_dir():
        raise LedgerError(f"{out} cannot be made: its directory does not exist.")
    place = Path(os.path.realpath(out))
    partial = files.unique(place.parent)
    try:
        head = _copy(book, partial) if isinstance(book, SQLiteLedger) else _export(book, partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, place)
    except OSError as error:
        raise LedgerError(f"{out} cannot be written: {files.reason(error)}.") from error
    finally:
        with suppress(OSError):
            partial.unlink()
    files.sync_directory(place.parent)
    return head


def _copy(book: SQLiteLedger, partial: Path) -> Checkpoint:
    try:
        with closing(sqlite3.connect(partial)) as copy:
            book.copy_to(copy)
            copy.execute("PRAGMA journal_mode = delete")  # all in one file
    except FAILURES as error:
        raise LedgerError(f"{book.address} cannot be copied: {error}.") from error
    with read_ledger(partial) as copied:
        result = verify(copied)
        seen = book.row(result.head.count)
        if not result.clean:
            raise LedgerError(
                f"{book.address} is damaged, so that no backup was kept ({len(result.findings)} findings, the first: "
                f"{result.findings[0]}). See `fedincentive ledger verify`, and keep the file with its -wal as evidence."
            )
        if seen is not None and seen.hash != result.head.hash:
            raise LedgerError(f"{book.address}: the copy's last entry is another one; make the backup again.")
        return result.head


def _export(book: Ledger, partial: Path) -> Checkpoint:
    with partial.open("x", encoding="ascii") as file, book.snapshot():
        file.writelines(to_jsonl(book))
        file.flush()
    with partial.open(encoding="ascii") as file:
        return _records(file.readlines(), book.address)[2]


def restore(export: Path, target: str) -> Checkpoint:
    """Make a new ledger of a JSONL export with the same hashes, in either store; the export is checked first."""
    try:
        lines = export.read_text("ascii").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"{export} cannot be read as an export: {error}.") from error
    keep_apart(export, [target])
    minor, records, end = _records(lines, str(export))
    with open_ledger(target, minor=minor) as book:
        book.restore(records)
        head = book.head()
    if head != end:
        raise LedgerError(f"{book.address} ends at {head} after the import, the export at {end}.")
    return head


def _records(lines: list[str], name: str) -> tuple[int, list[Record], Checkpoint]:
    """What a sound export holds. Rules of other packages cannot be derived here and are no reason to refuse it."""
    try:
        findings, end = standalone.check(lines)
        wrong = [f"{what}: entry {seq}: {message}" for what, seq, message in findings if what != "rule"]
        if wrong:
            raise LedgerError(f"{name} is not a sound export: {len(wrong)} findings, the first: {wrong[0]}.")
        bodies = [json.loads(line) for line in lines[1:-1]]
        records = [Record(b["seq"], b["hash"], Entry(**_fields(b["body"]))) for b in bodies]
        return json.loads(lines[0])["minor"], records, Checkpoint.parse(end)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise LedgerError(f"{name} is not the JSONL export of a ledger: {type(error).__name__} {error}.") from error


def _fields(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "version"}
