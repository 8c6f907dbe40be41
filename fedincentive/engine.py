"""The in-process host: carries broadcasts to the agents and their reports back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from .agent import Agent
from .center import Center, Outcome
from .errors import ReportRefused
from .messages import RoundResult

log = logging.getLogger("fedincentive")


def play(center: Center, agents: Sequence[Agent], *, progress: Callable[[RoundResult], None] | None = None) -> Outcome:
    """Play the run to its end; `progress` is told how each round ended."""
    by_name = {agent.name: agent for agent in agents}
    while not center.done:
        broadcast = center.broadcast()
        for name in center.missing:
            report = by_name[name].respond(broadcast)
            if report is None:
                continue
            try:
                center.submit(report)
            except ReportRefused as refusal:
                log.warning("%s", refusal)
        result = center.close()
        if progress is not None:
            progress(result)
    outcome = center.outcome
    assert outcome is not None
    return outcome
