"""The certificate: how good an outcome is, on what basis, and which promises it kept.

A mechanism and its payments promise names from `CLAIMS` (or their own `Claim`); the certificate answers held, broken
with the agent, its deviation and its gain, not verifiable here, or not claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import nearest
from ..errors import GameError
from .arrays import Array, per_agent
from .games import Game
from .regret import Basis, Regret, max_regret, weakest
from .search import Search, maximise
from .valuations import Valuation

Status = Literal["held", "broken", "not verifiable", "not claimed"]


@dataclass(frozen=True)
class Misreports:
    """The result of a search for profitable misreports: how it searched, and the best one it found, if any."""

    search: str
    gain: float = 0.0
    agent: str | None = None
    deviation: str | None = None


@dataclass(frozen=True)
class Shortfall:
    """An agent that ends below its outside option, or pays above its budget, with both numbers."""

    agent: str
    amount: float
    limit: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything a claim may be checked against. None means: not known to whoever certifies."""

    agents: tuple[str, ...]
    s: Array
    s_max: Array | None
    game: Game | None
    beta: float
    basis: Basis  # of s
    payments: tuple[Mapping[str, int], ...] | None  # as posted, one mapping per posting, minor units
    treasury: int | None  # what the treasury paid out, minor units
    regret: Regret
    losers: tuple[Shortfall, ...] | None
    losers_basis: Basis
    gap: float | None
    gap_basis: Basis
    misreports: Misreports | None
    tol: float


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim."""

    claim: str
    status: Status
    detail: str
    basis: Basis
    agent: str | None = None
    deviation: str | None = None
    gain: float | None = None

    def __str__(self) -> str:
        who = ""
        if self.status == "broken" and self.agent is not None:
            who = f" [agent {self.agent}, {self.deviation}, gain {self.gain:.6g}]"
        return f"{self.status}: {self.detail}{who}"


@dataclass(frozen=True)
class Claim:
    """A promise: its name, what it says, and how evidence decides it."""

    name: str
    says: str
    check: Callable[[Evidence], Verdict]


def claim(which: str | Claim) -> Claim:
    """The claim of that name; a third party's own Claim passes through."""
    if isinstance(which, Claim):
        return which
    if which not in CLAIMS:
        raise GameError(f"No claim {which!r}.{nearest(which, CLAIMS)}")
    return CLAIMS[which]


def _budget_balanced(known: Evidence) -> Verdict:
    name = "budget-balanced"
    if known.payments is None:
        return Verdict(name, "not verifiable", "no postings were given", "unavailable")
    for index, posting in enumerate(known.payments):
        if sum(posting.values()) != 0:
            detail = f"posting {index} sums to {sum(posting.values())} minor units instead of 0"
            return Verdict(name, "broken", detail, "exact")
    if known.treasury:
        return Verdict(name, "broken", f"the treasury paid {known.treasury} minor units", "exact")
    return Verdict(name, "held", f"each of {len(known.payments)} postings sums to exactly 0", "exact")


def _full_contribution(known: Evidence) -> Verdict:
    name = "full-contribution"
    if known.s_max is None:
        return Verdict(name, "not verifiable", "s_max is not known", "unavailable")
    short = np.flatnonzero(known.s < known.s_max)
    if short.size == 0:
        return Verdict(name, "held", "every agent gives its s_max", known.basis)
    i = int(np.argmax(known.s_max - known.s))
    detail = f"{short.size} of {len(known.agents)} agents are short; "
    detail += f"{known.agents[i]} gives {known.s[i]:g} of {known.s_max[i]:g}"
    return Verdict(name, "broken", detail, known.basis)


def _equilibrium(known: Evidence) -> Verdict:
    name, regret = "equilibrium", known.regret
    if regret.value is None:
        return Verdict(name, "not verifiable", "the agents' utilities are not known here", "unavailable")
    if regret.value > known.tol:
        move = f"s -> {regret.deviation:.6g}"
        detail = "an agent gains by changing its contribution alone"
        return Verdict(name, "broken", detail, regret.basis, regret.agent, move, regret.value)
    if regret.lower_bound:
        return Verdict(name, "not verifiable", f"no profitable deviation found, search = {regret.search}", regret.basis)
    return Verdict(
        name, "held", f"no agent gains more than {known.tol:g} by changing its contribution alone", regret.basis
    )


def _individually_rational(known: Evidence) -> Verdict:
    name = "individually-rational"
    if known.losers is None:
        return Verdict(name, "not verifiable", "no outside option (training alone) is known", "unavailable")
    if not known.losers:
        return Verdict(name, "held", "every agent has at least its outside option", known.losers_basis)
    worst = max(known.losers, key=lambda loser: loser.limit - loser.amount)
    detail = f"{len(known.losers)} of {len(known.agents)} agents would be better off alone"
    move = f"stays out ({worst.amount:.6g} -> {worst.limit:.6g})"
    return Verdict(name, "broken", detail, known.losers_basis, worst.agent, move, worst.limit - worst.amount)


def _truthful(known: Evidence) -> Verdict:
    name, found = "truthful", known.misreports
    if found is None:
        return Verdict(name, "not verifiable", "no search for misreports was run", "unavailable")
    if found.gain > known.tol:
        detail = f"a profitable misreport was found, search = {found.search}"
        return Verdict(name, "broken", detail, "exact", found.agent, found.deviation, found.gain)
    # A search that finds nothing is no proof, so this claim is never printed as held.
    return Verdict(name, "not verifiable", f"no profitable misreport found, search = {found.search}", "exact")


def _false_name_proof(known: Evidence) -> Verdict:
    """Splitting s_i over k names costs it beta (k-1) [S (n-2) + s_i] / ((n-1) (n+k-2)), never a gain."""
    name, n, total = "false-name-proof", len(known.agents), float(np.sum(known.s))
    if n < 2 or known.beta <= 0.0:
        return Verdict(name, "not verifiable", "there is no contribution payment to split", "unavailable")
    loss = known.beta * (total * (n - 2) + known.s) / ((n - 1) * n)
    i = int(loss.argmin())
    detail = (
        f"splitting into two names costs every agent, {known.agents[i]} the least ({loss[i]:.6g}); more names cost more"
    )
    return Verdict(name, "held", detail, known.basis)


def _merger_proof(known: Evidence) -> Verdict:
    """Two agents that merge gain beta [S (n-3) + s_i + s_j] / ((n-2) (n-1)): splitting read backwards."""
    name, n, total = "merger-proof", len(known.agents), float(np.sum(known.s))
    if n < 3 or known.beta <= 0.0:
        return Verdict(name, "not verifiable", "a merger needs 3 agents and a contribution payment", "unavailable")
    first, second = (int(i) for i in np.argsort(-known.s, kind="stable")[:2])
    gain = known.beta * (total * (n - 3) + known.s[first] + known.s[second]) / ((n - 2) * (n - 1))
    if gain <= known.tol:
        return Verdict(name, "held", "no two agents gain by merging", known.basis)
    move = f"merges with {known.agents[second]}"
    return Verdict(name, "broken", "two agents gain by merging", known.basis, known.agents[first], move, gain)


def _optimal_welfare(known: Evidence) -> Verdict:
    name = "optimal-welfare"
    if known.gap is None:
        return Verdict(name, "not verifiable", "w_OPT is not known", "unavailable")
    if known.gap <= known.tol * len(known.agents):
        return Verdict(name, "held", f"welfare is within {known.tol:g} per agent of the optimum", known.gap_basis)
    return Verdict(name, "broken", f"welfare is {known.gap:.6g} below the optimum", known.gap_basis)


CLAIMS: dict[str, Claim] = {
    c.name: c
    for c in (
        Claim("budget-balanced", "every posting sums to exactly 0 and the treasury pays nothing", _budget_balanced),
        Claim("full-contribution", "every agent gives its s_max", _full_contribution),
        Claim("equilibrium", "nobody gains by changing its own contribution at the final w", _equilibrium),
        Claim("individually-rational", "nobody would be better off training alone", _individually_rational),
        Claim("truthful", "nobody gains by misreporting s, d or v", _truthful),
        Claim("false-name-proof", "nobody gains by splitting into several names", _false_name_proof),
        Claim("merger-proof", "nobody gains by merging with another agent", _merger_proof),
        Claim("optimal-welfare", "welfare reaches max_w sum_i v_i(w, s_max)", _optimal_welfare),
    )
}


def findings(
    claims: Sequence[str | Claim], known: Evidence, disclaimed: Mapping[str, str], notes: Mapping[str, str]
) -> tuple[Verdict, ...]:
    """One finding per claim, then one per claim the mechanism expressly does not make, with its reason."""
    made = []
    for which in claims:
        found = claim(which).check(known)
        note = notes.get(found.claim)
        made.append(found if note is None else Verdict(**{**found.__dict__, "detail": f"{found.detail} ({note})"}))
    return (*made, *(Verdict(claim(name).name, "not claimed", why, "exact") for name, why in disclaimed.items()))


def outside_options(game: Game) -> Array | None:
    """What each agent has without the federation: as given, else its best by training alone, else None.

    Training alone, agent i picks the t that maximises its value alone minus its cost.
    """
    if game.outside_option is not None:
        return game.outside_option
    if game.valuation.alone(game.s_max) is None:
        return None
    nobody = np.zeros(game.n)

    def alone(t: Array) -> Array:
        value = game.valuation.alone(t)
        return (nobody if value is None else value) - game.cost.unilateral(nobody, t)

    concave = game.valuation.concave_alone and game.cost.concave_utility
    return maximise(alone, nobody, game.s_max, Search(), concave=bool(concave))[1]


def worse_off(game: Game, w: Array, s: Array, paid: Array, outside: Array | None) -> tuple[Shortfall, ...] | None:
    """The agents whose utility at (w, s) with these payments is below their outside option."""
    if outside is None:
        return None
    utility = game.values(w, s) - game.costs(s) + paid
    return _rows(game, utility, outside, utility < outside - _slack(utility))


def over_budget(game: Game, paid: Array) -> tuple[Shortfall, ...] | None:
    """The agents that pay more than their budget."""
    if game.budget is None:
        return None
    return _rows(game, -paid, game.budget, -paid > game.budget + _slack(paid))


def _slack(amount: Array) -> Array:
    return 1e-9 * np.maximum(1.0, np.abs(amount))  # rounding is no loss


def _rows(game: Game, amount: Array, limit: Array, which: NDArray[np.bool_]) -> tuple[Shortfall, ...]:
    return tuple(Shortfall(game.agents[i], float(amount[i]), float(limit[i])) for i in np.flatnonzero(which))


LIVE = {"tranches": True, "end": True, "commitment": False}  # does a change in phase 2 still move the payment?
UNKNOWN = Regret(None, None, None, "unavailable", lower_bound=True)
TRUTHFUL_LIMIT = 2_000  # regret with p* needs everyone's value for every agent's move, unless in closed form


@dataclass(frozen=True)
class Fact:
    """A number with the basis it is known on, or None with the reason why not."""

    value: float | None
    basis: Basis
    note: str = ""

    def __str__(self) -> str:
        shown = "unavailable" if self.value is None else f"{self.value:.6g}"
        return f"{shown} ({self.note})" if self.note else shown


@dataclass(frozen=True)
class Certificate:
    """One printable and JSON-able result: `print(certificate)`, `certificate.to_json()`, `Certificate.from_json`."""

    agents: int
    beta: float
    settlement: str
    regret: Regret  # with the contribution payment as the settlement leaves it: live, or sunk
    regret_truthful: Regret | None  # with p* added, where the mechanism pays p*
    slope_norm: Fact  # ||g(w, s)||_inf, masked
    model_norm: Fact  # ||(1/n) sum_i grad_w v_i||_2
    welfare: Fact
    net_welfare: Fact
    optimal_welfare: Fact
    gap: Fact
    deficit: Fact  # what the treasury paid, in units of money
    losers: tuple[Shortfall, ...] | None  # agents below their outside option
    over_budget: tuple[Shortfall, ...] | None
    rationality_basis: Basis
    findings: tuple[Verdict, ...]

    @property
    def broken(self) -> tuple[Verdict, ...]:
        return tuple(f for f in self.findings if f.status == "broken")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Certificate:
        facts = ("slope_norm", "model_norm", "welfare", "net_welfare", "optimal_welfare", "gap", "deficit")
        read: dict[str, Any] = {**values, **{name: Fact(**values[name]) for name in facts}}
        read["regret"] = Regret(**values["regret"])
        read["regret_truthful"] = values["regret_truthful"] and Regret(**values["regret_truthful"])
        for name in ("losers", "over_budget"):
            read[name] = None if values[name] is None else tuple(Shortfall(**row) for row in values[name])
        read["findings"] = tuple(Verdict(**row) for row in values["findings"])
        return cls(**read)

    def __str__(self) -> str:
        live = "live" if LIVE.get(self.settlement) else "sunk" if self.settlement in LIVE else "none"
        rows = [("max regret", str(self.regret), self.regret.basis)]
        if self.regret_truthful is not None:
            rows.append(("  with p*", str(self.regret_truthful), self.regret_truthful.basis))
        rows += [
            (label, str(fact), fact.basis)
            for label, fact in (
                ("|g(w, s)|", self.slope_norm),
                ("|g~(w, s)|", self.model_norm),
                ("welfare", self.welfare),
                ("net welfare", self.net_welfare),
                ("optimal welfare", self.optimal_welfare),
                ("gap", self.gap),
                ("treasury paid", self.deficit),
            )
        ]
        rows.append(("worse off than alone", _shortfalls(self.losers, "has", "alone"), self.rationality_basis))
        if self.over_budget is not None:
            rows.append(("over budget", _shortfalls(self.over_budget, "pays", "budget"), self.rationality_basis))
        head = f"Certificate: {self.agents} agents, beta = {self.beta:g}, payment {live} ({self.settlement})"
        lines = [head, *(f"  {label:<22}{text}  [{basis}]" for label, text, basis in rows)]
        if self.findings:
            lines += ["Claims", *(f"  {found.claim:<22}{found}  [{found.basis}]" for found in self.findings)]
        return "\n".join(lines)


def certify(
    game: Game | None,
    w: Array | None,
    s: Any,
    *,
    beta: float = 0.0,
    settlement: str = "tranches",
    agents: Sequence[str] | None = None,
    s_max: Any = None,
    payments: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None,
    truthful_payments: Mapping[str, int] | None = None,
    treasury: int | None = None,
    minor: int = 10**6,
    valuations: Mapping[str, float] | None = None,
    truthful: bool = False,
    misreports: Misreports | None = None,
    claims: Sequence[str | Claim] = (),
    disclaimed: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    basis: Basis = "exact",
    game_basis: Basis = "exact",
    tol: float = 1e-6,
    search: Search | None = None,
) -> Certificate:
    """The certificate of an outcome (w, s).

    `game` is None in a real federation, whose center knows neither c_i nor v_i: then name the `agents`, and give what
    is known (`s_max`, posted `payments`, reported `valuations`); the rest is marked unavailable. `payments` are the
    run's contribution payments in `minor` units, one mapping or one per posting; `truthful_payments` are the run's p*
    and `treasury` what they cost. `basis` says how s is known and `game_basis` how the game is. `disclaimed` and
    `notes` map claims to a mechanism's remarks.

    >>> from fedincentive.game import paper_example
    >>> game = paper_example()
    >>> certify(game, game.w0, [0.0, 5.0], claims=["equilibrium", "full-contribution"]).broken[0].claim
    'full-contribution'
    """
    if settlement not in (*LIVE, "none"):
        raise GameError(f"settlement is {settlement!r}: it must be tranches, end, commitment or none.")
    names = game.agents if game is not None else tuple(agents or ())
    contributions = game.check(s) if game is not None else per_agent("s", s, len(names), low=0.0)
    limits = game.s_max if game is not None else None if s_max is None else per_agent("s_max", s_max, len(names))
    postings = None if payments is None else (payments,) if isinstance(payments, Mapping) else tuple(payments)
    known = weakest(basis, game_basis)
    if game is not None and w is not None:
        live = beta if LIVE.get(settlement) else 0.0
        regret = max_regret(game, w, contributions, live, search=search, basis=known)
        facts = _facts(game, w, contributions, live, known, game_basis)
        paid = _paid(game, contributions, 0.0 if settlement == "none" else beta, postings, truthful_payments, minor)
        losers = worse_off(game, w, contributions, paid, outside_options(game))
        over = over_budget(game, paid)
    else:
        live, regret, facts, losers, over = 0.0, UNKNOWN, _reported(valuations), None, None
    rationality: Basis = "unavailable" if losers is None else known
    with_p = (
        _regret_truthful(game, w, contributions, live, search, known)
        if truthful or truthful_payments is not None
        else None
    )
    evidence = Evidence(
        agents=names,
        s=contributions,
        s_max=limits,
        game=game,
        beta=beta,
        basis=basis,
        payments=postings,
        treasury=treasury,
        regret=regret,
        losers=losers,
        losers_basis=rationality,
        gap=facts["gap"].value,
        gap_basis=facts["gap"].basis,
        misreports=misreports,
        tol=tol,
    )
    return Certificate(
        agents=len(names),
        beta=float(beta),
        settlement=settlement,
        regret=regret,
        regret_truthful=with_p,
        deficit=Fact(0.0 if treasury is None else treasury / minor, "exact"),
        losers=losers,
        over_budget=over,
        rationality_basis=rationality,
        findings=findings(claims, evidence, disclaimed or {}, notes or {}),
        **facts,
    )


def _facts(game: Game, w: Array, s: Array, live: float, known: Basis, game_basis: Basis) -> dict[str, Fact]:
    best, welfare = game.optimum(), game.welfare(w, s)
    top = None if best is None else game.welfare(best, game.s_max)
    no_optimum = Fact(None, "unavailable", "w_OPT is not known for this valuation")
    note = "estimated" if game.valuation.estimated else ""
    return {
        "slope_norm": Fact(float(np.max(np.abs(game.masked(game.slopes(w, s, live), s)))), known, note),
        "model_norm": _model_norm(game, w, s, known),
        "welfare": Fact(welfare, known, note),
        "net_welfare": Fact(game.net_welfare(w, s), known, note),
        "optimal_welfare": no_optimum if top is None else Fact(top, game_basis),
        "gap": no_optimum if top is None else Fact(top - welfare, known),
    }


def _model_norm(game: Game, w: Array, s: Array, known: Basis) -> Fact:
    try:
        return Fact(float(np.linalg.norm(game.mean_gradient(w, s))), known)
    except GameError:
        return Fact(None, "unavailable", "this valuation has no gradient in w")


def _reported(valuations: Mapping[str, float] | None) -> dict[str, Fact]:
    nothing = Fact(None, "unavailable", "the center knows neither costs nor valuations")
    welfare = nothing if valuations is None else Fact(float(sum(valuations.values())), "reported")
    names = ("slope_norm", "model_norm", "net_welfare", "optimal_welfare", "gap")
    return {"welfare": welfare, **dict.fromkeys(names, nothing)}


def _paid(
    game: Game,
    s: Array,
    beta: float,
    postings: tuple[Mapping[str, int], ...] | None,
    truthful: Mapping[str, int] | None,
    minor: int,
) -> Array:
    """What each agent received over the run: as posted where that is known, else by the rule."""
    p_star = np.array([(truthful or {}).get(name, 0) / minor for name in game.agents])
    if postings is None:
        return game.payments(s, beta) + p_star
    return p_star + np.array([sum(posting.get(name, 0) for posting in postings) / minor for name in game.agents])


def _regret_truthful(
    game: Game | None, w: Array | None, s: Array, live: float, search: Search | None, known: Basis
) -> Regret:
    if game is None or w is None:
        return UNKNOWN
    if type(game.valuation).others is Valuation.others and game.n > TRUTHFUL_LIMIT:
        return UNKNOWN
    return max_regret(game, w, s, live, truthful=True, search=search, basis=known)


def _shortfalls(rows: tuple[Shortfall, ...] | None, verb: str, limit: str) -> str:
    if rows is None:
        return "unavailable"
    shown = [f"{row.agent} ({verb} {row.amount:.6g}, {limit} {row.limit:.6g})" for row in rows[:5]]
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    return "nobody" if not rows else ", ".join(shown) + more
