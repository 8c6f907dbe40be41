"""`fedincentive names`: pseudonyms for ledgers, and the map that says who they are."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..provenance.names import Names

map_file = click.option(
    "--map", "path", type=click.Path(dir_okay=False, path_type=Path), default=Path("names.csv"), show_default=True,
    help="The map of names; for its owner only.",
)  # fmt: skip


@click.group()
def names() -> None:
    """Make, show and erase the names behind a ledger's pseudonyms.

    Agents enrol under the pseudonym, with a key of that name. `ledger statement` and `ledger payout` take the map with
    --names.
    """


@names.command()
@click.argument("given", nargs=-1, required=True, metavar="NAME...")
@map_file
def new(given: tuple[str, ...], path: Path) -> None:
    """A pseudonym for each NAME; one that has one already keeps it."""
    known = Names.read(path) if path.exists() else Names(path)
    for name in given:
        click.echo(known.new(name))


@names.command()
@map_file
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON, by pseudonym.")
def show(path: Path, as_json: bool) -> None:
    """Every pseudonym and who it is."""
    known = sorted(Names.read(path).pseudonyms.items())
    if as_json:
        click.echo(json.dumps({alias: name for name, alias in known}, indent=2))
        return
    for name, alias in known:
        click.echo(f"{alias}  {name}")


@names.command()
@click.argument("name")
@map_file
def erase(name: str, path: Path) -> None:
    """Remove NAME from the map. The ledger stays as it is and verifies as before."""
    known = Names.read(path)
    alias = known.account(name)
    known.erase(name)
    click.echo(f"{path} no longer says who {alias} is. Erase it from copies and backups of the map too.")
