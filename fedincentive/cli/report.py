"""`fedincentive report RUN`: a run as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="RUN")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="RUN/report.html by default."
)
def report(run: Path, out: Path | None) -> None:
    """Write a report of what `fedincentive reproduce` left in RUN (a study's directory, or one of several studies).

    Figures, results, contributions and payments, certificate, ledger heads with their verification, settings: one HTML
    file without scripts or requests, readable on a phone.
    """
    try:
        from ..experiments import report as reports
    except ImportError as error:
        raise click.ClickException(
            f"{error.name} is needed for reports: pip install 'fedincentive[torch,plots]'."
        ) from error
    click.echo(reports.write(run, out))
