"""An agent's statement as text, CSV, JSON, or an HTML page to print, with the receipts that prove its lines."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from ..files import cell
from ..ledger.export import decimal
from ..ledger.notes import moment
from ..ledger.statement import OF_BOOKS, Statement, StatementLine
from ..plain import left, width
from .format import count, points, sum_of
from .page import boxed, details, page, pre, table, text
from .page import cell as shown

LINES = ("seq", "run", "round", "kind", "committed", "delivered", "amount", "balance", "because")
NUMBERS = ("committed", "delivered", "amount", "balance")
SIGNED = ("amount", "balance")
RECEIPT = "receipt-{:08d}.json"


def as_text(account: Statement, name: str) -> str:
    """For a terminal; the dates come where checkpoints give them."""
    dated = account.note is not None
    titles = (*LINES[:-1], *(("not before", "not after") if dated else ()), LINES[-1])
    table = columns(titles, [_row(account, line, dated) for line in account.lines], right={0, 2, 4, 5, 6, 7})
    said = f"Statement of {_who(account, name)}\n\n{table}\nTotal: {_total(account)}\n"
    said += f"{_unsigned(account)}\n" if account.unsigned else ""
    return said + ("" if account.note is None else f"{_proof(account)}\n")


def as_csv(account: Statement, name: str) -> str:
    """One line per entry; times are in UTC."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["account", "seq", "run", "round", "kind", "rule", "committed", "delivered", "minor_units", "amount", "balance",
         "currency", "not_before", "not_after", "hash", "because", "agents_signed"]
    )  # fmt: skip
    for line in account.lines:
        start = [
            cell(name),
            line.seq,
            cell(line.run),
            line.round,
            line.kind,
            line.rule,
            line.committed or "",
            line.delivered or "",
        ]
        money = [
            line.amount,
            decimal(line.amount, account.minor),
            decimal(line.balance, account.minor),
            cell(account.currency),
        ]
        signed = "" if line.rule in OF_BOOKS else "no" if line.run in account.unsigned else "yes"
        dates = moment(line.after), moment(line.before)
        writer.writerow([*start, *money, *dates, line.hash, cell(line.because), signed])
    return out.getvalue()


def as_json(account: Statement, name: str) -> str:
    lines = []
    for line in account.lines:
        receipt = {"receipt": json.loads(line.receipt)} if line.receipt else {}
        lines.append({**{key: value for key, value in vars(line).items() if key != "receipt"}, **receipt})
    totals = {
        "minor": account.minor,
        "currency": account.currency,
        "balance": account.balance,
        "delivered": account.delivered,
        "unsigned": list(account.unsigned),
    }
    note = {} if account.note is None else {"note": str(account.note)}
    called = {} if name == account.account else {"name": name}
    return json.dumps({"account": account.account, **called, **totals, "lines": lines, **note}) + "\n"


def as_html(account: Statement, name: str) -> str:
    """One page without scripts, to read and to print; each receipt is in it as a file to save and check."""
    money = [line for line in account.lines if line.amount or line.committed or line.delivered]
    memos = [line for line in account.lines if line not in money]
    body = f'<p class="lead">{text(_lead(account, _who(account, name)))}</p><p>{text(_given(account))}</p>'
    body += f"<p>{text(_unsigned(account))}</p>" if account.unsigned else ""
    body += _runs(account)
    body += f"<h2>Entries</h2>{_lines(account, money)}" if money else ""
    body += f'<p class="small">Exactly: {text(_total(account))}.</p><p>{text(_proof(account))}</p>'
    if memos:
        told = f"{count(len(memos), 'entry', 'entries')} without money: terms, and what was reported"
        body += f'<div class="memos">{details(told, _lines(account, memos))}</div>'
    if account.note is not None:
        proofs = [f"entry {one.seq}  {one.hash}" for one in account.lines if one.receipt]
        body += f'<section class="proof"><h2>Checkpoint</h2>{pre(str(account.note))}<h2>Entries under it</h2>'
        body += pre("\n".join(proofs)) + "</section>"
    return page(f"Statement of {_who(account, name)}", f"<style>{PRINT}</style>{body}")


def _lead(account: Statement, who: str) -> str:
    """What a person wants to know first, in the currency's own digits."""

    def priced(amount: int) -> str:
        return sum_of(amount, account.minor, account.currency or "units")

    if not account.paid and not account.charged:
        return f"{who} received nothing and was charged nothing."
    if not account.charged:
        return f"{who} received {priced(account.paid)} and was charged nothing."
    if not account.paid:
        return f"{who} was charged {priced(account.charged)} and received nothing."
    balance = account.paid - account.charged
    left = (
        f"{priced(abs(balance))} {'in its favour' if balance > 0 else 'against it'}" if balance else "nothing is left"
    )
    return f"{who} received {priced(account.paid)} and was charged {priced(account.charged)}: {left}."


def _given(account: Statement) -> str:
    given = [Fraction(line.delivered) for line in account.lines if line.delivered]
    low, high = (points(min(given)), points(max(given))) if given else ("", "")
    between = low if low == high else f"{low} to {high}"
    told = f"It gave {between} points in each of {count(len(given), 'round')}." if len(given) > 1 else ""
    told = told or (f"It gave {low} points in one round." if given else "")
    times = [at for line in account.lines for at in (line.after, line.before) if at is not None]
    dated = f" Its entries were made between {moment(min(times))} and {moment(max(times))}." if times else ""
    return told + (dated or " Its dates are not proven: no cosigned checkpoint was given.")


def _runs(account: Statement) -> str:
    """One row for each run, where there are several."""
    runs = list(dict.fromkeys(line.run for line in account.lines))
    if len(runs) < 2:
        return ""
    rows = []
    for run in runs:
        amounts = [line.amount for line in account.lines if line.run == run]
        received, charged = sum(a for a in amounts if a > 0), -sum(a for a in amounts if a < 0)
        rows.append([run, *(decimal(amount, account.minor) for amount in (received, charged, received - charged))])
    return "<h2>Runs</h2>" + table(["run", "received", "charged", "balance"], rows, numbers=1, signed=SIGNED)


def _lines(account: Statement, lines: Sequence[StatementLine]) -> str:
    """The entries as a table; the run is named in it where there are several."""
    dated, several = account.note is not None, len({line.run for line in account.lines}) > 1
    titles = (*LINES[:-1], *(("not before", "not after") if dated else ()), LINES[-1])
    columns = [k for k, title in enumerate(titles) if several or title != "run"]
    head = "".join(f"<th{_number(titles[k])}>{text(titles[k])}</th>" for k in columns)
    rows = []
    for line in lines:
        row = _row(account, line, dated)
        cells = [shown(row[k], titles[k], titles[k] in NUMBERS, titles[k] in SIGNED) for k in columns]
        receipt = [f'<td data-title="receipt">{_link(line.seq, line.receipt)}</td>'] if dated else []
        rows.append(f"<tr>{''.join([*cells, *receipt])}</tr>")
    head += "<th>receipt</th>" if dated else ""
    return boxed(f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>", "statement")


def _number(title: str) -> str:
    return " class=n" if title in NUMBERS else ""


def columns(titles: Sequence[str], rows: Iterable[Sequence[object]], right: set[int]) -> str:
    """A table for a terminal, every line with its end."""
    cells = [list(map(str, titles)), *(list(map(str, row)) for row in rows)]
    widths = [max(width(row[k]) for row in cells) for k in range(len(titles))]
    lines = []
    for row in cells:
        padded = (row[k].rjust(wide) if k in right else left(row[k], wide) for k, wide in enumerate(widths))
        lines.append("  ".join(padded).rstrip() + "\n")
    return "".join(lines)


FORMATS: dict[str, Callable[[Statement, str], str]] = {"text": as_text, "csv": as_csv, "json": as_json, "html": as_html}


def _row(account: Statement, line: StatementLine, dated: bool) -> list[object]:
    given = line.committed or "", line.delivered or ""
    money = decimal(line.amount, account.minor), decimal(line.balance, account.minor)
    dates = (moment(line.after), moment(line.before)) if dated else ()
    return [line.seq, line.run, line.round, line.kind, *given, *money, *dates, line.because]


def _who(account: Statement, name: str) -> str:
    return account.account if name == account.account else f"{name} ({account.account})"


def _total(account: Statement) -> str:
    amounts = (decimal(amount, account.minor) for amount in (account.paid, account.charged, account.balance))
    paid, charged, balance = amounts
    unit = f" {account.currency}" if account.currency else ""
    carried = f"brought forward {decimal(account.opening, account.minor)}, " if account.opening else ""
    return f"{carried}delivered {account.delivered} points, received {paid}, charged {charged}, balance {balance}{unit}"


def _unsigned(account: Statement) -> str:
    runs = ", ".join(map(repr, account.unsigned))
    return f"Nobody signed what agents said in {'run' if len(account.unsigned) == 1 else 'the runs'} {runs}."


def _proof(account: Statement) -> str:
    if account.note is None:
        return "No checkpoint was given. The ledger's hashes fit, but its owner could have made all of it anew."
    proven, size = sum(bool(line.receipt) for line in account.lines), account.note.head.size
    return (
        f"{proven} of {len(account.lines)} lines are proven by receipts under the checkpoint of {size} entries of "
        f"{account.note.head.origin}; check one with `fedincentive receipt verify`."
    )


def _link(seq: int, receipt: str) -> str:
    if not receipt:
        return "made after the checkpoint"
    data = base64.b64encode(receipt.encode()).decode()
    return f'<a download="{RECEIPT.format(seq)}" href="data:application/json;base64,{data}">{seq}</a>'


PRINT = """
.statement{width:100%;font-size:.78rem}
@media not (max-width:40rem){
.statement{min-width:64rem}
.statement td,.statement th{white-space:normal;overflow-wrap:break-word;padding:.25rem .4rem;vertical-align:top}
.statement td.n{white-space:nowrap}
}
.scroll td:first-child{position:static}
.proof pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.7rem}
@media (min-width:40.01rem) and (max-width:64rem){.statement td{white-space:nowrap}}
@media print{.statement{min-width:0}.statement td{white-space:normal}.memos{display:none}}
"""
