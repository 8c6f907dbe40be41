"""What closing a round does to the run: the arithmetic of each phase, without files or ledgers."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .. import terms
from ..entry import COMMITMENT, Entry
from ..identity import CENTER
from ..ledger.claims import RULE as REPORTS
from ..mechanisms import Mechanism
from ..messages import Phase, Update
from ..payments import Deposit, Event, Oracles, quantise
from ..payments.deposit import lag
from ..provenance import beacon, statements
from ..provenance.keys import KeyRing
from ..provenance.records import tags_digest
from ..provenance.statements import KeysInForce
from ..run import Answer, Run
from . import audits, worth
from .metrics import far
from .optimizer import Optimizer
from .own_models import OwnModels

Reports = Mapping[str, Answer]
Told = Mapping[str, Any]  # what all reports of a round answer to
MEASURED = ("counterfactual", "closed-form")  # slopes that look at the valuation
log = logging.getLogger("fedincentive")


class Hooks(Protocol):
    """A host's own steps around the aggregation: they may change the model, never what was delivered and is paid."""

    def before(self, w: Update, updates: list[Update], delivered: list[int]) -> tuple[list[Update], list[int]]:
        """The updates the rule sees, with their points."""

    def after(self, w: Update) -> Update:
        """The model that is kept."""


def contribute(run: Run, reports: Reports, absent: Collection[str], told: Told) -> None:
    """Everyone's new s; an absent agent keeps its own, and after too many misses it is not waited for any more."""
    place = {**_seen(told), "round": run.round}
    run.claims.update({name: {**_said(a), **place} for name, a in reports.items() if a.claim})
    before, lost = dict(run.s), run.lost
    run.s.update({name: report.s for name, report in reports.items() if report.s is not None})
    moves = {name: abs(run.s[name] - before[name]) for name in reports}
    # Who stood still before somebody moved far did so against another s.
    run.moves = {**run.moves, **moves} if all(map(run.stands, moves, moves.values())) else moves
    run.misses.update({name: run.misses.get(name, 0) + 1 for name in absent} | dict.fromkeys(reports, 0))
    run.contributed += 1
    for name in set(run.lost) - set(lost):
        log.warning(
            "Agent %s missed %d contribute rounds in a row: phase 1 goes on without it, and it counts with its last s, "
            "%g of %g points.", name, run.misses[name], run.points(run.s)[name], run.limits[name],
        )  # fmt: skip


def heed(run: Run, before: Run, mechanism: Mechanism, reports: Reports) -> None:
    """What moves of s tell of d v_i/d s_i where agents measure it: s' - s = gamma (d v_i/d s_i - c_i' + d p_i/d s_i)"""
    settings, gamma = run.settings, mechanism.gamma
    moved = [name for name, report in reports.items() if report.s is not None and 0 < report.s < run.s_max[name]]
    if gamma is None or not moved or (settings.slope or mechanism.slope) not in MEASURED:
        return
    points = before.points(before.s)
    s = np.array([points[name] for name in run.agents])
    paid = sum((p.slopes(run.agents, s) for p in mechanism.payments if p.steers), start=np.zeros(run.n))
    for name in moved:
        g = (run.s[name] - before.s[name]) / settings.scale / gamma
        slope = g + settings.cost_of(name) - float(paid[run.agents.index(name)])
        run.slope = slope if run.slope is None else min(run.slope, slope)


def deliver(run: Run, reports: Reports) -> None:
    """What was delivered: 0 by the absent, who are charged so, and as before by those who were not asked."""
    for name in run.asked:
        report = reports.get(name)
        run.delivered[name] = 0 if report is None or name in run.failed else report.delivered
        if report is not None and report.s is not None:
            run.s[name] = report.s
        if report is not None and report.valuation is not None:
            run.valuations[name] = report.valuation
    for name in run.agents:
        run.delivered_total[name] += run.delivered[name]
    run.trained += 1


def weights_of(run: Run, own: OwnModels | None) -> Mapping[str, int] | None:
    """By what updates are weighted: by weights that come with the agents' own models, or by points where the settings
    say so; None where all count alike."""
    given = None if own is None else own.weights(run)
    return run.delivered if given is None and run.settings.weights == "samples" else given


def train(
    run: Run,
    mechanism: Mechanism,
    w: Update,
    optimizer: Optimizer,
    buffers: Collection[str],
    reports: Reports,
    oracles: Oracles,
    hooks: Hooks | None = None,
    own: OwnModels | None = None,
) -> tuple[dict[str, np.ndarray], Optimizer, list[Entry], Update, dict[str, tuple[float, float]]]:
    """w <- w + eta/n sum_i d_i over the agents that answered, in name order: sums do not depend on who came first. In
    every rule integer entries (counters) take the largest."""
    s, settings = run.points(run.s), mechanism.settings
    deliver(run, reports)
    answered = [name for name in run.agents if name in reports and name not in run.failed]
    weights = weights_of(run, own)

    def step(names: Sequence[str]) -> tuple[dict[str, np.ndarray], Optimizer, Update]:
        updates, counts = [reports[name].update for name in names], [(weights or run.delivered)[a] for a in names]
        if hooks is not None:
            updates, counts = hooks.before(w, updates, counts)
        clips, last = "center" in mechanism.aggregator.options, optimizer.last
        weigh = counts if weights is not None and any(counts) else None
        d = dict(mechanism.aggregator.in_run(updates, settings, weigh, last or (zeros(w) if clips else {})))
        # Other rules may give a client's own arrays, and a payment on values may look at d.
        spend = mechanism.aggregator.works_on_files and not mechanism.values
        return (*optimizer.step(w, d, buffers, keep=clips, spend=spend), d)

    new, next_optimizer, d = step(answered)
    if mechanism.tolerated(len(answered)) is not None and len(answered) > 2:
        _notice(run, [answered[i] for i in far([reports[name].update for name in answered], d)], len(answered))
    if hooks is not None:
        revised = hooks.after(new)
        new = new if revised is new else {name: np.array(array) for name, array in revised.items()}
    sent = {name: reports[name].update for name in answered}
    found = worth.measure(run, w, sent, weights, oracles)
    event = Event(
        "train", w, s, reports, (), oracles, lambda agent: step([a for a in answered if a != agent])[0],
        {agent: value for agent, (value, _) in found.items()},
        **({} if own is None else own.grant(run, w, new, sent, oracles)),
    )  # fmt: skip
    memo = worth.memo(run, found)
    return new, next_optimizer, [*memo, *due(run, mechanism, event)], d, found


def _notice(run: Run, names: Sequence[str], answered: int) -> None:
    """Keep in mind whose updates were far from the aggregate."""
    run.far.update({name: run.far.get(name, 0) + 1 for name in names})
    run.most_far = max(run.most_far, [len(names), answered])


def zeros(w: Update) -> dict[str, np.ndarray]:
    return {name: np.zeros_like(array) for name, array in w.items()}


def value(
    run: Run, mechanism: Mechanism, w: Update, reports: Reports, absent: tuple[str, ...], oracles: Oracles
) -> list[Entry]:
    """The valuations of the new model, and the payments on them."""
    run.valuations.update({name: a.valuation for name, a in reports.items() if a.valuation is not None})
    return due(run, mechanism, Event("value", w, run.points(run.s), reports, absent, oracles))


def audited(run: Run, s: Mapping[str, int], w: Update, before: Update | None, reports: Reports, told: Told) -> None:
    """In an audited run: what a training round that was just closed may be audited for; w is what it began from."""
    counted = {name: answer for name, answer in reports.items() if name not in run.failed}
    said = {name: _said(answer) for name, answer in sorted(counted.items())}
    audits.record(run, s, said, _shared(told), audits.replays(w, before, counted))


def due(run: Run, mechanism: Mechanism, event: Event) -> list[Entry]:
    """What each payment posts on this event."""
    return [entry for payment in mechanism.payments if (entry := payment.due(run, event)) is not None]


def advance(run: Run, mechanism: Mechanism) -> list[Entry]:
    """Move to the next phase. Where training begins, and where phase 1 ends short, the commitments are recorded; what
    was drawn is audited before the next round begins."""
    before, after = run.phase, _following(run, mechanism)
    entries = []
    if after != "value":
        entries = audits.proceed(run, ended=audits.shown(run, CENTER)[0] == run.trained) if run.audits else []
        entries += due(run, mechanism, Event("audit")) if entries else []
        if audits.asks(run):
            run.phase, run.then = "audit", after
            return entries
    asked = run.agents
    if after == "train" and "draws" in run.terms:
        asked = beacon.asked(audits.links(run, run.terms)[run.trained], run.agents, run.terms["sampled"])
    left = sum(name not in run.failed for name in asked)
    if after == "train" and run.failed and left < mechanism.least(max(left, 1)):
        after, run.status = "confirm", "stopped"
    if (after == "confirm" or (after == "done" and before != "confirm")) and not run.audits:
        entries += due(run, mechanism, Event("end"))
    run.phase = after
    if after != "value" and before != "accept" and (before != "confirm" or after == "confirm"):
        run.round += 1
        run.step = run.trained
    if after == "done" and run.status == "running":
        run.status = "complete"
    starts = after == "train" if before == "accept" else before == "contribute" and after != "contribute"
    return [*entries, *begin(run, mechanism)] if starts else entries


def _following(run: Run, mechanism: Mechanism) -> Phase:
    """The phase after the one that was just closed, audits apart."""
    if run.phase == "accept":
        return mechanism.start(run)
    if run.phase == "audit":
        return run.then
    if run.phase == "confirm":
        return "confirm" if run.audits else "done"  # with it the last links were shown: everyone sees what follows
    after = mechanism.next(run)
    return "confirm" if after == "done" and run.signed else after  # everyone sees the last entries


def agree(run: Run, mechanism: Mechanism, oracles: Oracles, keys: KeyRing | None) -> dict[str, Any]:
    """The run's terms, as everyone is told them and the ledger keeps them."""
    settings = run.settings
    agents: dict[str, dict[str, Any]] = {
        name: {"s_max": run.s_max[name], "s0": run.s0[name], "data": run.commitments.get(name)} for name in run.agents
    }
    for name, given in run.enrolled.items():
        if (had := quantise(given["s_max"], settings.scale)) != run.s_max[name]:
            agents[name]["enrolled"] = had
        if (tags := given.get("tags")) is not None:
            agents[name]["tags"] = tags_digest(tags)
        if name in run.duplicates:
            agents[name]["duplicates"] = run.duplicates[name]
    for payment in mechanism.payments:
        for name, money in payment.deposits(run.s_max).items() if isinstance(payment, Deposit) else ():
            agents[name]["deposit"] = money
    signed: dict[str, Any] = {}
    if keys is not None:
        # The id tells two runs of one name apart, so that nothing signed for one counts in the other.
        signed = {"run": settings.run, "center": keys.public[CENTER].vkey, "id": secrets.token_hex(16)}
        for name in run.agents:
            agents[name]["key"] = keys.public[name].vkey
        if statements.RECOVERY in keys.public and statements.RECOVERY not in run.agents:
            signed["recovery"] = keys.public[statements.RECOVERY].vkey
    if settings.audited:
        assert keys is not None
        for name in run.agents:
            agents[name]["anchor"] = run.anchors[name]
        signed["auditors"] = {name: keys.public[name].vkey for name in sorted(settings.auditors or ())}
    begun = run.copy()
    mechanism.start(begun)
    moved = {name: points for name, points in begun.s.items() if points != run.s0[name]}
    paid = {p.name: {"rules": list(p.used()), "terms": p.terms()} for p in mechanism.payments}
    told = {key: value for key, value in mechanism.public().items() if key != "payments"}
    anchor = beacon.anchor(audits.links(run, {"settings": told}))
    if settings.audited:
        signed |= {"anchor": anchor, "lag": lag(paid)}
    return dict(
        terms.texts(
            {
                "mechanism": mechanism.name,
                "rounds": settings.rounds,
                "sampled": settings.sampled,
                "scale": settings.scale,
                "minor": settings.minor,
                "currency": settings.currency,
                "payments": paid,
                "settings": told,
                "oracles": list(oracles.names) if mechanism.values else [],
                "owed": settings.most_owed,
                **signed,
                **({"start": moved} if moved else {}),
                "draws": anchor if settings.sampled and settings.sampled < run.n else None,
                "agents": agents,
            }
        )
    )


def draws(run: Run) -> bool:
    """Whether anything is drawn from the center's hash chain: who is asked, or who is audited."""
    return "draws" in run.terms or "anchor" in run.terms


def agreed(run: Run, reports: Reports, told: Told) -> Entry:
    """The terms as the run's first entry, with the agents' signatures where there are keys."""
    accepted = {name: {**_said(answer), **_seen(told)} if answer.claim else {} for name, answer in reports.items()}
    run.enrolled = {name: {**given, "tags": None} for name, given in run.enrolled.items()}  # the lists have done
    return Entry(run.settings.run, run.round, terms.KIND, terms.RULE, {"terms": run.terms, "accepted": accepted}, {})


def keys_in_force(run: Run) -> KeysInForce:
    """Whose key counts in which round of a signed run."""
    agreed = {name: given["key"] for name, given in run.terms["agents"].items()}
    force = KeysInForce(agreed, run.terms.get("recovery"))
    for change in run.changed:
        force.change(change["statement"], change["round"])
    return force


def change_key(run: Run, statement: Mapping[str, Any]) -> Entry:
    """An agent's key changes from the round on that is open now."""
    run.changed = [*run.changed, {"round": run.round, "statement": statement}]
    inputs = {"terms": terms.digest(run.terms), "statement": statement}
    return Entry(run.settings.run, run.round, f"{statements.PREFIX}{len(run.changed)}", statements.RULE, inputs, {})


def reported(run: Run, reports: Reports, absent: Collection[str], reveal: str | None, told: Told) -> list[Entry]:
    """In a signed run: what everyone said in a round, with the signatures, before what follows from it."""
    if not any(answer.claim for answer in reports.values()):
        return []
    said = {name: _said(answer) for name, answer in reports.items()}
    inputs = {**_shared(told), **({"reveal": reveal} if reveal else {}), "absent": sorted(absent), "said": said}
    return [Entry(run.settings.run, run.round, f"reports-{run.phase}", REPORTS, inputs, {})]


def _said(answer: Answer) -> dict[str, Any]:
    """What a ledger keeps of a signed report, under its agent's name."""
    said = {**answer.claim, "signature": answer.signature}
    del said["agent"]
    return said


def _shared(told: Told) -> dict[str, Any]:
    """What an entry says once of all its reports."""
    return {key: told[key] for key in ("terms", "model", "seen") if key in told}


def _seen(told: Told) -> dict[str, Any]:
    """What is said with each report where reports of several rounds are in one entry."""
    return {"seen": told["seen"]} if "seen" in told else {}


def begin(run: Run, mechanism: Mechanism) -> list[Entry]:
    """The entries that training starts from: the commitments, and what is paid on them."""
    run.delivered = dict(run.s)  # an agent that is not sampled at first counts with what it committed
    scale = run.settings.scale
    inputs = {"beta": str(mechanism.beta), "s": run.s, "s_max": run.s_max, "scale": scale, "data": run.commitments}
    memo = Entry(run.settings.run, run.round, COMMITMENT, "commitment/1", inputs, {})
    last = run.round - 1  # of phase 1
    absent = [name for name in run.agents if run.claims.get(name, {}).get("round") != last]
    said = {"terms": terms.digest(run.terms), "absent": absent, "said": run.claims}
    signed = [Entry(run.settings.run, run.round, "reports-contribute", REPORTS, said, {})] if run.claims else []
    run.claims = {}  # they stand in the ledger now, and need not be saved with every round that follows
    return [*signed, memo, *(due(run, mechanism, Event("commit")) if run.phase == "train" else [])]


def book(run: Run, entries: Sequence[Entry]) -> dict[str, int]:
    """Add the entries' amounts to the run's balances; returns what they post together."""
    total: dict[str, int] = {}
    for entry in entries:
        for account, amount in entry.postings.items():
            total[account] = total.get(account, 0) + amount
            run.balances[account] = run.balances.get(account, 0) + amount
    return total
