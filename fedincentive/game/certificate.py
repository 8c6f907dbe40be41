"""The certificate: how good an outcome is, on what basis, and which promises it kept.

A mechanism and its payments promise names from `CLAIMS` (or their own `Claim`); the certificate answers held, broken
with the agent, its deviation and its gain, not verifiable here, or not claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import nearest
from ..errors import GameError, TooLarge
from ..payments import Oracles, Payment, Promises, felt
from .arrays import Array, per_agent
from .games import Game, Pay
from .regret import Basis, Regret, max_regret, weakest
from .search import Search, maximise

Status = Literal["held", "broken", "not verifiable", "not claimed"]


@dataclass(frozen=True)
class Misreports:
    """The result of a search for profitable misreports: how it searched, and the best one it found, if any."""

    search: str
    gain: float = 0.0
    agent: str | None = None
    deviation: str | None = None


@dataclass(frozen=True)
class Audits:
    """How much of what was delivered was audited: agent-steps audited of all, records opened, and by whom."""

    audited: int
    steps: int
    opened: int = 0
    auditors: tuple[str, ...] = ()
    committed: bool = True  # whether every agent did to its records; a closed-form game has none

    def __str__(self) -> str:
        bad = 1.0 - 0.05 ** (1.0 / self.audited)
        before, records = "not every agent committed to records: that points exist is not shown. ", ""
        if self.committed:
            before = "agents committed to their records before anyone knew their order or what would be audited. "
            records = "from committed records "
        known = f" and knew all {self.opened} opened records again" if self.opened else ""
        return (
            f"{before}{self.audited} of {self.steps} agent-steps were drawn; "
            f"{', '.join(self.auditors) or 'auditors'} repeated the training of each {records}to the same update"
            f"{known}. So at most {100 * bad:.2g} % of the agent-steps are bad, at 95 % confidence; in the others a "
            "lie costs more than it brings at the declared chances. Not shown: that patients exist, that labels are "
            "right, that data are representative, that no auditor was bribed"
        )


@dataclass(frozen=True)
class Robustness:
    """How many of the updates in a round may be anything, and how many looked it."""

    rule: str
    tolerated: int  # of `agents` in each round
    agents: int
    far: int = 0  # the most in one round that were far from the aggregate ...
    answered: int = 0  # ... of so many
    who: tuple[str, ...] = ()  # ever far


@dataclass(frozen=True)
class Shortfall:
    """An agent that ends below its outside option, or pays above its budget, with both numbers."""

    agent: str
    amount: float
    limit: float


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

    def __str__(self) -> str:
        return self.name


def claim(which: str | Claim) -> Claim:
    """The claim of that name; a third party's own Claim passes through."""
    if isinstance(which, Claim):
        return which
    if which not in CLAIMS:
        raise GameError(f"No claim {which!r}.{nearest(which, CLAIMS)}")
    return CLAIMS[which]


def _budget_balanced(known: Evidence) -> Verdict:
    name = "budget-balanced"
    if known.postings is None:
        return Verdict(name, "not verifiable", "no postings were given", "unavailable")
    for index, posting in enumerate(known.postings):
        if sum(posting.values()) != 0:
            detail = f"posting {index} sums to {sum(posting.values())} minor units instead of 0"
            return Verdict(name, "broken", detail, "exact")
    if known.treasury:
        return Verdict(name, "broken", f"the treasury paid {known.treasury} minor units", "exact")
    return Verdict(name, "held", "every posting sums to exactly 0", "exact")


def _full_contribution(known: Evidence) -> Verdict:
    name = "full-contribution"
    if known.s_max is None:
        return Verdict(name, "not verifiable", "s_max is not known", "unavailable")
    if known.failed:
        first = min(known.failed, key=lambda agent: (known.failed[agent], agent))
        detail = f"{len(known.failed)} of {len(known.agents)} agents failed an audit"
        detail += f"; {first} in step {known.failed[first]}"
        return Verdict(name, "broken", detail, "attested")
    gap = known.s_max - known.s
    short = np.flatnonzero((gap > 0.0) & (gap >= known.slack))
    i = int(np.argmax(gap))
    if short.size == 0:
        nearly = f", {known.agents[i]} all but {gap[i]:.6g} points, which counts as all" if gap[i] > 0.0 else ""
        audited = known.audits is not None and known.audits.audited > 0
        words = f"; {known.audits}" if audited else UNAUDITED.get(known.basis, "")
        return Verdict(
            name, "held", f"every agent gives its s_max{nearly}{words}", "attested" if audited else known.basis
        )
    away = f"; phase 1 went on without {', '.join(known.lost)}" if known.lost else ""
    detail = f"{short.size} of {len(known.agents)} agents are short; "
    detail += f"{known.agents[i]} gives {known.s[i]:g} of {known.s_max[i]:g}{away}"
    return Verdict(name, "broken", detail, known.basis)


def _equilibrium(known: Evidence) -> Verdict:
    """With all payments that were made, those that agents do not follow too."""
    name, regret = "equilibrium", known.regret_with_all or known.regret
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
    unknown = len(known.agents) - known.compared
    if not known.losers and unknown:
        detail = f"{unknown} of {len(known.agents)} agents did not say what training alone is worth to them"
        return Verdict(name, "not verifiable", f"{detail}; nobody else is worse off", known.known)
    if not known.losers:
        return Verdict(name, "held", "every agent has at least its outside option", known.known)
    worst = max(known.losers, key=lambda loser: loser.limit - loser.amount)
    detail = f"{len(known.losers)} of {len(known.agents)} agents would be better off alone"
    move = f"stays out ({worst.amount:.6g} -> {worst.limit:.6g})"
    return Verdict(name, "broken", detail, known.known, worst.agent, move, worst.limit - worst.amount)


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
    name = "false-name-proof"
    losses = [payment.splitting(known.agents, known.s) for payment in known.made if len(known.agents) > 1]
    told = [loss for loss in losses if loss is not None]
    if not told or len(told) < len(losses):
        return Verdict(name, "not verifiable", "not every payment says what a second name costs", "unavailable")
    loss = np.sum(told, axis=0)
    i = int(loss.argmin())
    if loss[i] < -known.tol:
        return Verdict(
            name, "broken", "splitting pays", known.basis, known.agents[i], "takes two names", -float(loss[i])
        )
    detail = (
        f"splitting into two names costs every agent, {known.agents[i]} the least ({loss[i]:.6g}); more names cost more"
    )
    return Verdict(name, "held", detail, known.basis)


def _merger_proof(known: Evidence) -> Verdict:
    name = "merger-proof"
    gains = [found for payment in known.made if (found := payment.merging(known.agents, known.s)) is not None]
    if not gains:
        return Verdict(name, "not verifiable", "no payment here says what a merger gains", "unavailable")
    gain, first, second = max(gains)
    if gain <= known.tol:
        return Verdict(name, "held", "no two agents gain by merging", known.basis)
    return Verdict(name, "broken", "two agents gain by merging", known.basis, first, f"merges with {second}", gain)


def _optimal_welfare(known: Evidence) -> Verdict:
    name, gap = "optimal-welfare", known.facts["gap"]
    if gap.value is None:
        return Verdict(name, "not verifiable", "w_OPT is not known", "unavailable")
    if gap.value <= known.tol * len(known.agents):
        return Verdict(name, "held", f"welfare is within {known.tol:g} per agent of the optimum", gap.basis)
    return Verdict(name, "broken", f"welfare is {gap.value:.6g} below the optimum", gap.basis)


def _robust(known: Evidence) -> Verdict:
    name, seen = "robust", known.robustness
    if seen is None:
        return Verdict(name, "not verifiable", "it is not known which updates came", "unavailable")
    bad, of = max(seen.far, len(known.failed)), max(seen.answered, 1)
    detail = (
        f"{seen.rule} tolerates {seen.tolerated} of {seen.agents} bad updates in a round "
        f"({_percent(seen.tolerated, seen.agents)}); at most {seen.far} of {of} ({_percent(seen.far, of)}) were far "
        "from the aggregate"
    )
    detail += f" ({', '.join(seen.who[:5])})" if seen.who else ""
    detail += f"; {len(known.failed)} agents failed an audit" if known.failed or known.audits else ""
    return Verdict(name, "held" if bad <= seen.tolerated else "broken", detail, known.basis)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} %"


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
        Claim("robust", "no round had more bad updates than its rule tolerates", _robust),
        Claim("optimal-welfare", "welfare reaches max_w sum_i v_i(w, s_max)", _optimal_welfare),
    )
}


def findings(known: Evidence) -> tuple[Verdict, ...]:
    """One verdict per claim that was made, then one per claim expressly not made, with its reason."""
    made, promised = [], known.promises
    for which in promised.claims:
        found = _on_words(claim(which).check(known))
        note = promised.notes.get(found.claim)
        made.append(found if note is None else replace(found, detail=f"{found.detail} ({note})"))
    return (
        *made,
        *(Verdict(claim(name).name, "not claimed", why, "exact") for name, why in promised.disclaimed.items()),
    )


def _on_words(found: Verdict) -> Verdict:
    """What follows only from what agents say they delivered is not shown to hold, however well it fits."""
    if found.status != "held" or found.basis not in WORDS or found.claim not in OF_DELIVERY:
        return found
    return replace(
        found, status="not verifiable", detail=f"delivery is {WORDS[found.basis]}. If it is true, {found.detail}"
    )


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


def over_budget(game: Game, paid: Array) -> tuple[Shortfall, ...] | None:
    """The agents that pay more than their budget."""
    if game.budget is None:
        return None
    return _rows(game, -paid, game.budget, -paid > game.budget + _slack(paid))


def _slack(amount: Array) -> Array:
    return 1e-9 * np.maximum(1.0, np.abs(amount))  # rounding is no loss


def _rows(game: Game, amount: Array, limit: Array, which: NDArray[np.bool_]) -> tuple[Shortfall, ...]:
    return tuple(Shortfall(game.agents[i], float(amount[i]), float(limit[i])) for i in np.flatnonzero(which))


UNKNOWN = Regret(None, None, None, "unavailable", lower_bound=True)


@dataclass(frozen=True)
class Fact:
    """A number with the basis it is known on, or None with the reason why not."""

    value: float | None
    basis: Basis
    note: str = ""

    def __str__(self) -> str:
        shown = "unavailable" if self.value is None else f"{self.value:.6g}"
        return f"{shown} ({self.note})" if self.note else shown


BLIND = "the center knows neither costs nor valuations"
UNAUDITED: dict[Basis, str] = {
    "reported": ", as reported: nobody signed or audited it",
    "signed": ", as each of them signed: nobody audited it",
}
WORDS: dict[Basis, str] = {"reported": "reported", "signed": "signed, not checked"}
OF_DELIVERY = ("full-contribution", "equilibrium", "false-name-proof", "optimal-welfare")
SAID: dict[Basis | None, str] = {
    "reported": "is what was said in their names: nobody signed it, so nobody can be held to it",
    "signed": "is what each of them signed: who said it is proven, not that it is true",
}


SIGNATURES = {
    True: "every agent signed the terms and each of its reports that counts",
    False: "none: nobody signed what agents said, so nobody can be held to it",
}


@dataclass(frozen=True)
class Certificate:
    """One printable and JSON-able result: `print(certificate)`, `certificate.to_json()`, `Certificate.from_json`.

    regret = max_i max_t u_i(w, (t, s_-i)) - u_i(w, s) is 0 if and only if nobody gains by moving alone.

    >>> from fedincentive import play
    >>> found = play({"game": {"kind": "repaired"}}, beta="0.5", rounds=5).certificate
    >>> found.regret.value, Certificate.from_json(found.to_json()) == found
    (0.0, True)
    """

    agents: int
    payments: tuple[str, ...]  # those that were made, in a few words each
    regret: Regret  # with the payments that agents follow, as far as they are live in training
    regret_with_all: Regret | None  # with the others added, such as p*
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
    basis: Basis | None = None  # how it is known what agents gave; None in certificates of older releases
    tau: Fact | None = None  # the most that a further point is known to cost an agent in value; so is this
    lost: tuple[str, ...] = ()  # agents that phase 1 went on without
    signed: bool | None = None  # whether agents signed what they said; None where there was no run, or in older ones

    @property
    def broken(self) -> tuple[Verdict, ...]:
        return tuple(f for f in self.findings if f.status == "broken")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Certificate:
        facts = ("slope_norm", "model_norm", "welfare", "net_welfare", "optimal_welfare", "gap", "deficit")
        read: dict[str, Any] = {**values, **{name: Fact(**values[name]) for name in facts}}
        read["payments"] = tuple(values["payments"])
        read["regret"] = Regret(**values["regret"])
        read["regret_with_all"] = values["regret_with_all"] and Regret(**values["regret_with_all"])
        read["tau"] = values.get("tau") and Fact(**values["tau"])
        read["lost"] = tuple(values.get("lost", ()))
        for name in ("losers", "over_budget"):
            read[name] = None if values[name] is None else tuple(Shortfall(**row) for row in values[name])
        read["findings"] = tuple(Verdict(**row) for row in values["findings"])
        return cls(**read)

    def __str__(self) -> str:
        rows = [("max regret", str(self.regret), self.regret.basis)]
        if self.regret_with_all is not None:
            rows.append(("  with all payments", str(self.regret_with_all), self.regret_with_all.basis))
        rows += [
            (label, str(fact), fact.basis)
            for label, fact in (
                ("|g(w, s)|", self.slope_norm),
                ("|g~(w, s)|", self.model_norm),
                ("welfare", self.welfare),
                ("net welfare", self.net_welfare),
                ("optimal welfare", self.optimal_welfare),
                ("gap", self.gap),
            )
        ]
        deficit, got = self.deficit, self.deficit.value is not None and self.deficit.value < 0.0
        shown = replace(deficit, value=-deficit.value) if got and deficit.value is not None else deficit
        rows.append(("treasury received" if got else "treasury paid", str(shown), deficit.basis))
        if self.tau is not None:
            rows.append(("tau", str(self.tau), self.tau.basis))
        rows.append(("worse off than alone", _shortfalls(self.losers, "has", "alone"), self.rationality_basis))
        if self.over_budget is not None:
            rows.append(("over budget", _shortfalls(self.over_budget, "pays", "budget"), self.rationality_basis))
        head = f"Certificate: {self.agents} agents, {'; '.join(self.payments) or 'no payments'}"
        lines = [head, *(f"  {label:<22}{text}  [{basis}]" for label, text, basis in rows if basis != "unavailable")]
        lines += _not_known([(label.strip(), text) for label, text, basis in rows if basis == "unavailable"])
        if self.basis in SAID:
            lines.insert(1, f"  {'what agents gave':<22}{SAID[self.basis]}  [{self.basis}]")
        elif self.signed is not None:
            lines.insert(1, f"  {'signatures':<22}{SIGNATURES[self.signed]}  [{self.basis}]")
        if self.lost:
            lines.insert(1, f"  {'absent in phase 1':<22}{', '.join(self.lost)}: counted with what they said last")
        if self.findings:
            lines += ["Claims", *(f"  {found.claim:<22}{found}  [{found.basis}]" for found in self.findings)]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that whoever certifies knows of a finished run, and what follows from it. None means: not known.

    `game` and `w` are None in a real federation, whose center knows neither c_i nor v_i. `s` is what each agent gave,
    `basis` how that is known, `game_basis` how the game is; `payments` are those that were made, `postings` what they
    posted in minor units, one mapping per entry; `treasury` is what the center paid out. `failed` are the agents whose
    audit failed, with the step, `lost` those that phase 1 went on without, `signed` whether agents signed what they
    said. `slack` is what an agent may keep back and counts as giving all. `alone` is what each says that training alone
    is worth to it, its cost taken off, `costs` what it spent; `lump_sums` and `deposits` are in units of money. A run
    that is not `trained` cost nobody anything.

    >>> Evidence(("a", "b"), [3.0, 5.0], [3.0, 5.0], postings=({"a": -1, "b": 1},), basis="reported").regret.basis
    'unavailable'
    """

    agents: tuple[str, ...]
    s: Array
    s_max: Array | None = None
    game: Game | None = None
    w: Array | None = None
    payments: tuple[Payment, ...] = ()
    oracles: Oracles | None = None  # what the center could check
    postings: tuple[Mapping[str, int], ...] | None = None
    treasury: int | None = None
    minor: int = 10**6
    valuations: Mapping[str, float] | None = None
    promises: Promises = field(default_factory=Promises)
    misreports: Misreports | None = None
    basis: Basis = "exact"
    game_basis: Basis = "exact"
    tol: float = 1e-6
    search: Search | None = None
    trained: bool = True
    slack: Array | float = 0.0
    lost: tuple[str, ...] = ()
    signed: bool | None = None
    failed: Mapping[str, int] = field(default_factory=dict)
    audits: Audits | None = None
    robustness: Robustness | None = None
    alone: Mapping[str, float] | None = None
    costs: Mapping[str, float] | None = None
    lump_sums: Mapping[str, float] | None = None
    deposits: Mapping[str, float] | None = None
    tau: Fact | None = None  # where there is no game
    models: Mapping[str, Array] = field(default_factory=dict)  # of agents that have others than w

    def __post_init__(self) -> None:
        n = len(self.agents)
        checked = per_agent("s", self.s, n, low=0.0) if self.game is None else self.game.check(self.s)
        object.__setattr__(self, "s", checked)
        if self.s_max is not None:
            object.__setattr__(self, "s_max", per_agent("s_max", self.s_max, n))

    @classmethod
    def of(cls, game: Game, w: Array | None, s: Any, pay: Pay = (), **known: Any) -> Evidence:
        """What is known of the outcome (w, s) of a game."""
        return cls(game.agents, s, game.s_max, game, w, felt(pay), **known)

    @property
    def known(self) -> Basis:
        """How anything that follows from both s and the game is known."""
        return weakest(self.basis, self.game_basis)

    @property
    def made(self) -> tuple[Payment, ...]:
        """The payments that are made with what the center could check."""
        return tuple(payment for payment in self.payments if self.oracles is None or payment.made(self.oracles))

    @property
    def steering(self) -> tuple[Payment, ...]:
        """The payments that agents follow and that a change in training still moves."""
        return tuple(payment for payment in self.made if payment.steers and payment.live)

    @cached_property
    def regret(self) -> Regret:
        return self._regret(self.steering)

    @cached_property
    def regret_with_all(self) -> Regret | None:
        """With the payments that agents do not follow added; None where there are none."""
        others = tuple(payment for payment in self.made if not payment.steers and not payment.fixed)
        return self._regret((*self.steering, *others)) if others else None

    def _regret(self, paid: tuple[Payment, ...]) -> Regret:
        if self.game is None or self.w is None or self.models:
            return UNKNOWN
        try:
            return max_regret(self.game, self.w, self.s, paid, search=self.search, basis=self.known)
        except TooLarge:
            return UNKNOWN

    @cached_property
    def paid(self) -> Array | None:
        """What each agent received over the run in units of money: as posted where that is known, else by the rule."""
        if self.postings is not None:
            total = [sum(posting.get(name, 0) for posting in self.postings) for name in self.agents]
            return np.array(total, dtype=np.float64) / self.minor
        if self.game is None or self.w is None:
            return None
        by_rule = [payment.expected(self.game, self.w, self.s) for payment in self.made]
        if any(amounts is None for amounts in by_rule):
            return None
        lump = np.array([(self.lump_sums or {}).get(name, 0.0) for name in self.agents])
        return sum((amounts for amounts in by_rule if amounts is not None), start=lump)

    @cached_property
    def outside(self) -> dict[str, float]:
        """What each agent has without the federation: by the game, else as it said; left out where nobody knows."""
        known = None if self.game is None else outside_options(self.game)
        if known is not None:
            return dict(zip(self.agents, known.tolist(), strict=True))
        return {name: float(value) for name, value in (self.alone or {}).items() if name in self.agents}

    @cached_property
    def withheld(self) -> Array:
        """The value of the model that each agent was not given, where models are degraded instead of paying."""
        if self.game is None or self.w is None:
            return np.zeros(len(self.agents))
        lost = sum((p.withheld(self.game, self.w, self.s) for p in self.made), start=np.zeros(len(self.agents)))
        value = self.game.values(self.w, self.s)
        for i, agent in enumerate(self.agents):
            if agent in self.models:
                lost[i] += value[i] - self.game.values(self.models[agent], self.s)[i]
        return lost

    @property
    def ungiven(self) -> dict[str, float]:
        """The same by agent; nobody where no payment degrades models, or the game is not known."""
        degraded = self.game is not None and (bool(self.models) or any(payment.degrades for payment in self.made))
        return dict(zip(self.agents, self.withheld.tolist(), strict=True)) if degraded else {}

    @cached_property
    def utilities(self) -> dict[str, float]:
        """What each agent has at the end, with what was paid: by the game, else by the values and costs it told."""
        if self.paid is None:
            return {}
        if self.game is not None and self.w is not None:
            own = self.game.values(self.w, self.s) - self.withheld - self.game.costs(self.s)
            return dict(zip(self.agents, (own + self.paid).tolist(), strict=True))
        told, spent = self.valuations or {}, self.costs or {}
        paid = dict(zip(self.agents, self.paid.tolist(), strict=True))
        return {name: told[name] - spent.get(name, 0.0) + paid[name] for name in self.agents if name in told}

    @property
    def compared(self) -> int:
        """Of how many agents it is known what they have, here and alone."""
        return len(self.agents) if not self.trained else len(self.outside.keys() & self.utilities.keys())

    @cached_property
    def losers(self) -> tuple[Shortfall, ...] | None:
        """The agents that would be better off alone; where nobody trained, everybody can still do that."""
        if not self.compared:
            return None
        both = [name for name in self.agents if self.trained and name in self.outside and name in self.utilities]
        rows = [Shortfall(name, self.utilities[name], self.outside[name]) for name in both]
        return tuple(row for row in rows if row.amount < row.limit - 1e-9 * max(1.0, abs(row.amount)))

    @cached_property
    def over_budget(self) -> tuple[Shortfall, ...] | None:
        return None if self.game is None or self.paid is None else over_budget(self.game, self.paid)

    @cached_property
    def facts(self) -> dict[str, Fact]:
        if self.game is None or self.w is None:
            return _reported(self.valuations, "signed" if self.basis == "signed" else "reported")
        found = _facts(self.game, self.w, self.s, self.steering, self.known, self.game_basis)
        if self.ungiven:
            lost = float(self.withheld.sum())
            for name, sign in (("welfare", -1.0), ("net_welfare", -1.0), ("gap", 1.0)):
                if (was := found[name].value) is not None:
                    found[name] = replace(found[name], value=was + sign * lost, note=f"{lost:.6g} is withheld")
            kink = "what a model is capped at has a kink, and no slope"
            why = "agents have models of their own" if self.models else kink
            found["slope_norm"] = Fact(None, "unavailable", why)
        if not self.trained:
            note = "nobody trained, so nobody had a cost"
            found["net_welfare"] = replace(found["welfare"], note=note)
        return found

    @property
    def known_tau(self) -> Fact | None:
        """The most that a further point takes from an agent's value: a bound at this w, or what is seen at (w, s)."""
        if self.game is None or self.w is None:
            return self.tau
        bound = self.game.tau_at(self.w)
        if bound is not None:
            return Fact(bound, self.game_basis, "a bound at this w")
        seen = float(np.max(-self.game.valuation.slope(self.w, self.s)))
        return Fact(max(0.0, seen), self.known, "estimated from the slopes at this (w, s)")


def certify(known: Evidence) -> Certificate:
    """The certificate of a run, from the evidence there is; what cannot be known from it is marked unavailable.

    >>> from fedincentive.game import paper_example
    >>> game = paper_example()
    >>> promised = Promises(("equilibrium", "full-contribution"))
    >>> certify(Evidence.of(game, game.w0, [0.0, 5.0], promises=promised)).broken[0].claim
    'full-contribution'
    """
    return Certificate(
        agents=len(known.agents),
        payments=tuple(payment.summary(known.oracles) for payment in known.payments),
        regret=known.regret,
        regret_with_all=known.regret_with_all,
        deficit=Fact(0.0 if known.treasury is None else known.treasury / known.minor, "exact"),
        losers=known.losers,
        over_budget=known.over_budget,
        rationality_basis="unavailable" if known.losers is None else known.known,
        findings=findings(known),
        basis=known.basis,
        tau=known.known_tau,
        lost=known.lost,
        signed=known.signed,
        **known.facts,
    )


def _facts(game: Game, w: Array, s: Array, live: Sequence[Payment], known: Basis, game_basis: Basis) -> dict[str, Fact]:
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


def _reported(valuations: Mapping[str, float] | None, basis: Basis) -> dict[str, Fact]:
    nothing = Fact(None, "unavailable", BLIND)
    welfare = nothing if valuations is None else Fact(float(sum(valuations.values())), basis)
    names = ("slope_norm", "model_norm", "net_welfare", "optimal_welfare", "gap")
    return {"welfare": welfare, **dict.fromkeys(names, nothing)}


def _not_known(rows: Sequence[tuple[str, str]]) -> list[str]:
    """One line for each reason; what has none of its own stands with whatever the center cannot know."""
    reasons: dict[str, list[str]] = {}
    for label, text in rows:
        reason = text.removeprefix("unavailable").strip(" ()")
        reasons.setdefault(reason or (BLIND if any(BLIND in said for _, said in rows) else ""), []).append(label)
    return [
        f"  {'not known here':<22}{', '.join(labels)}{reason and f': {reason}'}  [unavailable]"
        for reason, labels in reasons.items()
    ]


def _shortfalls(rows: tuple[Shortfall, ...] | None, verb: str, limit: str) -> str:
    if rows is None:
        return "unavailable"
    shown = [f"{row.agent} ({verb} {row.amount:.6g}, {limit} {row.limit:.6g})" for row in rows[:5]]
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    return "nobody" if not rows else ", ".join(shown) + more
