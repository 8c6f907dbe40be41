"""Robust strategies on our kernels, in place of Flower's own of the same names.

    from fedincentive.plugins.flower import FedTrimmedAvg       # instead of flwr.serverapp.strategy

The arguments, the messages and the metrics are Flower's; the aggregation and its conventions are ours:

- FedTrimmedAvg cuts k per side, the smallest k with k/n >= beta, n being the nodes that answered. Flower cuts
  int(beta * n), one too few where the product falls just below a whole number (28 of 100 at beta = 0.29). 2k >= n is an
  error that says so, never a NaN model.
- FedMedian takes the middle value, or the mean of the two middle ones; unweighted, as Flower's.
- Krum and MultiKrum sum the squared distances to the n - f - 2 nearest others, taken from differences; Flower takes
  them from norms and products, which in float32 cancel. n >= 2f + 3 is required. The chosen are averaged by
  `weighted_by_key`, as in Flower.
- Nodes count in the order of their ids, so that the result does not depend on who answers first. Sums are taken in
  float64 and results keep the arrays' type. Integer arrays (a BatchNorm counter) take the maximum.
- A NaN or an infinity that would enter the model is an error that counts the coordinates; what is trimmed does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower

from ... import aggregation
from ...aggregation.distance_based import krum_selection
from ...messages import Update
from .records import to_arrays, to_record


class FedTrimmedAvg(flower.FedTrimmedAvg):
    """The coordinate-wise trimmed mean: sum_{k < r <= n-k} x_(r) / (n - 2k), k the smallest with k/n >= beta."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The trimmed mean of the replies, and their metrics."""
        return _aggregate(self, replies, lambda updates: aggregation.trimmed_mean(updates, alpha=self.beta))


class FedMedian(flower.FedMedian):
    """The coordinate-wise median."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The median of the replies, and their metrics."""
        return _aggregate(self, replies, lambda updates: aggregation.median(updates))


class _Selecting:
    """Shared by Krum and MultiKrum: the chosen nodes' models and metrics are averaged by weight."""

    def aggregate_train(
        self: Any, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The weighted mean of the chosen replies, and their metrics."""
        contents = _contents(self, replies)
        if not contents:
            return None, None
        updates = [_model(content) for content in contents]
        chosen = krum_selection(updates, self.num_malicious_nodes, self.num_nodes_to_select)
        kept = [contents[i] for i in chosen]
        weights = [_weight(content, self.weighted_by_key) for content in kept]
        arrays = to_record(aggregation.weighted_mean([updates[i] for i in chosen], weights))
        return arrays, self.train_metrics_aggr_fn(kept, self.weighted_by_key)


class MultiKrum(_Selecting, flower.MultiKrum):
    """The mean of the `num_nodes_to_select` models with the smallest Krum scores."""


class Krum(_Selecting, flower.Krum):
    """The model with the smallest Krum score: the sum of squared distances to its n - f - 2 nearest others."""


def _aggregate(strategy: Any, replies: Iterable[Message], rule: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
    contents = _contents(strategy, replies)
    if not contents:
        return None, None
    arrays = to_record(rule([_model(content) for content in contents]))
    return arrays, strategy.train_metrics_aggr_fn(contents, strategy.weighted_by_key)


def _contents(strategy: Any, replies: Iterable[Message]) -> list[RecordDict]:
    """What the nodes that did not fail sent, checked as Flower checks it, in the order of the nodes' ids."""
    valid, _ = strategy._check_and_log_replies(replies, is_train=True)
    return [message.content for message in sorted(valid, key=lambda message: message.metadata.src_node_id)]


def _model(content: RecordDict) -> Update:
    return to_arrays(next(iter(content.array_records.values())))


def _weight(content: RecordDict, key: str) -> float:
    return float(next(iter(content.metric_records.values()))[key])  # type: ignore[arg-type]
