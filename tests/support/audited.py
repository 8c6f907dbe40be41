"""The money of an audited run without its messages: what agents deliver and who fails is the test's own, the entries
are the payments'. `standing_in` lets both verifiers read the short audit memos that are written here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from fedincentive import ledger, mechanisms, terms
from fedincentive.entry import COMMITMENT, Entry
from fedincentive.ledger import replay, standalone
from fedincentive.payments import Deposit, Event
from fedincentive.run import Run
from fedincentive.settings import Settings

AUDITORS = ("x", "y", "z")
Points = Mapping[str, int]


def run_of(s_max: Points, **incentive: Any) -> tuple[Run, mechanisms.Mechanism]:
    """A run that is about to train; all agents give their s_max."""
    settings = Settings.read({"beta": "0.5", "rounds": 4, "audit": 0.5, "auditors": AUDITORS, **incentive})
    mechanism = mechanisms.get(settings.mechanism, settings)
    agents = tuple(sorted(s_max))
    limits = {agent: s_max[agent] / settings.scale for agent in agents}
    run = Run(settings, agents, limits, dict(s_max), dict(s_max), dict(s_max), phase="train")
    run.delivered, run.delivered_total = dict(s_max), dict.fromkeys(agents, 0)
    deposit = next((p for p in mechanism.payments if isinstance(p, Deposit)), None)
    held = {} if deposit is None else deposit.deposits(run.s_max)
    told: dict[str, Any] = {
        "mechanism": mechanism.name,
        "rounds": settings.rounds,
        "sampled": settings.sampled,
        "scale": settings.scale,
        "minor": settings.minor,
        "currency": "EUR",
        "payments": {p.name: {"rules": list(p.used()), "terms": p.terms()} for p in mechanism.payments},
        "settings": {},
        "oracles": [],
        "agents": {a: {"s_max": s_max[a], "s0": s_max[a], "deposit": held.get(a)} for a in agents},
    }
    run.terms = terms.texts(told)
    return run, mechanism


def played(
    s_max: Points,
    delivered: Callable[[int, tuple[str, ...]], Points] | None = None,
    failed: Mapping[int, Points] | None = None,
    asked: Callable[[int], tuple[str, ...]] | None = None,
    **incentive: Any,
) -> list[Entry]:
    """All entries of a run. `delivered(step, asked)` are the points of a step, `failed` says after which step which
    agents fail the audits of which steps, `asked` who is drawn."""
    run, mechanism = run_of(s_max, **incentive)
    entries = [Entry("run", 0, terms.KIND, terms.RULE, {"terms": run.terms, "accepted": {}}, {})]
    memo = {"beta": str(mechanism.beta), "s": run.s, "s_max": run.s_max, "scale": run.settings.scale, "data": {}}
    entries.append(Entry("run", 0, COMMITMENT, "commitment/1", memo, {}))
    entries += due(run, mechanism, Event("commit"))
    for step in range(run.settings.rounds):
        run.round, run.step = step, step
        run.asked = run.drawn = run.agents if asked is None else asked(step)
        given = run.s if delivered is None else delivered(step, run.drawn)
        for agent in run.drawn:
            run.delivered[agent] = 0 if agent in run.failed else given[agent]
        for agent in run.agents:
            run.delivered_total[agent] += run.delivered[agent]
        run.trained += 1
        run.audits = [{"step": 0}]
        entries += due(run, mechanism, Event("train"))
        entries += audit(run, mechanism, (failed or {}).get(step, {}))
    run.round, run.audits = run.settings.rounds, []
    entries += audit(run, mechanism, (failed or {}).get(run.settings.rounds, {}))
    return [*entries, *due(run, mechanism, Event("end"))]


def audit(run: Run, mechanism: mechanisms.Mechanism, failed: Points) -> list[Entry]:
    if not failed:
        return []
    for agent, step in failed.items():
        run.failed[agent] = min(step, run.failed.get(agent, step))
    memo = Entry("run", run.round, f"audit-{min(failed.values())}", "audit/1", {"failed": dict(failed)}, {})
    return [memo, *due(run, mechanism, Event("audit"))]


def due(run: Run, mechanism: mechanisms.Mechanism, event: Event) -> list[Entry]:
    return [entry for payment in mechanism.payments if (entry := payment.due(run, event)) is not None]


def balances(entries: list[Entry]) -> dict[str, int]:
    total: dict[str, int] = {}
    for entry in entries:
        for account, amount in entry.postings.items():
            total[account] = total.get(account, 0) + amount
    return total


def book_of(path: Any, entries: list[Entry], minor: int = 10**6) -> ledger.Ledger:
    book = ledger.open(path, minor=minor)
    for entry in entries:
        book.append(entry)
    return book


@pytest.fixture
def standing_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both verifiers take an audit memo's word for who failed."""
    begin, derive, hold = replay.Replay.__init__, standalone.Runs.derive, standalone.Runs.hold

    def init(self: Any, *given: Any) -> None:
        begin(self, *given)
        self._others["audit/1"] = lambda body: memo(self, body)

    def memo(self: Any, body: Any) -> Iterator[Any]:
        run = self._runs.setdefault(body["run"], replay.RunSoFar())
        self._fail(run, body["inputs"]["failed"], body["round"])
        yield {}

    def held(self: Any, body: Any, complain: Any) -> None:
        if body["rule"] == "audit/1":
            self.fail(body["run"], body["inputs"]["failed"], body["round"])
        else:
            hold(self, body, complain)

    monkeypatch.setattr(replay.Replay, "__init__", init)
    monkeypatch.setattr(standalone.Runs, "derive", lambda s, b, c: {} if b["rule"] == "audit/1" else derive(s, b, c))
    monkeypatch.setattr(standalone.Runs, "hold", held)
    monkeypatch.setitem(standalone.KINDS, "audit/1", ())
