"""What a payment is: one object that the center, auditors, agents, quotes, certificates and reports ask.

    due(run, event) -> Entry | None        the center: what falls due when a round closes
    replay(body, memory, minor)            an auditor: the amounts derived again
    schedule(), against(body, terms)       an auditor: what the run's terms allow
    explain(entry, account, minor)         a statement: why this amount
    floats(agents, s, t), slopes(agents, s)    agents, phase 1, quote and certificate: what is felt
    terms(), promises(oracles), limits(agents, s_max)    what is agreed, claimed, and the most it can cost

A payment is a frozen dataclass. Its fields are its terms: each is filled from the setting of the same name, or from
`incentive.options.<payment>` where there is no such setting. A new one writes at least `due` and `amounts`; the rest
has defaults for a payment that does not depend on anyone's choice of s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import nearest, shown
from ..entry import BALANCED, Entry
from ..errors import SettingError
from ..messages import Update
from ..run import Answer, Run
from ..settings import Settings
from ..terms import Terms
from .exact import Amounts
from .oracles import Oracles

Array = NDArray[np.float64]
Game = Any  # a fedincentive.game.Game; games stand above payments
Body = Mapping[str, Any]  # an entry's body: run, round, kind, rule, inputs, postings
Memory = dict[str, Any]  # what a payment keeps from one of a run's entries to the next: plain JSON values
Problem = tuple[str, str]  # a finding's name and message
When = Literal["commit", "step", "end", "audit", "over"]
P = TypeVar("P", bound="Payment")


@dataclass(frozen=True)
class Promises:
    """What a run promises, for the certificate to check: names from `fedincentive.game.CLAIMS`."""

    claims: tuple[Any, ...] = ()
    disclaimed: Mapping[str, str] = field(default_factory=dict)  # expressly not promised -> why
    notes: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: Promises) -> Promises:
        """Both together; what one of them expressly does not promise, the two do not."""
        disclaimed = {**self.disclaimed, **other.disclaimed}
        claims = dict.fromkeys((*self.claims, *other.claims))
        return Promises(
            tuple(claim for claim in claims if claim not in disclaimed), disclaimed, {**self.notes, **other.notes}
        )


def _nobody(agent: str) -> Update:
    raise LookupError(agent)


@dataclass(frozen=True)
class Event:
    """A round that was just closed, or the commitments that training starts from, as payments see it."""

    phase: Literal["commit", "train", "value", "audit", "end"]
    w: Update = field(default_factory=dict)  # as broadcast in a training round, the new one in a value exchange
    s: Mapping[str, float] = field(default_factory=dict)  # as broadcast
    reports: Mapping[str, Answer] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    oracles: Oracles = field(default_factory=Oracles)
    without: Callable[[str], Update] = _nobody  # the model that the others alone would have made
    worth: Mapping[str, float] = field(default_factory=dict)  # what each update was worth, where it is measured
    levels: Mapping[str, float] = field(default_factory=dict)  # what the new model is worth as each agent is given it
    scores: Mapping[str, int] = field(default_factory=dict)  # cosines of the updates with the change, in billionths


@dataclass(frozen=True)
class Payment:
    """Base of all payments; see the module's text for what each method is asked by whom."""

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]  # of the entries it writes; no two payments of a run share one
    rules: ClassVar[tuple[str, ...]]  # name/version of what those entries are derived by, all that ever were
    balanced: ClassVar[bool] = True  # its entries sum to 0 without the treasury
    values: ClassVar[bool] = False  # agents value the new model after every training round
    steers: ClassVar[bool] = True  # agents follow it when they choose s
    concave: ClassVar[bool] = False  # p_i is known concave in s_i
    fixed: ClassVar[bool] = False  # no choice of s moves it
    degrades: ClassVar[bool] = False  # agents are given models of less worth, which the center knows; see `withheld`

    # How it is made

    @classmethod
    def of(cls: type[P], settings: Settings) -> P:
        """The payment of a run with these settings."""
        shared_names = {f.name for f in dataclasses.fields(settings)}
        own = {f.name: f for f in dataclasses.fields(cls) if f.name not in shared_names}
        given = checks.mapping(f"incentive.options.{cls.name}", (settings.options or {}).get(cls.name, {}))
        for key in given:
            if key not in own:
                raise SettingError(f"incentive.options.{cls.name} has no setting {shown(key)}.{nearest(key, own)}")
        for key, option in own.items():
            if key not in given and option.default is option.default_factory is dataclasses.MISSING:
                raise SettingError(f"incentive.options.{cls.name}.{key} is required.")
        shared = {f.name: getattr(settings, f.name) for f in dataclasses.fields(cls) if f.name not in own}
        exact = {key: _parsed(f"incentive.options.{cls.name}.{key}", own[key], value) for key, value in given.items()}
        return cls(**shared, **exact)

    def used(self) -> tuple[str, ...]:
        """The rules that entries of this run may have; the terms name them."""
        return self.rules

    def terms(self) -> dict[str, Any]:
        """All it depends on, as plain JSON values; `read` makes the same payment of them."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def read(cls: type[P], terms: Mapping[str, Any]) -> P:
        return cls(**{f.name: _parsed(f.name, f, terms[f.name]) for f in dataclasses.fields(cls)})

    @classmethod
    def agreed(cls: type[P], texts: Mapping[str, Any]) -> P:
        """The payment that a run's terms name, where numbers are texts and what was not set is left out."""
        given = {f.name: _spoken(f, texts[f.name]) for f in dataclasses.fields(cls) if f.name in texts}
        unset = {f.name: _plain(f.default) for f in dataclasses.fields(cls) if f.default is not dataclasses.MISSING}
        return cls.read({f.name: given.get(f.name, unset.get(f.name)) for f in dataclasses.fields(cls)})

    # The center

    def check(self, n: int, oracles: Oracles) -> None:
        """Refuse to be played with this many agents, or without what has to be known."""
        if n < 2:
            raise SettingError(
                f"incentive.payment is {self.name!r} with {n} agent: a payment compares an agent with the others. "
                "Enrol at least 2 agents or set payment: none."
            )

    def made(self, oracles: Oracles) -> bool:
        """Whether it is paid at all with what the center can check."""
        return True

    def due(self, run: Run, event: Event) -> Entry | None:
        """The entry that this event brings, made by `entry`; None where nothing falls due."""
        raise NotImplementedError

    def entry(self, run: Run, inputs: Mapping[str, Any], *, kind: str | None = None, rule: str | None = None) -> Entry:
        """The entry with these inputs, its amounts by the formula; `kind` and `rule` are the first ones by default."""
        body: dict[str, Any] = {
            "run": run.settings.run,
            "round": run.round,
            "kind": kind or self.kinds[0],
            "rule": rule or self.rules[0],
            "inputs": inputs,
        }
        memory = self.memory(run)
        amounts = self.amounts(body, memory, run.settings.minor)
        self.remember({**body, "postings": amounts}, memory)
        return Entry(**body, postings=amounts, claims=(BALANCED,) if self.balanced else ())

    def memory(self, run: Run) -> Memory:
        """This payment's own part of the run's state."""
        return run.memory.setdefault(self.name, {})

    # Auditors

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        """The formula: what an entry with these inputs posts, in exact integers, given the run's entries before it."""
        raise NotImplementedError

    @classmethod
    def remember(cls, body: Body, memory: Memory) -> None:
        """Take an entry into the memory that the next one's amounts may depend on."""
        paid = memory.setdefault("paid", {})
        for account, amount in body["postings"].items():
            paid[account] = paid.get(account, 0) + amount

    @classmethod
    def replay(cls, body: Body, memory: Memory, minor: int) -> Iterator[Problem | Amounts]:
        """An entry derived again: the amounts it should have, and everything else that is wrong with it."""
        try:
            yield cls.amounts(body, memory, minor)
        finally:
            cls.remember(body, memory)

    def schedule(self) -> Mapping[str, When]:
        """When each kind of entry falls due: with the commitments (commit), once in every training round (step), in the
        last one (end), where an audit failed (audit), or once when all audits are done (over). A kind that is not named
        may not be written; where nothing is said, anything goes."""
        return {}

    def every_step(self, terms: Terms) -> tuple[str, ...]:
        """The kinds of entries that each training round must bring: one that is left out is found."""
        return tuple(kind for kind, when in self.schedule().items() if when == "step")

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        """In what an entry's inputs differ from the run's terms."""
        return iter(())

    @classmethod
    def as_committed(cls, body: Body, terms: Terms) -> Iterator[str]:
        """The same for a run of an older release, which has no terms but what it committed to."""
        return iter(())

    @classmethod
    def explain(cls, entry: Entry, account: str, minor: int) -> str:
        """The rule with this account's numbers in it, so that a person can follow the amount."""
        return entry.rule

    @classmethod
    def told(cls, entry: Entry) -> Mapping[str, Mapping[str, int]]:
        """What an entry tells of its round, for reports: "delivered" points by agent, "valuations" in minor units."""
        return {}

    # What agents feel, in floats: for phase 1, strategies, quotes and certificates

    @property
    def live(self) -> bool:
        """Whether an agent that delivers less than it committed is paid less."""
        return True

    @property
    def price(self) -> Fraction:
        """What a further point earns, where that is the same for everyone, everywhere; else 0."""
        return Fraction(0)

    def floats(self, agents: Sequence[str], s: Array, t: Array | None = None) -> Array:
        """p_i over the whole run where everyone gives s; with `t`, where agent i alone gives t_i instead."""
        return np.zeros(len(s))

    def slopes(self, agents: Sequence[str], s: Array) -> Array:
        """d p_i / d s_i."""
        return np.zeros(len(s))

    def deviations(self, game: Game, w: Array, s: Array, t: Array) -> Array:
        """What a move of agent i alone to t_i makes of its payment at this w, up to a constant."""
        return self.floats(game.agents, s, t)

    def withheld(self, game: Game, w: Array, s: Array) -> Array:
        """The value that agents do not get because their models are degraded; it is nobody's gain."""
        return np.zeros(len(s))

    def expected(self, game: Game, w: Array, s: Array) -> Array | None:
        """What each agent gets over a run from w0 to w in which everyone gives s; None where that is not known."""
        return self.floats(game.agents, s)

    # What is said of it

    def summary(self, oracles: Oracles | None = None) -> str:
        """Its price and when it is paid, in a few words; with `oracles`, as far as the center could carry it out."""
        prices = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return ", ".join([self.name, *(f"{key} = {v}" for key, v in prices.items() if isinstance(v, Fraction))])

    def promises(self, oracles: Oracles) -> Promises:
        """What paying it adds to a mechanism's promises and takes from them, with what the center can check."""
        return Promises()

    def limits(self, agents: Sequence[str], s_max: Array) -> Array | None:
        """The most it can cost each agent in a run, in units of money; None where there is no limit."""
        return None

    def deficit(self, game: Game, w: Array, s: Array) -> float | None:
        """What the treasury pays over a run from w0 to w in which everyone gives s; None where that is not known."""
        paid = self.expected(game, w, s)
        return 0.0 if self.balanced else None if paid is None else float(paid.sum())

    def notes(self, n: int) -> tuple[str, ...]:
        """What an agent should know before it signs, with n agents."""
        return ()

    def repriced(self: P, price: Fraction) -> P:
        """The same payment at another price, where it has one."""
        return self

    def splitting(self, agents: Sequence[str], s: Array) -> Array | None:
        """What each agent loses by splitting into two names; None where that is not known."""
        return np.zeros(len(s)) if self.fixed else None

    def merging(self, agents: Sequence[str], s: Array) -> tuple[float, str, str] | None:
        """The most that two agents gain by merging, and who they are; None where that is not known."""
        return None

    def metrics(self, run: Run, d: Update) -> dict[str, float]:
        """Numbers to log after a training round whose aggregated update was d."""
        return {}

    def caution(self, run: Run) -> str:
        """Said before the first round where something is known to go wrong; not an error."""
        return ""

    def advice(self, run: Run, ne: float | None = None, dom: float | None = None) -> str:
        """What to change where phase 1 ended early; `ne` and `dom` are beta_NE and beta_dom of a known game."""
        return ""


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Fraction) else value


def _spoken(option: dataclasses.Field[Any], value: Any) -> Any:
    """A term from its text in the ledger; numbers inside mappings too."""
    if isinstance(value, Mapping):
        return {key: _spoken(option, item) for key, item in value.items()}
    kind = str(option.type)
    if "bool" in kind and value in ("yes", "no"):
        return value == "yes"
    return float(value) if "float" in kind and isinstance(value, str) else value


def in_order(body: Body, memory: Memory) -> Iterator[Problem]:
    """What is wrong with the step that an entry names: it follows the one of the run's entry before it."""
    last, step = memory.get("step"), body["inputs"].get("step")
    if step is not None and last is not None and step != last + 1:
        yield "terms", f"it is of training round {step}, the one before it was of {last}."
    memory["step"] = step


def points_within(given: Mapping[str, Any], most: Mapping[str, int], what: str) -> Iterator[str]:
    """What is wrong with points by agent: each agent of the terms has some, from 0 to its most, and nobody else."""
    for agent in sorted({*given, *most}):
        if agent not in most:
            yield f"{agent!r} has {what} but is not in the terms"
        elif agent not in given:
            yield f"{agent!r} has no {what}"
        elif type(given[agent]) is not int or not 0 <= given[agent] <= most[agent]:
            yield f"{agent!r} has {given[agent]!r} {what}, agreed are 0 to {most[agent]}"


PLAIN = {"int": checks.integer(), "float": checks.real(), "str": checks.text, "bool": checks.flag}


def _parsed(name: str, option: dataclasses.Field[Any], value: Any) -> Any:
    """A term as its field has it: exact numbers from their texts, also in mappings and lists."""
    kind = option.type if isinstance(option.type, str) else getattr(option.type, "__name__", str(option.type))
    if kind in PLAIN:
        return PLAIN[kind](name, value)
    return _exact(name, value) if "Fraction" in str(option.type) else value


def _exact(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _exact(f"{name}.{key}", item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_exact(f"{name}[{k}]", item) for k, item in enumerate(value))
    return None if value is None else checks.exact()(name, value)
