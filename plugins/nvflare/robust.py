"""Robust aggregators on our kernels, for `aggregator=` of NVFlare's FedAvgRecipe.

    FedAvgRecipe(aggregator=TrimmedMean(trim=2), enable_tensor_disk_offload=True,
                 server_expected_format=ExchangeFormat.PYTORCH, ...)

Sites count in the order of their names, so that the result has the same bits whoever answers first; NVFlare's own mean
promises that for no more than one site. With tensor disk offload the coordinate-wise rules (mean, trimmed mean, median)
read the offload files piece by piece; the others need all updates in memory at once. Integer entries (a BatchNorm
counter) take the maximum. A NaN or an infinity that would enter the model is an error; what is trimmed does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants

from ... import aggregation
from ...aggregation import ScatteredUpdate, StoredUpdates
from ...errors import AggregationError, SettingError
from ...messages import Update
from .arrays import to_arrays

log = logging.getLogger("fedincentive")
MEMORY = 16 * 2**20  # bytes for pieces of files: beside the result there is little else in memory


class RobustAggregator(ModelAggregator):
    """Any rule by its name, those of other packages too; `fedincentive aggregate --help` lists rules and options.

    `weights` are by site. Without them the rule `mean`, which is not robust anyway, weighs by the steps that sites say
    they took, as NVFlare does.
    """

    def __init__(
        self,
        rule: str,
        trim: int | None = None,
        alpha: float | None = None,
        f: int | None = None,
        m: int | None = None,
        normalize: str | None = None,
        clip: float | None = None,
        weights: dict[str, float] | None = None,
        threads: int | None = None,
    ) -> None:
        super().__init__()
        self.rule, self.trim, self.alpha, self.f, self.m = rule, trim, alpha, f, m
        self.normalize, self.clip, self.weights, self.threads = normalize, clip, weights, threads
        self._rule = aggregation.rule(rule)
        named = {"trim": trim, "alpha": alpha, "f": f, "m": m, "normalize": normalize, "clip": clip}
        self._options = {option: value for option, value in named.items() if value is not None}
        known = [option for option in ("center",) if option in self._rule.options]  # the host knows it
        self._rule.check([*self._options, *known, *(["weights"] if weights is not None else [])])
        self._models: dict[str, FLModel] = {}
        self._last: Any = None

    def accept_model(self, model: FLModel) -> None:
        """Keep a site's result, or its references to files, until all are there."""
        name = model.meta.get("client_name")
        if not isinstance(name, str):
            raise AggregationError("A result says not from which site it is: meta['client_name'] is missing.")
        self._models[name] = model

    def aggregate_model(self) -> FLModel:
        """The rule over what was accepted, in the order of the sites' names."""
        models = dict(sorted(self._models.items()))
        kinds = {model.params_type for model in models.values()}
        if len(kinds) != 1:
            raise AggregationError(f"{len(models)} results are {sorted(map(str, kinds))}: all FULL, or all DIFF, fit.")
        (kind,) = kinds
        tensors = any(not isinstance(value, np.ndarray) for value in next(iter(models.values())).params.values())
        if not self._rule.on_models and kind != ParamsType.DIFF:
            raise SettingError(
                f"rule {self.rule} is for changes of a model: set params_transfer_type=TransferType.DIFF in the recipe."
            )
        updates = [_update(name, model.params) for name, model in models.items()]
        center, weights = None, self._weights(models)
        if "center" in self._rule.options:
            updates = [to_arrays(update) for update in updates]
            center = self._center(kind, updates[0])
        try:
            files = any(isinstance(update, ScatteredUpdate) for update in updates)
            common = {**self._options, "weights": weights, "center": center, "threads": self.threads}
            result = self._rule.use(StoredUpdates(updates, memory=MEMORY) if files else updates, **common)
        finally:
            for update in updates:
                if isinstance(update, ScatteredUpdate):
                    update.close()
        where = "from their offload files" if files else "in memory"
        log.info("Aggregated %d sites by %s, %s", len(models), self.rule, where)
        self._last = result
        self.reset_stats()
        return FLModel(params=_as_tensors(result) if tensors else result, params_type=kind)

    def reset_stats(self) -> None:
        self._models = {}

    def _weights(self, models: Mapping[str, FLModel]) -> list[float] | None:
        if self.weights is not None:
            if missing := [name for name in models if name not in self.weights]:
                raise SettingError(f"weights has no number for {', '.join(missing)}: give one to every site.")
            return [float(self.weights[name]) for name in models]
        if self._rule.robust:
            return None
        return [float(model.meta.get(FLMetaKey.NUM_STEPS_CURRENT_ROUND, 1.0)) for model in models.values()]

    def _center(self, kind: ParamsType, first: Update) -> Any:
        """What to clip around: the last aggregate; before there is one, the first model or, for changes, nothing."""
        if self._last is not None:
            return self._last
        if kind == ParamsType.DIFF:
            return {name: np.zeros_like(array) for name, array in first.items()}
        known = self.fl_ctx.get_prop(AppConstants.GLOBAL_MODEL) if self.fl_ctx is not None else None
        if not known:
            raise SettingError(f"rule {self.rule} needs the first model: give the recipe a model, or send DIFF.")
        return to_arrays({name: known[ModelLearnableKey.WEIGHTS][name] for name in first})


TrimmedMean = partial(RobustAggregator, "trimmed-mean")
Median = partial(RobustAggregator, "median")
Krum = partial(RobustAggregator, "krum")
MultiKrum = partial(RobustAggregator, "multi-krum")
GeometricMedian = partial(RobustAggregator, "geometric-median")


def _update(name: str, params: Mapping[str, Any]) -> Any:
    """A site's parameters as they are, or as entries of its offload files: those are not read yet."""
    if all(_is_file(value) for value in params.values()):
        return ScatteredUpdate({key: (ref.file_path, ref.key) for key, ref in params.items()}, name)
    return {key: value.materialize() if _is_file(value) else value for key, value in params.items()}


def _is_file(value: Any) -> bool:
    return hasattr(value, "file_path") and hasattr(value, "key") and hasattr(value, "materialize")


def _as_tensors(result: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    return {name: value if hasattr(value, "detach") else torch.from_numpy(value) for name, value in result.items()}
