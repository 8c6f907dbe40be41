"""The auditor's part of `fedincentive ledger`: dates, corrections, disputes, periods and payouts."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import click

from ..errors import ProvenanceError
from ..ledger import notes as checkpoints
from ..ledger.notes import Dated
from ..provenance.keys import PublicKey
from ..provenance.notes import Note
from ..provenance.statements import known_keys

target = click.argument("target", metavar="LEDGER")
notes = click.option(
    "--note",
    "notes",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Signed checkpoints: a run's notes.jsonl or manifest.json, an agent's receipt, or a note. May be repeated.",
)
folder = click.option(
    "--keys",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The public keys that were exchanged with the contract.",
)


def notes_in(path: Path) -> list[Note]:
    found = checkpoints.find(path.read_text("utf-8", errors="replace"))
    if not found:
        raise click.UsageError(f"There is no signed checkpoint in {path}: give a run's notes.jsonl, or a receipt.")
    return found


def exchanged(folder: Path | None) -> dict[str, list[PublicKey]] | None:
    try:
        return None if folder is None else known_keys(folder)
    except ProvenanceError as error:
        raise click.UsageError(str(error)) from error


def date(time: int | None) -> str:
    """A cosigned time for people."""
    if time is None:
        return ""
    try:
        return datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"second {time}"


def told(note: Dated) -> str:
    who = ", ".join(sorted(note.times)) or "nobody"
    return f"{note.size} entries, signed by the center, cosigned by {who}" + (f"; {date(note.time)}" if note.time else "")


COMMANDS: list[click.Command] = []
