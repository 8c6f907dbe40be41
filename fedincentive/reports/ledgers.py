"""`fedincentive report LEDGER...`: what a run came to, for those who pay and are paid.

Every ledger is checked first. One that does not verify is named at the top, and no figure is taken from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import ledger, manifest
from ..errors import LedgerError
from ..files import replace
from ..ledger import Ledger
from ..ledger.address import shown
from ..ledger.export import keep_apart
from ..ledger.notes import find
from ..ledger.verify import Verification, verify
from ..payments import TREASURY
from . import charts, run_totals
from .charts import Bar
from .format import NOTHING, count, money, name, points, share
from .page import details, glossary, page, pre, table, text
from .run_totals import RunTotals
from .section import section
from .story import WORDS

PROBLEMS = 20  # findings on the page; `fedincentive ledger verify` lists them all


@dataclass(frozen=True)
class Checked:
    """A ledger: what checking it found, and its runs if it is clean."""

    address: str
    result: Verification | None
    problems: tuple[str, ...]
    runs: tuple[RunTotals, ...] = ()


def write(targets: Sequence[str], out: str | Path) -> list[Checked]:
    """Write the page about these ledgers; returns what was found in each, in the same order."""
    keep_apart(Path(out), targets)
    found = [check(target) for target in targets]
    page = render(found).encode()
    replace(Path(out), lambda file: file.write(page), durable=False)
    return found


def check(target: str) -> Checked:
    """Verify a ledger against its own chain, its rules, and the heads that its runs saw."""
    try:
        book = ledger.read(target)
    except LedgerError as error:
        return Checked(shown(target), None, (str(error),))
    with book:
        found = manifest.beside(target, _runs(book))
        seen = [checkpoint for one in found.values() for checkpoint in one.checkpoints]
        result = verify(book, recompute=True, checkpoints=seen, notes=find(manifest.notes(target)))
        if not result.clean:
            return Checked(book.address, result, tuple(map(str, result.findings)))
        try:
            return Checked(book.address, result, (), tuple(run_totals.read(book, result.head.count, found)))
        except LedgerError as error:
            return Checked(book.address, result, (str(error),))


def _runs(book: Ledger) -> set[str]:
    try:
        return {row.run for row in book.rows()}
    except LedgerError:
        return set()  # `verify` says what is wrong with it


def render(found: Sequence[Checked]) -> str:
    runs = [run for one in found for run in one.runs]
    alone = len(runs) == len(found) == 1
    titles = {} if alone else _titles(found)
    sections = [_broken(one) if one.problems else _sections(one, runs, titles) for one in found]
    title = name(runs[0]) if alone else "Contributions and payments"
    words = details("Words used here", glossary(WORDS)) if runs else ""
    return page(title, f"{_verdict(found)}<main>{_comparison(runs, titles)}{''.join(sections)}{words}</main>")


def _verdict(found: Sequence[Checked]) -> str:
    broken = [one for one in found if one.problems]
    if broken:
        names = "".join(f"<li>{text(one.address)}: {text(one.problems[0])}</li>" for one in broken)
        return (
            f'<div class="verdict bad" role="alert"><p><strong>{len(broken)} of {count(len(found), "ledger")} '
            f"{'does' if len(broken) == 1 else 'do'} NOT verify.</strong> Pay nobody by "
            f"{'it' if len(broken) == 1 else 'them'} before this is explained:</p><ul>{names}</ul></div>"
        )
    results = [one.result for one in found if one.result]
    if not any(r.head.count for r in results):
        empty = "The ledger is empty." if len(found) == 1 else "The ledgers are empty."
        return f'<div class="verdict"><p><strong>{empty}</strong> Nothing has been written yet.</p></div>'
    entries, postings = sum(r.head.count for r in results), sum(r.postings for r in results)
    return (
        f'<div class="verdict"><p><strong>{count(len(found), "ledger")} verified.</strong> '
        f"{count(entries, 'entry', 'entries')}, {count(postings, 'posting')}: the chain of hashes is whole, every "
        "amount was derived again from its inputs, and every round sums to exactly zero.</p></div>"
    )


def _titles(found: Sequence[Checked]) -> dict[int, str]:
    """What each run is called, by its id; with its ledger where two have the same name."""
    named = [(name(run), one.address, run) for one in found for run in one.runs]
    twice = {title for title, many in Counter(title for title, _, _ in named).items() if many > 1}
    return {id(run): f"{title}, {Path(place).name}" if title in twice else title for title, place, run in named}


def _comparison(runs: Sequence[RunTotals], titles: Mapping[int, str]) -> str:
    """The runs beside each other: what each mechanism achieved."""
    if len(runs) < 2:
        return ""
    columns = ["run", "contributed", "share", "welfare", "cost of data", "net", "paid to agents", "treasury"]
    rows = [
        [
            titles[id(run)],
            points(sum(run.last.values())) if run.last else NOTHING,
            share(run),
            money(run.welfare, run),
            money(sum(run.costs.values()) if run.costs else None, run),
            money(run.net, run),
            money(sum(max(run.balance(agent), 0) for agent in run.agents), run),
            money(run.balance(TREASURY), run),
        ]
        for run in runs
    ]
    nets = [Bar(titles[id(run)], run.net / run.minor, money(run.net, run)) for run in runs if run.net is not None]
    chart = charts.bars("Net welfare", nets, money=True) if len(nets) == len(runs) else ""
    return (
        "<h2>Side by side</h2>"
        + table(columns, rows, numbers=1, signed=("treasury",))
        + '<p class="small">Welfare: what the final model is worth to all agents together, as they say. Net: welfare '
        "less what the contributed data cost them. Paid to agents: the balances above zero. Payments only move money "
        "and change neither. "
        f"{_currencies(runs)}</p>" + chart
    )


def _currencies(runs: Sequence[RunTotals]) -> str:
    names = sorted({run.currency for run in runs})
    return text(
        f"Amounts are in {names[0]}." if len(names) == 1 else f"Each run counts in its own: {', '.join(names)}."
    )


def _sections(one: Checked, runs: Sequence[RunTotals], titles: Mapping[int, str]) -> str:
    if one.result is None:
        return ""
    return "".join(
        section(run, one.address, one.result, without=_without_payments(run, runs), title=titles.get(id(run), ""))
        for run in one.runs
    )


def _without_payments(run: RunTotals, runs: Sequence[RunTotals]) -> RunTotals | None:
    """The run on this page in which the same agents moved no money, to compare with."""
    fitting = [one for one in runs if one is not run and one.unpaid and one.gains and one.agents == run.agents]
    return fitting[0] if fitting and run.gains and not run.unpaid else None


def _broken(one: Checked) -> str:
    shown = "\n".join(one.problems[:PROBLEMS])
    more = f"<p>{len(one.problems) - PROBLEMS} more.</p>" if len(one.problems) > PROBLEMS else ""
    head = f"<p>Head {text(one.result.head)}</p>" if one.result else ""
    return (
        f"<section><h2>{text(one.address)}</h2><p><strong>Does not verify.</strong> No figure is shown from it.</p>"
        f"{head}{pre(shown)}{more}</section>"
    )
