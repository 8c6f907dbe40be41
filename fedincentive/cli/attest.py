"""`fedincentive attest`: a site commits to its records, opens some of them, and finds those that others have too."""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path

import click

from ..audit.data import KINDS, read_records
from ..files import read_bounded
from ..provenance import records
from ..provenance.keys import create
from ..provenance.records import Commitment, Opening

data = click.argument("data", type=click.Path(exists=True, path_type=Path), metavar="DATA")
header = click.option("--header", is_flag=True, help="The first line of a .csv is no record.")
ENDING = ".records"


@click.group()
def attest() -> None:
    """Commit to a site's records before anyone knows which will be asked for, and prove what was committed."""


@attest.command(help=f"Commit to the records in DATA, {KINDS}.")
@data
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Where the salts go; DATA.records else."
)
@header
def commit(data: Path, out: Path | None, header: bool) -> None:
    own = read_records(data, header=header)
    records.check_different(own)
    made = Commitment.to(own)
    out = out or Path(f"{data}{ENDING}")
    made.write(out)
    click.echo(f"Kept the salts of {len(made)} records in {out}: for this site only, and for as long as it is audited.")
    click.echo(made)


@attest.command("open")
@data
@click.argument("indices", type=int, nargs=-1, required=True, metavar="INDEX...")
@click.option("--kept", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@header
def open_(data: Path, indices: tuple[int, ...], kept: Path | None, header: bool) -> None:
    """Show records of DATA with the proofs that they were committed, a line of JSON for each."""
    known, own = Commitment.read(kept or Path(f"{data}{ENDING}")), read_records(data, header=header)
    for index in indices:
        if not 0 <= index < min(len(own), len(known)):
            raise click.ClickException(f"There is no record {index}: {data} has 0 to {len(own) - 1}.")
        shown = known.open(index, own[index])
        if not shown.proves(str(known)):
            raise click.ClickException(f"Record {index} of {data} is not the one that was committed.")
        texts = {"salt": shown.salt, "record": shown.record}
        line = {"index": index, **{name: base64.b64encode(blob).decode() for name, blob in texts.items()}}
        click.echo(json.dumps({**line, "path": [base64.b64encode(one).decode() for one in shown.path]}))


@attest.command()
@click.argument("openings", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="OPENINGS")
@click.argument("commitment", metavar="COMMITMENT")
def check(openings: Path, commitment: str) -> None:
    """Check OPENINGS, which `attest open` wrote, against the COMMITMENT in a run's terms. Exits 1 where one fails."""
    if records.read(commitment) is None:
        raise click.ClickException(f"{commitment[:80]!r} is no commitment; it is written records/1:COUNT:ROOT.")
    wrong = 0
    for number, line in enumerate(read_bounded(openings).splitlines(), start=1):
        try:
            held = json.loads(line)
            salt, record, *path = (base64.b64decode(one) for one in (held["salt"], held["record"], *held["path"]))
            proven = Opening(held["index"], salt, record, tuple(path)).proves(commitment)
        except (ValueError, TypeError, KeyError, RecursionError):
            proven, held = False, {"index": "?"}
        wrong += not proven
        click.echo(f"line {number}: record {held['index']} {'is under the root' if proven else 'is not proven'}")
    sys.exit(1 if wrong else 0)


@attest.command()
@data
@click.option("--key", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The sites' common key.")
@click.option("--new", is_flag=True, help="Make the key first; give it to the other sites and the auditors only.")
@header
def tags(data: Path, key: Path, new: bool, header: bool) -> None:
    """Print a tag for each record of DATA: equal records have equal tags, and a tag tells nothing without the key."""
    if new:
        create(key, os.urandom(32).hex().encode() + b"\n", 0o600)
    click.echo("\n".join(records.tags(records.tag_key(key), read_records(data, header=header))))


@attest.command()
@click.argument("lists", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def duplicates(lists: tuple[Path, ...]) -> None:
    """Count in LISTS of tags, in the order of their owners' enrolment, what an earlier one has already.

    The later holder's points drop by that. Exits 1 where there are any. Exact copies are found, altered ones are not.
    """
    found = records.duplicates({str(path): path.read_text("ascii", "replace").split() for path in lists})
    for holder, counts in found.items():
        whose = "".join(f", {count} of {first}" for first, count in counts.items())
        click.echo(f"{holder}: {sum(counts.values())} records that were shown before{whose}")
    sys.exit(1 if any(found.values()) else 0)
