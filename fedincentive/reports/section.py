"""One run: what was contributed, who paid whom, what the ledger's check covered."""

from __future__ import annotations

import json

from ..ledger.export import decimal
from ..ledger.verify import Verification
from ..payments import TREASURY
from . import charts
from .charts import Bar, Flow
from .format import NOTHING, count, money, name, points
from .page import details, pre, table, text
from .run_totals import RunTotals
from .story import story

FLOWS = 12  # who pays, and who is paid, one by one
SHOWN = 60  # agents and rounds on the page; the ledger has them all
BARS = 20  # agents in a chart
SIGNED_COLUMNS = ("balance", "gain", "against training alone", "against no payments")
SIGNED = "every report is signed by its agent, and every amount follows from what was signed"
UNSIGNED = "none: what agents gave is what was said in their names"


def section(
    run: RunTotals, address: str, result: Verification, *, without: RunTotals | None = None, title: str = ""
) -> str:
    """`without`: the same agents' run in which no money moved."""
    first, others = story(run, result)
    return "".join(
        [
            "<section>" + (f"<h2>{text(title)}</h2>" if title else ""),
            f'<p class="lead">{text(first)}</p><p>{text(" ".join(others))}</p>',
            _trouble(run),
            f'<div class="charts">{_who_pays_whom(run)}{_contributions(run)}{_over_rounds(run)}</div>',
            "<h3>Agents</h3>" + _agents(run, without),
            "<h3>Ledger</h3>" + _checks(run, address, result),
            _certificate(run),
            details("Exact amounts", _exact(run)),
            details("Rounds", _rounds(run)),
            _settings(run),
            "</section>",
        ]
    )


def _trouble(run: RunTotals) -> str:
    """What an operator should know: a run that ended short, reports that were refused, or no manifest."""
    o, said = run.manifest.outcome, []
    if not run.manifest.run:
        said.append("There is no manifest beside the ledger, so its mechanism and settings are not known here.")
    elif not o:
        said.append("The run had not ended when this was written.")
    elif o["status"] != "complete":
        said.append(o["advice"] or f"The run ended early: {o['status']}.")
    counts = ", ".join(f"{many} {why}" for why, many in sorted(o.get("counts", {}).items()) if many)
    said += [f"Reports not counted: {counts}."] if counts else []
    return "".join(f"<p>{text(line)}</p>" for line in said)


def _contributions(run: RunTotals) -> str:
    bars, key = run.last, "Bar: points given at the end. Stroke: at first."
    if not bars:
        bars, key = run.committed, "Bar: points committed."
    if not bars:
        return ""
    rows = [
        Bar(
            agent,
            float(bars.get(agent, 0)),
            points(bars.get(agent, 0)),
            float(run.first[agent]) if run.last and agent in run.first else None,
            float(run.limits[agent]) if agent in run.limits else None,
        )
        for agent in _shown(run, BARS)
    ]
    key += " Shaded: all the agent has." if run.limits else ""
    key += f" The {BARS} lowest and highest balances." if len(run.agents) > BARS else ""
    return charts.bars("Points contributed", rows, key)


def _who_pays_whom(run: RunTotals) -> str:
    balances = {a: run.balance(a) for a in (*run.agents, TREASURY) if run.balance(a)}
    if not balances:
        return ""
    sides = []
    for sign in (-1, 1):
        side = sorted((a for a in balances if balances[a] * sign > 0), key=lambda a: -abs(balances[a]))
        flows = [Flow(a, abs(balances[a]) / run.minor, money(abs(balances[a]), run)) for a in side[:FLOWS]]
        if rest := side[FLOWS:]:
            amount = sum(abs(balances[a]) for a in rest)
            flows.append(Flow(count(len(rest), "other"), amount / run.minor, money(amount, run)))
        sides.append(flows)
    key = f"In {run.currency}, all rounds together. Left: who paid. Right: who was paid."
    return charts.flows("Who pays whom", sides[0], sides[1], key)


def _over_rounds(run: RunTotals) -> str:
    """Contribution and welfare, as far as entries recorded them round by round."""
    drawn = []
    limit = sum(run.limits.values())
    if len(run.deliveries) > 1 and limit:
        path = [(float(at + 1), float(sum(given.values()) / limit)) for at, given in run.deliveries]
        path.insert(0, (float(run.committed_at), float(sum(run.committed.values()) / limit)))
        dots = ""
        if run.manifest.first and run.committed_at:
            path.insert(0, (0.0, float(sum(run.manifest.first.values()) / limit)))
            dots = " Dotted: phase 1; the ledger has only how it ended."
        top = f"{max(share for _, share in path):.0%}"
        key = f"Share of all points that is given.{dots}"
        drawn.append(charts.lines("Contribution over the rounds", path, ("0%", top), key))
    sums = [(float(at + 1), sum(said.values())) for at, said in run.values]
    if len(sums) > 1:
        ends = min(0, *(value for _, value in sums)), max(0, *(value for _, value in sums))
        words = f"{ends[0] / run.minor:.4g}", f"{ends[1] / run.minor:.4g}"
        drawn.append(charts.lines("Welfare over the rounds", [(at, float(value)) for at, value in sums], words))
    return "".join(drawn)


def _agents(run: RunTotals, without: RunTotals | None) -> str:
    known, alone = bool(run.gains), bool(run.gains) and bool(run.manifest.alone)
    titles = ["agent", "first", "last", "has", "paid", "received", "balance"]
    titles += ["model is worth", "cost of data", "gain"] if known else []
    titles += ["against training alone"] if alone else []
    titles += ["against no payments"] if without else []
    titles += ["update is worth", "of rounds"] if run.worth else []
    rows = []
    for agent in _shown(run):
        gave = [points(some[agent]) if agent in some else NOTHING for some in (run.first, run.last, run.limits)]
        amounts: list[int | None] = [run.paid.get(agent, 0), run.received.get(agent, 0), run.balance(agent)]
        if known:
            amounts += [run.valuations[agent], run.costs.get(agent, 0), run.gains[agent]]
        if alone:
            said = run.manifest.alone.get(agent)
            amounts.append(None if said is None else run.gains[agent] - said)
        if without:
            amounts.append(run.gains[agent] - without.gains[agent] * run.minor // without.minor)
        valued = _worth(agent, run) if run.worth else ()
        rows.append([agent, *gave, *(money(amount, run) for amount in amounts), *valued])
    rows.append(_totals(run, without, known, alone))
    more = len(run.agents) - SHOWN
    left = f"<p>The {SHOWN} lowest and highest balances; {more} more agents are in the ledger.</p>" if more > 0 else ""
    note = f"Points contributed first and last, of those the agent has. Amounts are in {run.currency}."
    if known:
        note += " Worth and costs are known from the run's manifest; the chain covers all that was paid."
    if without:
        note += f" Against no payments: the gain less that in {name(without)}, in which no money moved."
    if run.worth:
        note += (
            " An update's worth is the mean over the rounds that the agent answered, with half of its 95 % interval."
        )
    return (
        table(titles, rows, numbers=1, total=True, signed=SIGNED_COLUMNS) + f'{left}<p class="small">{text(note)}</p>'
    )


def _totals(run: RunTotals, without: RunTotals | None, known: bool, alone: bool) -> list[str]:
    gave = [points(sum(some.values())) if some else NOTHING for some in (run.first, run.last, run.limits)]
    amounts: list[int | None] = [sum(side.get(a, 0) for a in run.agents) for side in (run.paid, run.received)]
    amounts.append(sum(run.balance(a) for a in run.agents))
    if known:
        amounts += [run.welfare, sum(run.costs.values()), sum(run.gains.values())]
    if alone:
        everyone = set(run.manifest.alone) >= set(run.agents)
        amounts.append(sum(run.gains[a] - run.manifest.alone[a] for a in run.agents) if everyone else None)
    if without:
        amounts.append(sum(run.gains[a] - without.gains[a] * run.minor // without.minor for a in run.agents))
    valued = [NOTHING, str(max(map(len, run.worth.values()), default=0))] if run.worth else []
    return ["all", *gave, *(money(amount, run) for amount in amounts), *valued]


def _worth(agent: str, run: RunTotals) -> tuple[str, str]:
    """The mean value of the agent's updates and in how many rounds they were valued."""
    if not (found := run.worth.get(agent)):
        return NOTHING, "0"
    value, half = sum(v for v, _ in found) / len(found), sum(h * h for _, h in found) ** 0.5 / len(found)
    return f"{value:.4g} \u00b1 {half:.1g}", str(len(found))


def _exact(run: RunTotals) -> str:
    """Every digit of what was posted."""
    accounts = [*_shown(run), *([TREASURY] if run.balance(TREASURY) else [])]
    rows = [
        [a, *(decimal(x, run.minor) for x in (run.paid.get(a, 0), run.received.get(a, 0), run.balance(a)))]
        for a in accounts
    ]
    return table(["account", "paid", "received", "balance"], rows, numbers=1, signed=("balance",))


def _checks(run: RunTotals, address: str, result: Verification) -> str:
    postings = sum(at.postings for at in run.rounds.values())
    unbalanced = [number for number, at in run.rounds.items() if at.total]
    heads = count(result.checkpoints, "head")
    seen = f"{heads} that the run saw" if result.checkpoints else "no manifest to compare with"
    rows = [
        ("file", address),
        ("run", run.run),
        ("entries", f"{sum(len(at.kinds) for at in run.rounds.values())} in {count(len(run.rounds), 'round')}"),
        ("postings", f"{postings:,}"),
        ("sum of each round", decimal(0, run.minor) if not unbalanced else f"not zero in rounds {unbalanced}"),
        ("amounts", "all derived again from their inputs"),
        ("signatures", UNSIGNED if run.run in result.unsigned else SIGNED),
        ("end", f"unfinished: it has {lacks}" if (lacks := result.unfinished.get(run.run)) else "nothing is missing"),
        ("checked against", seen),
        ("head", str(result.head)),
    ]
    body = "".join(f"<tr><th>{text(name)}</th><td>{text(value)}</td></tr>" for name, value in rows)
    return f'<table class="words"><tbody>{body}</tbody></table>'


def _certificate(run: RunTotals) -> str:
    """What the run's center certified; it stands beside the chain, which does not cover it."""
    found = run.manifest.certificate
    if found is None:
        return ""
    note = "Each line ends with what it rests on. It is kept with the manifest; the chain does not cover it."
    return details("Certificate", f'{pre(str(found))}<p class="small">{text(note)}</p>')


def _settings(run: RunTotals) -> str:
    """What was set, without what was left out."""
    given = {key: value for key, value in run.manifest.settings.items() if value is not None}
    return details("Settings", f'<div class="settings">{pre(json.dumps(given, indent=1))}</div>') if given else ""


def _rounds(run: RunTotals) -> str:
    rows = [
        [str(number), ", ".join(at.kinds), str(at.postings), decimal(at.moved, run.minor), decimal(at.total, run.minor)]
        for number, at in sorted(run.rounds.items())
    ]
    more = f"<p>{len(rows) - SHOWN} more rounds are in the ledger.</p>" if len(rows) > SHOWN else ""
    return table(["round", "entries", "postings", "moved", "sum"], rows[:SHOWN], numbers=2) + more


def _shown(run: RunTotals, many: int = SHOWN) -> list[str]:
    """All agents, or of many those with the lowest and the highest balances."""
    if len(run.agents) <= many:
        return list(run.agents)
    ordered = sorted(run.agents, key=run.balance)
    return sorted([*ordered[: many // 2], *ordered[-many // 2 :]])
