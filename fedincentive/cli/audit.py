"""The auditor's part of `fedincentive ledger`: dates, corrections, disputes, periods and payouts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace as replaced
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path

import click

from .. import ledger as books
from .. import terms
from ..entry import RESERVED
from ..errors import LedgerError, ProvenanceError
from ..files import read_bounded, replace
from ..ledger import Entry, Ledger, bank, corrections, disputes, periods
from ..ledger import notes as checkpoints
from ..ledger import payout as payouts
from ..ledger.export import decimal, keep_apart
from ..ledger.notes import Calendar, Dated, moment
from ..ledger.verify import verify
from ..provenance.keys import KeyRing, PrivateKey, PublicKey
from ..provenance.names import Names
from ..provenance.notes import Note
from ..provenance.statements import known_keys
from ..reports.statements import columns
from .targets import target

Known = dict[str, list[PublicKey]] | None  # the keys that were exchanged, by name

notes = click.option(
    "--note",
    "notes",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Signed checkpoints: a run's notes.jsonl or manifest.json, an agent's receipt, or a note. May be repeated.",
)
folder = click.option(
    "--keys",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The public keys that were exchanged with the contract.",
)
private = click.option(
    "--keys",
    "folders",
    multiple=True,
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder with the signers' private keys; again where each has its own.",
)
names = click.option(
    "--names",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="MAP",
    help="The map of names, where accounts are pseudonyms.",
)


def people(path: Path | None) -> Names:
    return Names(Path()) if path is None else Names.read(path)


def notes_in(path: Path) -> list[Note]:
    found = checkpoints.find(read_bounded(path).decode("utf-8", "replace"))
    if not found:
        raise click.UsageError(f"There is no signed checkpoint in {path}: give a run's notes.jsonl, or a receipt.")
    return found


def exchanged(folder: Path | None) -> Known:
    try:
        return None if folder is None else known_keys(folder)
    except ProvenanceError as error:
        raise click.UsageError(str(error)) from error


def calendar(book: Ledger, files: Sequence[Path]) -> Calendar:
    """The dates that checkpoints give, if all of them are this ledger's own."""
    found = verify(book, notes=[note for path in files for note in notes_in(path)]) if files else None
    for finding in found.findings if found else ():
        raise LedgerError(f"There are no dates to tell: {finding}")
    return Calendar.of(found.notes if found else ())


def told(note: Dated) -> str:
    who = ", ".join(sorted(note.times)) or "nobody"
    return f"{note.size} entries, signed by the center, cosigned by {who}" + (
        f"; {moment(note.time)}" if note.time else ""
    )


@click.command()
@target
@click.argument("seq", type=int)
@click.option("--reason", required=True, help="Why; it stands in the ledger for ever.")
@click.option(
    "--amount", "amounts", multiple=True, metavar="ACCOUNT=AMOUNT", help="In units; may be negative. Repeated."
)
@click.option("--reverse", is_flag=True, help="Take the whole entry back.")
@click.option("--author", required=True, metavar="NAME", help="Who decided it; signs.")
@click.option("--approver", required=True, metavar="NAME", help="Who else approves it; signs.")
@click.option(
    "--proposal",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Only the author signs, into this file for the approver, who adds it with `ledger approve`.",
)
@private
def correct(
    target: str,
    seq: int,
    reason: str,
    amounts: tuple[str, ...],
    reverse: bool,
    author: str,
    approver: str,
    proposal: Path | None,
    folders: tuple[Path, ...],
) -> None:
    """Correct entry SEQ by an entry after it, signed by two persons. Nothing that stands there is changed.

    Either --reverse, or an --amount for each account: plus is paid to it, minus is charged, and they sum to 0. With
    --proposal the approver's private key is not needed; without it both are used here.
    """
    if reverse == bool(amounts):
        raise click.UsageError("Give either --reverse, or --amount for each account.")
    decided = own_key(author, folders)
    if proposal is None:
        approved = own_key(approver, folders)
        with appending(target) as book:
            given = None if reverse else _amounts(amounts, book.minor)
            _append(book, corrections.correct(book, seq, reason, given, decided, approved))
        return
    with books.read(target) as book:
        given = None if reverse else _amounts(amounts, book.minor)
        text = corrections.propose(book, seq, reason, given, decided, public_key(approver, folders))
    keep_apart(proposal, [target])
    replace(proposal, lambda file: file.write(text.encode()))
    click.echo(f"{author!r} proposes it in {proposal}. It counts when {approver!r} runs `fedincentive ledger approve`.")


@click.command()
@target
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--approver", required=True, metavar="NAME", help="Who approves it; signs.")
@private
def approve(target: str, file: Path, approver: str, folders: tuple[Path, ...]) -> None:
    """Approve the correction that another person proposed in FILE (`ledger correct --proposal`), and add it."""
    text = read_bounded(file).decode("utf-8", "replace")
    key = own_key(approver, folders)
    with appending(target) as book:
        entry = corrections.approve(book, text, key)
        _append(book, entry)
        told = ", ".join(f"{account} {decimal(amount, book.minor)}" for account, amount in entry.postings.items())
    author = PublicKey.parse(entry.inputs["author"]).name
    click.echo(f"{approver!r} approves what {author!r} decided: {told}. Reason: {entry.inputs['reason']}")


@click.command()
@target
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--agent", required=True, metavar="NAME", help="Whose report it is.")
@folder
def dispute(target: str, file: Path, agent: str, folder: Path | None) -> None:
    """Record in LEDGER that AGENT, which the ledger calls absent or has other words of, shows a report that it signed.

    FILE is what the agent kept beside its receipts, dispute-ROUND.json.
    """
    with appending(target) as book:
        entry = disputes.dispute(book, read_bounded(file).decode("utf-8", "replace"), agent)
        known = exchanged(folder)
        if known is not None:
            _hold(book, entry.run, agent, [key.vkey for key in known.get(agent, ())])
        _append(book, entry)
        seq = entry.inputs["disputes"]
        held = next(record.entry.inputs for record in book.chained(entry.run) if record.seq == seq)
    told = "calls it absent. Nobody can tell from this whether it reached the center in time"
    if agent in held.get("said", ()):
        told = "has other words in its name. `ledger verify --recompute` says whether it signed those too"
    click.echo(
        f"{agent!r} did sign this report, and entry {seq} {told}, so no money moves. A correction can move it, if both "
        "sides agree."
    )


@click.command("close-period")
@target
@click.option("--name", required=True, metavar="NAME", help="Of the period, such as 2026-Q4.")
@notes
@folder
@click.option("--need", default=1, show_default=True, help="How many witnesses must have cosigned its end.")
def close_period(target: str, name: str, notes: tuple[Path, ...], folder: Path | None, need: int) -> None:
    """End a period at the newest checkpoint given with --note, which dates it by its cosignatures.

    What is written after it, corrections of its own entries too, falls into the next period.
    """
    if not notes:
        raise click.UsageError(
            "A period ends at a signed checkpoint: give it with --note, such as a run's notes.jsonl."
        )
    with appending(target) as book:
        given = [note for path in notes for note in notes_in(path)]
        entry, dated = periods.close(book, name, given, exchanged(folder), need)
        _append(book, entry)
    click.echo(f"Period {name!r} has the entries {entry.inputs['after'] + 1} to {entry.inputs['size']}: {told(dated)}.")


@click.command("payout")
@target
@click.option("--run", help="What this run came to.")
@click.option("--period", help="What all came to up to the end of this closed period.")
@click.option("--currency", required=True, metavar="CODE", help="ISO 4217, as in the terms: EUR, for example.")
@click.option(
    "--payees",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.csv",
    help="Columns account, name, iban, bic; the line of `treasury` is who pays.",
)
@click.option("--date", "day", type=click.DateTime(["%Y-%m-%d"]), help="When banks shall pay.")
@click.option("--format", "form", type=click.Choice(["pain.001", "csv"]), default="pain.001", show_default=True)
@click.option("--out", "-o", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="For the bank.")
@click.option("--settled", metavar="ID", help="Record that this payout was made, instead of making one.")
@click.option("--unpaid", multiple=True, metavar="ACCOUNT", help="With --settled: not this line. May be repeated.")
@click.option("--unwitnessed", is_flag=True, help="Pay although too few agents cosigned; the bank's file says so.")
@notes
@folder
@names
def pay_out(
    target: str,
    run: str | None,
    period: str | None,
    currency: str,
    payees: Path | None,
    day: datetime | None,
    form: str,
    out: Path | None,
    settled: str | None,
    unpaid: tuple[str, ...],
    unwitnessed: bool,
    notes: tuple[Path, ...],
    folder: Path | None,
    names: Path | None,
) -> None:
    """Net what everybody has to get or to pay, and write the file for the bank.

    The file needs a ledger without findings, every amount and signature checked, and checkpoints that more than half of
    the agents cosigned: --note, or the end of a period. Amounts are rounded to the currency so that their sum is kept;
    the rest is carried. Nothing counts as paid before --settled says so, and what it says is not paid again.
    """
    if (run is None) == (period is None):
        raise click.UsageError("Give either --run or --period.")
    by, of = ("run", run) if run is not None else ("period", period)
    who = people(names)
    if settled is not None:
        with appending(target) as book:
            _append(book, payouts.settle(book, by, str(of), currency, settled, [who.account(one) for one in unpaid]))
        return
    with books.read(target) as book:
        due = replaced(payouts.payout(book, by, str(of), currency), unwitnessed=unwitnessed)
        if out is not None and (payees is None or day is None):
            raise click.UsageError("A file for the bank needs --payees and --date.")
        given_notes, known = [note for path in notes for note in notes_in(path)], exchanged(folder)
        noted = []
        for hold in (_witnessed, _sound):
            try:
                noted += hold(book, due, given_notes, known)
            except LedgerError as error:
                if out is not None:
                    raise
                noted.append(str(error))
    if out is not None and payees is not None and day is not None:
        keep_apart(out, [target])
        given = bank.payees(read_bounded(payees).decode("utf-8", "replace"))
        told_payees = {who.account(name): payee for name, payee in given.items()}
        now = datetime.now(timezone.utc).replace(tzinfo=None)
        text = (
            bank.as_csv(due, told_payees, day.date())
            if form == "csv"
            else bank.credit_transfers(due, told_payees, day.date(), now)
        )
        replace(out, lambda file: file.write(text.encode()), durable=False, private=True)
    _show_payout(due, who)
    click.echo("\n".join(noted))


def _sound(book: Ledger, due: payouts.Payout, given: list[Note], known: Known) -> list[str]:
    """Which of the runs that are paid are unfinished; LedgerError where the ledger has findings."""
    result = verify(book, recompute=True, notes=given, keys=known)
    if result.findings:
        raise LedgerError(
            f"NOT SOUND: the ledger has findings, {len(result.findings)} in all, the first: {result.findings[0]} "
            "Nothing is paid from it; see `ledger verify --recompute` with the same --note and --keys."
        )
    paid = {name: lacks for name, lacks in result.unfinished.items() if due.by == "period" or name == due.of}
    return [f"Run {name!r} is unfinished: it has {lacks}." for name, lacks in paid.items()]


def _witnessed(book: Ledger, due: payouts.Payout, given: list[Note], known: Known) -> list[str]:
    """Who saw what is paid; LedgerError where too few did."""
    if due.unwitnessed:
        return ["NOT WITNESSED: this payout is made without the agents' cosignatures."]
    try:
        return [payouts.witnessed(book, due.by, due.of, given, known)]
    except LedgerError as few:
        raise LedgerError(f"NOT WITNESSED: {few}") from few


def _show_payout(due: payouts.Payout, who: Names) -> None:
    def money(units: int) -> str:
        return decimal(units, 10**due.digits)

    rows = [
        (who.name(line.account), money(line.due), money(line.settled), money(line.open), f"{float(line.carried):+.4f}",
         "settled" if not line.open else "the payer's own" if line.account in RESERVED
         else "to pay" if line.open > 0 else "to invoice")
        for line in due.lines
    ]  # fmt: skip
    click.echo(f"Payout {due.message} of {due.by} {due.of!r} in {due.currency}\n")
    titles = ("account", "due", "settled", "open", "carried", "")
    click.echo(columns(titles, rows, right={1, 2, 3, 4}), nl=False)
    total, owed = sum(line.open for line in due.credits), -sum(line.open for line in due.invoices)
    click.echo(
        f"\n{len(due.credits)} to pay, {money(total)}; {len(due.invoices)} to invoice, {money(owed)}. What is carried "
        f"is in parts of the smallest unit."
    )


@contextmanager
def appending(target: str) -> Iterator[Ledger]:
    """An existing ledger, opened to add to it."""
    books.read(target).close()
    with books.open(target, minor=None) as book:
        yield book


def own_key(name: str, folders: Sequence[Path]) -> PrivateKey:
    for folder in folders:
        if name in (ring := KeyRing.read(folder)).private:
            return ring.private[name]
    where = ", ".join(map(str, folders))
    raise ProvenanceError(f"The private key of {name!r} is not in {where}: give the folder of its owner with --keys.")


def public_key(name: str, folders: Sequence[Path]) -> PublicKey:
    for folder in folders:
        if name in (ring := KeyRing.read(folder)).public:
            return ring.public[name]
    where = ", ".join(map(str, folders))
    raise ProvenanceError(f"The public key of {name!r} is not in {where}: ask {name!r} for it and copy it there.")


def _append(book: Ledger, entry: Entry) -> None:
    receipt = book.append(entry)
    told = "added as" if receipt.created else "there already as"
    click.echo(f"{entry.kind} of run {entry.run!r}, {told} entry {receipt.seq}; head {book.head()}")


def _amounts(given: Sequence[str], minor: int) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for text in given:
        account, _, number = text.rpartition("=")
        try:
            if not account or not re.fullmatch(r"[+-]?\d{1,30}(\.\d{1,30})?", number, re.ASCII):
                raise ValueError
            exact = Fraction(number) * minor
            if exact.denominator != 1:
                raise ValueError
        except ValueError:
            raise click.UsageError(
                f"--amount {text!r} is not ACCOUNT=AMOUNT with a decimal number of units, {minor} parts each at most."
            ) from None
        if account in amounts:
            raise click.UsageError(f"--amount names {account!r} twice.")
        amounts[account] = int(exact)
    return amounts


def _hold(book: Ledger, run: str, agent: str, known: Sequence[str]) -> None:
    """The agent's key in the terms must be one that was exchanged."""
    agreed = next(record.entry.inputs["terms"] for record in book.chained(run) if record.entry.kind == terms.KIND)
    vkey = agreed["agents"][agent]["key"]
    if vkey not in known:
        raise ProvenanceError(f"The key of {agent!r} in the terms of run {run!r} is {vkey}, which was not exchanged.")


COMMANDS = [correct, approve, dispute, close_period, pay_out]
