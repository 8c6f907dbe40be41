"""Before round 0: who takes part, and the model everyone starts from."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from ..entry import NAME_LENGTH
from ..errors import SettingError
from ..messages import Enrol, Update
from ..payments import LIMIT, TREASURY, quantise
from ..run import Run
from ..settings import Settings
from .names import twins, wrong_with_name


def enrol(settings: Settings, agents: Sequence[Enrol]) -> Run:
    """The run before its first round; names are stable, unique, and not the treasury's."""
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
        if wrong := wrong_with(e, settings):
            raise SettingError(wrong)
        limits[name] = float(e.s_max)
        s_max[name] = quantise(float(e.s_max), settings.scale)
        s[name] = min(quantise(float(e.s0), settings.scale), s_max[name])
    digests = {name: e.commitment for name, e in sorted(by_name.items()) if e.commitment}
    secret = secrets.randbits(63) if settings.audit_seed is None else settings.audit_seed
    run = Run(settings, tuple(s), limits, s_max, dict(s), s, digests, secret)
    run.delivered, run.delivered_total = dict(s), dict.fromkeys(s, 0)
    return run


def wrong_with(e: Enrol, settings: Settings, others: Iterable[str] = ()) -> str:
    """Why an enrolment cannot be taken beside those of `others`, or nothing: hosts ask before it can stop the run."""
    if wrong := wrong_with_name(e.agent, others):
        return wrong
    if not (math.isfinite(e.s_max) and e.s_max > 0 and math.isfinite(e.s0) and 0 <= e.s0 <= e.s_max):
        return (
            f"Agent {e.agent!r} enrols with s_max = {e.s_max!r} and s0 = {e.s0!r}: s_max must be positive and s0 "
            "between 0 and s_max."
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
    return ""


def frozen(w: Update) -> Update:
    """A copy of a host's model that nobody can change in place."""
    return freeze({name: np.array(array) for name, array in w.items()})


def freeze(w: Update) -> Update:
    for array in w.values():
        array.flags.writeable = False
    return w
