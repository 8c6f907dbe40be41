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
class Part:
    """One part of the installation: `problems` make doctor exit with 1, `notes` are choices."""

    part: str
    facts: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def kernels() -> Part:
    from ..aggregation import native

    try:
        info = native.info()
    except NativeUnavailable as error:
        return Part("kernels", "not loaded", problems=[str(error)])
    facts = f"{info['isa']} of {', '.join(info['compiled'])}; {info['threads']} threads"
    return Part("kernels", facts)


def cuda() -> Part:
    from ..aggregation import cuda as kernels

    info = kernels.info()
    if not info["built"]:
        note = "CUDA kernels are built where nvcc is found: FEDINCENTIVE_CUDA=1 pip install ."
        return Part("cuda", "not built", notes=[note])
    devices = ", ".join("{name} (sm_{capability[0]}{capability[1]})".format(**device) for device in info["devices"])
    major, minor = divmod(info["driver"], 1000)
    driver = f"driver for CUDA {major}.{minor // 10}" if info["driver"] else "no driver"
    notes = [f"No CUDA device can be used: {info['problem']}."] if info["problem"] else []
    return Part("cuda", f"built for {info['archs']}; {driver}; {devices or 'no device'}", notes=notes)


def ledger() -> Part:
    import sqlite3

    notes = []
    if importlib.util.find_spec("psycopg") is None:
        notes.append("PostgreSQL ledgers need psycopg: pip install 'fedincentive[postgres]'.")
    return Part("ledger", f"SQLite {sqlite3.sqlite_version}" + ("" if notes else ", PostgreSQL"), notes=notes)


def plots() -> Part:
    if importlib.util.find_spec("matplotlib"):
        return Part("plots", "matplotlib")
    return Part("plots", "off", notes=["Pictures need matplotlib: pip install 'fedincentive[plots]'."])


def fedml() -> Part:
    from ..plugins.fedml.doctor import status

    found = status(try_out=True)
    facts = "not installed" if found.fedml is None else f"FedML {found.fedml}, " + ("active" if found.active else "off")
    return Part("fedml", facts, list(found.problems), list(found.notes))


def nvflare() -> Part:
    from ..plugins.nvflare.doctor import problems, version

    found = version()
    if found is None:
        return Part(
            "nvflare", "not installed", notes=["NVFlare is not installed: pip install 'fedincentive[nvflare]'."]
        )
    return Part("nvflare", f"NVFlare {found}", problems(found))


def flower() -> Part:
    from importlib import metadata

    try:
        return Part("flower", f"Flower {metadata.version('flwr')}")
    except metadata.PackageNotFoundError:
        note = "Flower is not installed: pip install 'fedincentive[flower]'."
        return Part("flower", "not installed", notes=[note])


def flute() -> Part:
    """FLUTE is a checkout and no package: what can be missing here is what it imports."""
    from ..plugins.flute.__main__ import NEEDED

    missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        note = f"FLUTE needs {', '.join(missing)}: pip install 'fedincentive[flute]'."
        return Part("flute", "not ready", notes=[note])
    return Part("flute", "what it needs is installed; run it in its checkout: python -m fedincentive.plugins.flute")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(as_json: bool) -> None:
    """What is installed, what is active, what is missing. Exits with 1 if something is wrong."""
    findings = [check() for check in (kernels, cuda, ledger, plots, fedml, flower, nvflare, flute)]
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
