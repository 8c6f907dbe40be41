"""`fedincentive receipt`: check the file that proves an entry to be in a ledger."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..errors import ProvenanceError
from ..files import read_bounded
from ..ledger.notes import moment
from ..provenance import receipts
from ..provenance.keys import KeyRing, PublicKey, read_public

vkey = "VKEY|NAME.pub"


@click.group()
def receipt() -> None:
    """Check the file that proves an entry to be in a ledger."""


@receipt.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--key", "log", multiple=True, metavar=vkey, help="The log's key; again for one that it had before.")
@click.option("--witness", "seen", multiple=True, metavar=vkey + "|DIR", help="A witness's key, or a folder of such.")
@click.option("--need", default=0, show_default=True, help="How many of the witnesses must have cosigned.")
def verify(file: Path, log: tuple[str, ...], seen: tuple[str, ...], need: int) -> None:
    """Check that FILE proves its entry. Exits 0 when it does, 1 when it does not or nobody's key was given."""
    text = read_bounded(file).decode("utf-8", "replace")
    found = receipts.read(text)
    entry, head = found.entry, found.head
    click.echo(
        f"Entry {found.seq}, hash {found.hash}: run {entry.run!r}, round {entry.round}, {entry.kind} ({entry.rule})"
    )
    for account, amount in sorted(entry.postings.items()):
        click.echo(f"  {account!r} {amount:+d} minor units")
    click.echo(f"It is under the root of the log {head.origin!r} with {head.size} entries.")
    if not log:
        raise click.ClickException("Whether the log signed that was not checked: give its key with --key.")
    logs, witnesses = ([key for one in given for key in _keys(one)] for given in (log, seen))
    signer = next((key for key in logs if found.note.is_signed_by(key)), logs[0])
    times = receipts.verify(text, signer, witnesses)[1]
    click.echo("The log signed it.")
    for name, time in sorted(times.items(), key=lambda item: item[1]):
        click.echo(f"  cosigned by {name!r} at {moment(time)}")
    if len(times) < need:
        click.echo(f"{len(times)} of the witnesses given cosigned it; {need} are needed.", err=True)
        sys.exit(1)


def _keys(given: str) -> list[PublicKey]:
    try:
        if Path(given).is_dir():
            return list(KeyRing.read(given).public.values())
        return [read_public(Path(given)) if given.endswith(".pub") else PublicKey.parse(given)]
    except ProvenanceError as error:
        raise click.UsageError(str(error)) from error
