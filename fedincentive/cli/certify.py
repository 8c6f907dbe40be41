"""`fedincentive certify RUN`: what a finished run achieved and kept of its promises, as its certificate says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from ..ledger.address import is_address


def _kept(context: click.Context, argument: click.Parameter, value: str) -> Path:
    if is_address(value):
        raise click.BadParameter(
            "a certificate is kept with the run's state, not in its ledger. Name the run's folder.", context, argument
        )
    if not Path(value).exists():
        raise click.BadParameter(f"there is nothing at {value}.", context, argument)
    return Path(value)


@click.command()
@click.argument("run", callback=_kept, metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print the certificate as JSON.")
def certify(run: Path, as_json: bool) -> None:
    """Show the certificate of a finished run: how much anyone could still gain, and which claims held.

    RUN is the run's folder, its state folder, its manifest.json, or a ledger with one run. Each line names what it
    rests on; what the center of the run could not know is unavailable. Exits 1 when a claim was broken.
    """
    from ..manifest import SavedRun, find

    saved = SavedRun.read(find(run))
    if saved.certificate is None:
        raise click.ClickException(
            f"Run {saved.run!r} has no certificate: it has not ended, or an older version played it. Resume it."
        )
    if as_json:
        found = {"run": saved.run, "mechanism": saved.mechanism, "certificate": saved.certificate.to_json()}
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(f"Run {saved.run} of {saved.mechanism}: {saved.outcome.get('status', 'not ended')}\n")
        click.echo(saved.certificate)
    sys.exit(1 if saved.certificate.broken else 0)
