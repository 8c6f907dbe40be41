"""`fedincentive report`: a run as one self-contained HTML page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..ledger.address import shown
from .targets import ledger_in


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="RUN|LEDGER...")
@click.option(
    "--out",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="RUN/report.html by default, report.html here for ledgers.",
)
def report(targets: tuple[str, ...], out: Path | None) -> None:
    """Write a report as one HTML file without scripts or requests, readable on a phone.

    RUN is a directory that `fedincentive reproduce` left (of a study, or of several): figures, results, contributions
    and payments, certificate, ledger heads with their verification, settings.

    LEDGER is a file, a postgresql:// address or the folder of a run that has a ledger: who contributed what, who paid
    whom, and whether the ledger verifies; several are also compared. Exits 1 when one of them does not verify, after
    writing the page that says so.
    """
    runs = [target for target in targets if Path(target).is_dir() and _has_ledger(Path(target))]
    if runs == [*targets]:
        alone = Path(runs[0]) / "report.html" if len(runs) == 1 else None
        _ledgers(tuple(ledger_in(run) for run in runs), out or alone or Path("report.html"))
    targets = tuple(ledger_in(target) if target in runs else target for target in targets)
    folders = [target for target in targets if Path(target).is_dir()]
    if folders and len(targets) > 1:
        raise click.UsageError(f"{folders[0]} is a directory: give one directory, or any number of ledgers.")
    if folders:
        click.echo(_experiments(Path(folders[0]), out))
        return
    for target in targets:
        if "://" not in target and not Path(target).exists():
            raise click.UsageError(f"There is neither a ledger nor a directory at {shown(target)}.")
    _ledgers(targets, out or Path("report.html"))


def _has_ledger(folder: Path) -> bool:
    """Whether it is a run of a host or of `play`, and not of `reproduce`."""
    try:
        return ledger_in(str(folder)) != str(folder)
    except click.UsageError:
        return False


def _experiments(run: Path, out: Path | None) -> Path:
    try:
        from ..experiments import report as reports
    except ImportError as error:
        raise click.ClickException(
            f"{error.name} is needed for reports on experiments: pip install 'fedincentive[torch,plots]'."
        ) from error
    return reports.write(run, out)


def _ledgers(targets: tuple[str, ...], out: Path) -> None:
    from ..reports import ledgers

    found = ledgers.write(targets, out)
    click.echo(out)
    broken = [one for one in found if one.problems]
    for one in broken:
        click.echo(f"{one.address} does not verify: {one.problems[0]}", err=True)
    sys.exit(1 if broken else 0)
