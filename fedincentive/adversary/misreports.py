"""Misreports: an agent that says other than it does. By name; each part alone or together with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..checks import nearest
from ..errors import SettingError
from .attacks import Attack, attack

Lie = Callable[[float, float], float]  # (truth, s_max) -> what is said


@dataclass(frozen=True)
class Misreport:
    """What is said instead of the truth; None leaves a part honest.

    `s` changes the reported contribution, `delivered` the reported points (given what was committed), `valuation` the
    reported value, `update` the update d_i itself.

    >>> misreport("overstate-s").s(2.0, 5.0)
    5.0
    """

    s: Lie | None = None
    delivered: Lie | None = None
    valuation: Callable[[float], float] | None = None
    update: Attack | None = None


MISREPORTS: dict[str, Callable[[], Misreport]] = {
    "understate-s": lambda: Misreport(s=lambda s, s_max: s / 2),
    "overstate-s": lambda: Misreport(s=lambda s, s_max: s_max),
    "claim-delivery": lambda: Misreport(delivered=lambda committed, s_max: committed),
    "inflate-v": lambda: Misreport(valuation=lambda v: v + 0.5 * abs(v)),
    "deflate-v": lambda: Misreport(valuation=lambda v: v - 0.5 * abs(v)),
    "inflate-d": lambda: Misreport(update=attack("scaled", 3.0)),
    "zero-d": lambda: Misreport(update=attack("zero")),
}


def misreport(name: str) -> Misreport:
    """The misreport called `name`; the name of an attack is one too: it misreports d_i."""
    if name in MISREPORTS:
        return MISREPORTS[name]()
    try:
        return Misreport(update=attack(name))
    except SettingError:
        raise SettingError(f"There is no misreport {name!r}.{nearest(name, MISREPORTS)}") from None
