"""The quote: what a mechanism and its payments would mean for each agent, before anyone signs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

from ..errors import GameError
from ..payments import MINOR, SCALE, Contribution, Deposit, LumpSum, Payment, quantise
from ..payments.deposit import within_budget
from . import phases
from .arrays import Array
from .certificate import outside_options
from .dynamics import FREELY, best_replies, contributions
from .games import Game
from .phases import BetaRange, Bound, affordable, beta_dom, capped, combine, rational, withholding_gains
from .regret import max_regret
from .steps import kappa

REST_AGENTS, REST_SWEEPS = 20, 50  # best replies are searched for, so they are kept to small games
REST_ROUNDS = 2_000  # of the gradient dynamics in larger ones
FORETOLD = 1_000  # agents whose phase 1 is played beforehand


@dataclass(frozen=True)
class AgentQuote:
    """One agent's terms where the mechanism ends: everyone at s_max, or where nobody wants to move."""

    agent: str
    s_max: float
    s: float
    payment: float | None  # under the contribution payment also the least it can get as long as it delivers s_max
    worst_payment: float | None  # the most it can be charged beside its deposit; None where there is no limit
    deposit: float  # 0 where nobody is audited
    lump_sum: float  # of the payment: what it gets or gives whatever it contributes
    utility: float | None
    outside_option: float | None
    loses: bool
    budget: float | None
    over_budget: bool  # it pays more than its budget: it would be refused
    counted: float  # the points that its budget covers deposit and payment of; 0: it would be refused
    beta_ne: float  # the largest average gain per point it withholds from s_max, without payments
    over_cap: bool = False  # it could owe more than incentive.most_owed: the run would be refused


@dataclass(frozen=True)
class Quote:
    """The terms of all agents and the prices that would work; `print(quote)` or `quote.to_json()`."""

    mechanism: str
    payments: tuple[str, ...]
    beta: str | None  # the price of a point; None where no payment has one
    proposed: bool  # beta is this quote's proposal, not the operator's
    full_contribution: bool  # everyone gives s_max, else what is best for it
    rested: bool  # where nobody wants to move was found, where that is what counts
    agents: tuple[AgentQuote, ...]
    welfare: float
    net_welfare: float
    net_welfare_alone: float | None
    net_welfare_unpaid: float | None  # at an equilibrium without payments, where one was found
    beta_ne: float
    beta_dom: float | None
    rational: BetaRange | None  # individual rationality and budgets; None where no payment has a price
    full: BetaRange | None  # and s_max an equilibrium
    cost_above_beta: tuple[str, ...]  # their last point costs more than it earns; only its value to them can make up
    phase_one_rounds: int | None
    lump_sums: Mapping[str, str] | None  # a proposal that makes everyone at least as well off as alone; exact decimals
    lump_reason: str  # why there is none
    deficit: float | None  # what the treasury pays over the run; None where that is not known
    assumptions: tuple[str, ...]
    most_owed: float | None = None  # the cap on what anyone can owe, whatever it does
    point_costs: tuple[float, float] | None = None  # what a last point costs its owner, the least and the most
    currency: str = ""  # what a unit of money is called

    @property
    def losers(self) -> tuple[str, ...] | None:
        """The agents that would be better off alone; None where no outside option is known."""
        if self.net_welfare_alone is None or any(row.utility is None for row in self.agents):
            return None
        return tuple(row.agent for row in self.agents if row.loses)

    def to_json(self) -> dict[str, Any]:
        values = {**asdict(self), "losers": self.losers}
        for name in ("rational", "full"):  # JSON has no infinity: null means no limit
            if (found := getattr(self, name)) is not None:
                values[name] = {**_finite(values[name]), "empty": found.empty}
        return values

    def __str__(self) -> str:
        from .quote_text import render

        return render(self)


def quote(
    game: Game,
    beta: Fraction | float | str | None = None,
    *,
    payments: Sequence[Payment] = (Contribution(Fraction(1)),),
    mechanism: str = "2p-upbred",
    full_contribution: bool = True,
    phase_one: bool = True,
    gamma: float | None = None,
    margin: float = 0.0,
    most_owed: Fraction | float | None = None,
    minor: int = MINOR,
    currency: str = "",
) -> Quote:
    """The quote for a mechanism with these payments, at a price of beta per point or at a proposed one.

    `full_contribution` says that the mechanism means to end with everyone at s_max, else each agent gives what is best
    for it; `phase_one` that its agents choose, so that without a payment that moves them they end where they rest.
    Lump sums are proposed where they make everybody better off than alone by `margin`, in whole minor units, of which a
    unit of money has `minor`. `most_owed` caps what anyone can owe, and so the price.

    >>> from fedincentive.game import repaired_example
    >>> found = quote(repaired_example(), "0.05")
    >>> found.beta_ne, found.beta_dom, round(found.net_welfare, 6)
    (0.035, 0.04, 1.6)
    """
    if game.n < 2 and payments:
        raise GameError("A contribution payment compares an agent with the others: a quote needs at least 2 agents.")
    priced = [payment for payment in payments if payment.price and payment.repriced(2 * payment.price) != payment]
    priced = priced if len(priced) == 1 else []
    outside, gains = outside_options(game), _gains(game)
    ne, dom = max(0.0, float(gains.max())), _dominance(game, model(game, game.s_max))
    accepted = full = price = None
    cap = None if most_owed is None else float(most_owed)
    proposed = bool(priced) and beta is None
    if priced:
        demands = _demands(game, priced[0], [p for p in payments if p not in priced], outside, cap)
        accepted, full = combine(demands), combine([*demands, *_stable(game, gains)])
        price = _propose(full, ne, dom) if beta is None else _exact(beta)
        payments = [p.repriced(price) if p in priced or isinstance(p, Deposit) else p for p in payments]
        full = full if priced[0].live else None  # a sunk payment keeps nobody at s_max
    steering = [payment for payment in payments if payment.steers]
    stable = not phase_one or _keeps(game, [payment for payment in steering if payment.live])
    full_contribution = full_contribution and (stable or bool(priced))
    s, rested = (game.s_max, True) if full_contribution else _resting(game, steering)
    w = model(game, s)
    lost = sum((payment.withheld(game, w, s) for payment in payments), start=np.zeros(game.n))
    base = game.values(w, s) - lost - game.costs(s)
    rows = _terms(game, payments, w, s, base, outside, gains, cap)
    last = game.cost.slope(game.s_max)
    lumps, reason = _lump_proposal(rows, margin, _rounding(payments, price, minor), minor)
    return Quote(
        mechanism=mechanism,
        payments=tuple(_shown_price(payment, price, proposed) for payment in payments),
        beta=None if price is None else _decimal(price),
        proposed=proposed,
        full_contribution=full_contribution,
        rested=rested,
        agents=rows,
        welfare=game.welfare(w, s) - float(lost.sum()),
        net_welfare=float(base.sum()),
        net_welfare_alone=None if outside is None else float(outside.sum()),
        net_welfare_unpaid=_unpaid(game) if payments or full_contribution else None,
        beta_ne=ne,
        beta_dom=dom,
        rational=accepted,
        full=full,
        cost_above_beta=() if price is None else _dear(game, float(price)),
        phase_one_rounds=_rounds(game, gamma, float(price), dom) if price is not None and phase_one else None,
        lump_sums=lumps,
        lump_reason=reason,
        deficit=_deficit(game, payments, w, s),
        assumptions=_assumptions(game, payments, outside, proposed, full_contribution, rested, stable),
        most_owed=cap,
        point_costs=(float(last.min()), float(last.max())),
        currency=currency,
    )


def _shown_price(payment: Payment, price: Fraction | None, proposed: bool) -> str:
    if price is None or payment.price != price:
        return payment.summary()
    return f"{_decimal(price)} per point ({'proposed' if proposed else 'as given'})"


def _deficit(game: Game, payments: Sequence[Payment], w: Array, s: Array) -> float | None:
    found = [payment.deficit(game, w, s) for payment in payments]
    return None if None in found else float(sum(one for one in found if one is not None))


def _keeps(game: Game, live: Sequence[Payment]) -> bool:
    """Whether nobody gains by giving less than s_max in training, at the model that it approaches."""
    found = max_regret(game, model(game, game.s_max), game.s_max, live)
    return found.value is not None and found.value <= 1e-6


def model(game: Game, s: Array) -> Array:
    """The model that training approaches where everyone gives s; w0 where that is not known."""
    best = game.valuation.optimum(s) if s.any() else None
    return game.w0 if best is None else best


def _gains(game: Game) -> Array:
    """The largest average gain per withheld point of each agent, at both models of the run that are known."""
    return np.maximum(withholding_gains(game, game.w0), withholding_gains(game, model(game, game.s_max)))


def _demands(
    game: Game, priced: Payment, unpriced: Sequence[Payment], outside: Array | None, cap: float | None
) -> list[Bound]:
    """What agents ask of beta: their budgets, the cap on what they can owe, and to be no worse off than alone with all
    else that is paid."""
    w, one = model(game, game.s_max), priced.repriced(Fraction(1))
    unit = one.floats(game.agents, game.s_max)
    beside = sum((payment.floats(game.agents, game.s_max) for payment in unpriced), start=np.zeros(game.n))
    demands = affordable(game, unit, beside)
    worst = one.limits(game.agents, game.s_max)
    if cap is not None and worst is not None:
        demands += capped(game, worst, _owed(game, unpriced), cap)
    others = _total([payment.expected(game, w, game.s_max) for payment in unpriced], game.n)
    if outside is None or others is None:
        return demands
    base = game.values(w, game.s_max) - game.costs(game.s_max) + others
    return [*demands, *rational(game, base, outside, unit)]


def _owed(game: Game, payments: Sequence[Payment]) -> Array:
    """The most anyone can owe by these payments, as the center holds it to the cap: a deposit is paid, not owed."""
    found = [payment.limits(game.agents, game.s_max) for payment in payments if not isinstance(payment, Deposit)]
    return sum((np.maximum(worst, 0.0) for worst in found if worst is not None), start=np.zeros(game.n))


def _total(parts: Sequence[Array | None], n: int) -> Array | None:
    """Their sum; None where one of them is not known."""
    known = [part for part in parts if part is not None]
    return sum(known, start=np.zeros(n)) if len(known) == len(parts) else None


def _terms(
    game: Game,
    payments: Sequence[Payment],
    w: Array,
    s: Array,
    base: Array,
    outside: Array | None,
    gains: Array,
    cap: float | None,
) -> tuple[AgentQuote, ...]:
    deposit = next((payment for payment in payments if isinstance(payment, Deposit)), None)
    lump = next((payment for payment in payments if isinstance(payment, LumpSum)), None)
    paid = _total([payment.expected(game, w, s) for payment in payments], game.n)
    owed = [payment.limits(game.agents, game.s_max) for payment in payments if payment is not deposit]
    worst = _total(owed, game.n)
    held = np.zeros(game.n) if deposit is None else deposit.limits(game.agents, game.s_max)
    lumps = np.zeros(game.n) if lump is None else lump.floats(game.agents, s)
    utility = None if paid is None else base + paid
    slack = 1e-9 * np.maximum(1.0, np.abs(base))
    nobody = np.zeros(game.n, dtype=bool)
    loses = nobody if outside is None or utility is None else utility < outside - slack
    over = nobody if game.budget is None or paid is None else -paid > game.budget + slack
    over_cap = nobody if cap is None else _owed(game, payments) > cap
    s_max = {
        name: quantise(float(s), SCALE if deposit is None else deposit.scale)
        for name, s in zip(game.agents, game.s_max, strict=True)
    }

    def counted(i: int) -> float:
        """As the center counts: the points that a budget covers deposit and payment of."""
        if deposit is None or game.budget is None or not np.isfinite(game.budget[i]):
            return float(game.s_max[i])
        budget = quantise(float(game.budget[i]), deposit.minor)
        found = within_budget(payments, s_max, game.agents[i], budget, deposit.scale, deposit.minor)
        return float(game.s_max[i]) if found == s_max[game.agents[i]] else found / deposit.scale

    def of(values: Array | None, i: int) -> float | None:
        return None if values is None else float(values[i])

    return tuple(
        AgentQuote(
            agent=name,
            s_max=float(game.s_max[i]),
            s=float(s[i]),
            payment=of(paid, i),
            worst_payment=None if worst is None else -float(worst[i]) + 0.0,
            deposit=float(held[i]),
            lump_sum=float(lumps[i]),
            utility=of(utility, i),
            outside_option=of(outside, i),
            loses=bool(loses[i]),
            budget=None if game.budget is None or not np.isfinite(game.budget[i]) else float(game.budget[i]),
            over_budget=bool(over[i]),
            counted=counted(i),
            beta_ne=max(0.0, float(gains[i])),
            over_cap=bool(over_cap[i]),
        )
        for i, name in enumerate(game.agents)
    )


def _lump_proposal(
    rows: Sequence[AgentQuote], margin: float, rounding: float, minor: int
) -> tuple[dict[str, str] | None, str]:
    """Lump sums on top of what is quoted, or why there are none. Where all together can afford it, nobody falls short
    by the rounding of what is then paid."""
    if any(row.utility is None or row.outside_option is None for row in rows):
        return None, "what agents have alone, or are paid, is not known"
    missing = {row.agent: row.outside_option + margin - row.utility for row in rows}  # type: ignore[operator]
    if all(money <= 1e-9 for money in missing.values()):
        return None, "nobody needs one"
    found = lump_sums({agent: money + rounding for agent, money in missing.items()}, minor) or lump_sums(missing, minor)
    if found is None:
        return None, f"together the agents are {sum(missing.values()):.6g} short of what they have alone"
    given = {row.agent: quantise(row.lump_sum, minor) for row in rows}
    return {agent: _decimal(Fraction(money + given[agent], minor)) for agent, money in found.items()}, ""


def _rounding(payments: Sequence[Payment], price: Fraction | None, minor: int) -> float:
    """The most by which a run pays less than is quoted: points are whole steps of 1/SCALE, its own and the others' half
    a step off, and each payment and the lump sums come in whole minor units."""
    return float(price or 0) / SCALE + (len(payments) + 1) / minor


def lump_sums(missing: Mapping[str, float], minor: int = MINOR) -> dict[str, int] | None:
    """The least changes (by their squares) that sum to 0 and give everyone what it misses, in minor units; None where
    all together miss something.

        L_i = max(m_i, lambda), with lambda such that they sum to 0

    >>> lump_sums({"a": 2.0, "b": -9.0, "c": -0.5})
    {'a': 2000000, 'b': -1500000, 'c': -500000}
    """
    least = {agent: math.ceil(Fraction(money) * minor) for agent, money in missing.items()}
    if sum(least.values()) > 0:
        return None
    low, high = min(least.values()), max(0, *least.values())  # at `low` the sum is at most 0, above `high` it is more
    while high - low > 1:
        middle = (low + high) // 2
        enough = sum(max(money, middle) for money in least.values()) <= 0
        low, high = (middle, high) if enough else (low, middle)
    found = {agent: max(money, low) for agent, money in least.items()}
    for agent in sorted(a for a, money in found.items() if money == low)[: -sum(found.values())]:
        found[agent] += 1
    return found


def _dear(game: Game, beta: float) -> tuple[str, ...]:
    return tuple(game.agents[i] for i in np.flatnonzero(game.cost.slope(game.s_max) > beta))


def _stable(game: Game, gains: Array) -> list[Bound]:
    why = "gain by giving everything"
    return [Bound(game.agents[i], float(gains[i]), math.inf, why) for i in np.flatnonzero(gains > 0.0)]


def _dominance(game: Game, w: Array) -> float | None:
    """zeta + tau for every w where that is bounded, else at the two w of the run that are known."""
    everywhere = beta_dom(game)
    if everywhere is not None:
        return everywhere
    start, end = beta_dom(game, game.w0), beta_dom(game, w)
    return None if start is None or end is None else max(start, end)


def _unpaid(game: Game) -> float | None:
    """Net welfare at an equilibrium without payments, verified by its regret; searched for in small games only."""
    if game.n > REST_AGENTS:
        return None
    s, rested = _resting(game, ())
    return game.net_welfare(model(game, game.s_max), s) if rested else None


def _resting(game: Game, pay: Sequence[Payment]) -> tuple[Array, bool]:
    """Where nobody wants to move alone, and whether that was found: by best replies, or by the gradient dynamics."""
    w, s = model(game, game.s_max), game.s0
    try:
        if game.n <= REST_AGENTS:
            for state in islice(best_replies(game, pay=pay, w=w), 1, REST_SWEEPS):
                before, s = s, state.s
                if np.all(np.abs(s - before) <= 1e-6 * game.s_max):
                    break
        else:
            for state in islice(contributions(game, 1.0, pay=pay, w=w), REST_ROUNDS):
                s = state.s
                if state.residual <= 1e-9:
                    break
        rest = max_regret(game, w, s, pay)
    except GameError:  # the replies ran out of the valuation's domain: there is no such equilibrium
        return game.s0, False
    rested = rest.value is not None and rest.value <= 1e-6 * max(1.0, float(np.abs(game.values(w, s)).max()))
    return (s, True) if rested else (game.s0, False)


def _rounds(game: Game, gamma: float | None, beta: float, dom: float | None) -> int | None:
    """As many as phase 1 can take with a gamma, as many as it takes where agents find their own step sizes."""
    if gamma is None and game.n <= FORETOLD:
        found = phases.phase_one(game, beta=beta, tol=1e-6, round_limit=2 * FREELY + 2)
        return found.rounds if found.ending != "round limit" else None
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
    for digits in (3, 6, 12):
        for wanted in (ne if dom is None else 1.01 * dom, ne):
            price = _round_up(max(wanted, floor, 1e-6), digits)
            if float(price) in full:
                return price
    return _round_up(max(ne, 1e-6)) if full.empty or not full.low else Fraction(full.low)


def _round_up(value: float, digits: int = 3) -> Fraction:
    """The next decimal with so many significant digits."""
    unit = Fraction(10) ** (math.floor(math.log10(value)) + 1 - digits)
    return math.ceil(Fraction(value) / unit) * unit


def _decimal(price: Fraction) -> str:
    """The exact decimal where there is one, else p/q.

    >>> _decimal(Fraction(-5424, 10**6)), _decimal(Fraction(1, 3))
    ('-0.005424', '1/3')
    """
    digits, power = 0, 1
    while power % price.denominator and digits < 60:
        digits, power = digits + 1, power * 10
    if power % price.denominator:
        return str(price)
    whole = str(abs(price.numerator) * (power // price.denominator)).rjust(digits + 1, "0")
    return "-" * (price < 0) + (f"{whole[:-digits]}.{whole[-digits:]}" if digits else whole)


def _finite(bounds: dict[str, Any]) -> dict[str, Any]:
    rows = [_finite(row) for row in bounds.get("blocking", ())]
    plain = {key: None if isinstance(v, float) and math.isinf(v) else v for key, v in bounds.items()}
    return {**plain, "blocking": rows} if "blocking" in bounds else plain


def _assumptions(
    game: Game,
    payments: Sequence[Payment],
    outside: Array | None,
    proposed: bool,
    full_contribution: bool,
    rested: bool,
    stable: bool,
) -> tuple[str, ...]:
    said = ["The costs and valuations are those of the game file; nobody has verified them."]
    if game.optimum() is None:
        said.append("The model is the first one (w0): where training leads is not known for this valuation.")
    elif full_contribution:
        said.append("The model is the one that training approaches; everyone delivers everything in every round of it.")
    else:
        said.append("The model is the best one for what everyone gives.")
    if not full_contribution:
        said.append(
            "Everyone gives what is best for it: nobody gains by giving more or less alone."
            if rested
            else "No point was found where everyone gives what is best for it: the starting point is shown."
        )
    elif not stable:
        said.append(
            "Giving everything is NOT an equilibrium on these terms: somebody gains by giving less, and phase 1 may "
            "end early."
        )
    said += [note for payment in payments for note in payment.notes(game.n)]
    if game.outside_option is not None:
        said.append("Alone: what the game file says that each has without the others (outside_option).")
    elif outside is not None:
        said.append("Alone: the agent's best utility when it trains on its own data only.")
    else:
        said.append("What an agent has alone is not known, so nobody can be said to lose.")
    if not game.concave:
        said.append("The utilities may not be concave: the price that is enough (beta_NE) is at least that, by search.")
    if game.tau is None and game.tau_at(game.w0) is not None:
        said.append("The price that is always enough (beta_dom) holds at the first and last model, not between them.")
    if proposed:
        said.append(
            "The proposed price rests on what agents say of themselves; those above the average gain from a higher one."
        )
    return tuple(said)
