"""What Flower's users see of a round in the Result: the agents' own metrics, and the round's."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from flwr.app import MetricRecord, RecordDict

from ...errors import SettingError
from ...messages import RoundResult
from .records import records_of

log = logging.getLogger("flwr.fedincentive")  # shown where Flower shows its own
MetricsOf = Callable[[list[RecordDict], str], MetricRecord]


def averages(contents: list[RecordDict], weight: str, average: MetricsOf) -> dict[str, Any]:
    """The agents' own metrics, where all that answered sent the same ones with a weight."""
    found = [list(records_of(content, MetricRecord).values()) for content in contents]
    own = [content for content, of in zip(contents, found, strict=True) if len(of) == 1]
    records = [of[0] for of in found if len(of) == 1]
    if not own or any(record.keys() != records[0].keys() for record in records) or weight not in records[0]:
        return {}
    try:
        return dict(average(own, weight)) if any(record[weight] for record in records) else {}
    except Exception as error:  # weights that sum to zero, lists among numbers: no node may end the others' run so
        log.warning("The agents' metrics have no average: %s: %s", type(error).__name__, str(error)[:200])
        return {}


def numbers(found: RoundResult, minor: int) -> dict[str, Any]:
    """The round's own numbers; lists are in the order of the agents' names, a worth is of those who answered."""
    return {
        **{f"incentive.{name}": float(value) for name, value in found.metrics.items()},
        "incentive.s": [float(points) for points in found.s.values()],
        "incentive.payments": [found.payments.get(agent, 0) / minor for agent in found.s],
        **{f"incentive.worth.{agent}": float(value) for agent, (value, _) in found.worth.items()},
        **{f"incentive.worth-interval.{agent}": float(half) for agent, (_, half) in found.worth.items()},
    }


def utility(found: MetricRecord | None, key: str, cap: float) -> float:
    """What a model is worth by a metric of evaluate_fn; a loss is cut at `cap`, where that of a diverged model is."""
    name = key.lstrip("-")
    value = None if found is None else found.get(name)
    if not isinstance(value, (int, float)):
        has = "nothing" if found is None else ", ".join(map(repr, found)) or "no metrics"
        raise SettingError(
            f"incentive.contribution needs the number {name!r} of every model, but evaluate_fn returned {has}: return "
            "it, or name another metric with the strategy's utility_by_key."
        )
    if name == key:
        return float(value)
    return -min(float(value), cap) if math.isfinite(value) else -cap
