"""A quote as text for a terminal, in words: the symbols of the paper stand in brackets."""

from __future__ import annotations

from ..plain import left, width
from .quoting import Quote

SHOWN = 40  # rows of the printed table; JSON has them all
LABELS = 23  # width of the column of names


def render(found: Quote) -> str:
    paid = "; ".join(found.payments) or "no payments"
    giving = "everyone gives everything" if found.full_contribution else "everyone gives what is best for it"
    unit = f" in {found.currency}" if found.currency else ""
    lines = [f"Quote for {found.mechanism}{unit}: {paid}, and {giving}", "", *_table(found), ""]
    lines += [f"  {label:<{LABELS}}{text}" for label, text in _facts(found)]
    return "\n".join([*lines, "", "Assumed", *(f"  - {said}" for said in found.assumptions)])


def _table(found: Quote) -> list[str]:
    wide = max(5, *(width(row.agent) for row in found.agents[:SHOWN]))
    audited = any(row.deposit for row in found.agents)
    titles = ("points", *(() if found.full_contribution else ("gives",)), "payment", "worst case", "utility", "alone")
    titles += ("deposit",) * audited
    lines = [f"  {'agent':<{wide}} " + " ".join(f"{title:>12}" for title in titles)]
    for row in found.agents[:SHOWN]:
        gives = () if found.full_contribution else (row.s,)
        numbers = (row.s_max, *gives, row.payment, row.worst_payment, row.utility, row.outside_option)
        numbers += (row.deposit,) * audited
        mark = "  loses" * row.loses + "  over budget" * row.over_budget + "  over most_owed" * row.over_cap
        if row.counted < row.s_max and not row.over_budget:
            mark += f"  counts with {row.counted:g} for its budget of {row.budget:g}"
        cells = " ".join(f"{'-' if x is None else f'{x:.6g}':>12}" for x in numbers)
        lines.append(f"  {left(row.agent, wide)} {cells}{mark}")
    if len(found.agents) > SHOWN:
        lines.append(f"  ... and {len(found.agents) - SHOWN} more agents (--json has all)")
    return lines


def _facts(found: Quote) -> list[tuple[str, str]]:
    compared = bool(found.payments) or found.full_contribution
    facts = [
        ("worth to all", f"{found.welfare:.6g}"),
        ("data cost", f"{found.welfare - found.net_welfare:.6g} in all{_each(found)}"),
        ("worth minus cost", f"{found.net_welfare:.6g}"),
        ("  if all train alone", _shown(found.net_welfare_alone)),
        *([("  without payments", _shown(found.net_welfare_unpaid))] if compared else []),
        ("who loses", _losses(found)),
        *_prices(found),
    ]
    if found.lump_sums is not None:
        facts.append(("lump sums", ", ".join(f"{agent} {money}" for agent, money in found.lump_sums.items())))
        facts.append(("", "with them nobody is worse off than alone, and nobody's choice changes"))
    elif found.losers:
        facts.append(("lump sums", f"none: {found.lump_reason}"))
    if found.deficit != 0.0:
        facts.append(("treasury pays", _shown(found.deficit)))
    if found.phase_one_rounds is not None:
        rounds = found.phase_one_rounds
        told = f"{rounds} round{'s' * (rounds != 1)} at most, {rounds * len(found.agents)} messages each way"
        facts.append(("phase 1", told))
    return facts


def _prices(found: Quote) -> list[tuple[str, str]]:
    """Which prices of a point work, and for whom."""
    if found.rational is None:
        return []
    facts = []
    if found.full is not None:
        enough, always = f"{found.beta_ne:.6g}", _shown(found.beta_dom)
        facts.append(("sufficient price", f"{enough}: nobody gains by giving less while all others give all (beta_NE)"))
        facts.append(("dominant price", f"above {always}: every further point pays, whatever others do (beta_dom)"))
    accepted = str(found.rational)
    reason = "" if found.rational.empty else ": nobody ends below training alone or pays more than its budget"
    facts.append(("acceptable prices", accepted + reason))
    if found.most_owed is not None:
        facts.append(("  most_owed", f"{found.most_owed:g} at most, in the worst case"))
    if found.full is None:
        facts.append(("prices that do both", "none: it is paid before training, so that delivering earns nothing"))
    elif str(found.full) != accepted:
        facts.append(("prices that do both", str(found.full)))
    if found.cost_above_beta:
        facts.append(("price below cost", f"of the last point: {_first(found.cost_above_beta)}"))
    return facts


def _each(found: Quote) -> str:
    if found.point_costs is None:
        return ""
    low, high = (f"{cost:.6g}" for cost in found.point_costs)
    return f"; the last point costs its owner {low if low == high else f'{low} to {high}'}"


def _losses(found: Quote) -> str:
    """Who would be better off alone, and by how much."""
    lost = {
        row.agent: row.outside_option - row.utility
        for row in found.agents
        if row.loses and row.outside_option is not None and row.utility is not None
    }
    return _first(None if found.losers is None else tuple(f"{agent} {lost[agent]:.6g}" for agent in found.losers))


def _first(agents: tuple[str, ...] | None) -> str:
    if agents is None:
        return "not known"
    more = f" and {len(agents) - 5} more" if len(agents) > 5 else ""
    return (", ".join(agents[:5]) + more) or "nobody"


def _shown(value: float | None) -> str:
    return "not known" if value is None else f"{value:.6g}"
