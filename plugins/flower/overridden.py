"""A user's own aggregate_train in a subclass of IncentiveStrategy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord

from ...errors import SettingError
from ...messages import Update
from . import reporting
from .records import INCENTIVE, to_arrays, to_record


class Overridden:
    """A training round under a subclass's own aggregate_train, which sees what it would see under FedAvg: replies with
    whole models. It is called while the center closes the round, so that its model is the one that is saved."""

    def __init__(self, strategy: Any, step: int) -> None:
        self.strategy, self.step = strategy, step
        self.heard: dict[str, Message] = {}  # the last reply of each agent
        self.metrics: MetricRecord | None = None

    def train(self, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        strategy = self.strategy
        strategy.center.hooks = self
        try:
            found, _ = strategy._close(self._listen(replies))
        finally:
            strategy.center.hooks = None
        if found.repeated:
            return None, None
        numbers = reporting.numbers(found, strategy.settings.minor)
        return strategy._model(), MetricRecord({**(self.metrics or {}), **numbers})

    def _listen(self, replies: Iterable[Message]) -> Iterator[Message]:
        for reply in replies:
            self.heard[self.strategy._asking.get(reply.metadata.src_node_id, "")] = reply
            yield reply

    @property
    def accepted(self) -> list[Message]:
        return [self.heard[agent] for agent in sorted(self.strategy._heard)]

    def before(self, w: Update, updates: list[Update], weights: list[float]) -> tuple[list[Update], list[float]]:
        """The updates stay; the replies get the models they lead to."""
        key, center = self.strategy.arrayrecord_key, self.strategy.center
        for agent, reply in zip(sorted(self.strategy._heard), self.accepted, strict=True):
            d = center.counted(agent, to_arrays(reply.content[key]))
            reply.content[key] = to_record({name: w[name] + d[name] for name in w})
            del reply.content[INCENTIVE]
        return updates, weights

    def after(self, w: Update) -> Update:
        strategy = self.strategy
        own = strategy._heard
        averaged = reporting.averages(
            [own[agent] for agent in sorted(own)], strategy.weighted_by_key, strategy.train_metrics_aggr_fn
        )
        strategy._closing = to_record(w), MetricRecord(averaged)
        try:
            arrays, self.metrics = strategy.aggregate_train(self.step, self.accepted)
        finally:
            strategy._closing = None
        if arrays is None:
            return w
        revised = to_arrays(arrays)
        if set(revised) != set(w) or any(revised[name].shape != w[name].shape for name in w):
            raise SettingError(f"{type(strategy).__name__}.aggregate_train returns another model than it was given.")
        return {name: revised[name].astype(array.dtype, copy=False) for name, array in w.items()}
