"""Misreports: an agent that says other than it does. By name; each part alone or together with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..checks import nearest
from ..errors import SettingError
from .attacks import Attack, attack

Lie = Callable[[float, float], float]  # (truth, s_max) -> what is said


@dataclass(frozen=True)
class Misreport:
    """What is said instead of the truth; None leaves a part honest.

    `s` changes the reported contribution, `delivered` the reported points (given what was committed), `valuation` the
    reported value, `update` the update d_i itself, `trains` the points that are really trained on while all are said,
    `site` what the agent shows of its site.

    >>> misreport("overstate-s").s(2.0, 5.0)
    5.0
    """

    s: Lie | None = None
    delivered: Lie | None = None
    valuation: Callable[[float], float] | None = None
    update: Attack | None = None
    trains: Callable[[float], float] | None = None
    site: Callable[[Any], Any] | None = None


class PhantomSite:
    """A site that says it has more points than it has, and trains on those it has."""

    def __init__(self, site: Any, times: float = 2.0) -> None:
        self._site = site
        self.s_max = times * site.s_max

    def __getattr__(self, name: str) -> Any:
        return getattr(self._site, name)

    def update(self, w: Any, points: float, step: int, s: Any) -> Any:
        return self._site.update(w, min(points, self._site.s_max), step, s)


MISREPORTS: dict[str, Callable[[], Misreport]] = {
    "understate-s": lambda: Misreport(s=lambda s, s_max: s / 2),
    "overstate-s": lambda: Misreport(s=lambda s, s_max: s_max),
    "claim-delivery": lambda: Misreport(delivered=lambda committed, s_max: committed),
    "inflate-v": lambda: Misreport(valuation=lambda v: v + 0.5 * abs(v)),
    "deflate-v": lambda: Misreport(valuation=lambda v: v - 0.5 * abs(v)),
    "inflate-d": lambda: Misreport(update=attack("scaled", 3.0)),
    "zero-d": lambda: Misreport(update=attack("zero")),
    "under-train": lambda: Misreport(trains=lambda points: float(points // 2)),
    "phantom": lambda: Misreport(site=PhantomSite),
}


def misreport(name: str) -> Misreport:
    """The misreport called `name`; the name of an attack is one too: it misreports d_i."""
    if name in MISREPORTS:
        return MISREPORTS[name]()
    try:
        return Misreport(update=attack(name))
    except SettingError:
        raise SettingError(f"There is no misreport {name!r}.{nearest(name, MISREPORTS)}") from None
