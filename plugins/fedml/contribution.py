"""What updates are worth, for FedML's own optimizers: `enable_contribution: true` and `contribution_alg: gtg`.

FedML's own names (LOO, GTG, MR) stay FedML's; ours (exact, gtg, loo, cgsv) are measured here in cross-silo runs, after
every aggregation. A client that was not selected keeps its mean. The utility is minus the mean loss on the server's
test data. Under our mechanisms the same two lines say `incentive.contribution`, FedML's names too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np

from ...checks import nearest, shown
from ...contribution import METHODS, Coalitions, cgsv
from ...errors import SettingError
from ...messages import Update
from .arrays import difference, set_model, to_arrays
from .data import empty
from .settings import MEASURES, SAME_MEASURES, measure_asked

log = logging.getLogger("fedincentive")
WORST = 100.0  # nats: a diverged model's loss may be infinite
_MARK = "_fedincentive"


def utility(
    holder: Any, data: Any, device: Any, args: Any, whose: str, cap: float = WORST
) -> Callable[[Update], float]:
    """Minus the mean loss of a model on these data, by a trainer's or aggregator's `test`; at least -cap."""
    if data is None or empty(data):
        raise SettingError(
            f"{whose} evaluates models, but the dataset has no test data for the server (test_data_global): give some, "
            "or use cgsv, which needs none."
        )
    test = getattr(holder, "_test", holder.test)  # FedML's own aggregators log every call of `test`

    def value(w: Update) -> float:
        set_model(holder, w)
        loss = mean_loss(test(data, device, args))
        if loss is None:
            raise SettingError(
                f"{whose} needs a loss, which {type(holder).__name__}.test() does not return: return the sums "
                "test_loss and test_total as FedML's trainers do, or use cgsv."
            )
        return -min(loss, cap) if np.isfinite(loss) else -cap

    return value


def labels(holder: Any, data: Any, device: Any, whose: str) -> Callable[[str, Update], Any]:
    """The kinds that a model tells the inputs of these data to be; their own labels are not looked at."""
    import torch

    if data is None or empty(data):
        raise SettingError(
            f"{whose} compares what models say of shared items, but the dataset has no test data for the server "
            "(test_data_global): give some, or use cgsv, which needs none."
        )

    def say(agent: str, w: Update) -> Any:
        set_model(holder, w)
        model = holder.model.to(device).eval()
        with torch.no_grad():
            found = [model(inputs.to(device)) for inputs, _ in data]
        if any(not torch.is_tensor(one) or one.dim() != 2 for one in found):
            raise SettingError(f"{whose} needs a model that gives one score for each kind of item; use another method.")
        return torch.cat([one.argmax(dim=1) for one in found]).cpu().numpy()

    return say


def mean_loss(found: Any) -> float | None:
    """The mean loss in what a `test` of FedML's returned: sums, or (accuracy, loss, ...)."""
    if isinstance(found, Mapping) and found.get("test_total") and "test_loss" in found:
        return float(found["test_loss"]) / float(found["test_total"])
    if isinstance(found, tuple) and len(found) >= 2 and isinstance(found[1], (int, float)):
        return float(found[1])
    return None


class Assessor:
    """Values of one cross-silo run under one of FedML's own optimizers."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.weights: dict[str, float] = {}
        self.worth: dict[str, list[tuple[float, float]]] = {}  # by client: each value, and half of its interval
        self.before: Update = {}

    def assess(self, server: Any, clients: list[Any], models: list[tuple[float, Any]], step: int) -> None:
        """The values of this round's models, from the global model that the round began with."""
        after = to_arrays(server.get_global_model_params())
        names = [str(client) for client in clients]
        updates = {name: difference(model, self.before) for name, (_, model) in zip(names, models, strict=True)}
        if self.how == "cgsv":
            found, self.weights = cgsv(updates, self.weights)
        else:
            counts = {name: float(count) for name, (count, _) in zip(names, models, strict=True)}
            whose = f"contribution_alg: {self.how}"
            value = utility(server.aggregator, server.val_global, server.device, server.args, whose)
            drawn = {"seed": step} if self.how == "gtg" else {}
            found = METHODS[self.how](Coalitions(self.before, updates, weights=counts), value, **drawn)
            set_model(server.aggregator, after)
        for name, one in found.values.items():
            self.worth.setdefault(name, []).append((one, found.spread[name]))
            log.info(
                "Round %d: client %s: update worth %.6g +- %.2g by %s", step, name, one, found.spread[name], self.how
            )

    @property
    def means(self) -> dict[str, float]:
        """The mean value of each client over the rounds that it was in."""
        return {name: float(np.mean([value for value, _ in found])) for name, found in sorted(self.worth.items())}


def install(args: Any) -> None:
    """Let FedML's cross-silo server ask us where one of our methods is named; refuse where it would ask nobody."""
    named = measure_asked(args)
    if named not in MEASURES:
        if named is not None and named not in SAME_MEASURES and (hint := nearest(named, MEASURES)).startswith(" Did"):
            raise SettingError(f"contribution_alg is {shown(named)}.{hint}")
        return
    hidden = "enable_fhe" if getattr(args, "enable_fhe", False) else str(args.federated_optimizer)
    if hidden in ("LSA", "SA", "enable_fhe"):
        raise SettingError(
            f"contribution_alg is {named!r}, which compares single updates: secure aggregation ({hidden}) shows the "
            "server none."
        )
    if args.training_type != "cross_silo":
        raise SettingError(
            f"enable_contribution: FedML assesses contributions in cross-silo runs only, not in {args.training_type}. "
            "Under a mechanism of fedincentive (federated_optimizer: fedavg) it works everywhere."
        )
    from fedml.core import Context
    from fedml.cross_silo.server.fedml_aggregator import FedMLAggregator

    if hasattr(FedMLAggregator.aggregate, _MARK):
        return
    aggregate, assess = FedMLAggregator.aggregate, FedMLAggregator.assess_contribution

    def ours(server: Any) -> Assessor | None:
        how = measure_asked(server.args)
        if how not in MEASURES:
            return None
        if not isinstance(getattr(server, "assessor", None), Assessor):
            server.assessor = Assessor(str(how))
        return server.assessor  # type: ignore[no-any-return]

    def aggregate_and_remember(self: Any) -> Any:
        if (assessor := ours(self)) is None:
            return aggregate(self)
        assessor.before, original = to_arrays(self.get_global_model_params()), self.aggregator.aggregate
        # FedML writes the average into the first client's model: let it be a copy.
        self.aggregator.aggregate = lambda models: original([(count, copy(model)) for count, model in models])
        try:
            return aggregate(self)
        finally:
            del self.aggregator.aggregate

    def assess_contribution(self: Any) -> None:
        if (assessor := ours(self)) is None:
            assess(self)
            return
        clients, models = (
            Context().get(key) for key in (Context.KEY_CLIENT_ID_LIST_IN_THIS_ROUND, Context.KEY_CLIENT_MODEL_LIST)
        )
        assessor.assess(self, list(clients), list(models), int(self.args.round_idx))
        self.aggregator.final_contribution_assigment_dict = assessor.means

    setattr(aggregate_and_remember, _MARK, True)
    FedMLAggregator.aggregate, FedMLAggregator.assess_contribution = aggregate_and_remember, assess_contribution
