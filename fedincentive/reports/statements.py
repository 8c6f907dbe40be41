"""An agent's statement as text, CSV, JSON, or an HTML page to print, with the receipts that prove its lines."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence

from ..files import cell
from ..ledger.export import decimal
from ..ledger.notes import moment
from ..ledger.statement import Statement, StatementLine
from .page import page, pre, text

LINES = ("seq", "run", "round", "kind", "committed", "delivered", "amount", "balance", "because")
RECEIPT = "receipt-{:08d}.json"


def as_text(account: Statement, name: str) -> str:
    """For a terminal; the dates come where checkpoints give them."""
    dated = account.note is not None
    titles = (*LINES[:-1], *(("not before", "not after") if dated else ()), LINES[-1])
    table = columns(titles, [_row(account, line, dated) for line in account.lines], right={0, 2, 4, 5, 6, 7})
    said = f"Statement of {_who(account, name)}\n\n{table}\nTotal: {_total(account)}\n"
    return said + ("" if account.note is None else f"{_proof(account)}\n")


def as_csv(account: Statement, name: str) -> str:
    """One line per entry; times are in UTC."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["account", "seq", "run", "round", "kind", "rule", "committed", "delivered", "minor_units", "amount", "balance",
         "currency", "not_before", "not_after", "hash", "because"]
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
        writer.writerow([*start, *money, moment(line.after), moment(line.before), line.hash, cell(line.because)])
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
    }
    note = {} if account.note is None else {"note": str(account.note)}
    called = {} if name == account.account else {"name": name}
    return json.dumps({"account": account.account, **called, **totals, "lines": lines, **note}) + "\n"


def as_html(account: Statement, name: str) -> str:
    """One page without scripts; each receipt is in it as a file to save and check."""
    dated = account.note is not None
    titles = (*LINES[:-1], *(("not before", "not after") if dated else ()), LINES[-1], *(("receipt",) if dated else ()))
    rows = []
    for line in account.lines:
        cells = [f"<td>{text(value)}</td>" for value in _row(account, line, dated)]
        if dated:
            cells.append(f"<td>{_link(line.seq, line.receipt)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th>{text(title)}</th>" for title in titles)
    body = f"<p>{text(_total(account))}</p>"
    table = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    body += f'<div class="scroll"><table class="statement">{table}</table></div>'
    body += f"<p>{text(_proof(account))}</p>"
    if account.note is not None:
        proofs = [f"entry {one.seq}  {one.hash}" for one in account.lines if one.receipt]
        body += f'<section class="proof"><h2>Checkpoint</h2>{pre(str(account.note))}<h2>Entries under it</h2>'
        body += pre("\n".join(proofs)) + "</section>"
    return page(f"Statement of {_who(account, name)}", f"<style>{PRINT}</style>{body}")


def columns(titles: Sequence[str], rows: Iterable[Sequence[object]], right: set[int]) -> str:
    """A table for a terminal, every line with its end."""
    cells = [list(map(str, titles)), *(list(map(str, row)) for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(titles))]
    lines = []
    for row in cells:
        padded = (row[k].rjust(width) if k in right else row[k].ljust(width) for k, width in enumerate(widths))
        lines.append("  ".join(padded).rstrip() + "\n")
    return "".join(lines)


FORMATS: dict[str, Callable[[Statement, str], str]] = {"text": as_text, "csv": as_csv, "json": as_json, "html": as_html}


def _row(account: Statement, line: StatementLine, dated: bool) -> list[object]:
    points = line.committed or "", line.delivered or ""
    money = decimal(line.amount, account.minor), decimal(line.balance, account.minor)
    dates = (moment(line.after), moment(line.before)) if dated else ()
    return [line.seq, line.run, line.round, line.kind, *points, *money, *dates, line.because]


def _who(account: Statement, name: str) -> str:
    return account.account if name == account.account else f"{name} ({account.account})"


def _total(account: Statement) -> str:
    amounts = (decimal(amount, account.minor) for amount in (account.paid, account.charged, account.balance))
    paid, charged, balance = amounts
    unit = f" {account.currency}" if account.currency else ""
    carried = f"brought forward {decimal(account.opening, account.minor)}, " if account.opening else ""
    return f"{carried}delivered {account.delivered} points, paid {paid}, charged {charged}, balance {balance}{unit}"


def _proof(account: Statement) -> str:
    if account.note is None:
        return "No checkpoint was given: the lines are from a ledger whose hashes fit, which its owner can make anew."
    proven, size = sum(bool(line.receipt) for line in account.lines), account.note.head.size
    return (
        f"{proven} of {len(account.lines)} lines are proven by receipts under the checkpoint of {size} entries of "
        f"{account.note.head.origin}; check one with `fedincentive receipt verify`."
    )


def _link(seq: int, receipt: str) -> str:
    if not receipt:
        return "after it"
    data = base64.b64encode(receipt.encode()).decode()
    return f'<a download="{RECEIPT.format(seq)}" href="data:application/json;base64,{data}">{seq}</a>'


PRINT = """
.statement{width:100%;font-size:.78rem}
.statement td,.statement th{white-space:normal;overflow-wrap:break-word;padding:.25rem .4rem;vertical-align:top}
.statement td:nth-child(7),.statement td:nth-child(8){text-align:right;white-space:nowrap}
.statement th:nth-child(7),.statement th:nth-child(8){text-align:right}
.proof pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.7rem}
@media print{@page{size:A4 landscape;margin:14mm}body{max-width:none;padding:0;font-size:9pt}
:root{color-scheme:light}thead{display:table-header-group}tr{break-inside:avoid}.proof{break-before:page}}
"""
