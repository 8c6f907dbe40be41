"""`fedincentive receipt`: check the file that proves an entry to be in a ledger."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from ..errors import ProvenanceError
from ..files import read_bounded
from ..ledger.notes import moment
from ..provenance import receipts
from ..provenance.keys import PublicKey, read_public
from ..provenance.statements import known_keys

vkey = "VKEY|NAME.pub"


@click.group()
def receipt() -> None:
    """Check the file that proves an entry to be in a ledger."""


@receipt.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--key", "log", multiple=True, metavar=vkey, help="The log's key; again for one that it had before.")
@click.option("--witness", "seen", multiple=True, metavar=vkey + "|DIR", help="A witness's key, or a folder of such.")
@click.option("--need", default=0, show_default=True, help="How many of the witnesses must have cosigned.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def verify(file: Path, log: tuple[str, ...], seen: tuple[str, ...], need: int, as_json: bool) -> None:
    """Check that FILE proves its entry. Exits 0 when it does, 1 when it does not or nobody's key was given."""
    text = read_bounded(file).decode("utf-8", "replace")
    found = receipts.read(text)
    entry, head = found.entry, found.head
    if not as_json:
        click.echo(
            f"Entry {found.seq}, hash {found.hash}: run {entry.run!r}, round {entry.round}, {entry.kind} ({entry.rule})"
        )
        for account, amount in sorted(entry.postings.items()):
            click.echo(f"  {account!r} {amount:+d} minor units")
        click.echo(f"It is under the root of the log {head.origin!r} with {head.size} entries.")
    if not log:
        raise click.ClickException("The log's signature was not checked: give its key with --key.")
    logs, witnesses = ([key for one in given for key in _keys(one)] for given in (log, seen))
    signer = next((key for key in logs if found.note.is_signed_by(key)), logs[0])
    times = receipts.verify(text, signer, witnesses)[1]
    if as_json:
        named = {"run": entry.run, "round": entry.round, "kind": entry.kind, "rule": entry.rule}
        proven = {"seq": found.seq, "hash": found.hash, **named, "postings": dict(entry.postings)}
        click.echo(json.dumps({**proven, "log": head.origin, "size": head.size, "cosigned": times}, indent=2))
    else:
        click.echo("The log signed it.")
        for name, time in sorted(times.items(), key=lambda item: item[1]):
            click.echo(f"  cosigned by {name!r} at {moment(time)}")
        if witnesses and not times:
            click.echo(
                "None of the witnesses given cosigned it: it binds the center, but nobody else has seen this "
                "checkpoint. A later receipt of the entry may have their cosignatures."
            )
    if len(times) < need:
        click.echo(f"{len(times)} of the witnesses given cosigned it; {need} are needed.", err=True)
        sys.exit(1)


def _keys(given: str) -> list[PublicKey]:
    try:
        if Path(given).is_dir():
            return [key for keys in known_keys(given).values() for key in keys]
        return [read_public(Path(given)) if given.endswith(".pub") else PublicKey.parse(given)]
    except ProvenanceError as error:
        raise click.UsageError(str(error)) from error
