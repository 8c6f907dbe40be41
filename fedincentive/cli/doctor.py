"""`fedincentive doctor`: what is installed, what is active, what is missing."""

from __future__ import annotations

import importlib.util
import json
import platform
from dataclasses import asdict, dataclass, field

import click

from .. import __version__
from ..errors import NativeUnavailable


@dataclass
class Finding:
    """One part of the installation: `problems` make doctor exit with 1, `notes` are choices."""

    part: str
    facts: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def kernels() -> Finding:
    from ..aggregation import native

    try:
        info = native.info()
    except NativeUnavailable as error:
        return Finding("kernels", "not loaded", problems=[str(error)])
    facts = f"{info['isa']} of {', '.join(info['compiled'])}; {info['threads']} threads"
    return Finding("kernels", facts)


def ledger() -> Finding:
    import sqlite3

    notes = []
    if importlib.util.find_spec("psycopg") is None:
        notes.append("PostgreSQL ledgers need psycopg: pip install 'fedincentive[postgres]'.")
    return Finding("ledger", f"SQLite {sqlite3.sqlite_version}" + ("" if notes else ", PostgreSQL"), notes=notes)


def plots() -> Finding:
    if importlib.util.find_spec("matplotlib"):
        return Finding("plots", "matplotlib")
    return Finding("plots", "off", notes=["Pictures need matplotlib: pip install 'fedincentive[plots]'."])


def fedml() -> Finding:
    from ..plugins.fedml.doctor import status

    found = status()
    facts = "not installed" if found.fedml is None else f"FedML {found.fedml}, " + ("active" if found.active else "off")
    return Finding("fedml", facts, list(found.problems), list(found.notes))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(as_json: bool) -> None:
    """What is installed, what is active, what is missing. Exits with 1 if something is wrong."""
    findings = [check() for check in (kernels, ledger, plots, fedml)]
    if as_json:
        click.echo(json.dumps({"version": __version__, "findings": [asdict(f) for f in findings]}, indent=2))
    else:
        click.echo(f"fedincentive {__version__}, Python {platform.python_version()}, {platform.machine()}")
        for found in findings:
            click.echo(f"  {found.part:<9}{found.facts}")
            for mark, lines in (("!", found.problems), ("-", found.notes)):
                for line in lines:
                    click.echo(f"           {mark} {line}")
    raise SystemExit(any(found.problems for found in findings))
