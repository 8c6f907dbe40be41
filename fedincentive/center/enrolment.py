"""Before round 0: who takes part, and the model everyone starts from."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..checks import shown
from ..entry import NAME_LENGTH
from ..errors import SettingError
from ..mechanisms import Mechanism
from ..messages import Enrol, Update
from ..payments import LIMIT, TREASURY, quantise
from ..run import Run
from .names import twins, wrong_with_name


def enrol(mechanism: Mechanism, agents: Sequence[Enrol]) -> Run:
    """The run before its first round; names are stable, unique, and not the treasury's."""
    settings = mechanism.settings
    by_name = {enrol.agent: enrol for enrol in agents}
    if len(by_name) < len(agents):
        twice = next(name for name, count in Counter(e.agent for e in agents).items() if count > 1)
        raise SettingError(f"Agent {twice!r} is enrolled twice: every agent needs its own stable name.")
    if not by_name or TREASURY in by_name:
        raise SettingError(f"Enrol at least one agent, and none called {TREASURY!r}: that is the center's account.")
    if alike := twins(sorted(by_name)):
        raise SettingError(alike)
    limits, s_max, s = {}, {}, {}
    for name in sorted(by_name):
        e = by_name[name]
        if wrong := wrong_with(e, mechanism, len(by_name)):
            raise SettingError(wrong)
        limits[name] = float(e.s_max)
        s_max[name] = quantise(float(e.s_max), settings.scale)
        s[name] = min(quantise(float(e.s0), settings.scale), s_max[name])
    digests = {name: e.commitment for name, e in sorted(by_name.items()) if e.commitment}
    secret = secrets.randbits(63) if settings.audit_seed is None else settings.audit_seed
    run = Run(settings, tuple(s), limits, s_max, dict(s), s, digests, secret)
    run.delivered, run.delivered_total = dict(s), dict.fromkeys(s, 0)
    run.followed = sorted({e.seen for e in agents if e.seen})
    return run


def affordable(run: Run, mechanism: Mechanism) -> None:
    """Nobody can owe more than `most_owed`, and all the money of the run fits the ledger's integers."""
    settings, s_max = run.settings, np.array([run.limits[agent] for agent in run.agents])
    found = [payment.limits(run.agents, s_max) for payment in mechanism.payments]
    known = [np.maximum(worst, 0.0) for worst in found if worst is not None]
    if not known:
        return
    worst = np.sum(known, axis=0)
    if not float(np.sum(worst)) * settings.minor < LIMIT:
        raise SettingError(
            f"The agents of run {settings.run!r} could owe {float(np.sum(worst)):.6g} in all, which the ledger's 64 "
            f"bits do not hold with {settings.minor} minor units per unit: lower incentive.beta, or incentive.minor."
        )
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
    if e.s_max * settings.scale * settings.rounds >= LIMIT:
        most = LIMIT / (settings.scale * settings.rounds)
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
    return ""


def frozen(w: Update) -> Update:
    """A copy of a host's model that nobody can change in place."""
    return freeze({name: np.array(array) for name, array in w.items()})


def freeze(w: Update) -> Update:
    for array in w.values():
        array.flags.writeable = False
    return w
