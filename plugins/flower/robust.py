"""Robust strategies on our kernels, in place of Flower's own of the same names.

    from fedincentive.plugins.flower import FedTrimmedAvg       # instead of flwr.serverapp.strategy

The arguments, the messages and the metrics are Flower's; the aggregation and its conventions are ours:

- RobustStrategy is FedAvg with any rule by its name, those of other packages too.
- FedTrimmedAvg cuts k per side, the largest k with k/n <= beta, n being the nodes that answered. Flower's int(beta * n)
  means the same, but is one too few where the product falls just below a whole number (28 of 100 at beta = 0.29).
  `rounding="ceil"` takes the smallest k with k/n >= beta instead, as everywhere else in fedincentive: it withstands
  every part of beta nodes, and 2k >= n is then an error.
- Bulyan chooses n - 2f nodes by Krum, one after the other as in its paper; Flower takes the n - 2f best at once.
- FedMedian takes the middle value, or the mean of the two middle ones; unweighted, as Flower's.
- Krum and MultiKrum sum the squared distances to the n - f - 2 nearest others, taken from differences; Flower takes
  them from norms and products, which in float32 cancel. n >= 2f + 3 is required. The chosen are averaged by
  `weighted_by_key`, as in Flower.
- Nodes count in the order of their ids, so that the result does not depend on who answers first. Sums are taken in
  float64 and results keep the arrays' type. Integer arrays (a BatchNorm counter) take the maximum.
- A NaN or an infinity that would enter the model is an error that counts the coordinates; what is trimmed does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy.multikrum import select_multikrum

from ... import aggregation
from ...errors import SettingError
from ...messages import Update
from .records import to_arrays, to_record


class _Robust:
    """What our strategies share: the replies are aggregated by `rule`, with the options of the rule."""

    rule: aggregation.Rule
    center: Update | None = None  # the model the round started from, where the rule asks for it

    def options(self, n: int) -> Mapping[str, Any]:
        """The rule's options for n nodes that answered."""
        return {}

    def configure_train(self: Any, server_round: int, arrays: ArrayRecord, config: Any, grid: Any) -> Iterable[Message]:
        """Flower's own; rules that clip do so around the arrays sent."""
        self.center = to_arrays(arrays) if "center" in self.rule.options else None
        return super().configure_train(server_round, arrays, config, grid)  # type: ignore[misc]

    def aggregate_train(
        self: Any, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model by the rule, and the metrics. Where the rule chooses nodes, theirs, both averaged by weight."""
        contents = _contents(self, replies)
        if not contents:
            return None, None
        rule, updates, options = self.rule, [_model(content) for content in contents], self.options(len(contents))
        if rule.selects is not None:
            chosen = rule.selects(updates, **rule.arguments(len(updates), options))
            contents, updates = [contents[i] for i in chosen], [updates[i] for i in chosen]
            rule, options = aggregation.rule("mean"), {}
        weighted = not rule.robust or "share" in options
        weights = [_weight(content, self.weighted_by_key) for content in contents] if weighted else None
        arrays = to_record(rule.use(updates, weights=weights, center=self.center, **options))
        return arrays, self.train_metrics_aggr_fn(contents, self.weighted_by_key)


class RobustStrategy(_Robust, flower.FedAvg):
    """FedAvg with any rule by its name, those of other packages too; `fedincentive aggregate --help` lists them.

        RobustStrategy("median", fraction_train=0.5)
        RobustStrategy("trimmed-mean", share=0.1, cap=0.3)      # by the nodes' example counts, none above 0.3 of all

    The rule's options stand beside Flower's own arguments, as keywords.
    """

    def __init__(self, rule: str, **arguments: Any) -> None:
        self.rule = aggregation.rule(rule)
        if not self.rule.on_models:
            raise SettingError(
                f"rule {rule} is for changes of a model; Flower's nodes send whole ones. Choose another."
            )
        flowers = {name: arguments.pop(name) for name in signature(flower.FedAvg).parameters if name in arguments}
        self._options = arguments
        self.rule.check([*arguments, *(["center"] if "center" in self.rule.options else [])])
        super().__init__(**flowers)

    def options(self, n: int) -> Mapping[str, Any]:
        return self._options


class FedTrimmedAvg(_Robust, flower.FedTrimmedAvg):
    """The coordinate-wise trimmed mean: sum_{k < r <= n-k} x_(r) / (n - 2k), k the largest with k/n <= beta."""

    rule = aggregation.rule("trimmed-mean")

    def __init__(self, *arguments: Any, rounding: str = "floor", **named: Any) -> None:
        if rounding not in ("floor", "ceil"):
            raise SettingError(f"rounding is {rounding!r}: floor, as in Flower, or ceil.")
        super().__init__(*arguments, **named)
        self.rounding = rounding

    def options(self, n: int) -> Mapping[str, Any]:
        k = aggregation.trim_count(self.beta, n)  # the smallest with k/n >= beta
        return {"trim": k - 1 if self.rounding == "floor" and k / n > self.beta else k}


class FedMedian(_Robust, flower.FedMedian):
    """The coordinate-wise median."""

    rule = aggregation.rule("median")


class MultiKrum(_Robust, flower.MultiKrum):
    """The mean of the `num_nodes_to_select` models with the smallest Krum scores."""

    rule = aggregation.rule("multi-krum")

    def options(self, n: int) -> Mapping[str, Any]:
        return {"f": self.num_malicious_nodes, "m": self.num_nodes_to_select}


class Krum(_Robust, flower.Krum):
    """The model with the smallest Krum score: the sum of squared distances to its n - f - 2 nearest others."""

    rule = aggregation.rule("krum")

    def options(self, n: int) -> Mapping[str, Any]:
        return {"f": self.num_malicious_nodes}


class Bulyan(_Robust, flower.Bulyan):
    """The mean of the n - 4f values nearest to the median of n - 2f nodes that Krum chooses one after the other.

    As in Flower, fewer than 4f + 3 replies give no model; a `selection_rule` of one's own is Flower's to apply.
    """

    rule = aggregation.rule("bulyan")

    def options(self, n: int) -> Mapping[str, Any]:
        return {"f": self.num_malicious_nodes}

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        answered = list(replies)
        few = sum(not message.has_error() for message in answered) < 4 * self.num_malicious_nodes + 3
        if few or self.selection_rule is not select_multikrum:
            return flower.Bulyan.aggregate_train(self, server_round, answered)
        return super().aggregate_train(server_round, answered)


def _contents(strategy: Any, replies: Iterable[Message]) -> list[RecordDict]:
    """What the nodes that did not fail sent, checked as Flower checks it, in the order of the nodes' ids."""
    valid, _ = strategy._check_and_log_replies(replies, is_train=True)
    return [message.content for message in sorted(valid, key=lambda message: message.metadata.src_node_id)]


def _model(content: RecordDict) -> Update:
    return to_arrays(next(iter(content.array_records.values())))


def _weight(content: RecordDict, key: str) -> float:
    return float(next(iter(content.metric_records.values()))[key])  # type: ignore[arg-type]
