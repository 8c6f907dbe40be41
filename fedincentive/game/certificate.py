"""The certificate: how good an outcome is, on what basis, and which promises it kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import GameError
from .arrays import Array, per_agent
from .claims import Claim, Evidence, Finding, Misreports, Shortfall, findings
from .games import Game
from .rationality import outside_options, over_budget, worse_off
from .regret import Basis, Regret, max_regret, weakest
from .search import Search
from .valuation import Valuation

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
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> tuple[Finding, ...]:
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
        read["findings"] = tuple(Finding(**row) for row in values["findings"])
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
