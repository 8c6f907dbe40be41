"""The center of a run: broadcast, collect, close. A plain state machine without threads, sockets or frameworks."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import aggregation
from ..agent.identity import digest
from ..errors import QuorumError, RunError, SettingError
from ..ledger import Entry, Ledger
from ..mechanisms import Mechanism, Run, Settings, contribution
from ..messages import Broadcast, Enrol, Report, RoundResult, Update
from ..payments import TREASURY, quantise
from . import state, validation
from .optimizer import Optimizer
from .outcome import Outcome

log = logging.getLogger("fedincentive")


class Center:
    """Plays one run of a mechanism with the enrolled agents.

    `ledger` is an open ledger or None, `state_path` a directory of this run's own or None, `keys` the agents' HMAC keys,
    `buffers` the entries of w that are not parameters (BatchNorm statistics, counters).
    """

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
    ) -> None:
        self._configure(settings, mechanism, ledger, state_path, keys, buffers)
        if self.path is not None and state.exists(self.path):
            raise RunError(
                f"Run {settings.run!r} exists in {self.path}: set resume: true to continue it, or give the new run "
                "another name."
            )
        run = self._enrol(agents)
        mechanism.check(run.n)
        self.w = _frozen(w0)
        self.optimizer = Optimizer(settings.server_optimizer, settings.eta)
        run.phase = mechanism.start(run)
        entries = [contribution.commitment(run, mechanism.beta)] if run.phase == "train" else []
        self._commit(run, self.w, self.optimizer, entries)
        self._open_round()

    def _configure(
        self,
        settings: Settings,
        mechanism: Mechanism,
        ledger: Ledger | None,
        state_path: str | Path | None,
        keys: Mapping[str, bytes] | None,
        buffers: Collection[str],
    ) -> None:
        self.settings, self.mechanism, self.ledger = settings, mechanism, ledger
        self.path = None if state_path is None else Path(state_path)
        self.keys = None if keys is None else dict(keys)
        self.buffers = frozenset(buffers)
        self.counts: Counter[str] = Counter()
        self.head: str | None = None
        self._model_saved: int | None = None

    def _enrol(self, agents: Sequence[Enrol]) -> Run:
        """The run before its first round; names are stable, unique, and not the treasury's."""
        by_name = {enrol.agent: enrol for enrol in agents}
        if len(by_name) < len(agents):
            twice = next(name for name, count in Counter(e.agent for e in agents).items() if count > 1)
            raise SettingError(f"Agent {twice!r} is enrolled twice: every agent needs its own stable name.")
        if not by_name or TREASURY in by_name:
            raise SettingError(f"Enrol at least one agent, and none called {TREASURY!r}: that is the center's account.")
        scale, s, s_max = self.settings.scale, {}, {}
        self._limits = {}
        for name in sorted(by_name):
            e = by_name[name]
            if not (math.isfinite(e.s_max) and e.s_max > 0 and 0 <= e.s0 <= e.s_max):
                raise SettingError(
                    f"Agent {name!r} enrols with s_max = {e.s_max!r} and s0 = {e.s0!r}: s_max must be positive and s0 "
                    "between 0 and s_max."
                )
            self._limits[name] = float(e.s_max)
            s_max[name] = quantise(float(e.s_max), scale)
            s[name] = quantise(float(e.s0), scale)
        zero = dict.fromkeys(s, 0)
        digests = {name: e.commitment for name, e in sorted(by_name.items()) if e.commitment}
        return Run(self.settings, tuple(s), s_max, s, digests, delivered=dict(zero), delivered_total=dict(zero))

    # What hosts call

    @property
    def done(self) -> bool:
        return self.run.phase == "done"

    @property
    def asked(self) -> tuple[str, ...]:
        """The agents that are asked in this round; training rounds may ask a sample only."""
        return self._asked

    @property
    def missing(self) -> tuple[str, ...]:
        """The asked agents that have not answered yet."""
        return tuple(name for name in self._asked if name not in self._reports)

    def broadcast(self) -> Broadcast:
        """What every agent is told now."""
        return self._broadcast

    def submit(self, report: Report) -> bool:
        """Take one report. True if it counts; False if it was late, foreign or a repetition, which is only counted.

        An unacceptable report raises ReportRefused; its agent is absent unless it sends a better one in time.
        """
        run = self.run
        try:
            validation.known(report, run.s)
            if report.run != self.settings.run:
                return self._drop("foreign")
            if (report.round, report.phase) != (run.round, run.phase):
                return self._drop("late")
            if report.agent not in self._asked:
                return self._drop("unasked")
            if report.agent in self._reports:
                return self._drop("repeated")
            if self.keys is not None:
                validation.signed(report, self.keys)
            self._reports[report.agent] = self._checked(report)
        except validation.ReportRefused:
            self.counts["refused"] += 1
            raise
        return True

    def close(self) -> RoundResult:
        """End the round: aggregate, pay, record, and move on; or ask again when too few answered."""
        absent = self.missing
        if len(self._reports) < math.ceil(self.settings.quorum * len(self._asked)):
            return self._repeat(absent)
        run = self.run.copy()
        w, optimizer, entries = self.w, self.optimizer, []
        if run.phase == "contribute":
            self._contribute(run, absent)
        elif run.phase == "train":
            w, optimizer = self._train(run)
            entries += self._contribution_entries(run)
        else:
            self._value(run)
        payments = self._book(run, entries)
        phase, closed = run.phase, (run.round, run.step)
        entries += self._advance(run)
        self._commit(run, w, optimizer, entries)
        result = self._result(closed, phase, payments, absent)
        self._open_round()
        return result

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended; None while it goes on."""
        if not self.done:
            return None
        run = self.run
        return Outcome(
            run=self.settings.run,
            mechanism=self.mechanism.name,
            status=run.status,
            w=self.w,
            s=run.points(run.s),
            s_max=run.points(run.s_max),
            payments={agent: run.balances.get(agent, 0) for agent in run.agents},
            treasury=run.balances.get(TREASURY, 0),
            rounds=run.round,
            trained=run.trained,
            short=run.short,
            advice="",
            claims=(),
            basis="reported" if self.keys is None else "attested",
            head=self.head,
            digest=digest(self.w),
            counts=dict(self.counts),
        )

    # One round

    def _checked(self, report: Report) -> Report:
        """The report with its numbers quantised: what counts is what was broadcast and recorded."""
        limit = self._limits[report.agent]
        fields: dict[str, Any] = {}
        if report.phase == "contribute" or (report.phase == "train" and self.mechanism.moves):
            fields["s"] = self._points(report, "s", report.s, limit)
        if report.phase == "train":
            fields["delivered"] = self._points(report, "delivered", report.delivered, limit)
            fields["update"] = validation.update(report, self.w)
        if report.phase == "value" or report.valuation is not None:
            top = self.settings.loss_cap * self.settings.value_per_nat
            fields["valuation"] = quantise(validation.valuation(report, top), self.settings.minor)
        return Report(report.run, report.round, report.phase, report.agent, **fields)

    def _points(self, report: Report, what: str, value: float | None, limit: float) -> int:
        exact = validation.points(report, what, value, limit)
        return min(quantise(exact, self.settings.scale), self.run.s_max[report.agent])

    def _contribute(self, run: Run, absent: tuple[str, ...]) -> None:
        before = dict(run.s)
        run.s.update({name: report.s for name, report in self._reports.items()})
        run.moved = None if absent else max(abs(run.s[name] - before[name]) for name in run.agents)
        run.contributed += 1

    def _train(self, run: Run) -> tuple[Update, Optimizer]:
        """w <- w + eta/n sum_i d_i over the agents that answered, in name order so that sums do not depend on arrival."""
        names = [name for name in run.agents if name in self._reports]
        for name in self._asked:
            report = self._reports.get(name)
            run.delivered[name] = 0 if report is None else report.delivered
            if report is not None and report.s is not None:
                run.s[name] = report.s
            if report is not None and report.valuation is not None:
                run.valuations[name] = report.valuation
        for name in run.agents:
            run.delivered_total[name] += run.delivered[name]
        run.trained += 1
        d = self._aggregate([self._reports[name].update for name in names], [run.delivered[name] for name in names])
        return self.optimizer.step(self.w, d, self.buffers)

    def _aggregate(self, updates: list[Update], delivered: list[int]) -> Update:
        floats = [name for name, array in self.w.items() if array.dtype.kind == "f"]
        weights = delivered if self.settings.weights == "samples" and sum(delivered) else [1] * len(updates)
        chosen = [{name: update[name] for name in floats} for update in updates]
        d = dict(aggregation.weighted_mean(chosen, np.array(weights, dtype=np.float64)))
        for name in self.w:
            if name not in d:
                d[name] = np.max([update[name] for update in updates], axis=0)
        return d

    def _value(self, run: Run) -> None:
        run.valuations.update({name: report.valuation for name, report in self._reports.items()})

    def _contribution_entries(self, run: Run) -> list[Entry]:
        entry = contribution.after_training(run) if self.mechanism.contribution else None
        return [entry] if entry is not None else []

    def _advance(self, run: Run) -> list[Entry]:
        """Move to the next phase; leaving phase 1 records what everyone committed."""
        before, after = run.phase, self.mechanism.next(run)
        entries = []
        if before == "contribute" and after != "contribute":
            entries.append(contribution.commitment(run, self.mechanism.beta))
            if self.mechanism.contribution and self.settings.settlement == "commitment" and after == "train":
                entries.append(contribution.on_commitment(run))
        run.phase = after
        if after != "value":
            run.round += 1
            run.step = run.trained
        if after == "done" and run.status == "running":
            run.status = "complete"
        self._book(run, entries)
        return entries

    def _book(self, run: Run, entries: list[Entry]) -> dict[str, int]:
        """Add the entries' amounts to the run's balances; returns them."""
        total: Counter[str] = Counter()
        for entry in entries:
            for account, amount in entry.postings.items():
                total[account] += amount
                run.balances[account] = run.balances.get(account, 0) + amount
                if entry.kind != "truthful":
                    run.posted[account] = run.posted.get(account, 0) + amount
        return dict(total)

    def _commit(self, run: Run, w: Update, optimizer: Optimizer, entries: list[Entry]) -> None:
        """Save the next state with its pending entries, append them, and only then let the next round begin."""
        self.run, self.w, self.optimizer = run, _frozen(w), optimizer
        if self.ledger is not None:
            for entry in entries:
                self.head = self.ledger.append(entry).hash

    def _open_round(self) -> None:
        run = self.run
        self._reports: dict[str, Report] = {}
        self._attempts = 0
        self._asked = run.agents
        w = None if run.phase == "contribute" else self.w
        self._broadcast = Broadcast(
            self.settings.run, run.round, run.step, run.phase, w, run.points(run.s), self.mechanism.public()
        )

    def _repeat(self, absent: tuple[str, ...]) -> RoundResult:
        self._attempts += 1
        run, asked = self.run, len(self._asked)
        if self._attempts > self.settings.repeats:
            raise QuorumError(
                f"Round {run.round} ({run.phase}) of run {self.settings.run!r}: {asked - len(absent)} of {asked} agents "
                f"answered after {self.settings.repeats} repeats, the quorum is {self.settings.quorum:g}. Absent: "
                f"{', '.join(absent)}. Bring them back and resume, or lower incentive.quorum."
            )
        return RoundResult(run.round, run.step, run.phase, run.points(run.s), {}, absent, self.head, {}, repeated=True)

    def _result(
        self, closed: tuple[int, int], phase: Any, payments: Mapping[str, int], absent: tuple[str, ...]
    ) -> RoundResult:
        run = self.run
        metrics = {"answered": float(len(self._reports)), "absent": float(len(absent))}
        if len(run.valuations) == run.n:
            metrics["welfare"] = sum(run.valuations.values()) / self.settings.minor
        return RoundResult(*closed, phase, run.points(run.s), payments, absent, self.head, metrics)

    def _drop(self, why: str) -> bool:
        self.counts[why] += 1
        return False


def _frozen(w: Update) -> dict[str, np.ndarray]:
    """A model that nobody can change in place: hosts hold copies."""
    kept = {}
    for name, array in w.items():
        kept[name] = np.array(array)
        kept[name].flags.writeable = False
    return kept
