"""The truthful payment p*_i = sum_{j != i} v^_j - phi_i - h_i, with valuations at the freshly broadcast model.

As printed in the paper phi is 0 whenever the valuation fits the *reported* type, so an agent that inflates d_i and then
values honestly gains whatever Gamma is. `audited` charges Gamma unless all of these hold:

    the reported s_i equals the attested one
    ||d^_i - grad_w v_i(w^t, s^t)|| <= delta_d,  with s^t as it was broadcast
    |v^_i - v_i(w^{t+1}, s^{t+1})| <= delta_v

The gain that remains is at most epsilon = (eta/n) delta_d ||grad SW|| per round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from .. import ledger
from ..draws import generator
from ..ledger import Entry
from ..messages import Update
from ..payments import quantise
from ..settings import Settings
from .base import Answer, Promises, Run
from .oracles import Oracles


def effective_phi(settings: Settings, oracles: Oracles) -> str:
    """Which fine can be charged: an audit needs both oracles, the paper's rule knows valuations only."""
    if settings.phi == "audited" and oracles.valuation is not None and oracles.update is not None:
        return "audited"
    return "paper" if oracles.valuation is not None else "none"


def fine(settings: Settings, n: int) -> int:
    """Gamma in minor units, divided by the chance of being found: audit probability times detection power."""
    gamma = settings.fine
    if gamma is None:
        gamma = n * Fraction(str(settings.loss_cap)) * Fraction(str(settings.value_per_nat))
    return round(gamma * settings.minor / (Fraction(str(settings.audit)) * Fraction(str(settings.detection))))


def audited(run: Run, agent: str) -> bool:
    """Whether this agent is audited in this step; the seed is the center's secret, so that nobody can know before."""
    if run.settings.audit >= 1.0:
        return True
    return generator(run.audit_seed, "audit", agent, run.step).random() < run.settings.audit


def failures(
    run: Run, w: Update, s: Mapping[str, float], reports: Mapping[str, Answer], oracles: Oracles
) -> dict[str, str]:
    """The agents whose points or update did not pass the audit of a training round at the broadcast (w, s)."""
    assert oracles.update is not None and oracles.valuation is not None
    failed = {}
    for agent in (a for a in run.asked if audited(run, a)):
        report = reports.get(agent)
        if report is None:
            failed[agent] = "absent"
        elif run.s[agent] != min(quantise(oracles.update.points(agent), run.settings.scale), run.s_max[agent]):
            failed[agent] = "points"
        elif distance(report.update, oracles.update.update(agent, w, s, run.step)) > run.settings.delta_d:
            failed[agent] = "update"
        elif report.valuation is not None:  # of the first model, which the others' payments are measured from
            truth = quantise(oracles.valuation.value(agent, w, s), run.settings.minor)
            if abs(report.valuation - truth) > quantise(run.settings.delta_v, run.settings.minor):
                failed[agent] = "first valuation"
    return failed


def pivots(run: Run, without: Callable[[str], Update], oracles: Oracles) -> dict[str, int]:
    """Clarke's h_i: the others' value had i not been there; `without(i)` is the model the others alone would make."""
    assert oracles.valuation is not None
    values = {}
    for agent in run.agents:
        w, s = without(agent), {**run.points(run.s), agent: 0.0}
        others = (oracles.valuation.value(other, w, s) for other in run.agents if other != agent)
        values[agent] = sum(quantise(value, run.settings.minor) for value in others)
    return values


def after_values(run: Run, w: Update, absent: tuple[str, ...], oracles: Oracles) -> Entry:
    """The payment on the valuations that were just reported; who did not report keeps its last one."""
    settings, phi = run.settings, effective_phi(run.settings, oracles)
    valuations = {agent: run.valuations.get(agent, 0) for agent in run.agents}
    judged = [agent for agent in run.agents if phi != "none" and audited(run, agent)]
    failed = {**run.failed, **{agent: "absent" for agent in absent if agent in judged}}
    references = {}
    if oracles.valuation is not None:
        s = run.points(run.s)
        references = {a: quantise(oracles.valuation.value(a, w, s), settings.minor) for a in judged}
    return ledger.truthful(
        settings.run,
        run.round,
        valuations=valuations,
        previous=run.valued if settings.h == "previous" else None,
        h=settings.h,
        pivots=run.pivots if settings.h == "clarke" else None,
        phi=phi,
        fine=fine(settings, run.n),
        references=references,
        tolerance=quantise(settings.delta_v, settings.minor),
        failed=failed if phi == "audited" else {},
        minor=settings.minor,
    )


def epsilon(settings: Settings, d: Update) -> float:
    """(eta/n) delta_d ||grad SW||, where the mean update d is (1/n) grad SW."""
    return settings.eta * settings.delta_d * math.sqrt(sum(float(np.sum(np.square(a))) for a in d.values()))


def distance(a: Update, b: Update) -> float:
    return math.sqrt(sum(float(np.sum(np.square(np.subtract(a[name], b[name], dtype=np.float64)))) for name in b))


def promise(made: Promises, settings: Settings, phi: str) -> Promises:
    """What paying p* adds to a mechanism's promises and takes from them."""
    disclaimed = {**made.disclaimed, "budget-balanced": "p* does not balance; the treasury pays the difference"}
    claims = tuple(claim for claim in made.claims if claim != "budget-balanced")
    if phi != "audited":
        why = {
            "paper": "phi as printed is 0 whenever the valuation fits the reported type: inflating d pays",
            "none": "there is no oracle to check reports against",
        }
        return Promises(claims, {**disclaimed, "truthful": why[phi]}, made.notes)
    if settings.server_optimizer == "adam":
        why_adam = "with server Adam a tiny change of d already moves the model a full step"
        return Promises(claims, {**disclaimed, "truthful": why_adam}, made.notes)
    note = f"epsilon-EPIC per round, epsilon = (eta/n) delta_d |grad SW|, delta_d = {settings.delta_d:g}"
    return Promises((*claims, "truthful"), disclaimed, {**made.notes, "truthful": note})
