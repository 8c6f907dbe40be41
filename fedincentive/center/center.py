"""The center of a run: broadcast, collect, close. A plain state machine without threads, sockets or frameworks."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import draws
from ..errors import QuorumError, ReportRefused, RunError, SettingError
from ..game import Evidence, Game, beta_dom, beta_ne, certify
from ..identity import digest
from ..ledger import Entry, Ledger
from ..manifest import Manifest, certified
from ..mechanisms import Mechanism
from ..messages import Broadcast, Enrol, Report, RoundResult, Update
from ..payments import TREASURY, Oracles
from ..run import Answer, Run
from ..settings import Settings
from . import rounds, state
from .enrolment import enrol, freeze, frozen
from .metrics import metrics
from .optimizer import Optimizer
from .outcome import Outcome, advise, outcome
from .spill import Spill
from .validation import checked, well_formed

log = logging.getLogger("fedincentive")


class Center:
    """Plays one run of a mechanism with the enrolled agents.

    `ledger` is an open ledger or None, `state_path` a directory of this run's own or None, `keys` the agents' HMAC
    keys, `buffers` the entries of w that are not parameters (BatchNorm statistics, counters), `oracles` what can be
    checked. `Center.open` continues a saved run where the settings say `resume`. A host that has steps of its own
    around the aggregation sets `hooks`.

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

    def __init__(
        self,
        settings: Settings,
        mechanism: Mechanism,
        agents: Sequence[Enrol],
        w0: Update,
        ledger: Ledger | None = None,
        state_path: str | Path | None = None,
        *,
        keys: Mapping[str, bytes] | None = None,
        buffers: Collection[str] = (),
        oracles: Oracles = Oracles(),  # noqa: B008
    ) -> None:
        self._configure(settings, mechanism, ledger, state_path, keys, buffers, oracles)
        state.refuse_existing(settings.run, self.path, ledger)
        run = enrol(settings, agents)
        mechanism.check(run.n, oracles)
        self._check_keys(run)
        run.phase = mechanism.start(run)
        entries = rounds.begin(run, mechanism) if run.phase == "train" else []
        rounds.book(run, entries)
        for warning in filter(None, (payment.caution(run) for payment in mechanism.payments)):
            log.warning("%s", warning)
        self.manifest = Manifest.begin(run, mechanism.name)
        self._spill = Spill(mechanism, run.n, w0, self.path)
        self._commit(run, frozen(w0), Optimizer(settings.server_optimizer, settings.eta), entries)

    @classmethod
    def restore(
        cls,
        state_path: str | Path,
        settings: Settings,
        mechanism: Mechanism,
        ledger: Ledger | None = None,
        *,
        keys: Mapping[str, bytes] | None = None,
        buffers: Collection[str] = (),
        oracles: Oracles = Oracles(),  # noqa: B008
    ) -> Center:
        """The saved run, with what was left to append appended: amounts are never computed a second time."""
        self = cls.__new__(cls)
        self._configure(settings, mechanism, ledger, state_path, keys, buffers, oracles)
        assert self.path is not None
        values, arrays = state.load(self.path)
        state.same_settings(values["settings"], settings, self.path)
        run = state.run_from_json(values["run"], settings, self.path)
        mechanism.check(run.n, oracles)
        self._check_keys(run)
        self.counts.update(values["counts"])
        self.manifest = Manifest(values["manifest"])
        self.run, self.w = run, freeze(arrays["w"])
        steps = values["optimizer_steps"]
        self.optimizer = Optimizer(
            settings.server_optimizer, settings.eta, steps, arrays["first"], arrays["second"], arrays["last"]
        )
        self._spill = Spill(mechanism, run.n, self.w, self.path)
        self._find_last_entry()
        self._append([Entry.from_json(text) for text in values["pending"]], restored=True)
        self._open_round()
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
        now, then = {e.agent: float(e.s_max) for e in agents}, center.run.limits
        if now != then:
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

    def broadcast(self) -> Broadcast:
        """What every agent is told now."""
        return self._broadcast

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
            answer = checked(report, run, self.mechanism, self.w, self.keys)
        except ReportRefused:
            self.counts["refused"] += 1
            raise
        self._reports[report.agent] = self._spill.keep(report.agent, answer)
        return True

    def close(self) -> RoundResult:
        """End the round: aggregate, pay, record, and move on; or ask again when too few answered."""
        if self.done:
            raise RunError(f"Run {self.settings.run!r} is over: there is no round to close.")
        absent = self.missing
        if not self._enough():
            return self._repeat(absent)
        run, closed = self.run.copy(), self.run
        w, optimizer = self.w, self.optimizer
        entries: list[Entry] = []
        d: Update | None = None
        if run.phase == "contribute":
            rounds.contribute(run, self._reports, absent)
        elif run.phase == "train":
            w, optimizer, entries, d = rounds.train(
                run, self.mechanism, w, optimizer, self.buffers, self._reports, self.oracles, self.hooks
            )
        else:
            entries = rounds.value(run, self.mechanism, w, self._reports, absent, self.oracles)
        payments = rounds.book(run, entries)
        begun = rounds.advance(run, self.mechanism)
        for account, amount in rounds.book(run, begun).items():
            payments[account] = payments.get(account, 0) + amount
        found = metrics(run, self.mechanism, self._reports, absent, payments, d)
        self._commit(run, w if w is self.w else freeze(w), optimizer, [*entries, *begun])
        seen = self.manifest.seen
        log.info("round %d (%s) closed, %d absent, ledger head %s", closed.round, closed.phase, len(absent), seen)
        return RoundResult(
            closed.round, closed.step, closed.phase, run.points(run.s), payments, absent, self.head, found
        )

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
            basis="reported" if self.keys is None else "attested",
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
        if game is not None and ended.advice:
            bounds = beta_ne(game, game.w0), beta_dom(game, game.w0)
            ended = replace(ended, advice=advise(self.run, self.mechanism, *bounds))
        ended = replace(ended, certificate=certify(self.evidence(ended, game, **known)))
        if self.path is not None:
            self._write_manifest(ended)
        return ended

    def evidence(self, ended: Outcome, game: Game | None = None, **known: Any) -> Evidence:
        """What the center knows of its finished run, from its ledger where it has one."""
        run, agents = self.run, self.run.agents if game is None else game.agents
        posted: list[Mapping[str, int]] = [dict(run.balances)] if run.balances else []
        if self.ledger is not None:
            entries = (record.entry for record in self.ledger.entries(self.settings.run))
            posted = [dict(entry.postings) for entry in entries if entry.postings]
        found: dict[str, Any] = {
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

    def _configure(
        self,
        settings: Settings,
        mechanism: Mechanism,
        ledger: Ledger | None,
        state_path: str | Path | None,
        keys: Mapping[str, bytes] | None,
        buffers: Collection[str],
        oracles: Oracles,
    ) -> None:
        self.settings, self.mechanism, self.ledger, self.oracles = settings, mechanism, ledger, oracles
        self.path = None if state_path is None else Path(state_path)
        self.keys = None if keys is None else dict(keys)
        self.buffers = frozenset(buffers)
        self.counts: Counter[str] = Counter()

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

    def _check_keys(self, run: Run) -> None:
        without = [agent for agent in run.agents if self.keys is not None and agent not in self.keys]
        if without:
            raise SettingError(
                f"incentive.keys has no secret for agent {without[0]!r}: with keys every agent needs one."
            )

    def _commit(self, run: Run, w: Update, optimizer: Optimizer, entries: list[Entry]) -> None:
        """Save the next state with its pending entries, append them, and only then let the next round begin."""
        if self.path is not None:
            values = {
                "run": state.run_to_json(run),
                "settings": state.lasting(self.settings),
                "counts": dict(self.counts),
                "manifest": self.manifest.values,
                "optimizer_steps": optimizer.steps,
                "pending": [entry.to_json() for entry in entries],
            }
            arrays = {"w": w, "first": optimizer.first, "second": optimizer.second, "last": optimizer.last}
            state.save(self.path, values, f"model-{run.trained}.safetensors", arrays)
        self.run, self.w, self.optimizer = run, w, optimizer
        self._append(entries)
        if self.done and self.path is not None:
            state.tidy(self.path)
        self._open_round()

    def _append(self, entries: list[Entry], *, restored: bool = False) -> None:
        if self.ledger is not None:
            for entry in entries:
                self.manifest.checkpoint(entry, self.ledger.append(entry))
        if self.path is not None and (entries or self.done) and not (restored and self.done and certified(self.path)):
            self._write_manifest(self.outcome)

    def _open_round(self) -> None:
        run = self.run
        self._reports: dict[str, Answer] = {}
        self._spill.clear()
        self._attempts = 0
        asks = self.settings.sampled if run.phase == "train" else None
        run.asked = draws.sample(self.settings.seed, run.step, run.agents, asks)
        self._invited = frozenset(run.asked)
        w = None if run.phase == "contribute" else self.w
        self._broadcast = Broadcast(
            self.settings.run, run.round, run.step, run.phase, w, run.points(run.s), self.mechanism.public()
        )

    def _enough(self) -> bool:
        """A quorum answered, and enough of them for the aggregation rule."""
        answered, training = len(self._reports), self.run.phase == "train"
        needed = math.ceil(self.settings.quorum * len(self.run.asked))
        return answered >= needed and (not training or answered >= self.mechanism.least(max(answered, 1)))

    def _repeat(self, absent: tuple[str, ...]) -> RoundResult:
        """Ask again; the reports that came stay. After the permitted repeats the run fails, and can be resumed."""
        self._attempts += 1
        run, asked = self.run, len(self.run.asked)
        if self._attempts > self.settings.repeats:
            raise QuorumError(
                f"Round {run.round} ({run.phase}) of run {self.settings.run!r} has no quorum: {asked - len(absent)} of "
                f"{asked} agents answered after {self.settings.repeats} repeats, incentive.quorum is "
                f"{self.settings.quorum:g}. Absent: {', '.join(absent)}. Bring them back and resume, or lower it."
            )
        log.warning("round %d (%s) below quorum, asked again; absent: %s", run.round, run.phase, ", ".join(absent))
        return RoundResult(run.round, run.step, run.phase, run.points(run.s), {}, absent, self.head, {}, repeated=True)
