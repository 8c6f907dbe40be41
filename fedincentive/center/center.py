"""The center of a run: broadcast, collect, close. A plain state machine without threads, sockets or frameworks."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import terms
from ..errors import QuorumError, ReportRefused, RunError, SettingError
from ..game import Evidence, Game, Robustness, beta_dom, beta_ne, certify
from ..identity import CENTER, Answers, answers, broadcast, digest, signed
from ..ledger import Entry, Ledger, Receipt
from ..manifest import Heads, Manifest, certified
from ..mechanisms import Mechanism
from ..messages import SCALARS, Broadcast, Enrol, Report, RoundResult, Update
from ..payments import TREASURY, Oracles
from ..provenance import beacon
from ..provenance.keys import KeyRing, PrivateKey
from ..provenance.statements import KeysInForce
from ..run import Answer, Run
from ..settings import Settings
from . import audits, rounds, state
from .enrolment import affordable, enrol, freeze, frozen, without
from .lock import Lock
from .log import Log, with_cosignatures
from .metrics import metrics
from .optimizer import Optimizer
from .outcome import Outcome, advise, outcome, tau
from .own_models import OwnModels
from .spill import Spill
from .validation import checked, well_formed

log = logging.getLogger("fedincentive")


class Center:
    """Plays one run of a mechanism with the enrolled agents.

    `ledger` is an open ledger or None, `state_path` a directory of this run's own or None, `keys` everybody's public
    keys and the center's own (then all is signed), `buffers` the entries of w that are not parameters (BatchNorm
    statistics, counters), `oracles` what can be checked. `Center.open` continues a saved run where the settings say
    `resume`. A host that has steps of its own around the aggregation sets `hooks`; one whose agents live in its own
    process sets `memory`, which is saved with each round and is back in `remembered` when the run is resumed.

    A run that keeps its state is played by one center at a time: until it is done, or the host calls `release` or
    leaves the center's `with` block.

    A round is broadcast, submit, close, and in training rounds w <- w + (eta/n) sum_i d_i:

    >>> import numpy as np
    >>> from fedincentive import Settings, mechanisms
    >>> settings = Settings.read({"mechanism": "fedavg", "rounds": 1, "report_values": False})
    >>> agents = [Enrol("a", s_max=10.0, s0=5.0), Enrol("b", s_max=20.0, s0=5.0)]
    >>> center = Center(settings, mechanisms.get("fedavg", settings), agents, {"w": np.zeros(1)})
    >>> for agent, points, d in (("a", 10.0, 1.0), ("b", 20.0, 3.0)):
    ...     _ = center.submit(Report("run", 0, "train", agent, delivered=points, update={"w": np.array([d])}))
    >>> _ = center.close()
    >>> center.done, center.w["w"]
    (True, array([2.]))
    """

    hooks: rounds.Hooks | None = None
    memory: Callable[[], Mapping[str, Any]] | None = None
    remembered: Mapping[str, Any]

    def __init__(
        self,
        settings: Settings,
        mechanism: Mechanism,
        agents: Sequence[Enrol],
        w0: Update,
        ledger: Ledger | None = None,
        state_path: str | Path | None = None,
        *,
        keys: KeyRing | None = None,
        buffers: Collection[str] = (),
        oracles: Oracles = Oracles(),  # noqa: B008
    ) -> None:
        self._configure(settings, mechanism, ledger, state_path, keys, buffers, oracles)
        state.refuse_existing(settings.run, self.path, ledger)
        run = enrol(mechanism, agents)
        mechanism.check(run.n, oracles)
        affordable(run, mechanism)
        self._check_keys(run.agents)
        if settings.audited:
            audits.refuse(mechanism, run.agents, keys, ledger)
        run.terms = rounds.agree(run, mechanism, oracles, keys)
        run.phase = "accept" if run.signed or settings.opt_in else mechanism.start(run)
        entries = [] if run.phase == "accept" else [rounds.agreed(run, {}, {})]
        entries += rounds.begin(run, mechanism) if run.phase == "train" else []
        rounds.book(run, entries)
        unpaid = [payment.summary(oracles) for payment in mechanism.payments if not payment.made(oracles)]
        for warning in filter(None, [*(payment.caution(run) for payment in mechanism.payments), *unpaid]):
            log.warning("%s", warning)
        self.manifest = Manifest.begin(run, mechanism.name, self.path)
        with self._owning():
            state.refuse_existing(settings.run, self.path, ledger)  # nobody was faster
            self._spill = Spill(mechanism, run.n, w0, self.path)
            w0 = frozen(w0)
            self._own = OwnModels.of(mechanism, w0, self.buffers)
            if self._own is not None:
                self._own.refuse(run, oracles)
            self._save(run, w0, Optimizer(settings.server_optimizer, settings.eta), entries)
            self._settle(manifest=True)

    @classmethod
    def restore(
        cls,
        state_path: str | Path,
        settings: Settings,
        mechanism: Mechanism,
        ledger: Ledger | None = None,
        *,
        keys: KeyRing | None = None,
        buffers: Collection[str] = (),
        oracles: Oracles = Oracles(),  # noqa: B008
    ) -> Center:
        """The saved run, with what was left to append appended: amounts are never computed a second time."""
        self = cls.__new__(cls)
        self._configure(settings, mechanism, ledger, state_path, keys, buffers, oracles)
        with self._owning():
            self._restore()
        return self

    @classmethod
    def open(
        cls,
        settings: Settings,
        mechanism: Mechanism,
        agents: Sequence[Enrol],
        w0: Update,
        ledger: Ledger | None = None,
        state_path: str | Path | None = None,
        **options: object,
    ) -> Center:
        """A new run, or the saved one where `resume` is set and there is one: what a host calls at its start."""
        if not (settings.resume and state_path is not None and state.exists(Path(state_path))):
            return cls(settings, mechanism, agents, w0, ledger, state_path, **options)  # type: ignore[arg-type]
        center = cls.restore(state_path, settings, mechanism, ledger, **options)  # type: ignore[arg-type]
        now = {e.agent: float(e.s_max) for e in agents if e.agent not in center.run.declined}
        then = {agent: float(given["s_max"]) for agent, given in center.run.enrolled.items()}
        if now != then:
            center.release()
            who = next(a for a in sorted({*now, *then}) if now.get(a) != then.get(a))
            raise RunError(
                f"Agent {who!r} enrols with s_max = {now.get(who)}, but run {settings.run!r} began with "
                f"{then.get(who)}: a run keeps its agents; start a new one."
            )
        return center

    # What hosts call

    @property
    def done(self) -> bool:
        return self.run.phase == "done"

    @property
    def asked(self) -> tuple[str, ...]:
        """The agents that are asked in this round; training rounds may ask a sample only."""
        return self.run.asked

    @property
    def missing(self) -> tuple[str, ...]:
        """The asked agents that have not answered yet."""
        return tuple(name for name in self.run.asked if name not in self._reports)

    def broadcast(self, agent: str | None = None) -> Broadcast:
        """What every agent is told now. Where each is sent a model of its own (`own_models`), only that of a named
        agent has a model."""
        told = self._broadcast
        return told if agent is None or told.models is None else replace(told, w=self.model_of(agent))

    @property
    def own_models(self) -> bool:
        """Whether each agent is to be sent a broadcast of its own in this round, as its model is its own."""
        return self._broadcast.models is not None

    def model_of(self, agent: str) -> Update:
        """The model as this agent may have it: all of it, unless models are degraded."""
        return self.w if self._own is None else self._own.model(agent, self.w)

    def counted(self, agent: str, update: Update) -> Update:
        """An update as it counts: of an agent with a model of its own, where that has the center's numbers."""
        return update if self._own is None else self._own.counted(self.run, agent, update)

    def submit(self, report: Report) -> bool:
        """Take one report. True if it counts; False if it was late, foreign or a repetition, which is only counted.

        An unacceptable report raises ReportRefused; its agent is absent unless it sends a better one in time.
        """
        run = self.run
        try:
            well_formed(report)
            dropped = (
                "foreign" if report.run != self.settings.run
                else "late" if self.done or (report.round, report.phase) != (run.round, run.phase)
                else "repeated" if report.agent in self._reports
                else "unasked" if report.agent in run.s and report.agent not in self._invited
                else None
            )  # fmt: skip
            if dropped is not None:
                self.counts[dropped] += 1
                return False
            self._refuse_old_key(report)
            answer = (
                audits.checked(report, run, self.claimed(report))
                if run.phase == "audit" and report.agent in self._invited
                else checked(report, run, self.mechanism, self.w, self.claimed if run.signed else None)
            )
        except ReportRefused:
            self.counts["refused"] += 1
            raise
        if self._own is not None and run.phase == "train":
            answer = replace(answer, update=self.counted(report.agent, answer.update))
        self._reports[report.agent] = self._spill.keep(report.agent, answer)
        return True

    def close(self) -> RoundResult:
        """End the round: aggregate, pay, record, and move on; or ask again when too few answered.

        Where the ledger or the disk fails after the round was saved, close it again: the same entries are appended.
        """
        if self._unfinished is not None:
            return self._finish(self._unfinished)
        if self.done:
            raise RunError(f"Run {self.settings.run!r} is over: there is no round to close.")
        self._check_owned()
        absent = self.missing
        if not self._enough():
            return self._repeat(absent)
        if declined := {name: answer.declined for name, answer in self._reports.items() if answer.declined}:
            return self._propose_again(declined)
        run, closed, told = self.run.copy(), self.run, self._answers.shared
        w, optimizer = self.w, self.optimizer
        entries: list[Entry] = []
        d: Update | None = None
        worth: Mapping[str, tuple[float, float]] = {}
        if self.settings.audited:
            links = {name: answer.claim.get("reveal") for name, answer in self._reports.items()}
            audits.show(run, {CENTER: self._broadcast.reveal, **links})
        if run.phase == "accept":
            entries = [rounds.agreed(run, self._reports, told)]
        elif run.phase == "contribute":
            rounds.contribute(run, self._reports, absent, told)
        elif run.phase == "train":
            w, optimizer, entries, d, worth = rounds.train(
                run, self.mechanism, w, optimizer, self.buffers, self._reports, self.oracles, self.hooks, self._own
            )
            if self.settings.audited:
                before = self._model_of(run.step - 1) if run.step else None
                rounds.audited(run, closed.s, self.w, before, self._reports, told)
                self._past[run.step] = self.w
        elif run.phase == "value":
            entries = rounds.value(run, self.mechanism, w, self._reports, absent, self.oracles)
        elif run.phase == "audit":
            audits.hear(run, self._reports, told)
        if run.phase in ("train", "value"):
            entries = [*rounds.reported(run, self._reports, absent, self._broadcast.reveal, told), *entries]
        rounds.heed(run, closed, self.mechanism, self._reports)
        self._collect_cosignatures(run)
        payments = rounds.book(run, entries)
        begun = rounds.advance(run, self.mechanism)
        for account, amount in rounds.book(run, begun).items():
            payments[account] = payments.get(account, 0) + amount
        found = metrics(run, self.mechanism, self._reports, absent, payments, d)
        self._save(run, w if w is self.w else freeze(w), optimizer, [*entries, *begun])
        s = run.points(run.s)
        result = RoundResult(closed.round, closed.step, closed.phase, s, payments, absent, None, found, worth=worth)
        return self._finish(result)

    def _propose_again(self, declined: Mapping[str, str]) -> RoundResult:
        """Terms without those who declined, which everyone signs anew; too few agents are the end of the run."""
        closed = self.run
        for name, why in declined.items():
            log.warning("Agent %s declines the terms of run %s: %s", name, self.settings.run, why)
        try:
            if self.settings.audited and closed.round >= beacon.OFFERS:
                raise SettingError(f"the terms were proposed {closed.round + 1} times, which is the most.")
            links = {name: answer.claim.get("reveal") for name, answer in self._reports.items()}
            run = without(closed, self.mechanism, declined, links if self.settings.audited else {})
            self.mechanism.check(run.n, self.oracles)
            affordable(run, self.mechanism)
            run.terms = rounds.agree(run, self.mechanism, self.oracles, self.keys)
            self.manifest.take(run)
        except SettingError as error:
            log.warning("Run %s ends before it began: %s", self.settings.run, error)
            run = closed.copy()
            run.phase, run.status, run.declined = "done", "declined", {**closed.declined, **declined}
        found = {"declined": float(len(declined))}
        self._save(run, self.w, self.optimizer, [])
        s = run.points(run.s)
        return self._finish(RoundResult(closed.round, closed.step, closed.phase, s, {}, (), None, found))

    def release(self) -> None:
        """Let another process play on; this center closes no further round."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Center:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended, as the center alone knows it; None while it goes on."""
        if not self.done:
            return None
        return outcome(
            self.run,
            self.mechanism,
            self.oracles,
            w=self.w,
            basis="signed" if self.run.signed else "reported",
            head=self.head,
            checkpoint=str(self.manifest.seen) if self.manifest.seen else None,
            digest=digest(self.w),
            counts=dict(self.counts),
        )

    def conclude(self, game: Game | None = None, **known: Any) -> Outcome:
        """The end of a run: its outcome with the certificate, which is kept with the manifest.

        A real federation has no `game`: what the center cannot know then is said so in the certificate. `known` is
        further evidence, such as how s is known.
        """
        ended = self.outcome
        if ended is None:
            raise RunError(f"Run {self.settings.run!r} is not over: play it to its end before it is certified.")
        most = {} if game is None else dict(zip(game.agents, game.s_max, strict=True))
        if self.run.declined or any(self.run.limits[agent] > most[agent] for agent in most):
            game = None  # another one was played: the certificate says what the center alone knows
        if game is not None and ended.advice:
            bounds = beta_ne(game, game.w0), beta_dom(game, game.w0)
            ended = replace(ended, advice=advise(self.run, self.mechanism, *bounds))
        evidence = self.evidence(ended, game, **known)
        ended = replace(ended, certificate=certify(evidence), withheld=evidence.ungiven)
        if self.path is not None:
            if game is not None:
                self.manifest.of_game(game, ended.given)
            self._write_manifest(ended)
        return ended

    def evidence(self, ended: Outcome, game: Game | None = None, **known: Any) -> Evidence:
        """What the center knows of its finished run, from its ledger where it has one."""
        run, agents = self.run, self.run.agents if game is None else game.agents
        posted: list[Mapping[str, int]] = [dict(run.balances)] if run.balances else []
        if self.ledger is not None:
            entries = (record.entry for record in self.ledger.entries(self.settings.run))
            posted = [dict(entry.postings) for entry in entries if entry.postings]
        asked = min(self.settings.sampled or run.n, run.n)
        tolerated, (far, answered), scale = self.mechanism.tolerated(asked), run.most_far, self.settings.scale
        found: dict[str, Any] = {
            "trained": run.trained > 0,
            "slack": [run.slack(agent) / scale for agent in agents],
            "lost": run.lost,
            "signed": run.signed,
            "failed": run.failed,
            "audits": audits.extent(run),
            "alone": run.alone,
            "costs": {agent: points * self.settings.cost_of(agent) for agent, points in ended.given.items()},
            "robustness": None
            if tolerated is None
            else Robustness(self.mechanism.rule, tolerated, asked, far, answered, tuple(sorted(run.far))),
            "tau": tau(run, self.mechanism),
            "payments": self.mechanism.payments,
            "oracles": self.oracles,
            "postings": tuple(posted),
            "treasury": -run.balances.get(TREASURY, 0),
            "minor": self.settings.minor,
            "valuations": ended.valuations if len(ended.valuations) == run.n else None,
            "promises": ended.promises,
            "basis": ended.basis,
            "game": game,
            "w": None if game is None else self.w["w"],
            "models": {}
            if game is None or self._own is None
            else {agent: self._own.models[agent]["w"] for agent in agents if agent in self._own.models},
        }
        s, limits = ([source[agent] for agent in agents] for source in (ended.given, ended.s_max))
        return Evidence(agents, s, limits, **{**found, **known})  # type: ignore[arg-type]

    def _write_manifest(self, ended: Outcome | None) -> None:
        assert self.path is not None
        self.manifest.write(
            self.path, None if ended is None else ended.to_json(), None if ended is None else ended.certificate
        )

    @property
    def head(self) -> str | None:
        """The ledger's head after this run's last entry."""
        return self.manifest.head

    # Inside

    @cached_property
    def _links(self) -> list[str]:
        return audits.links(self.run, self.run.terms)

    def _configure(
        self,
        settings: Settings,
        mechanism: Mechanism,
        ledger: Ledger | None,
        state_path: str | Path | None,
        keys: KeyRing | None,
        buffers: Collection[str],
        oracles: Oracles,
    ) -> None:
        self.settings, self.mechanism, self.ledger, self.oracles = settings, mechanism, ledger, oracles
        self.path = None if state_path is None else Path(state_path)
        self.keys = keys
        self._log: Log | None = None
        self._digested: tuple[Mapping[str, Any], str] = {}, ""
        self._answers = Answers({})
        self._in_force: KeysInForce | None = None  # of a resumed run, whose keys may have changed
        self.buffers = frozenset(buffers)
        self.counts: Counter[str] = Counter()
        self.remembered = {}
        self._lock: Lock | None = None
        self._model: state.Model = {}
        self._texts = state.Texts()
        self._past: dict[int, Update] = {}  # models of steps that may be audited
        self._files: dict[str, state.Model] = {}  # where they are kept
        self._pending: list[Entry] = []  # saved, but not yet in the ledger for certain
        self._unfinished: RoundResult | None = None  # of the round they are of

    @contextmanager
    def _owning(self) -> Iterator[None]:
        """Take the state folder, and give it back where the run cannot begin or go on."""
        if self.path is not None:
            self._lock = Lock(self.path, self.settings.run)
        try:
            yield
        except BaseException:
            self.release()
            raise

    def _check_owned(self) -> None:
        if self._lock is not None and not self._lock.held:
            raise RunError(f"Run {self.settings.run!r} was released here: open it again to play on.")

    def _restore(self) -> None:
        assert self.path is not None
        values, arrays = state.load(self.path)
        settings = self.settings
        state.same_settings(values["settings"], settings, self.path)
        self.run = state.run_from_json(values["run"], settings, self.path)
        self.mechanism.check(self.run.n, self.oracles)
        changes = self._changed_keys()
        self._check_keys([agent for agent in self.run.agents if agent not in self.revoked])
        self._same_keys()
        self.counts.update(values["counts"])
        self.remembered = values["agents"]
        self.manifest = Manifest(values["manifest"], Heads.restore(self.path, values["heads"]))
        self.w, self._model = freeze(arrays["w"]), values["model"]
        self._files = values.get("past", {})
        steps = values["optimizer_steps"]
        self.optimizer = Optimizer(
            settings.server_optimizer, settings.eta, steps, arrays["first"], arrays["second"], arrays["last"]
        )
        self._spill = Spill(self.mechanism, self.run.n, self.w, self.path)
        self._own = OwnModels.saved(self.mechanism, self.run.agents, arrays, self.buffers)
        self._find_last_entry()
        self._pending = [Entry.from_json(text) for text in values["pending"]]
        self._settle(manifest=not (self.done and certified(self.path)))
        for statement in changes:
            run = self.run.copy()
            self._save(run, self.w, self.optimizer, [rounds.change_key(run, statement)])
            self._settle(manifest=False)

    def _changed_keys(self) -> list[dict[str, Any]]:
        """The statements among the keys that change an agent's key of this run and are not in its ledger yet."""
        if self.keys is None or not self.run.signed or self.done:
            return []
        run, public = self.run, dict(self.keys.public)
        force = rounds.keys_in_force(run)
        found = force.follow(self.keys.statements, run.round)
        if found and (run.phase == "accept" or self.settings.audited):
            why = "its hash chain comes from its key" if self.settings.audited else "the terms are not agreed yet"
            raise RunError(
                f"The key of {found[0]['said']['agent']!r} cannot change within run {self.settings.run!r}, as {why}: "
                "play it with the keys it began with, or start a new run."
            )
        for agent in run.agents:
            key, given = force.at(agent, run.round), public.get(agent)
            if key is None:
                public.pop(agent, None)
            elif given is None or given in force.all_of(agent):
                public[agent] = key
        self.keys = KeyRing(public.values(), self.keys.private.values(), self.keys.statements)
        self._in_force = force
        return found

    @property
    def revoked(self) -> tuple[str, ...]:
        """The agents whose keys were revoked: they are absent until the run ends."""
        force, number = self._in_force, self.run.round
        return () if force is None else tuple(a for a in self.run.agents if force.at(a, number) is None)

    def _refuse_old_key(self, report: Report) -> None:
        """By its name, where the agent's key was replaced or revoked in this run."""
        if self._in_force is None or report.agent not in self.run.s:
            return
        now, then = self._in_force.at(report.agent, self.run.round), self._in_force.all_of(report.agent)
        if now is None:
            raise ReportRefused(f"Agent {report.agent!r} reports, but its key was revoked: {then[-1].vkey}.")
        scale, minor, most = self.settings.scale, self.settings.minor, self.run.s_max[report.agent]
        for old in then[:-1]:
            if self._answers.claimed(report, old, scale, minor, most):
                raise ReportRefused(
                    f"Agent {report.agent!r} signs with its old key {old.vkey}, which was replaced by {now.vkey}: give "
                    "the agent its new key."
                )

    def _find_last_entry(self) -> None:
        """A resumed run goes on in the ledger it was begun with, or not at all."""
        head, run = self.manifest.head, self.settings.run
        if head is None:
            return
        if self.ledger is None or all(record.hash != head for record in self.ledger.entries(run)):
            where = "no ledger is given" if self.ledger is None else "the ledger given does not have it"
            raise RunError(
                f"The last entry of run {run!r} is {head[:12]}..., but {where}: resume with the ledger it was begun "
                "with, restored from a backup if it was lost."
            )

    def _check_keys(self, agents: Sequence[str]) -> None:
        if self.keys is None:
            return
        if CENTER not in self.keys.private:
            raise SettingError(
                f"incentive.keys has no private key of the center: make one with `fedincentive keys new {CENTER}`."
            )
        if CENTER in agents:
            raise SettingError(f"Agent {CENTER!r} needs another name: in a signed run that is the center's own.")
        for agent in agents:
            if agent not in self.keys.public:
                raise SettingError(
                    f"incentive.keys has no public key of agent {agent!r}: with keys everyone needs one. Copy its "
                    "NAME.pub there, which `fedincentive keys new` makes at the agent's site."
                )

    def _same_keys(self) -> None:
        """A run keeps the keys in its terms, unless statements change them; with others nothing signed would fit."""
        known = {} if self.keys is None else {name: key.vkey for name, key in self.keys.public.items()}
        agreed = {name: given.get("key") for name, given in self.run.terms["agents"].items()}
        if self._in_force is not None:
            now = {name: self._in_force.at(name, self.run.round) for name in agreed}
            agreed = {name: key.vkey for name, key in now.items() if key is not None}
        agreed |= {**self.run.terms.get("auditors", {}), CENTER: self.run.terms.get("center")}
        for name, key in agreed.items():
            if key is None and self.keys is None:
                continue
            if known.get(name) != key:
                was = "without keys" if key is None else f"with the key {key}"
                raise RunError(
                    f"Run {self.settings.run!r} began {was} of {name!r}, incentive.keys has {known.get(name, 'none')}: "
                    "resume it with the keys it began with, or start a new run. Where a key was rotated, put the "
                    "statement of `fedincentive keys rotate` beside it."
                )

    def claimed(self, report: Report) -> dict[str, Any]:
        """What an agent itself says in a report, in answer to the broadcast of now; nothing if it is not its own."""
        key, most = (self.keys.public if self.keys else {}).get(report.agent), self.run.s_max.get(report.agent)
        if self.run.phase == "audit" and report.agent in self._invited:
            most = 0  # an auditor gives no points
        if key is None or most is None:
            return {}
        if (report.run, report.round, report.phase) != (self.settings.run, self.run.round, self.run.phase):
            return {}
        return self._answers.claimed(report, key, self.settings.scale, self.settings.minor, most)

    def _collect_cosignatures(self, run: Run) -> None:
        """What the agents put under the checkpoint of this round; they will be shown it with all of it."""
        if self._broadcast.log is None or self.keys is None:
            return
        note = self._broadcast.log["note"]
        if run.cosigned.startswith(note):  # the same checkpoint as in the round before
            note = run.cosigned
        given = {agent: answer.cosignature for agent, answer in self._reports.items()}
        run.cosigned = with_cosignatures(note, given, self.keys.public)
        run.witnessed.update(dict.fromkeys((name for name in self._reports if name in run.s), int(note.split("\n")[1])))

    def _save(self, run: Run, w: Update, optimizer: Optimizer, entries: list[Entry]) -> None:
        """Move on to the next state, which is on disk then with the entries that are to be appended."""
        if self.path is not None:
            model = self._model
            if not model or w is not self.w:
                arrays = {"w": w, "first": optimizer.first, "second": optimizer.second, "last": optimizer.last}
                arrays |= {} if self._own is None else self._own.arrays(run.agents)
                model = state.save_model(self.path, run.trained, arrays)
            values = {
                "run": state.run_to_json(run),
                "settings": state.lasting(self.settings),
                "counts": dict(self.counts),
                "agents": self.remembered if self.memory is None else self.memory(),
                "manifest": self.manifest.values,
                "heads": self.manifest.heads.seen(),
                "optimizer_steps": optimizer.steps,
                "pending": [entry.to_json() for entry in entries],
            }
            files = self._needed_files(run, model) if self.settings.audited else {}
            values |= {"past": files} if self.settings.audited else {}
            state.save(self.path, values, model, self._texts, [file["file"] for file in files.values()])
            self._model, self._files = model, files
        self._past = self._needed_models(run)
        if self._own is not None:
            self._own.hand_over()
        self.run, self.w, self.optimizer = run, w, optimizer
        self._pending = entries

    def _finish(self, result: RoundResult) -> RoundResult:
        """The end of a round that is saved; where it fails, closing the round again comes back here."""
        self._unfinished = result
        self._settle(manifest=self.done)
        self._unfinished = None
        seen, absent = self.manifest.seen, len(result.absent)
        log.info("round %d (%s) closed, %d absent, ledger head %s", result.round, result.phase, absent, seen)
        return replace(result, head=self.head)

    def _settle(self, *, manifest: bool) -> None:
        """Append what is pending, and only then let the next round begin; a run that is done needs no owner."""
        self._check_owned()
        if self.ledger is not None:
            receipts = self.ledger.append_all(self._pending)
            self.manifest.heads.add(self._pending, receipts)
            self._show_in_log(receipts)
        self._pending = []
        self.manifest.witness(self.path, self.run.cosigned)
        if self.path is not None and manifest:
            self._write_manifest(self.outcome)
        self._open_round()
        if self.done and self.path is not None:
            state.tidy(self.path)
            self.release()

    def _open_round(self) -> None:
        run = self.run
        self._reports: dict[str, Answer] = {}
        self._spill.clear()
        self._attempts = 0
        run.asked = run.drawn = run.present if run.phase == "contribute" else run.agents
        link = None
        if rounds.draws(run) and run.phase not in ("accept", "contribute", "done"):
            link = self._links[run.step]
            if run.phase == "train" and "draws" in run.terms:
                run.asked = run.drawn = beacon.asked(link, run.agents, run.terms["sampled"])
        w = None if run.phase in SCALARS else self.w
        told = self.mechanism.public() if run.phase != "accept" else {"terms": run.terms, **self.mechanism.public()}
        s = run.points(run.s)
        models = None
        if self._own is not None and w is not None:
            w, models = None, self._own.digests(run, self.w)
        self._broadcast = Broadcast(
            self.settings.run, run.round, run.step, run.phase, w, s, told, reveal=link, models=models
        )
        if self.settings.audited:
            self._open_audited()
        self._invited = frozenset(run.asked)
        if self.keys is not None and run.signed:
            self._sign_broadcast(self.keys.private[CENTER])

    def _open_audited(self) -> None:
        """An audited run shows the center's links, asks nobody to train who failed, and asks auditors."""
        run, told = self.run, self._broadcast
        if run.phase == "train":
            run.asked = tuple(name for name in run.asked if name not in run.failed)
        elif run.phase == "audit":
            first = run.audits[0]
            run.asked = tuple(audits.asks(run))
            self._broadcast = replace(
                told,
                w=self._model_of(first["step"]),
                s=run.points(first["s"]),
                settings={"terms": run.terms, "links": audits.links_told(run), **told.settings},
                audits=audits.told(run),
            )

    def _model_of(self, step: int) -> Update:
        """The model that a training round began with, which its audits need."""
        if step not in self._past:
            assert self.path is not None
            self._past[step] = freeze(state.load_model(self.path, self._files[str(step)])["w"])
        return self._past[step]

    def _needed_models(self, run: Run) -> dict[int, Update]:
        """The models that open audits need; where there are files, memory has the last two at most."""
        recent = 0 if self.path is None else run.trained - 2
        needed = {step["step"] for step in run.audits}
        return {step: w for step, w in self._past.items() if step in needed and step >= recent}

    def _needed_files(self, run: Run, model: state.Model) -> dict[str, state.Model]:
        """The files of the models that open audits need, and of those by which somebody failed."""
        needed = {run.trained, *(step["step"] for step in run.audits), *run.failed.values()}
        known = {**self._files, str(run.trained): model}
        return {step: file for step, file in known.items() if int(step) in needed}

    def _sign_broadcast(self, key: PrivateKey) -> None:
        run, told = self.run, self._broadcast
        if self._log is not None and self._log.size:
            seen = [run.witnessed.get(name, 0) for name in run.agents]
            told = replace(told, log=self._log.told(seen, run.cosigned, () if all(seen) else run.followed))
        answered = answers(told, self._digest())
        self._answers = Answers({**answered, "run": told.run, "round": told.round, "phase": told.phase})
        self._broadcast = replace(told, signature=signed(key, broadcast(told, answered)))

    def _digest(self) -> str:
        """The digest of the terms, which stay unless somebody declines them."""
        if self._digested[0] is not self.run.terms:
            self._digested = self.run.terms, terms.digest(self.run.terms)
        return self._digested[1]

    def _show_in_log(self, receipts: Sequence[Receipt]) -> None:
        if self.ledger is None or self.keys is None or not self.run.signed:
            return
        if self._log is None:
            self._log = Log(self.ledger, self.settings.run, self.keys.private[CENTER])
        for entry, receipt in zip(self._pending, receipts, strict=True):
            self._log.appended(receipt.seq, receipt.hash, entry.body)

    def _enough(self) -> bool:
        """A quorum answered, and enough of them for the aggregation rule."""
        if self.run.phase == "audit":
            return True  # who is silent is asked again after the others
        if self.run.phase == "confirm" and self._attempts < self.settings.repeats and self._links_missing:
            return False  # a message that was lost costs nobody its deposit
        answered, training = len(self._reports), self.run.phase == "train"
        quorum = {"accept": 1.0, "confirm": 0.0}.get(self.run.phase, self.settings.quorum)  # all agree, or no run
        needed = math.ceil(quorum * self._expected)
        return answered >= needed and (not training or answered >= self.mechanism.least(max(answered, 1)))

    @property
    def _links_missing(self) -> bool:
        """Whether somebody has still to show the last link, with which the last steps are drawn."""
        return bool(self.run.audits) and any(name not in self.run.failed for name in self.missing)

    @property
    def _expected(self) -> int:
        """Of how many agents a quorum is needed: those that phase 1 goes on without count among them."""
        if self.run.phase == "contribute":
            return self.run.n
        return sum(name not in self.run.failed for name in self.run.asked)

    def _repeat(self, absent: tuple[str, ...]) -> RoundResult:
        """Ask again; the reports that came stay. After the permitted repeats the run fails, and can be resumed."""
        self._attempts += 1
        run = self.run
        if self._attempts > self.settings.repeats:
            away = sorted({*absent, *(run.lost if run.phase == "contribute" else ())})
            raise QuorumError(
                f"Round {run.round} ({run.phase}) of run {self.settings.run!r} has no quorum: {len(self._reports)} of "
                f"{self._expected} agents answered after {self.settings.repeats} repeats, incentive.quorum is "
                f"{self.settings.quorum:g}. Absent: {', '.join(away)}. Bring them back and resume, or lower it."
            )
        log.warning("round %d (%s) below quorum, asked again; absent: %s", run.round, run.phase, ", ".join(absent))
        return RoundResult(run.round, run.step, run.phase, run.points(run.s), {}, absent, self.head, {}, repeated=True)
