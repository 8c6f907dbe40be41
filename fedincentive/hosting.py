"""A host session: what every framework's adapter does around a run, once.

A host (FedML, Flower, ...) only carries messages. Settings, names, keys, the ledger and the state, the checks before
anyone is asked to join, the lines of the log and the certificate at the end are the same everywhere, and are here.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from . import checks, mechanisms
from . import ledger as books
from .agent import ClosedFormSite, GameOracle, Notary, Site
from .agent.notary import LOGS
from .aggregation.bounds import of_a_run
from .audit import Auditor
from .center import Center, Outcome, audits, state
from .center.enrolment import wrong_with
from .center.outlook import outlook
from .checks import nearest, setting
from .contribution import labels_by_effort
from .errors import SettingError
from .game import Game
from .identity import enrolment, is_signed, read_keys
from .ledger import Ledger
from .manifest import DEFAULT, RECEIPTS, RUNS
from .mechanisms import Mechanism
from .messages import Enrol, RoundResult, Update
from .payments import Oracles
from .provenance import records
from .provenance.keys import KeyRing, name_in_files
from .provenance.records import Commitment
from .settings import Settings, numbers


def by_agent(name: str, value: Any) -> str | dict[str, str]:
    """One text for all agents, or a mapping from agent to its own."""
    if isinstance(value, Mapping):
        return {checks.text(name, agent): checks.text(f"{name}.{agent}", v) for agent, v in value.items()}
    return checks.text(name, value)


@dataclasses.dataclass(frozen=True)
class HostSettings:
    """What a host needs beside `fedincentive.Settings`; each host adds its own."""

    title: ClassVar[str] = "the host"

    strategy: str | dict[str, str] | None = setting(
        checks.optional(by_agent),
        None,
        help="What agents want to give: gradient, fixed or free-rider; one for all, or a mapping by agent. When not "
        "given: gradient, and in closed-form games the mechanism's own.",
    )
    start: float = setting(checks.real(0.0, 1.0), 0.5, help="The part of its points each agent contributes at first.")
    budget: float | dict[str, float] | None = setting(
        checks.optional(numbers),
        None,
        help="The most money an agent can put at stake while it delivers, its deposit included; one number for all, or "
        "a mapping by agent.",
    )
    accept_losses: bool = setting(
        checks.flag,
        False,
        help="Play also where most agents lose for certain: their data costs more than the payments and a perfect "
        "model give them. Without it such a run stops before the first round.",
    )
    classes: int | None = setting(
        checks.optional(checks.integer(2)),
        None,
        help="How many classes the model tells apart, where the server does not see it (FedML and FLUTE do). It bounds "
        "what a perfect model is worth, and so who loses for certain.",
    )
    output: str = setting(checks.path, RUNS, help="Directory of the runs' ledgers and states, one folder for each run.")
    join_timeout: float = setting(
        checks.real(above=0.0), 300.0, help="Seconds the server waits for the agents to enrol before the first round."
    )
    round_timeout: float = setting(
        checks.real(above=0.0), 600.0, help="Seconds after which an agent that has not answered is absent in a round."
    )

    def strategy_of(self, agent: str, site: Site, settings: Settings) -> str:
        """What is said, or what the engine takes: in closed-form games the mechanism's own strategy."""
        said = self.strategy.get(agent) if isinstance(self.strategy, Mapping) else self.strategy
        usual = mechanisms.strategy(settings) if isinstance(site, ClosedFormSite) else "gradient"
        return said or usual

    def budget_of(self, agent: str) -> float | None:
        return self.budget.get(agent) if isinstance(self.budget, Mapping) else self.budget

    def first(self, s_max: float) -> float:
        """What an agent with this many points contributes at first."""
        return float(round(self.start * s_max))


SHOWN = 20  # agents that are named one by one at the end of a run
H = TypeVar("H", bound=HostSettings)


def read(
    given: Mapping[str, Any], host: type[H], fixed: Mapping[str, Any], elsewhere: Mapping[str, str] | None = None
) -> tuple[Settings, H]:
    """Both parts of the `incentive` mapping; every problem is a SettingError.

    `fixed` are settings that the framework has already, `elsewhere` where its users give those that may not stand here.
    """
    checks.mapping("incentive", given)
    core = {field.name for field in dataclasses.fields(Settings)}
    own = {field.name for field in dataclasses.fields(host)}
    known = sorted((core | own) - set(elsewhere or {}))
    for key in given:
        if key in (elsewhere or {}):
            raise SettingError(f"incentive.{key} is {host.title}'s own setting: give it as {(elsewhere or {})[key]}.")
        if key not in known:
            raise SettingError(f"incentive has no setting {checks.shown(key)}.{nearest(key, known)}")
    values = {**fixed, **given}
    settings = Settings.read({key: value for key, value in values.items() if key in core})
    return settings, checks.read(host, {key: value for key, value in values.items() if key in own}, "incentive")


def knowing(oracles: Oracles, mechanism: Mechanism, game: Game | None) -> Oracles:
    """With what models are worth in a closed-form game, where they are degraded; elsewhere a host has no oracles."""
    if game is None or not mechanism.degrades:
        return oracles
    known = GameOracle(game, lambda agent: 0.0)
    return dataclasses.replace(oracles, valuation=known, alone=known.alone)


def agent_name(index: int, count: int) -> str:
    """The name of a host's client `index`, from 0, where it is given no other; padded, so that name order is theirs.

    >>> agent_name(0, 12), agent_name(11, 12)
    ('agent-01', 'agent-12')
    """
    return f"agent-{index + 1:0{len(str(count))}d}"


class Session:
    """One run in one host. `ledger` is an open ledger or where it is; `game` the closed-form one that is played.

    A host makes a session, calls `preflight` before it asks anyone to join, then `center` (or `saved`, where a run is
    resumed before anyone is back), `note` after every round, and `conclude` at the end.
    """

    def __init__(
        self,
        settings: Settings,
        host: HostSettings,
        log: logging.Logger,
        *,
        mechanism: type[Mechanism] | None = None,
        ledger: Ledger | str | Path | None = None,
        game: Game | None = None,
        oracles: Oracles = Oracles(),  # noqa: B008
    ) -> None:
        if game is not None and oracles.utility is None:
            oracles = dataclasses.replace(oracles, utility=self._welfare, labels=self._labels)
        self.settings, self.host, self.log, self.game, self.oracles = settings, host, log, game, oracles
        self.settings = mechanisms.prepared(state.as_begun(settings, self.state_path), game)
        self._mechanism, self._ledger = mechanism, ledger
        self._center: Center | None = None
        self.oracles = knowing(self.oracles, self.mechanism, game)

    def _welfare(self, w: Update) -> float:
        """What a model is worth to all in the closed-form game, with what everyone contributes."""
        assert self.game is not None and self._center is not None
        s = self._center.run.points(self._center.run.s)
        return self.game.welfare(w["w"], np.array([s.get(agent, 0.0) for agent in self.game.agents]))

    def _labels(self, agent: str, w: Update) -> np.ndarray:
        """Of shared items, right in the part of its points that the agent contributes."""
        assert self._center is not None
        run = self._center.run
        return labels_by_effort(agent, run.s[agent] / run.s_max[agent] if run.s_max[agent] else 0.0)

    @property
    def directory(self) -> Path:
        """Where the run's ledger and state are unless the settings say otherwise."""
        return Path(self.host.output).expanduser().resolve() / self.settings.run

    @property
    def state_path(self) -> Path:
        return Path(self.settings.state) if self.settings.state else self.directory / "state"

    @property
    def resumes(self) -> bool:
        """Is there a saved run to go on with, and are we asked to?"""
        return self.settings.resume and state.exists(self.state_path)

    @cached_property
    def mechanism(self) -> Mechanism:
        made = self._mechanism
        return mechanisms.get(self.settings.mechanism, self.settings) if made is None else made(self.settings)

    @cached_property
    def keys(self) -> KeyRing | None:
        return read_keys(self.settings.keys) if self.settings.keys else None

    def notary(self, agent: str, *, beside: bool = False) -> Notary | None:
        """What signs for the agent and checks its center; None in a run without keys. An agent that is played beside
        its center is saved with it, and needs no memory of its own."""
        if self.keys is None:
            return None
        logs = None if beside else self.directory.parent / LOGS
        options = {
            "durable": not beside,
            "expected": self.mechanism.public(),
            "chain": self.settings.chain,
            "logs": logs,
        }
        return Notary.of(self.keys, agent, self.directory / RECEIPTS, **options)

    def commitment(self, agent: str, site: Site) -> str | None:
        """What the agent enrols of its records in an audited run; the salts stay in a file at the site."""
        show: Callable[[], Any] = getattr(site, "records", lambda: None)
        own = show() if self.settings.audited else None
        if own is None:
            return None
        made = records.kept(self._kept(agent), own)
        if list(show()) != list(own):
            raise SettingError(
                f"The records of agent {agent!r} differ each time they are read, by a random transform perhaps: no "
                "audit could find them again. Transform them in the training instead."
            )
        return str(made)

    def tags(self, site: Site) -> str | None:
        """The tags of the site's records, where sites look for copies at others'."""
        own = getattr(site, "records", lambda: None)() if self.settings.tags and self.settings.audited else None
        return None if own is None else records.enrolled_tags(records.tag_key(str(self.settings.tags)), own)

    def auditor(self, name: str, sites: Callable[[str], Site]) -> Auditor:
        """One of the run's auditors, with a way into every site and what is kept there."""
        assert self.keys is not None
        kept = {"commitments": lambda agent: Commitment.read(path) if (path := self._kept(agent)).exists() else None}
        key = None if self.settings.tags is None else records.tag_key(self.settings.tags)
        return Auditor.of(self.keys, name, sites, **kept, tag_key=key)

    def _kept(self, agent: str) -> Path:
        return self.directory / "agents" / f"{name_in_files(agent)}.records"

    @cached_property
    def ledger(self) -> Ledger:
        if isinstance(self._ledger, Ledger):
            return self._ledger
        target = self._ledger or self.settings.ledger
        if target is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            target = self.directory / DEFAULT
        book = books.open(target, minor=self.settings.minor)
        self.log.info("Ledger: %s", book.address)
        return book

    def preflight(self, agents: Sequence[str] = (), *, network: bool = True) -> None:
        """Refuse what cannot end well before anyone is asked to join; `agents` are the names that are known.

        Payments follow what is reported, so a run that a network reaches warns when it has no keys.
        """
        mechanism = self.mechanism  # a wrong name or setting is refused here
        if agents:
            mechanism.check(len(agents), self.oracles)
        if self.settings.audited and agents:
            audits.refuse(self.mechanism, agents, self.keys, self.ledger)
        for agent in agents if self.keys is not None else ():
            if agent not in self.keys.public:  # type: ignore[union-attr]
                raise SettingError(
                    f"incentive.keys: {self.settings.keys} has no public key of agent {agent!r}: copy its NAME.pub "
                    "there, which `fedincentive keys new` makes at the agent's site."
                )
        if network and self.keys is None:
            self.log.warning(
                "Run %s keeps a ledger but has no keys: whoever reaches this server can speak for any agent, and so "
                "move its money. Make keys with `fedincentive keys new` and name their folder in incentive.keys.",
                self.settings.run,
            )
        if not self.resumes:
            state.refuse_existing(self.settings.run, self.state_path, self.ledger)

    def wrong_with(self, enrol: Enrol, signature: str | None, n: int, others: Iterable[str] = ()) -> str:
        """Why the enrolment of one of n agents cannot be taken beside those of `others`, or nothing."""
        if self.keys is not None:
            key = self.keys.public.get(enrol.agent)
            said = enrolment(self.settings.run, enrol)
            if key is None or enrol.key != key.vkey or not is_signed(key, said, signature):
                return f"Agent {enrol.agent[:40]!r} does not enrol with its own key for run {self.settings.run!r}."
        return wrong_with(enrol, self.mechanism, n, others)

    def wrong_with_auditor(self, enrol: Enrol, signature: str | None) -> str:
        """Why somebody who says it is an auditor of this run is not, or nothing."""
        key = self.keys.public.get(enrol.agent) if self.keys is not None else None
        if key is None or not is_signed(key, enrolment(self.settings.run, enrol), signature):
            return f"Auditor {enrol.agent[:40]!r} does not come with its own key for run {self.settings.run!r}."
        return ""

    def center(
        self,
        enrolled: Sequence[Enrol],
        w0: Update,
        buffers: Sequence[str] | frozenset[str] = (),
        classes: int | None = None,
    ) -> Center:
        """A new center for the enrolled agents, or the saved one where the run is resumed. `classes` is what models
        tell apart, where the host knows it: it bounds what they can be worth."""
        resumed = self.resumes
        if not resumed:
            self.foretell(enrolled, self.host.classes or classes)
        self._center = Center.open(
            self.settings,
            self.mechanism,
            enrolled,
            w0,
            self.ledger,
            self.state_path,
            keys=self.keys,
            buffers=buffers,
            oracles=self.oracles,
        )
        if resumed:
            self._say_resumed(self._center)
        asked = min(self.settings.sampled or len(enrolled), len(enrolled))
        if certified := of_a_run(self.mechanism.aggregator, asked, self.settings):
            self.log.info("Certified: %s", certified)
        return self._center

    def foretell(self, enrolled: Sequence[Enrol], classes: int | None = None) -> None:
        """Log what to expect of the run, and stop it where most agents lose for certain and nobody accepted that."""
        if self.game is not None:
            return  # `fedincentive quote` says it of a game; the settings do not have its costs and values
        page = outlook(self.mechanism, enrolled, classes)
        if page.bad and not self.host.accept_losses:
            raise SettingError(
                f"{len(page.losers)} of {page.n} agents lose in run {self.settings.run!r} even if the model becomes "
                "perfect, so it does not start.\n" + "\n".join(page.lines) + "\nCorrect incentive.cost or "
                "incentive.value_per_nat where they are not what you mean, or set incentive.accept_losses to true to "
                "play all the same."
            )
        for line in page.lines:
            self.log.info("%s", line)

    def saved(self, buffers: Sequence[str] | frozenset[str] = ()) -> Center | None:
        """The center of a run to resume, before anyone has enrolled again; None for a new run."""
        if not self.resumes:
            return None
        self._center = Center.restore(
            self.state_path,
            self.settings,
            self.mechanism,
            self.ledger,
            keys=self.keys,
            buffers=buffers,
            oracles=self.oracles,
        )
        self._say_resumed(self._center)
        return self._center

    def _say_resumed(self, center: Center) -> None:
        run = center.run
        if center.done:
            self.log.info("Run %s is over already; its model is that after round %d", run.settings.run, run.round)
        else:
            self.log.info("Run %s is resumed at round %d (%s)", run.settings.run, run.round, run.phase)

    def note(self, result: RoundResult, **more: float | None) -> None:
        """One line of the log per round; `more` are a host's own numbers."""
        if result.repeated:
            absent = ", ".join(result.absent)
            self.log.warning("Round %d (%s) is asked again; absent: %s", result.round, result.phase, absent)
            return
        numbers = {"contributions": sum(result.s.values()), "welfare": result.metrics.get("welfare"), **more}
        parts = [f"{name} {value:.6g}" for name, value in numbers.items() if value is not None]
        parts += [f"absent {', '.join(result.absent)}"] if result.absent else []
        parts += [f"ledger {result.head[:16]}"] if result.head else []
        self.log.info("Round %d (%s): %s", result.round, result.phase, ", ".join(parts))
        for agent, (value, half) in sorted(result.worth.items()):
            paid = result.payments.get(agent, 0) / self.settings.minor
            self.log.info("  %s: update worth %.6g +- %.2g, payment %+.6f", agent, value, half, paid)

    def conclude(self, center: Center, files: Mapping[str, Path] | None = None) -> Outcome:
        """The end: the certificate is made and kept, and the log's last lines say how the run ended and where things
        are; `files` are the host's own, by what they hold."""
        ended = center.conclude(self.game)
        advice = f" {ended.advice}" if ended.advice else ""
        self.log.info("Run %s (%s) ended: %s.%s", ended.run, ended.mechanism, ended.status, advice)
        for agent, amount in islice(ended.payments.items(), SHOWN):
            gave, had = ended.s[agent], ended.s_max[agent]
            worth = f", updates worth {ended.worth[agent]:.6g} on average" if agent in ended.worth else ""
            self.log.info(
                "  %s: %g of %g points, balance %+.6f%s", agent, gave, had, amount / self.settings.minor, worth
            )
        if (more := len(ended.payments) - SHOWN) > 0:
            self.log.info("  and %d more agents: fedincentive ledger balances %s", more, self.ledger.address)
        for line in str(ended.certificate).splitlines():
            self.log.info("%s", line)
        for row in (ended.certificate and ended.certificate.losers) or ():
            self.log.warning(
                "Agent %s would be better off training alone: it has %.6g, alone it would have %.6g. Lump sums can "
                "mend that (incentive.lump_sums), or it can stay out.", row.agent, row.amount, row.limit,
            )  # fmt: skip
        self.log.info("Ledger head %s", ended.checkpoint)
        for what, path in {"Ledger": self.ledger.address, **(files or {})}.items():
            self.log.info("%s: %s", what, path)
        self.log.info("To read it: fedincentive report --out %s.html %s", ended.run, self.ledger.address)
        return ended

    def close(self) -> None:
        """Let others play the run on, and close the ledger where this session opened it."""
        if self._center is not None:
            self._center.release()
        if "ledger" in self.__dict__ and not isinstance(self._ledger, Ledger):
            self.ledger.close()
