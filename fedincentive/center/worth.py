"""What each agent's update was worth in a training round (`incentive.contribution`), and its mean over the run.

An agent that was not asked, or did not answer, has no value of that round and keeps its mean: nobody is counted as
worth nothing for a round it was not in. Coalitions take one SGD step with the mean of their members' updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..contribution import METHODS, Coalitions, Contributions, agreement, cgsv
from ..contribution import memo as memos
from ..entry import Entry
from ..messages import Update
from ..payments import Oracles
from ..run import Run

MEMORY = "worth"  # its part of the run's memory


def measure(
    run: Run, w: Update, updates: Mapping[str, Update], weights: Mapping[str, int] | None, oracles: Oracles
) -> dict[str, Any]:
    """{agent: (value, half of a 95 % interval)} of those who answered; kept in the run's memory with the means. The
    center's mean of the updates has these weights."""
    settings = run.settings
    if settings.contribution is None:
        return {}
    memory = run.memory.setdefault(MEMORY, {"sum": {}, "count": {}, "weights": {}})
    if settings.contribution == "cgsv":
        found, memory["weights"] = cgsv(updates, memory["weights"])
    elif settings.contribution == "agreement":
        assert oracles.labels is not None  # Mechanism.check
        models = Coalitions(w, updates)
        found = agreement({agent: oracles.labels(agent, models.model([agent])) for agent in updates})
    else:
        found = _evaluated(run, w, updates, weights, oracles)
    for agent, value in found.values.items():
        memory["sum"][agent] = memory["sum"].get(agent, 0.0) + value
        memory["count"][agent] = memory["count"].get(agent, 0) + 1
    memory["evaluations"] = memory.get("evaluations", 0) + found.evaluations
    return {agent: (value, found.spread[agent]) for agent, value in found.values.items()}


def _evaluated(
    run: Run, w: Update, updates: Mapping[str, Update], weights: Mapping[str, int] | None, oracles: Oracles
) -> Contributions:
    settings, utility = run.settings, oracles.utility
    assert utility is not None and settings.contribution is not None  # Mechanism.check
    counted = weights if weights is not None and any(weights[agent] for agent in updates) else None
    coalitions = Coalitions(w, updates, step=settings.eta, weights=counted)
    drawn = {"seed": settings.seed + run.step} if settings.contribution == "gtg" else {}
    return METHODS[settings.contribution](coalitions, utility, **drawn)


def memo(run: Run, found: Mapping[str, tuple[float, float]]) -> list[Entry]:
    """The ledger's memo of a training round's values, where they are measured."""
    settings = run.settings
    if settings.contribution is None:
        return []
    return [memos.entry(settings.run, run.round, run.step, settings.contribution, found)]


def means(run: Run) -> dict[str, float]:
    """The mean value of each agent over the rounds that it answered."""
    memory = run.memory.get(MEMORY, {"sum": {}, "count": {}})
    return {agent: memory["sum"][agent] / memory["count"][agent] for agent in sorted(memory["sum"])}
