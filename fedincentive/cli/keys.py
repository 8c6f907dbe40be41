"""`fedincentive keys`: the Ed25519 keys by which agents and center sign. Private keys are never printed."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..provenance import statements
from ..provenance.keys import KeyRing, PrivateKey, make, name_in_files

folder = click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default=Path("keys"), show_default=True, help="Where keys are."
)


@click.group()
def keys() -> None:
    """Make, show, rotate and revoke the keys by which agents and center sign.

    NAME.key is private and stays on its machine; NAME.pub goes to everybody else, best together with the contract.
    """


@keys.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@folder
def new(names: tuple[str, ...], folder: Path) -> None:
    """A new key for each NAME; nothing is overwritten."""
    for name in names:
        key, is_new = make(name, folder)
        if not is_new:
            click.echo(f"{name!r} had a private key; its public half was written again.", err=True)
        click.echo(key.public.vkey)


@keys.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print the keys as JSON.")
def show(folder: Path, as_json: bool) -> None:
    """The public keys in DIR, and which private ones are there. Whatever is wrong with one is said."""
    ring = KeyRing.read(folder)
    if as_json:
        found = [{"name": n, "vkey": key.vkey, "own": n in ring.private} for n, key in sorted(ring.public.items())]
        click.echo(json.dumps(found, indent=2))
        return
    for name, key in sorted(ring.public.items()):
        click.echo(f"{'own' if name in ring.private else '   '}  {key.vkey}")


@keys.command()
@click.argument("name")
@folder
def rotate(name: str, folder: Path) -> None:
    """A new key in the place of NAME's; the old one is kept, and both sign a statement to give to the others."""
    key, statement = statements.rotate(name, folder)
    click.echo(key.public.vkey)
    click.echo(f"Give the others {statement}, which both keys signed; runs under way take it when resumed.", err=True)


@keys.command()
@click.argument("name")
@click.option(
    "--by", required=True, metavar="RECOVERY", help="The name of the recovery key; its NAME.key is in the folder."
)
@click.option("--reason", "why", default="", help="Why, in the statement.")
@folder
def revoke(name: str, by: str, why: str, folder: Path) -> None:
    """Declare that NAME's key counts no more, signed by the recovery key; `keys new` then makes another."""
    recovery = PrivateKey.read(by, folder / f"{name_in_files(by)}.key")
    click.echo(f"Give the others {statements.revoke(name, folder, recovery, why)}.")
