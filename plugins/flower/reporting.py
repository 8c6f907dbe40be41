"""What Flower's users see of a round: metrics in the Result, lines in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from flwr.app import MetricRecord, RecordDict

from ...center import Outcome
from ...messages import RoundResult

log = logging.getLogger("flwr.fedincentive")  # shown where Flower shows its own

MetricsOf = Callable[[list[RecordDict], str], MetricRecord]


def averages(contents: list[RecordDict], weight: str, average: MetricsOf) -> dict[str, Any]:
    """The agents' own metrics, where all that answered sent the same ones with a weight."""
    own = [content for content in contents if len(content.metric_records) == 1]
    records = [next(iter(content.metric_records.values())) for content in own]
    if not own or any(set(record) != set(records[0]) for record in records) or weight not in records[0]:
        return {}
    return dict(average(own, weight)) if any(record[weight] for record in records) else {}


def numbers(found: RoundResult, minor: int) -> dict[str, Any]:
    """The round's own numbers; lists are in the order of the agents' names."""
    return {
        **{f"incentive.{name}": float(value) for name, value in found.metrics.items()},
        "incentive.s": [float(points) for points in found.s.values()],
        "incentive.payments": [found.payments.get(agent, 0) / minor for agent in found.s],
    }


def log_round(found: RoundResult) -> None:
    if found.repeated:
        log.warning("Round %d (%s) is asked again; absent: %s", found.round, found.phase, ", ".join(found.absent))
        return
    welfare = f", welfare {found.metrics['welfare']:.6g}" if "welfare" in found.metrics else ""
    absent = f", absent {', '.join(found.absent)}" if found.absent else ""
    head = f", ledger {found.head[:16]}" if found.head else ""
    log.info(
        "Round %d (%s): contributions %.6g%s%s%s",
        found.round,
        found.phase,
        sum(found.s.values()),
        welfare,
        absent,
        head,
    )


def log_outcome(outcome: Outcome, minor: int, seconds: float) -> None:
    log.info(
        "Run %s (%s) ended: %s, in %.1f seconds. %s",
        outcome.run,
        outcome.mechanism,
        outcome.status,
        seconds,
        outcome.advice,
    )
    for agent, points in outcome.s.items():
        log.info(
            "  %s: %g of %g points, payment %.6f", agent, points, outcome.s_max[agent], outcome.payments[agent] / minor
        )
    log.info("Ledger head %s", outcome.head)
