"""`fedincentive ledger`: read, check, export and copy a payment ledger. Only those of `audit.py` add entries."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import click

from .. import ledger as books
from ..checks import nearest
from ..errors import LedgerDamaged, LedgerError
from ..files import replace
from ..ledger import copies, periods
from ..ledger.address import shown
from ..ledger.chain import Checkpoint
from ..ledger.export import FORMATS, decimal, keep_apart
from ..ledger.notes import moment
from ..ledger.statement import statement as make_statement
from ..ledger.verify import Verification, unreadable
from ..ledger.verify import verify as check
from ..reports.statements import FORMATS as STATEMENTS
from ..reports.statements import columns
from . import audit
from .targets import known_run, target

one_run = click.option("--run", help="Only this run.")
as_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")


@click.group()
def ledger() -> None:
    """Read, check, export and copy a payment ledger.

    LEDGER is a file path (SQLite), a postgresql:// address, or the folder of a run that has a ledger.
    """


@ledger.command()
@target
def head(target: str) -> None:
    """The checkpoint COUNT:HASH@LEDGER to keep outside the ledger."""
    with books.read(target) as book:
        click.echo(book.head())


@ledger.command()
@target
@one_run
@audit.notes
@as_json
def show(target: str, run: str | None, notes: tuple[Path, ...], as_json: bool) -> None:
    """Every entry, oldest first; with --note also between which times it was written."""
    with books.read(target) as book:
        known_run(book, run)
        if as_json:
            for record in book.chained(run):
                click.echo(f'{{"body":{record.entry.body},"hash":"{record.hash}","seq":{record.seq}}}')
            return
        calendar = audit.calendar(book, notes)
        rows = []
        for record in book.chained(run):
            e = record.entry
            moved = decimal(sum(amount for amount in e.postings.values() if amount > 0), book.minor)
            dates = tuple(map(moment, calendar.between(record.seq))) if notes else ()
            rows.append((record.seq, e.run, e.round, e.kind, e.rule, len(e.postings), moved, *dates, record.hash[:12]))
    dates = ("not before", "not after") if notes else ()
    _table(("seq", "run", "round", "kind", "rule", "accounts", "moved", *dates, "hash"), rows, right={0, 2, 5, 6})


@ledger.command()
@target
@one_run
@as_json
def balances(target: str, run: str | None, as_json: bool) -> None:
    """What every account has received, less what it was charged."""
    with books.read(target) as book:
        known_run(book, run)
        found = book.balances(run)
        minor = book.minor
    if as_json:
        click.echo(json.dumps({"minor": minor, "balances": found}))
        return
    rows = [(account, decimal(amount, minor)) for account, amount in found.items()]
    _table(("account", "balance"), [*rows, ("sum", decimal(sum(found.values()), minor))], right={1})


@ledger.command()
@target
@click.argument("agent")
@one_run
@click.option("--period", metavar="NAME", help="Only this closed period.")
@click.option("--format", "form", type=click.Choice(["text", "csv", "json", "html"]), default="text", show_default=True)
@audit.notes
@audit.folder
@audit.names
@click.option("--output", "--out", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Default: the screen.")
@as_json
def statement(
    target: str,
    agent: str,
    run: str | None,
    period: str | None,
    form: str,
    notes: tuple[Path, ...],
    folder: Path | None,
    names: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """What AGENT committed and delivered, was paid or charged, and by which rule.

    With --note every line has its dates, and in JSON and HTML the receipt that proves it under the newest checkpoint;
    the HTML page is made to be printed. --json is --format json.
    """
    people = audit.people(names)
    signed = [note for path in notes for note in audit.notes_in(path)]
    with books.read(target) as book:
        known_run(book, run)
        ended = None if period is None else periods.find(book, period)
        account = make_statement(book, people.account(agent), run, signed, audit.exchanged(folder), ended)
        if not account.lines:
            raise click.ClickException(f"There is no account {agent!r} here.{nearest(agent, book.balances(run))}")
    text = STATEMENTS["json" if as_json else form](account, people.name(account.account))
    if output is None or str(output) == "-":
        click.echo(text, nl=False)
    else:
        keep_apart(output, [target])
        replace(output, lambda file: file.write(text.encode()), durable=False)


@ledger.command()
@target
@click.option("--recompute", is_flag=True, help="Derive every amount again from the inputs in its entry.")
@click.option(
    "--checkpoint",
    "seen",
    multiple=True,
    metavar="COUNT:HASH[@LEDGER]|FILE",
    help="A head seen before, or a file (manifest, log, report) with such heads in it; those of other ledgers are "
    "skipped. May be repeated.",
)
@audit.notes
@audit.folder
@as_json
def verify(
    target: str, recompute: bool, seen: tuple[str, ...], notes: tuple[Path, ...], folder: Path | None, as_json: bool
) -> None:
    """Check the whole ledger. Exits 0 when it is clean, 1 when something was found, 2 when called wrongly.

    With --keys the keys in every run's terms must be those in the folder, or keys that these replaced.
    """
    given = {text: _checkpoints(text) for text in seen}
    own = given
    signed = [note for path in notes for note in audit.notes_in(path)]
    exchanged = audit.exchanged(folder)
    try:
        with books.read(target) as book:
            own = {text: _own(text, found, book.identity) for text, found in given.items()}
            heads = [one for found in own.values() for one in found]
            result = check(book, recompute=recompute, checkpoints=heads, notes=signed, keys=exchanged)
    except LedgerDamaged as error:
        result = unreadable(error)
    except LedgerError as error:
        raise click.UsageError(str(error)) from error
    skipped = sum(map(len, given.values())) - sum(map(len, own.values()))
    if result.clean:
        for text in (text for text in given if not own[text]):
            raise click.UsageError(
                f"None of the {len(given[text])} checkpoints in {text} is of this ledger ({result.head.ledger}): give "
                "the file of its own runs. If this is that file, the whole ledger was replaced by another one."
            )
    click.echo(_as_json(result, skipped) if as_json else _as_text(result, skipped))
    sys.exit(0 if result.clean else 1)


@ledger.command()
@target
@click.option("--format", "form", type=click.Choice(sorted(FORMATS)), default="jsonl", show_default=True)
@click.option("--output", "--out", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Default: the screen.")
def export(target: str, form: str, output: Path | None) -> None:
    """The whole ledger as CSV, as JSONL (checked by standalone.py) or as a beancount journal."""

    def write(file: BinaryIO) -> None:
        with books.read(target) as book, book.snapshot():
            for piece in FORMATS[form](book):
                file.write(piece.encode())

    if output is None or str(output) == "-":
        if sys.stdout is None:
            raise click.ClickException("There is no screen to write to: give a file with --output.")
        write(sys.stdout.buffer)
    else:
        keep_apart(output, [target])
        replace(output, write, durable=False)


@ledger.command()
@target
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def backup(target: str, out: Path, force: bool) -> None:
    """A checked copy of LEDGER in the file OUT, made while others may write.

    A SQLite ledger gives a SQLite file with all that is in its -wal; a postgresql:// one gives the JSONL export, which
    `import` makes a ledger again.
    """
    with books.read(target) as book:
        click.echo(f"{out} holds the ledger up to {copies.backup(book, out, force=force)}")


@ledger.command("import")
@click.argument("export", metavar="FILE.jsonl", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@target
def import_(export: Path, target: str) -> None:
    """Make the new LEDGER of a JSONL export, entry by entry with the same hashes.

    The export is checked first. LEDGER must not exist or be empty; it may be in SQLite or in PostgreSQL.
    """
    head = copies.restore(export, target)
    click.echo(f"{shown(target)} holds the ledger up to {head}")


def _table(titles: Sequence[str], rows: Iterable[Sequence[object]], right: set[int]) -> None:
    click.echo(columns(titles, rows, right), nl=False)


for command in audit.COMMANDS:
    ledger.add_command(command)


def _checkpoints(text: str) -> list[Checkpoint]:
    if not Path(text).is_file():
        try:
            return [Checkpoint.parse(text)]
        except LedgerError as error:
            raise click.UsageError(f"{error} There is no file of that name either.") from error
    found = Checkpoint.find(Path(text).read_text("utf-8", errors="replace"))
    if not found and Path(text).name == "manifest.json":  # of a run that goes on: they are beside it
        growing = Path(text).with_name("checkpoints.jsonl")
        found = Checkpoint.find(growing.read_text("utf-8", errors="replace")) if growing.is_file() else []
    if not found:
        raise click.UsageError(f"There is no checkpoint in {text}.")
    return found


def _own(text: str, found: list[Checkpoint], identity: str) -> list[Checkpoint]:
    """Those of a file that are of this ledger, as far as they say so; what was given by hand is all meant."""
    if not identity or not Path(text).is_file():
        return found
    return [checkpoint for checkpoint in found if checkpoint.ledger in ("", identity)]


def _as_json(result: Verification, skipped: int) -> str:
    return json.dumps(
        {
            "clean": result.clean,
            "checkpoint": str(result.head),
            "postings": result.postings,
            "recomputed": result.recomputed,
            "checkpoints": result.checkpoints,
            "skipped": skipped,
            "signatures": result.signatures,
            "unbound": result.unbound,
            "unsigned": result.unsigned,
            "said": result.said,
            "unfinished": result.unfinished,
            "notes": [{"size": note.size, "cosigned": dict(note.times)} for note in result.notes],
            "findings": [vars(finding) for finding in result.findings],
        }
    )


def _as_text(result: Verification, skipped: int) -> str:
    checked = f"{counted(result.head.count, 'entry', 'entries')}, {counted(result.postings, 'posting')}, "
    checked += f"{counted(result.checkpoints, 'checkpoint')} checked"
    checked += f" ({skipped} of other ledgers skipped)" if skipped else ""
    derived = "every amount derived again" if result.recomputed else "amounts not derived again (--recompute)"
    noted = [f"note: {audit.told(note)}" for note in result.notes[-3:]]
    if more := len(result.notes) - len(noted):
        noted.insert(0, f"note: {counted(more, 'earlier checkpoint')} {'holds' if more == 1 else 'hold'} too")
    if result.signatures:
        derived += f", {counted(result.signatures, 'signature')} checked"
    if result.unbound:
        noted.append(
            f"note: {_some(result.unbound)} without terms: the amounts follow from what the entries say themselves"
        )
    if result.unsigned:
        noted.append(
            f"note: {_some(result.unsigned)} without signatures: what agents gave is what was said in their names"
        )
    if result.said:
        noted.append(f"note: {_some(result.said)} asked samples: who was drawn is said by the center, and not shown")
    noted += [f"note: run {run!r} is unfinished: it has {lacks}" for run, lacks in list(result.unfinished.items())[:10]]
    if len(result.unfinished) > 10:
        noted.append(f"note: {counted(len(result.unfinished) - 10, 'more run')} unfinished")
    verdict = "clean" if result.clean else counted(len(result.findings), "finding")
    return "\n".join([*map(str, result.findings), *noted, f"{verdict}: {checked}, {derived}; head {result.head}"])


def counted(number: int, one: str, many: str = "") -> str:
    """'1 finding', '2 findings'."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def _some(runs: Sequence[str]) -> str:
    named = ", ".join(map(repr, runs[:3])) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
    return f"run {named}" if len(runs) == 1 else f"runs {named}"
