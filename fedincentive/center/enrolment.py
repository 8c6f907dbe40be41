"""Before round 0: who takes part, and the model everyone starts from."""

from __future__ import annotations

import logging
import math
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np

from ..checks import shown
from ..entry import NAME_LENGTH, RESERVED
from ..errors import SettingError
from ..mechanisms import Mechanism
from ..messages import Enrol, Update
from ..payments import LIMIT, Deposit, LumpSum, quantise
from ..payments.deposit import owed, within_budget
from ..provenance import records
from ..run import Run
from . import audits
from .names import twins, wrong_with_name

log = logging.getLogger("fedincentive")


def enrol(mechanism: Mechanism, agents: Sequence[Enrol]) -> Run:
    """The run before its first round; names are stable, unique, and not the treasury's."""
    settings = mechanism.settings
    by_name = {enrol.agent: enrol for enrol in agents}
    if len(by_name) < len(agents):
        twice = next(name for name, count in Counter(e.agent for e in agents).items() if count > 1)
        raise SettingError(f"Agent {twice!r} is enrolled twice: every agent needs its own stable name.")
    if not by_name or set(RESERVED) & set(by_name):
        names = " or ".join(map(repr, RESERVED))
        raise SettingError(f"Enrol at least one agent, and none called {names}: those are the center's accounts.")
    if alike := twins(sorted(by_name)):
        raise SettingError(alike)
    for name in sorted(by_name):
        if wrong := wrong_with(by_name[name], mechanism, len(by_name)):
            raise SettingError(wrong)
    given, duplicates = by_name, {}
    if settings.tags is not None:
        duplicates = shared_records(mechanism, by_name)
        by_name = {name: _without_copies(e, duplicates.get(name, {})) for name, e in by_name.items()}
    s_max = within_budgets(mechanism, [by_name[name] for name in sorted(by_name)])
    limits, s = {}, {}
    for name, points in s_max.items():
        e, had = by_name[name], quantise(float(by_name[name].s_max), settings.scale)
        limits[name] = float(e.s_max) if points == had else points / settings.scale
        s[name] = min(quantise(float(e.s0), settings.scale), points)
    digests = {name: e.commitment for name, e in sorted(by_name.items()) if e.commitment}
    secret = secrets.randbits(256) if settings.audit_seed is None else settings.audit_seed
    run = Run(settings, tuple(s), limits, s_max, dict(s), s, digests, secret)
    run.anchors = {name: e.anchor for name, e in sorted(by_name.items()) if e.anchor}
    run.delivered, run.delivered_total = dict(s), dict.fromkeys(s, 0)
    run.enrolled, run.duplicates = {name: asdict(given[name]) for name in s}, duplicates
    run.alone = {name: float(e.alone) for name, e in sorted(by_name.items()) if e.alone is not None}
    run.followed = sorted({e.seen for e in agents if e.seen})
    return run


def shared_records(mechanism: Mechanism, by_name: Mapping[str, Enrol]) -> dict[str, dict[str, int]]:
    """How many records of each agent others have too, of which the first in name order keeps the count."""
    if not mechanism.settings.audited:
        raise SettingError("incentive.tags are checked by auditors at the sites: name incentive.auditors, or no tags.")
    lists = {name: records.read_tags(by_name[name].tags or "") or [] for name in sorted(by_name)}
    found = {name: of for name, of in records.duplicates(lists).items() if of}
    for name, of in found.items():
        whose = ", ".join(f"{count} of {first}" for first, count in of.items())
        if (left := by_name[name].s_max - sum(of.values())) <= 0:
            raise SettingError(f"All records of agent {name!r} are others' too ({whose}): leave it out.")
        log.warning(
            "Agent %s counts with %g of its %g points: %s are duplicates.", name, left, by_name[name].s_max, whose
        )
    return found


def _without_copies(e: Enrol, found: Mapping[str, int]) -> Enrol:
    left = e.s_max - sum(found.values())
    return replace(e, s_max=left, s0=min(e.s0, left)) if found else e


def without(run: Run, mechanism: Mechanism, declined: Mapping[str, str], links: Mapping[str, str | None]) -> Run:
    """The run as the others can still play it, in the next round; its terms are to be proposed anew.

    The links that were shown with the old terms are the anchors of the new ones: what they draw is unknown again.
    """
    again = {name: {"anchor": links[name]} for name in links}
    rest = [Enrol(**{**given, **again.get(name, {})}) for name, given in run.enrolled.items() if name not in declined]
    left = enrol(mechanism, rest)
    left.audit_seed, left.round, left.phase = run.audit_seed, run.round + 1, "accept"
    left.declined = {**run.declined, **declined}
    return left


def within_budgets(mechanism: Mechanism, enrolled: Sequence[Enrol]) -> dict[str, int]:
    """The points each agent is counted with: all of them, or as many as its budget covers.

    A budget is for the deposit and for what the agent owes as long as it delivers. That depends on the others' points,
    so those are first cut to what their own budgets cover a deposit for.
    """
    settings, made = mechanism.settings, mechanism.payments
    s_max = {e.agent: quantise(float(e.s_max), settings.scale) for e in enrolled}
    most = LIMIT // (2 * settings.minor)  # nobody can owe more
    budgets = {e.agent: quantise(min(float(e.budget), most), settings.minor) for e in enrolled if e.budget is not None}
    if len(enrolled) < 2 or not budgets:
        return s_max
    had = dict(s_max)
    for payment in made:
        if isinstance(payment, Deposit):
            s_max |= {a: payment.covered(budget, s_max[a], len(s_max)) or s_max[a] for a, budget in budgets.items()}
    counted = dict(s_max)
    for agent, budget in budgets.items():
        counted[agent] = within_budget(made, s_max, agent, budget, settings.scale, settings.minor)
        if counted[agent]:
            continue
        charged = owed(made, had, settings.scale, settings.minor)[list(had).index(agent)]
        one, whole = (
            [p.of_points(s, len(had)) / settings.minor for p in made if isinstance(p, Deposit)]
            for s in (min(had[agent], settings.scale), had[agent])
        )
        least = f", and the deposit of a single point is {one[0]:.6g}, of all {whole[0]:.6g}" if one else ""
        raise SettingError(
            f"Agent {agent!r} would owe {charged / settings.minor:.6g} in run {settings.run!r} while it gives all it "
            f"has{least}; its budget is {budget / settings.minor:.6g}: raise it, lower incentive.beta, or bound the "
            "others' points with incentive.most_points."
        )
    for e in enrolled:
        if counted[e.agent] < had[e.agent]:
            log.warning(
                "Agent %s counts with %g of its %g points: its budget of %g covers no larger deposit.",
                e.agent, counted[e.agent] / settings.scale, e.s_max, e.budget,
            )  # fmt: skip
    return counted


def affordable(run: Run, mechanism: Mechanism) -> None:
    """Nobody can owe more than `most_owed`, and all the money of the run fits the ledger's integers."""
    settings, s_max = run.settings, np.array([run.limits[agent] for agent in run.agents])
    found = {payment.name: payment.limits(run.agents, s_max) for payment in mechanism.payments}
    known = {name: np.maximum(worst, 0.0) for name, worst in found.items() if worst is not None}
    if not known:
        return
    for payment in mechanism.payments:
        if isinstance(payment, LumpSum) and not run.declined:
            payment.named(run.agents)
    worst = np.sum(list(known.values()), axis=0)
    if not float(np.sum(worst)) * settings.minor < LIMIT:
        raise SettingError(
            f"The agents of run {settings.run!r} could owe {float(np.sum(worst)):.6g} in all, which the ledger's 64 "
            f"bits do not hold with {settings.minor} minor units per unit: lower incentive.beta, or incentive.minor."
        )
    worst = worst - known.get(Deposit.name, 0.0)  # a deposit is paid, not owed
    i = int(np.argmax(worst))
    if settings.most_owed is not None and worst[i] > float(settings.most_owed):
        raise SettingError(
            f"Agent {run.agents[i]!r} could owe {worst[i]:.6g} in run {settings.run!r}, incentive.most_owed is "
            f"{float(settings.most_owed):g}: lower incentive.beta, or bound the points with incentive.most_points."
        )


def wrong_with(e: Enrol, mechanism: Mechanism, n: int, others: Iterable[str] = ()) -> str:
    """Why the enrolment of one of n agents cannot be taken beside those of `others`, or nothing: hosts ask before it
    can stop the run."""
    settings = mechanism.settings
    if wrong := wrong_with_name(e.agent, others):
        return wrong
    if not (math.isfinite(e.s_max) and e.s_max > 0 and math.isfinite(e.s0) and 0 <= e.s0 <= e.s_max):
        return (
            f"Agent {e.agent!r} enrols with s_max = {e.s_max!r} and s0 = {e.s0!r}: s_max must be positive and s0 "
            "between 0 and s_max."
        )
    most = settings.most_points
    most = most.get(e.agent) if isinstance(most, Mapping) else most
    if most is not None and e.s_max > most:
        return f"Agent {e.agent!r} enrols with s_max = {e.s_max!r}: incentive.most_points allows it {most:g}."
    for what, value in (("budget", e.budget), ("alone", e.alone)):
        if value is None:
            continue
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not number or (what == "budget" and value < 0):
            return f"Agent {e.agent!r} enrols with {what} = {value!r}: it must be a finite number, a budget at least 0."
    alone = float(mechanism.beta) * e.s_max / max(n - 1, 1)  # what it makes each of the others owe in the worst case
    if settings.most_owed is not None and alone > float(settings.most_owed):
        return (
            f"Agent {e.agent!r} enrols with s_max = {e.s_max!r}: it alone could make the others owe {alone:.6g} each, "
            f"incentive.most_owed is {float(settings.most_owed):g}."
        )
    if not alone * settings.minor * n < LIMIT:
        return (
            f"Agent {e.agent!r} enrols with s_max = {e.s_max!r}: what it could cost the others does not fit the "
            f"ledger's 64 bits at beta = {float(mechanism.beta):g} with {settings.minor} minor units per unit."
        )
    times = n if settings.sampled or settings.auditors else 1  # scores are sums over all who are compared
    if e.s_max * settings.scale * settings.rounds * times >= LIMIT:
        most = LIMIT / (settings.scale * settings.rounds * times)
        return (
            f"Agent {e.agent!r} enrols with s_max = {e.s_max!r}: {settings.rounds} rounds of more than {most:.6g} "
            "points do not fit the ledger's 64 bits. Give fewer points, or lower incentive.scale."
        )
    if e.commitment is not None and not (0 < len(e.commitment) <= NAME_LENGTH and e.commitment.isprintable()):
        return (
            f"Agent {e.agent!r} enrols with the commitment {e.commitment[:40]!r}: it must have 1 to {NAME_LENGTH} "
            "printable characters."
        )
    if e.seen is not None and (type(e.seen) is not int or not 0 <= e.seen <= LIMIT):
        return f"Agent {e.agent!r} enrols with seen = {shown(e.seen)}: it must be the size of a log, or nothing."
    if settings.audited:
        return audits.wrong_with(e, settings.tags)
    return ""


def frozen(w: Update) -> Update:
    """A copy of a host's model that nobody can change in place."""
    return freeze({name: np.array(array) for name, array in w.items()})


def freeze(w: Update) -> Update:
    for array in w.values():
        array.flags.writeable = False
    return w
