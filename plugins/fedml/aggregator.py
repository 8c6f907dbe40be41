"""The center's side in FedML: the user's ServerAggregator keeps the model, its hooks stand around the aggregation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from fedml.core import ServerAggregator
from fedml.core.dp.fedml_differential_privacy import FedMLDifferentialPrivacy
from fedml.core.security.fedml_attacker import FedMLAttacker
from fedml.ml.aggregator.default_aggregator import DefaultServerAggregator

from ... import aggregation
from ...errors import SettingError
from ...ledger import Ledger
from ...mechanisms import Mechanism
from ...messages import Update
from .arrays import difference, to_arrays, to_tensors


class IncentiveServerAggregator(DefaultServerAggregator):
    """A ServerAggregator that also names the mechanism and the ledger.

    Pass one to `FedMLRunner(args, device, dataset, model, server_aggregator=...)`, or subclass it:
    `on_before_aggregation`, `on_after_aggregation` and `test` are called as in FedML. `mechanism` is a mechanism's
    class or name, `ledger` an open ledger or where it is; what is not given is read from the YAML.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        args: Any,
        *,
        mechanism: type[Mechanism] | str | None = None,
        ledger: Ledger | str | None = None,
    ) -> None:
        super().__init__(model, args)
        self.mechanism, self.ledger = mechanism, ledger


def check(aggregator: ServerAggregator, args: Any) -> None:
    """What would be silently without effect under our mechanisms is an error."""
    if type(aggregator).aggregate is not ServerAggregator.aggregate:
        raise SettingError(
            f"{type(aggregator).__name__} overrides aggregate(), but {args.federated_optimizer} aggregates itself: use "
            "on_before_aggregation and on_after_aggregation, or choose a rule with incentive.aggregation."
        )
    if getattr(args, "enable_defense", False):
        raise SettingError(
            f"enable_defense is FedML's switch for its own optimizers: under {args.federated_optimizer} choose the "
            f"rule with incentive.aggregation ({', '.join(aggregation.names())})."
        )
    if getattr(args, "enable_fhe", False):
        raise SettingError(f"enable_fhe: {args.federated_optimizer} checks every update, so none may be encrypted.")


class AggregatorHooks:
    """The user's hooks, in FedML's order: on_before_aggregation, the center's rule, on_after_aggregation.

    Where neither a subclass, an attack nor differential privacy changes them they do nothing, and cost nothing.
    """

    def __init__(self, aggregator: ServerAggregator) -> None:
        self.aggregator = aggregator
        kind = type(aggregator)
        privacy, attacker = FedMLDifferentialPrivacy.get_instance(), FedMLAttacker.get_instance()
        attacked = attacker.is_model_attack() or attacker.is_data_reconstruction_attack()
        global_noise = privacy.is_global_dp_enabled()
        self.revises_updates = (
            kind.on_before_aggregation is not ServerAggregator.on_before_aggregation or attacked or global_noise
        )
        self.revises_model = kind.on_after_aggregation is not ServerAggregator.on_after_aggregation or global_noise

    def before(self, w: Update, updates: list[Update], weights: list[float]) -> tuple[list[Update], list[float]]:
        """The updates the rule sees: fewer or changed ones where the hook says so."""
        if not self.revises_updates:
            return updates, weights
        models = [
            (weight, to_tensors({name: w[name] + update[name] for name in w}))
            for weight, update in zip(weights, updates, strict=True)
        ]
        kept, _ = self.aggregator.on_before_aggregation(models)
        return [difference(model, w) for _, model in kept], [float(weight) for weight, _ in kept]

    def after(self, w: Update) -> Update:
        if not self.revises_model:
            return w
        revised = to_arrays(self.aggregator.on_after_aggregation(to_tensors(w)))
        return {name: np.asarray(revised[name]).astype(array.dtype, copy=False) for name, array in w.items()}
