"""Who is audited by whom, drawn from a beacon's value, and how verdicts decide. Everybody derives the same.

A coin for each agent that answered in a step says whether it is audited. One auditor looks first. A pass counts, unless
the beacon has it repeated; a fail needs a second auditor who says so too; where two disagree, a third decides. That an
auditor was silent is the center's word: with it two others must agree (audit/2), so that it spares and convicts nobody.
A link that is withheld delays the draw by so many steps as the terms say (`lag`), then all coins are heads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from . import beacon

RULES = FIRST, RULE = "audit/1", "audit/2"  # of a step's memo in the ledger; runs that agreed on no lag have the first
PREFIX = "audit-"  # of its kind, which ends with the step
PASS, FAIL, SILENT = "pass", "fail", "silent"
LEAST = 3  # auditors: two may disagree
REPEATED = 0.1  # of the passes are repeated by a second auditor
COPY, REPLAY = "copy", "replay"  # why an agent is audited whatever its coin says

Heard = Sequence[tuple[str, str]]  # (auditor, what it found), in order


def coins(value: str, agents: Iterable[str], chance: float) -> set[str]:
    """The agents whose coins say that they are audited."""
    return {agent for agent in agents if beacon.drawn(value, f"audit\n{agent}", chance)}


def copies(updates: Mapping[str, str]) -> set[str]:
    """The agents that sent the very update, by its digest, of another one."""
    count = Counter(updates.values())
    return {agent for agent, digest in updates.items() if count[digest] > 1}


def order(value: str, agent: str, auditors: Iterable[str]) -> list[str]:
    """The auditors of an agent, in the order they are asked."""
    return beacon.ranked(f"{value}\nauditors\n{agent}", auditors)


def repeated(value: str, agent: str) -> bool:
    """Whether a pass is looked at by a second auditor."""
    return beacon.drawn(value, f"repeat\n{agent}", REPEATED)


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


def rule(terms: Mapping[str, object]) -> str:
    """The rule by which the audits of a run with these terms are drawn and decided."""
    return RULE if "lag" in terms else FIRST


def decision(value: str, agent: str, heard: Heard, rule: str = RULE) -> str | None:
    """What was found of an agent; None while another auditor is needed."""
    silence = rule != FIRST and any(found == SILENT for _, found in heard)
    return verdict(heard, repeat=silence or repeated(value, agent))


def next_auditor(asked: Sequence[str], heard: Heard) -> str:
    """Who looks next: the first in this order without a verdict; who was silent comes again after the others."""
    spoke = {auditor for auditor, found in heard if found != SILENT}
    silent = Counter(auditor for auditor, _ in heard)
    return min((auditor for auditor in asked if auditor not in spoke), key=lambda auditor: silent[auditor])
