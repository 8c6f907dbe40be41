"""The quote: what a mechanism that pays beta per point would mean for each agent, before anyone signs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

from ..errors import GameError
from .arrays import Array
from .certificate import outside_options
from .dynamics import best_replies
from .games import Game
from .phases import BetaRange, Bound, advantage, affordable, beta_dom, combine, rational, withholding_gains
from .regret import max_regret
from .steps import kappa

REST_AGENTS, REST_SWEEPS = 20, 50  # the comparison without payments is searched for, so it is kept to small games
SHOWN = 40  # rows of the printed table; JSON has them all


@dataclass(frozen=True)
class AgentQuote:
    """One agent's terms when everyone, itself included, gives s_max."""

    agent: str
    s_max: float
    payment: float  # also the least it can get as long as it delivers s_max: nobody can give more
    worst_payment: float  # it delivers nothing and everyone else everything
    utility: float
    outside_option: float | None
    loses: bool
    over_budget: bool
    beta_ne: float  # the largest average gain per point it withholds


@dataclass(frozen=True)
class Quote:
    """The terms of all agents and the prices that would work; `print(quote)` or `quote.to_json()`."""

    beta: str
    proposed: bool  # beta is this quote's proposal, not the operator's
    agents: tuple[AgentQuote, ...]
    welfare: float
    net_welfare: float
    net_welfare_alone: float | None
    net_welfare_unpaid: float | None  # at an equilibrium without payments, where one was found
    beta_ne: float
    beta_dom: float | None
    rational: BetaRange  # individual rationality and budgets
    full: BetaRange  # and s_max an equilibrium
    cost_above_beta: tuple[str, ...]  # their last point costs more than it earns; only its value to them can make up
    phase_one_rounds: int | None
    assumptions: tuple[str, ...]

    @property
    def losers(self) -> tuple[str, ...] | None:
        """The agents that would be better off alone; None where no outside option is known."""
        if self.net_welfare_alone is None:
            return None
        return tuple(row.agent for row in self.agents if row.loses)

    def to_json(self) -> dict[str, Any]:
        values = {**asdict(self), "losers": self.losers}
        for name in ("rational", "full"):  # JSON has no infinity: null means no limit
            values[name] = {**_finite(values[name]), "empty": getattr(self, name).empty}
        return values

    def __str__(self) -> str:
        return render(self)


def quote(game: Game, beta: Fraction | float | str | None = None, *, gamma: float | None = None) -> Quote:
    """The quote for a price of beta per point, or for a proposed one.

    >>> from fedincentive.game import repaired_example
    >>> found = quote(repaired_example(), "0.05")
    >>> found.beta_ne, found.beta_dom, round(found.net_welfare, 6)
    (0.035, 0.04, 1.6)
    """
    if game.n < 2:
        raise GameError("A contribution payment compares an agent with the others: a quote needs at least 2 agents.")
    best = game.optimum()
    w = game.w0 if best is None else best
    outside, base = outside_options(game), game.values(w, game.s_max) - game.costs(game.s_max)
    gains = np.maximum(withholding_gains(game, game.w0), withholding_gains(game, w))
    ne, dom = max(0.0, float(gains.max())), _dominance(game, w)
    demands = [*affordable(game), *([] if outside is None else rational(game, base, outside))]
    accepted, full = combine(demands), combine([*demands, *_stable(game, gains)])
    price, proposed = (_propose(full, ne, dom), True) if beta is None else (_exact(beta), False)
    return Quote(
        beta=_decimal(price),
        proposed=proposed,
        agents=_terms(game, float(price), base, outside, gains),
        welfare=game.welfare(w, game.s_max),
        net_welfare=float(base.sum()),
        net_welfare_alone=None if outside is None else float(outside.sum()),
        net_welfare_unpaid=_unpaid(game, w),
        beta_ne=ne,
        beta_dom=dom,
        rational=accepted,
        full=full,
        cost_above_beta=_dear(game, float(price)),
        phase_one_rounds=_rounds(game, gamma, float(price), dom),
        assumptions=_assumptions(game, best, outside, proposed),
    )


def _terms(game: Game, beta: float, base: Array, outside: Array | None, gains: Array) -> tuple[AgentQuote, ...]:
    paid, worst = beta * advantage(game.s_max), -beta * (np.sum(game.s_max) - game.s_max) / (game.n - 1)
    utility = base + paid
    slack = 1e-9 * np.maximum(1.0, np.abs(utility))
    loses = np.zeros(game.n, dtype=bool) if outside is None else utility < outside - slack
    over = np.zeros(game.n, dtype=bool) if game.budget is None else -paid > game.budget + slack
    return tuple(
        AgentQuote(
            agent=name,
            s_max=float(game.s_max[i]),
            payment=float(paid[i]),
            worst_payment=float(worst[i]),
            utility=float(utility[i]),
            outside_option=None if outside is None else float(outside[i]),
            loses=bool(loses[i]),
            over_budget=bool(over[i]),
            beta_ne=max(0.0, float(gains[i])),
        )
        for i, name in enumerate(game.agents)
    )


def _dear(game: Game, beta: float) -> tuple[str, ...]:
    return tuple(game.agents[i] for i in np.flatnonzero(game.cost.slope(game.s_max) > beta))


def _stable(game: Game, gains: Array) -> list[Bound]:
    why = "s_max as its best reply"
    return [Bound(game.agents[i], float(gains[i]), math.inf, why) for i in np.flatnonzero(gains > 0.0)]


def _dominance(game: Game, w: Array) -> float | None:
    """zeta + tau for every w where that is bounded, else at the two w of the run that are known."""
    everywhere = beta_dom(game)
    if everywhere is not None:
        return everywhere
    start, end = beta_dom(game, game.w0), beta_dom(game, w)
    return None if start is None or end is None else max(start, end)


def _unpaid(game: Game, w: Array) -> float | None:
    """Net welfare at an equilibrium without payments, found by best replies and verified by its regret."""
    if game.n > REST_AGENTS:
        return None
    try:
        s = _resting(game, w)
        rest = max_regret(game, w, s)
    except GameError:  # the replies ran out of the valuation's domain: there is no such equilibrium
        return None
    settled = rest.value is not None and rest.value <= 1e-6 * max(1.0, float(np.abs(game.values(w, s)).max()))
    return game.net_welfare(w, s) if settled else None


def _resting(game: Game, w: Array) -> Array:
    """Where best replies without payment come to rest, or wherever they are after REST_SWEEPS rounds."""
    before = game.s0
    for state in islice(best_replies(game, w=w), 1, REST_SWEEPS):
        if np.all(np.abs(state.s - before) <= 1e-6 * game.s_max):
            break
        before = state.s
    return state.s


def _rounds(game: Game, gamma: float | None, beta: float, dom: float | None) -> int | None:
    start = beta_dom(game, game.w0)
    if gamma is None or dom is None or start is None or beta <= start:
        return None
    return math.ceil(kappa(game, gamma=gamma, beta=beta))


def _exact(beta: Fraction | float | str) -> Fraction:
    try:
        price = Fraction(str(beta)) if isinstance(beta, float) else Fraction(beta)
    except (ValueError, ZeroDivisionError):
        raise GameError(f"beta must be a finite decimal number, not {beta!r}.") from None
    if price <= 0:
        raise GameError(f"beta must be greater than 0, not {beta!r}: without a payment there is nothing to quote.")
    return price


def _propose(full: BetaRange, ne: float, dom: float | None) -> Fraction:
    """A short decimal just above beta_dom where all accept it, else the least that makes s_max an equilibrium."""
    floor = 0.0 if full.empty else full.low
    for wanted in (ne if dom is None else 1.01 * dom, ne):
        price = _round_up(max(wanted, floor, 1e-6))
        if float(price) in full:
            return price
    return _round_up(max(ne, 1e-6))


def _round_up(value: float) -> Fraction:
    """The next decimal with 3 significant digits."""
    unit = Fraction(10) ** (math.floor(math.log10(value)) - 2)
    return math.ceil(Fraction(value) / unit) * unit


def _decimal(price: Fraction) -> str:
    """The exact decimal where there is one, else p/q."""
    digits, power = 0, 1
    while power % price.denominator and digits < 60:
        digits, power = digits + 1, power * 10
    if power % price.denominator:
        return str(price)
    whole = str(price.numerator * (power // price.denominator)).rjust(digits + 1, "0")
    return f"{whole[:-digits]}.{whole[-digits:]}" if digits else whole


def _finite(bounds: dict[str, Any]) -> dict[str, Any]:
    rows = [_finite(row) for row in bounds.get("blocking", ())]
    plain = {key: None if isinstance(v, float) and math.isinf(v) else v for key, v in bounds.items()}
    return {**plain, "blocking": rows} if "blocking" in bounds else plain


def _assumptions(game: Game, best: Array | None, outside: Array | None, proposed: bool) -> tuple[str, ...]:
    said = ["The costs and valuations are those of the game file; nobody has verified them."]
    said.append(
        "w is the starting model w0: w_OPT is not known for this valuation."
        if best is None
        else "w is w_OPT, the model that phase 2 approaches; everyone delivers s_max in every training round."
    )
    said.append("The payment stays live in training (settlement: tranches or end); under commitment it is sunk there.")
    said.append("Payment is the least an agent gets while it delivers s_max; worst case: it alone delivers nothing.")
    said.append("Accepted beta: nobody worse off than alone, nobody pays above its budget while delivering s_max.")
    if game.outside_option is not None:
        said.append("The outside options are as stated in the game file.")
    elif outside is not None:
        said.append("The outside option is the agent's best utility training alone on its own data.")
    else:
        said.append("No outside option is known, so individual rationality is not checked.")
    if not game.concave:
        said.append("The utilities are not known concave: beta_NE is a lower bound from a search.")
    if game.tau is None and game.tau_at(game.w0) is not None:
        said.append("tau is unbounded over all w: beta_dom holds at w0 and at w_OPT, not on the way between them.")
    if proposed:
        said.append(
            "The proposal rests on what agents say of themselves; above-average agents gain from a higher beta."
        )
    return tuple(said)


def render(found: Quote) -> str:
    """The quote as text for a terminal."""
    kind = "proposed" if found.proposed else "as given"
    lines = [f"Quote for beta = {found.beta} per point ({kind}), everyone giving s_max", ""]
    width = max(5, *(len(row.agent) for row in found.agents[:SHOWN]))
    lines.append(f"  {'agent':<{width}} {'s_max':>12} {'payment':>12} {'worst case':>12} {'utility':>12} {'alone':>12}")
    for row in found.agents[:SHOWN]:
        alone = "-" if row.outside_option is None else f"{row.outside_option:.6g}"
        mark = "  loses" * row.loses + "  over budget" * row.over_budget
        numbers = (f"{x:>12.6g}" for x in (row.s_max, row.payment, row.worst_payment, row.utility))
        lines.append(f"  {row.agent:<{width}} {' '.join(numbers)} {alone:>12}{mark}")
    if len(found.agents) > SHOWN:
        lines.append(f"  ... and {len(found.agents) - SHOWN} more agents (--json has all)")
    facts = [
        ("welfare", f"{found.welfare:.6g}"),
        ("net welfare", f"{found.net_welfare:.6g}"),
        ("  everyone alone", _shown(found.net_welfare_alone)),
        ("  without payments", _shown(found.net_welfare_unpaid)),
        ("who loses", _first(found.losers)),
        ("beta_NE", f"{found.beta_ne:.6g}  from here on s_max is an equilibrium"),
        ("beta_dom", _shown(found.beta_dom) + "  above it every further point pays, whatever the others do"),
        ("accepted beta", str(found.rational)),
        ("  with s_max stable", str(found.full)),
    ]
    if found.cost_above_beta:
        facts.append(("cost above beta", _first(found.cost_above_beta)))
    if found.phase_one_rounds is not None:
        facts.append(("phase 1", f"at most {found.phase_one_rounds} rounds"))
    lines += ["", *(f"  {label:<20}{text or 'nobody'}" for label, text in facts), "", "Assumed"]
    return "\n".join([*lines, *(f"  - {said}" for said in found.assumptions)])


def _first(agents: tuple[str, ...] | None) -> str:
    if agents is None:
        return "not known"
    more = f" and {len(agents) - 5} more" if len(agents) > 5 else ""
    return ", ".join(agents[:5]) + more


def _shown(value: float | None) -> str:
    return "not known" if value is None else f"{value:.6g}"
