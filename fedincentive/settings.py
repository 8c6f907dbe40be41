"""The one schema of the `incentive:` mapping, whatever host it stands in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from . import checks
from .checks import setting
from .errors import SettingError


def numbers(name: str, value: Any) -> float | dict[str, float]:
    """One number at least 0 for all agents, or a mapping from agent to its own number."""
    if isinstance(value, Mapping):
        return {checks.text(name, agent): checks.real(0.0)(f"{name}.{agent}", v) for agent, v in value.items()}
    return checks.real(0.0)(name, value)


def names(name: str, value: Any) -> str | tuple[str, ...]:
    """One name, or a list of different ones."""
    if isinstance(value, (list, tuple)) and value:
        given = tuple(checks.text(f"{name}[{k}]", one) for k, one in enumerate(value))
        if len(set(given)) < len(given):
            raise SettingError(f"{name} names one thing twice: {checks.shown(value)}.")
        return given
    return checks.text(name, value)


def listed(name: str, value: Any) -> tuple[str, ...]:
    """One or more different names: a list, or a text with commas between them."""
    given = names(name, [part.strip() for part in value.split(",")] if isinstance(value, str) else value)
    return (given,) if isinstance(given, str) else given


def amounts(name: str, value: Any) -> dict[str, Fraction]:
    """A mapping from agent to an exact amount of money; they sum to 0."""
    given = {agent: checks.exact()(f"{name}.{agent}", v) for agent, v in checks.mapping(name, value).items()}
    if total := sum(given.values()):
        raise SettingError(f"{name} sum to {float(total):g}: what some get others must give; make them sum to 0.")
    return given


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything a run of a mechanism depends on. `Settings.read` checks a mapping from YAML or TOML.

    >>> Settings.read({"mechanism": "upbred", "rounds": 20}).rounds
    20
    """

    # The algorithm
    mechanism: str = setting(
        checks.text,
        "2p-upbred",
        help="What is played. The first six are of the paper, the others of other papers; the name of an installed "
        "extension is taken too.",
    )
    rounds: int = setting(checks.integer(1), 100, help="T, the number of training rounds.")
    gamma: float | None = setting(
        checks.optional(checks.real(above=0.0)),
        None,
        help="Step size of the contributions s, as in the paper. When not given, agents find their own in phase 1, "
        "which then takes few rounds whatever the units; where s and w move together it is 0.5.",
    )
    eta: float = setting(checks.real(above=0.0), 1.0, help="Step size of the model w at the center.")
    tol: float = setting(
        checks.real(above=0.0),
        1e-6,
        help="Phase 1 rests when no masked slope of s exceeds this; without gamma, when nobody moves by more than this "
        "part of its s_max.",
    )
    round_limit: int = setting(checks.integer(1), 10_000, help="The most contribute rounds phase 1 may take.")
    when_short: str = setting(
        checks.one_of("stop", "train"),
        "stop",
        help="When phase 1 ends below s_max or at its limit: stop with advice, or train on what was committed.",
    )
    misses: int = setting(
        checks.integer(1),
        3,
        help="An agent that misses this many contribute rounds in a row is asked in no further one: phase 1 ends "
        "without it, and it counts with the s it said last.",
    )
    slack: float = setting(
        checks.real(0.0),
        1.0,
        help="Where phase 1 comes to rest, an agent that keeps back fewer points than this, and less than a tenth of "
        "what it has, counts as giving all.",
    )
    # Payments
    beta: Fraction = setting(
        checks.exact(above=0), Fraction(2), help='Price of one point, exact: a quoted decimal such as "2" or "0.05".'
    )
    payment: str | tuple[str, ...] | None = setting(
        checks.optional(names),
        None,
        help="Which payments are made: one of these, an installed extension's name, or a list of several; `both` is "
        "contribution and truthful. The mechanism's own when not given.",
    )
    settlement: str = setting(
        checks.one_of("tranches", "end", "commitment"),
        "tranches",
        help="When the contribution payment is made: each training round on delivered points, once at the end, or when "
        "phase 1 ends (the paper's reading, under which full delivery is not an equilibrium).",
    )
    most_points: float | dict[str, float] | None = setting(
        checks.optional(numbers),
        None,
        help="The most points an agent may enrol with: one number, or a mapping from agent to its own. What others pay "
        "depends on it.",
    )
    most_owed: Fraction | None = setting(
        checks.optional(checks.exact(above=0)),
        None,
        help="The most that any agent can owe at the end of the run, in units of money: enrolments that could make "
        "somebody owe more are refused.",
    )
    currency: str = setting(
        checks.text, "credits", help="What a unit of money is called, such as EUR; part of the run's terms."
    )
    phi: str = setting(
        checks.one_of("audited", "paper"),
        "audited",
        help="The fine of the truthful payment: charged unless s, d and v are all verified, or as the paper prints it.",
    )
    h: str = setting(
        checks.one_of("previous", "zero", "clarke"),
        "previous",
        help="What the truthful payment subtracts: the others' last values, nothing, or their value without the agent.",
    )
    unchecked: bool = setting(
        checks.flag,
        False,
        help="Make the truthful payment also where the center has no oracles to check s, d and v: everyone is then "
        "paid on its word. Without it nothing is paid there.",
    )
    fine: Fraction | None = setting(
        checks.optional(checks.exact(above=0)), None, help="Gamma; n * loss_cap * value_per_nat when not given."
    )
    loss_cap: float = setting(
        checks.real(above=0.0), 10.0, help="L_cap: losses are cut here, so |valuation| <= loss_cap * value_per_nat."
    )
    audit: float = setting(
        checks.real(0.0, 1.0, above=0.0),
        1.0,
        help="Probability that an agent is audited in a round, second looks at passes (`rechecks`) counted in: "
        "auditors make at most this share of the training again. With 1 everybody is audited and they come on top. "
        "Divides the fine, and what a deposit must cover.",
    )
    detection: float = setting(
        checks.real(0.0, 1.0, above=0.0),
        1.0,
        help="Probability that an audit finds a misreport, or knows an invented record when it is opened.",
    )
    # Audits of delivery
    auditors: tuple[str, ...] | None = setting(
        checks.optional(listed),
        None,
        help="Who audits what agents deliver: at least 3 names with keys that are no agents'. With them every agent "
        "makes a deposit. Needs incentive.keys.",
    )
    tags: str | None = setting(
        checks.optional(checks.path),
        None,
        help="File with the key that the sites and the auditors share (`fedincentive attest tags --new`); the center "
        "never reads it. With it records that two sites have are found before the run, and count at the first one.",
    )
    threads: int = setting(
        checks.integer(1),
        1,
        help="Threads of local training in an audited run, part of its terms: with others an update is not the same, "
        "bit for bit.",
    )
    rechecks: float = setting(
        checks.real(0.0, 1.0),
        0.1,
        help="Probability that a second auditor checks a delivery that passed its audit; the first one cannot know it.",
    )
    openings: int = setting(
        checks.integer(0), 10, help="How many records of an audited delivery are held against their sources."
    )
    steering: Fraction = setting(
        checks.exact(low=0),
        Fraction(0),
        help="The most an agent can gain in one round by steering the model, in money.",
    )
    colluding: int = setting(checks.integer(1), 2, help="How many agents may act together; deposits cover that.")
    opt_in: bool = setting(
        checks.flag,
        False,
        help="Before the first round each agent measures what training alone is worth to it, is shown the terms, and "
        "may decline; the terms are then proposed again without it.",
    )
    lump_sums: Mapping[str, Fraction] | None = setting(
        checks.optional(amounts),
        None,
        help="What each agent gets (or gives, below 0) once, whatever it contributes: a mapping from agent to exact "
        "amounts that sum to 0. `fedincentive quote` proposes them.",
    )
    audit_seed: int | None = setting(
        checks.optional(checks.integer(0)),
        None,
        help="Seed of the audits, kept from the agents; drawn afresh for every run when not given.",
    )
    delta_d: float = setting(
        checks.real(0.0), 1e-6, help="How far (2-norm) an audited update may be from the gradient."
    )
    delta_v: float = setting(checks.real(0.0), 1e-6, help="How far a valuation may be from the oracle's.")
    options: Mapping[str, Any] | None = setting(
        checks.optional(checks.mapping), None, help="Settings of installed payments: a mapping from each one's name."
    )
    contribution: str | None = setting(
        checks.optional(checks.one_of("exact", "gtg", "loo", "cgsv", "agreement")),
        None,
        help="How the center measures what each update was worth in a round: Shapley values exactly (at most 16 "
        "agents) or estimated, leave-one-out, by direction alone, or by agreement on shared items; not at all when not "
        "given.",
    )
    # Agents
    slope: str | None = setting(
        checks.optional(checks.one_of("bounded", "paper", "counterfactual", "closed-form")),
        None,
        help="How an agent estimates d v_i/d s_i: the mechanism's and site's own choice when not given.",
    )
    delta: int = setting(checks.integer(1), 10, help="Points added for the `counterfactual` slope.")
    tau: float = setting(checks.real(0.0), 0.0, help="A bound of -d v_i/d s_i, used by the `bounded` slope.")
    cost: float | dict[str, float] = setting(
        numbers, 0.0, help="Cost per point for the whole run: one number, or a mapping from agent to number."
    )
    need: float | dict[str, float] | None = setting(
        checks.optional(numbers),
        None,
        help="Useful points that an agent asks for, where they are assigned (one-for-one, pay-what-you-contribute): "
        "one number, or a mapping from agent to its own.",
    )
    spillover: float | dict[str, float] = setting(
        numbers,
        1.0,
        help="How useful another agent's point is there, from 0 to 1: one number, or a mapping from agent.",
    )
    value_per_nat: float = setting(checks.real(above=0.0), 1.0, help="What one nat of loss is worth to an agent.")
    report_values: bool = setting(
        checks.flag, True, help="Agents report how they value the model they get, for the welfare metric."
    )
    local: str = setting(
        checks.one_of("epochs", "gradient"),
        "epochs",
        help="Local work: d_i = w_local - w after epochs, or one gradient.",
    )
    epochs: int = setting(checks.integer(1), 1, help="Local epochs per training round.")
    batch: int = setting(checks.integer(1), 32, help="Local batch size.")
    learning_rate: float = setting(checks.real(above=0.0), 0.1, help="Step size of the local optimizer.")
    # The center
    aggregation: str | None = setting(
        checks.optional(checks.text),
        None,
        help="Aggregation rule by name (`fedincentive aggregate --help`); the mechanism's own when not given.",
    )
    alpha: float = setting(
        checks.real(0.0, 0.499999),
        0.1,
        help="Fraction trimmed on each side, or of agents a robust rule should withstand.",
    )
    share: float | None = setting(
        checks.optional(checks.real(0.0, 0.499999)),
        None,
        help="Trimmed mean by data: this part of the weight is trimmed on each side, instead of alpha of the agents.",
    )
    cap: float | None = setting(
        checks.optional(checks.real(0.0, 1.0)),
        None,
        help="With `share`: the largest part of the weight that one agent may have; more is cut off.",
    )
    normalize: str = setting(
        checks.one_of("kept", "paper"),
        "kept",
        help="Trimmed mean: divide by the number kept, or by n as the paper prints.",
    )
    clip: float = setting(
        checks.real(above=0.0),
        1.0,
        help="Longest update, or difference from the last aggregate, of the rules that clip.",
    )
    weights: str = setting(
        checks.one_of("uniform", "samples"), "uniform", help="Weights of the mean: 1/n, or by delivered points."
    )
    server_optimizer: str = setting(
        checks.one_of("sgd", "adam"), "sgd", help="How the center applies the aggregated update."
    )
    sampled: int | None = setting(
        checks.optional(checks.integer(1)), None, help="Agents asked in each training round; all when not given."
    )
    quorum: float = setting(
        checks.real(0.0, 1.0, above=0.0),
        0.5,
        help="Fraction of the asked agents that must answer for a round to count.",
    )
    repeats: int = setting(
        checks.integer(0), 3, help="How often a round below quorum is asked again before the run fails."
    )
    # The run
    run: str = setting(checks.folder_name, "run", help="Name of the run, part of every ledger entry.")
    resume: bool = setting(
        checks.flag, False, help="Continue a run that exists; without it an existing run is an error."
    )
    seed: int = setting(checks.integer(0), 0, help="All randomness comes from (seed, agent, step).")
    state: str | None = setting(checks.optional(checks.path), None, help="Directory that keeps the run's state.")
    ledger: str | None = setting(
        checks.optional(checks.path),
        None,
        help="SQLite path or postgresql:// address of the payment ledger.",
        secret=True,
    )
    spill: str = setting(
        checks.one_of("auto", "always", "never"),
        "auto",
        help="Updates wait on disk for the end of their round: when a round of them exceeds half of the free memory, "
        "always, or never. For rules that read updates piece by piece.",
    )
    keys: str | None = setting(
        checks.optional(checks.path),
        None,
        help="Folder of keys (`fedincentive keys new`): everybody's public ones, and the private one of whoever plays "
        "here. With it terms, reports and broadcasts are signed.",
    )
    scale: int = setting(checks.integer(1), 10**6, help="Fixed-point steps per data point.")
    minor: int = setting(checks.integer(1), 10**6, help="Minor units per unit of money.")

    @classmethod
    def read(cls, values: Mapping[str, Any], section: str = "incentive") -> Settings:
        return checks.read(cls, values, section)

    @property
    def audited(self) -> bool:
        """Whether auditors check what agents deliver."""
        return self.auditors is not None

    @property
    def chain(self) -> tuple[str, int] | None:
        """What an audited run's hash chains are for: its name and its steps."""
        return (self.run, self.rounds) if self.audited else None

    def cost_of(self, agent: str) -> float:
        """Agent's cost per point."""
        if isinstance(self.cost, Mapping):
            if agent not in self.cost:
                raise SettingError(f"incentive.cost has no number for agent {agent!r}; known: {', '.join(self.cost)}.")
            return self.cost[agent]
        return self.cost

    def plain(self) -> dict[str, Any]:
        """As JSON values: fractions become strings."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {key: _plain(value) for key, value in values.items()}

    @classmethod
    def documentation(cls) -> list[tuple[str, str, str, str]]:
        """(key, default, allowed values, help) of every setting, for the reference page."""
        rows = []
        for field in dataclasses.fields(cls):
            default = "" if field.default is None else str(field.default)
            rows.append((field.name, default, checks.allowed(field.metadata["check"]), field.metadata["help"]))
        return rows


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Fraction) else value
