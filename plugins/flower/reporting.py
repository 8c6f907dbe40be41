"""What Flower's users see of a round in the Result: the agents' own metrics, and the round's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from flwr.app import MetricRecord, RecordDict

from ...messages import RoundResult

log = logging.getLogger("flwr.fedincentive")  # shown where Flower shows its own
MetricsOf = Callable[[list[RecordDict], str], MetricRecord]


def averages(contents: list[RecordDict], weight: str, average: MetricsOf) -> dict[str, Any]:
    """The agents' own metrics, where all that answered sent the same ones with a weight."""
    own = [content for content in contents if len(content.metric_records) == 1]
    records = [next(iter(content.metric_records.values())) for content in own]
    if not own or any(set(record) != set(records[0]) for record in records) or weight not in records[0]:
        return {}
    try:
        return dict(average(own, weight)) if any(record[weight] for record in records) else {}
    except Exception as error:  # weights that sum to zero, lists among numbers: no node may end the others' run so
        log.warning("The agents' metrics have no average: %s: %s", type(error).__name__, str(error)[:200])
        return {}


def numbers(found: RoundResult, minor: int) -> dict[str, Any]:
    """The round's own numbers; lists are in the order of the agents' names."""
    return {
        **{f"incentive.{name}": float(value) for name, value in found.metrics.items()},
        "incentive.s": [float(points) for points in found.s.values()],
        "incentive.payments": [found.payments.get(agent, 0) / minor for agent in found.s],
    }
