"""One run: what was contributed, who paid whom, what the ledger's check covered."""

from __future__ import annotations

import json
from fractions import Fraction

from ..ledger.export import decimal
from ..ledger.verify import Verification
from ..payments import TREASURY
from . import charts
from .charts import Bar
from .format import NOTHING, count, money, name, points, rate
from .page import details, pre, table, text
from .run_totals import RunTotals

SHOWN = 60  # agents and rounds on the page; the ledger has them all
SIGNED = "every report is signed by its agent, and every amount follows from what was signed"
UNSIGNED = "none: what agents gave is what was said in their names"


def section(run: RunTotals, address: str, result: Verification, *, titled: bool) -> str:
    return "".join(
        [
            "<section>" + (f"<h2>{text(name(run))}</h2>" if titled else ""),
            f"<p>{text(_story(run))}</p>",
            _trouble(run),
            f'<div class="charts">{_contributions(run)}{_balances(run)}{_over_rounds(run)}</div>',
            "<h3>Agents</h3>" + _agents(run),
            "<h3>Ledger</h3>" + _checks(run, address, result),
            _certificate(run),
            details("Rounds", _rounds(run)),
            details("Settings", pre(json.dumps(run.manifest.settings, indent=1))) if run.manifest.settings else "",
            "</section>",
        ]
    )


def _story(run: RunTotals) -> str:
    """The run in a few sentences."""
    told = []
    if run.manifest.outcome:
        o = run.manifest.outcome
        told.append(f"{count(o['contributed'], 'contribution round')} and {count(o['trained'], 'training round')}.")
    agents, limit = count(len(run.agents), "agent"), sum(run.limits.values())
    had = f" of {points(limit)}" if limit else ""
    if run.last:
        first, last = points(sum(run.first.values())), points(sum(run.last.values()))
        told.append(f"{agents} gave {first} points first and {last}{had} last.")
    elif run.committed:
        told.append(f"{agents} committed {points(sum(run.committed.values()))}{had} points.")
    if run.moved or run.balance(TREASURY):
        paid, received = (money(sum(side.get(a, 0) for a in run.agents), run) for side in (run.paid, run.received))
        price = f", at {rate(run.beta)} per point" if Fraction(run.beta or 0) else ""
        told.append(f"The agents paid {paid} and received {received} units of money{price}.")
        told.append(f"The treasury's balance is {money(run.balance(TREASURY), run)}.")
    else:
        told.append("No money moved.")
    return " ".join([*told, *_audits(run)])


def _audits(run: RunTotals) -> list[str]:
    """What auditors found, and what followed."""
    if not run.deposits:
        return []
    made = count(run.audited, "delivery was", "deliveries were")
    by = f" by {', '.join(sorted(run.auditors))}" if run.auditors else ""
    told = [
        f"Every agent made a deposit. {made} made again{by}: " + ("not all passed." if run.failed else "all passed.")
    ]
    for agent, step in run.failed.items():
        lost = money(run.deposits.get(agent, 0), run)
        told.append(
            f"{agent} failed in training round {step + 1}: what it said it gave from then on is not paid, and its "
            f"deposit of {lost} went to the others."
        )
    return told


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
    bars, key = (run.last, "Bar: last. Stroke: first.") if run.last else (run.committed, "Bar: committed.")
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
        for agent in _shown(run)
    ]
    return charts.bars("Points contributed", rows, f"{key} Shaded: all the agent has." if run.limits else key)


def _balances(run: RunTotals) -> str:
    if not run.moved and not run.balance(TREASURY):
        return ""
    accounts = [*_shown(run), *([TREASURY] if run.balance(TREASURY) else [])]
    rows = [Bar(a, float(Fraction(run.balance(a), run.minor)), money(run.balance(a), run)) for a in accounts]
    return charts.bars("Balances", rows, "Units of money: what was received less what was paid.")


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
            dots = " Dotted: phase 1, of which the ledger keeps the end."
        top = f"{max(share for _, share in path):.0%}"
        drawn.append(charts.lines("Contribution over the rounds", path, ("0%", top), f"Share of all points.{dots}"))
    sums = [(float(at + 1), sum(said.values())) for at, said in run.values]
    if len(sums) > 1:
        ends = min(0, *(value for _, value in sums)), max(0, *(value for _, value in sums))
        words = f"{ends[0] / run.minor:.4g}", f"{ends[1] / run.minor:.4g}"
        drawn.append(charts.lines("Welfare over the rounds", [(at, float(value)) for at, value in sums], words))
    return "".join(drawn)


def _agents(run: RunTotals) -> str:
    known = bool(run.valuations and run.costs)
    titles = ["agent", "first", "last", "has", "paid", "received", "balance"]
    titles += ["model is worth", "cost of data", "net gain"] if known else []
    rows = [_agent(agent, run, known) for agent in _shown(run)]
    gave = [points(sum(some.values())) if some else NOTHING for some in (run.first, run.last, run.limits)]
    amounts = [sum(side.get(a, 0) for a in run.agents) for side in (run.paid, run.received)]
    totals = [*amounts, amounts[1] - amounts[0]]
    if known:
        worth, cost = run.welfare or 0, sum(run.costs.values())
        totals += [worth, cost, worth - cost + totals[2]]
    rows.append(["all", *gave, *(money(amount, run) for amount in totals)])
    more = len(run.agents) - SHOWN
    left = f"<p>The {SHOWN} lowest and highest balances; {more} more agents are in the ledger.</p>" if more > 0 else ""
    note = "Points contributed first and last, of those the agent has; units of money."
    if known:
        note += " Net gain: what the model is worth to it, less what its data cost, plus its balance."
        note += " Worth and costs are known from the run's manifest; the chain covers all that was paid."
    return table(titles, rows, numbers=1, total=True) + f'{left}<p class="small">{note}</p>'


def _agent(agent: str, run: RunTotals, known: bool) -> list[str]:
    gave = [points(some[agent]) if agent in some else NOTHING for some in (run.first, run.last, run.limits)]
    amounts = [run.paid.get(agent, 0), run.received.get(agent, 0), run.balance(agent)]
    if known:
        worth, cost = run.valuations[agent], run.costs.get(agent, 0)
        amounts += [worth, cost, worth - cost + run.balance(agent)]
    return [agent, *gave, *(money(amount, run) for amount in amounts)]


def _checks(run: RunTotals, address: str, result: Verification) -> str:
    postings = sum(at.postings for at in run.rounds.values())
    unbalanced = [number for number, at in run.rounds.items() if at.total]
    heads = count(result.checkpoints, "head")
    seen = f"{heads} that the run saw" if result.checkpoints else "no manifest to compare with"
    rows = [
        ("file", address),
        ("run", run.run),
        ("entries", f"{sum(len(at.kinds) for at in run.rounds.values())} in {count(len(run.rounds), 'round')}"),
        ("postings", str(postings)),
        ("sum of each round", decimal(0, run.minor) if not unbalanced else f"not zero in rounds {unbalanced}"),
        ("amounts", "all derived again from their inputs"),
        ("signatures", UNSIGNED if run.run in result.unsigned else SIGNED),
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
    return f'<h3>Certificate</h3>{pre(str(found))}<p class="small">{text(note)}</p>'


def _rounds(run: RunTotals) -> str:
    rows = [
        [str(number), ", ".join(at.kinds), str(at.postings), decimal(at.moved, run.minor), decimal(at.total, run.minor)]
        for number, at in sorted(run.rounds.items())
    ]
    more = f"<p>{len(rows) - SHOWN} more rounds are in the ledger.</p>" if len(rows) > SHOWN else ""
    return table(["round", "entries", "postings", "moved", "sum"], rows[:SHOWN], numbers=2) + more


def _shown(run: RunTotals) -> list[str]:
    """All agents, or of many those with the lowest and the highest balances."""
    if len(run.agents) <= SHOWN:
        return list(run.agents)
    ordered = sorted(run.agents, key=run.balance)
    return sorted([*ordered[: SHOWN // 2], *ordered[-SHOWN // 2 :]])
