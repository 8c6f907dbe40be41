"""Where a ledger is: a file, a postgresql:// address, or the folder of a run that has one."""

from __future__ import annotations

from pathlib import Path

import click

from ..checks import nearest
from ..ledger import Ledger
from ..manifest import DEFAULT


def ledger_in(target: str) -> str:
    """The ledger of a run's folder or state folder; any other target as it is."""
    folder = Path(target)
    if "://" in target or not folder.is_dir():
        return target
    places = [folder / DEFAULT, folder.parent / DEFAULT]  # FedML, Flower, NVFlare: RUN and RUN/state
    if folder.parent.suffix == ".runs":  # `play --ledger LEDGER` keeps LEDGER.runs/RUN
        places.append(folder.parent.with_suffix(""))
    if folder.suffix == ".runs" and folder.with_suffix("").is_file():
        return str(folder.with_suffix(""))
    for place in places if (folder / DEFAULT).exists() or (folder / "manifest.json").exists() else ():
        if place.is_file():
            return str(place)
    raise click.UsageError(
        f"{target} is a folder without a ledger: name a ledger file, or the folder of a run that has {DEFAULT}."
    )


def _resolved(context: click.Context, parameter: click.Parameter, value: str) -> str:
    return ledger_in(value)


target = click.argument("target", metavar="LEDGER", callback=_resolved)


def known_run(book: Ledger, run: str | None) -> None:
    """Refuse the name of a run that the ledger does not have."""
    if run is not None and next(book.entries(run), None) is None:
        runs = sorted({record.entry.run for record in book.entries()})
        raise click.UsageError(f"There is no run {run!r} in this ledger.{nearest(run, runs)}")
