"""Who is audited by whom, drawn from a beacon's value, and how verdicts decide. Everybody derives the same.

A coin for each agent that answered in a step says whether it is audited. One auditor looks first. A pass counts, unless
it is drawn to be checked again; a fail needs a second auditor who says so too; where two disagree, a third decides.
That an auditor was silent is the center's word: with it two others must agree, so that it spares and convicts nobody.
A link that is withheld delays the draw by so many steps as the terms say (`lag`), then all coins are heads.

What is drawn by which rule, q and r being `audit` and `rechecks` of the terms:

    audit/3   an audit with chance q/(1 + r), so that with the second looks at passes it is q in all; 1 where q is 1.
              Whether a pass is checked again, with chance r, is drawn with the center's next link, which nobody but the
              center has seen when the first auditor looks
    audit/2   an audit with chance q; r = 0.1, drawn with the audits themselves
    audit/1   as audit/2, but who was silent counts for nothing and nobody waits for ever for links
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from . import beacon

RULES = FIRST, SECOND, RULE = "audit/1", "audit/2", "audit/3"  # of a step's memo in the ledger
PREFIX = "audit-"  # of its kind, which ends with the step
PASS, FAIL, SILENT = "pass", "fail", "silent"
LEAST = 3  # auditors: two may disagree
REPEATED = 0.1  # of the passes were checked again by the older rules
COPY, REPLAY = "copy", "replay"  # why an agent is audited whatever its coin says

Chance = Fraction | float  # older rules have floats, and the coins that go with them
Heard = Sequence[tuple[str, str]]  # (auditor, what it found), in order


@cache
def chance(audit: float, rechecks: float) -> Fraction:
    """That an agent is audited in a step: second looks at passes are part of what `audit` says, unless it is 1.

    >>> chance(0.1, 0.25), chance(1.0, 0.25)
    (Fraction(2, 25), Fraction(1, 1))
    """
    asked = Fraction(str(audit))
    return asked / (1 + Fraction(str(rechecks))) if asked < 1 else asked


def agreed(terms: Mapping[str, Any]) -> tuple[str, Chance, Chance]:
    """The rule by which the audits of a run with these terms are drawn and decided, the chance of an audit, and of a
    second look at a pass."""
    told = terms["settings"]
    if "rechecks" in told:
        return RULE, chance(told["audit"], told["rechecks"]), _exactly(told["rechecks"])
    return SECOND if "lag" in terms else FIRST, float(told["audit"]), REPEATED


@cache
def _exactly(number: str) -> Fraction:
    return Fraction(number)


def coins(value: str, agents: Iterable[str], chance: Chance) -> set[str]:
    """The agents whose coins say that they are audited."""
    return {agent for agent in agents if beacon.drawn(value, f"audit\n{agent}", chance)}


def copies(updates: Mapping[str, str]) -> set[str]:
    """The agents that sent the very update, by its digest, of another one."""
    count = Counter(updates.values())
    return {agent for agent, digest in updates.items() if count[digest] > 1}


def order(value: str, agent: str, auditors: Iterable[str]) -> list[str]:
    """The auditors of an agent, in the order they are asked."""
    return beacon.ranked(f"{value}\nauditors\n{agent}", auditors)


def repeated(value: str, agent: str, share: Chance = REPEATED) -> bool:
    """Whether a pass is looked at by a second auditor."""
    return beacon.drawn(value, f"repeat\n{agent}", share)


def verdict(heard: Heard, *, repeat: bool) -> str | None:
    """What the verdicts so far decide; None while another auditor is needed.

    >>> verdict([("ann", PASS)], repeat=False), verdict([("ann", FAIL)], repeat=False)
    ('pass', None)
    >>> verdict([("ann", FAIL), ("bea", PASS), ("cleo", FAIL)], repeat=False)
    'fail'
    """
    found = [what for _, what in heard if what != SILENT]
    if found == [PASS] and not repeat:
        return PASS
    return next((what for what in (PASS, FAIL) if found.count(what) > 1), None)


def decision(heard: Heard, rule: str, *, repeat: bool) -> str | None:
    """What was found of an agent; None while another auditor is needed. Nobody is taken at its word that an auditor was
    silent."""
    silence = rule != FIRST and any(found == SILENT for _, found in heard)
    return verdict(heard, repeat=silence or repeat)


def next_auditor(asked: Sequence[str], heard: Heard) -> str:
    """Who looks next: the first in this order without a verdict; who was silent comes again after the others."""
    spoke = {auditor for auditor, found in heard if found != SILENT}
    silent = Counter(auditor for auditor, _ in heard)
    return min((auditor for auditor in asked if auditor not in spoke), key=lambda auditor: silent[auditor])
