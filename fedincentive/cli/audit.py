"""The auditor's part of `fedincentive ledger`: dates, corrections, disputes, periods and payouts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import click

from .. import ledger as books
from .. import terms
from ..errors import ProvenanceError
from ..ledger import Entry, Ledger, corrections, disputes
from ..ledger import notes as checkpoints
from ..ledger.notes import Dated, moment
from ..provenance.keys import KeyRing, PrivateKey, PublicKey
from ..provenance.names import Names
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
private = click.option(
    "--keys",
    "folders",
    multiple=True,
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder with the signers' private keys; again where each has its own.",
)
names = click.option(
    "--names",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="MAP",
    help="The map of names, where accounts are pseudonyms.",
)


def people(path: Path | None) -> Names:
    return Names(Path()) if path is None else Names.read(path)


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


def told(note: Dated) -> str:
    who = ", ".join(sorted(note.times)) or "nobody"
    return f"{note.size} entries, signed by the center, cosigned by {who}" + (f"; {moment(note.time)}" if note.time else "")


@click.command()
@target
@click.argument("seq", type=int)
@click.option("--reason", required=True, help="Why; it stands in the ledger for ever.")
@click.option("--amount", "amounts", multiple=True, metavar="ACCOUNT=AMOUNT", help="In units; may be negative. Repeated.")
@click.option("--reverse", is_flag=True, help="Take the whole entry back.")
@click.option("--author", required=True, metavar="NAME", help="Who decided it; signs.")
@click.option("--approver", required=True, metavar="NAME", help="Who else approves it; signs.")
@private
def correct(
    target: str,
    seq: int,
    reason: str,
    amounts: tuple[str, ...],
    reverse: bool,
    author: str,
    approver: str,
    folders: tuple[Path, ...],
) -> None:
    """Correct entry SEQ by an entry after it, signed by two persons. Nothing that stands there is changed.

    Either --reverse, or an --amount for each account: plus is paid to it, minus is charged, and they sum to 0.
    """
    if reverse == bool(amounts):
        raise click.UsageError("Give either --reverse, or --amount for each account.")
    decided, approved = own_key(author, folders), own_key(approver, folders)
    with appending(target) as book:
        given = None if reverse else _amounts(amounts, book.minor)
        _append(book, corrections.correct(book, seq, reason, given, decided, approved))


@click.command()
@target
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--agent", required=True, metavar="NAME", help="Whose report it is.")
@folder
def dispute(target: str, file: Path, agent: str, folder: Path | None) -> None:
    """Record in LEDGER that AGENT, which the ledger calls absent, shows a report that it signed.

    FILE is what the agent kept beside its receipts, dispute-ROUND.json.
    """
    with appending(target) as book:
        entry = disputes.dispute(book, file.read_text("utf-8", errors="replace"), agent)
        known = exchanged(folder)
        if known is not None:
            _hold(book, entry.run, agent, [key.vkey for key in known.get(agent, ())])
        _append(book, entry)
    click.echo(
        f"{agent!r} did sign this report, and entry {entry.inputs['disputes']} calls it absent. Whether the report reached "
        "the center in time, nobody can decide from this: no money moves. A correction can, if both sides agree."
    )


@contextmanager
def appending(target: str) -> Iterator[Ledger]:
    """An existing ledger, opened to add to it."""
    books.read(target).close()
    with books.open(target, minor=None) as book:
        yield book


def own_key(name: str, folders: Sequence[Path]) -> PrivateKey:
    for folder in folders:
        if name in (ring := KeyRing.read(folder)).private:
            return ring.private[name]
    where = ", ".join(map(str, folders))
    raise ProvenanceError(f"The private key of {name!r} is not in {where}: give the folder of its owner with --keys.")


def _append(book: Ledger, entry: Entry) -> None:
    receipt = book.append(entry)
    told = "added as" if receipt.created else "there already as"
    click.echo(f"{entry.kind} of run {entry.run!r}, {told} entry {receipt.seq}; head {book.head()}")


def _amounts(given: Sequence[str], minor: int) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for text in given:
        account, _, number = text.rpartition("=")
        try:
            exact = Fraction(number) * minor
            if not re.fullmatch(r"[+-]?\d{1,30}(\.\d{1,30})?", number, re.ASCII) or exact.denominator != 1 or not account:
                raise ValueError
        except ValueError:
            raise click.UsageError(
                f"--amount {text!r} is not ACCOUNT=AMOUNT with a decimal number of units, {minor} parts each at most."
            ) from None
        if account in amounts:
            raise click.UsageError(f"--amount names {account!r} twice.")
        amounts[account] = int(exact)
    return amounts


def _hold(book: Ledger, run: str, agent: str, known: Sequence[str]) -> None:
    """The agent's key in the terms must be one that was exchanged."""
    agreed = next(record.entry.inputs["terms"] for record in book.chained(run) if record.entry.kind == terms.KIND)
    vkey = agreed["agents"][agent]["key"]
    if vkey not in known:
        raise ProvenanceError(f"The key of {agent!r} in the terms of run {run!r} is {vkey}, which was not exchanged.")


COMMANDS = [correct, dispute]
