"""Robust aggregators on our kernels, for `aggregator=` of NVFlare's FedAvgRecipe.

    FedAvgRecipe(aggregator=TrimmedMean(trim=2), enable_tensor_disk_offload=True,
                 server_expected_format=ExchangeFormat.PYTORCH, ...)

Sites count in the order of their names, so that the result has the same bits whoever answers first; NVFlare's own mean
promises that for no more than one site. With tensor disk offload most rules read the offload files piece by piece; the
others need all updates in memory at once, and the log says so. Integer entries (a BatchNorm counter) take the maximum.
A site whose NaN or infinity would enter the model is left out and named; what is trimmed does no harm.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants

from ... import aggregation
from ...aggregation import ScatteredUpdate, StoredUpdates
from ...aggregation.tiles import source
from ...errors import AggregationError, SettingError
from ...messages import Update
from .arrays import to_arrays

log = logging.getLogger("fedincentive")
SHOWN = 200  # characters of what a site sent that go into the log
MEMORY = 16 * 2**20  # bytes for pieces of files: beside the result there is little else in memory


class RobustAggregator(ModelAggregator):
    """Any rule by its name, those of other packages too; `fedincentive aggregate --help` lists rules and options.

    `weights` are by site. Without them the rule `mean`, which is not robust anyway, and a trim by `share` weigh by the
    steps that sites say they took, as NVFlare does; `cap` is the most that one site may hold of all weight.
    """

    def __init__(
        self,
        rule: str,
        trim: int | None = None,
        alpha: float | None = None,
        share: float | None = None,
        cap: float | None = None,
        f: int | None = None,
        m: int | None = None,
        normalize: str | None = None,
        clip: float | None = None,
        weights: dict[str, float] | None = None,
        threads: int | None = None,
    ) -> None:
        super().__init__()
        self.rule, self.trim, self.alpha, self.share, self.cap, self.f, self.m = rule, trim, alpha, share, cap, f, m
        self.normalize, self.clip, self.weights, self.threads = normalize, clip, weights, threads
        self._rule = aggregation.rule(rule)
        named = {"trim": trim, "alpha": alpha, "share": share, "cap": cap, "f": f, "m": m, "normalize": normalize,
                 "clip": clip}  # fmt: skip
        self._options = {option: value for option, value in named.items() if value is not None}
        known = [option for option in ("center",) if option in self._rule.options]  # the host knows it
        self._rule.check([*self._options, *known, *(["weights"] if weights is not None else [])])
        self._models: dict[str, FLModel] = {}
        self._last: Any = None

    def accept_model(self, model: FLModel) -> None:
        """Keep a site's result, or its references to files, until all are there."""
        name = model.meta.get("client_name")
        if not isinstance(name, str):
            raise AggregationError("A result does not say which site it comes from: meta['client_name'] is missing.")
        self._models[name] = model

    def aggregate_model(self) -> FLModel:
        """The rule over what was accepted, in the order of the sites' names."""
        models, updates = self._alike()
        kind = next(iter(models.values())).params_type
        tensors = any(not isinstance(value, np.ndarray) for value in next(iter(models.values())).params.values())
        if not self._rule.on_models and kind != ParamsType.DIFF:
            raise SettingError(
                f"rule {self.rule} is for changes of a model: set params_transfer_type=TransferType.DIFF in the recipe."
            )
        center, weights = None, self._weights(models)
        if "center" in self._rule.options:
            updates = [to_arrays(update) for update in updates]
            center = self._center(kind, updates[0])
        try:
            files = any(isinstance(update, ScatteredUpdate) for update in updates)
            common = {**self._options, "weights": weights, "center": center, "threads": self.threads}
            result = self._applied(list(models), updates, files, common)
        finally:
            for update in updates:
                if isinstance(update, ScatteredUpdate):
                    update.close()
        read = "from their offload files" if self._rule.works_on_files else "read whole from their offload files"
        log.info("Aggregated %d sites by %s, %s", len(models), self.rule, read if files else "in memory")
        self._last = result if "center" in self._rule.options else None
        self.reset_stats()
        return FLModel(params=_as_tensors(result) if tensors else result, params_type=kind)

    def _applied(self, names: list[str], updates: list[Any], files: bool, common: Mapping[str, Any]) -> Any:
        """The rule; where values that are not finite would enter the model, without the sites that sent them."""
        try:
            return self._rule.use(StoredUpdates(updates, memory=MEMORY) if files else updates, **common)
        except AggregationError as error:
            if "nan_policy" not in self._rule.options:
                raise
            request = StoredUpdates(updates, memory=MEMORY)
            result = self._rule.use(request, **common, nan_policy="drop")
            left = ", ".join(names[i] for i in request.dropped) or f"some of {', '.join(names)}, counted from 0"
            log.warning("Sites are left out (%s): %s", left, error)
            return result

    def reset_stats(self) -> None:
        self._models = {}

    def _alike(self) -> tuple[dict[str, FLModel], list[Any]]:
        """The results and updates of the form that more than half of the sites send, by name. Whoever sends another one
        is left out and named: else a single site could end the job of a rule that bears bad ones."""
        forms: dict[str, tuple[str, Any]] = {}
        updates: dict[str, Any] = {}
        for name, model in sorted(self._models.items()):
            try:
                updates[name] = _update(name, model.params)
                slots = source(len(forms), updates[name]).slots
                entries = frozenset((entry, slot.tag, slot.shape) for entry, slot in slots.items())
                if self._by_steps:
                    _steps(model)
                forms[name] = str(model.params_type), entries
            except Exception as error:  # whatever a site sent
                forms[name] = str(error)[:SHOWN], None
        common, sites = Counter(forms.values()).most_common(1)[0] if forms else (("", None), 0)
        if common[1] is None or 2 * sites <= len(forms):
            told = "; ".join(f"{name} {_shown(form)}" for name, form in forms.items())
            raise AggregationError(
                f"{len(forms)} results, of which no more than half are alike ({told[:500]}): all sites must send the "
                "same entries, shapes and types, all FULL or all DIFF."
            )
        for name, form in forms.items():
            if form != common:
                log.warning("Site %s is left out: it sends %s, most sites %s.", name, _shown(form), _shown(common))
                if isinstance(left := updates.pop(name, None), ScatteredUpdate):
                    left.close()
        return {name: self._models[name] for name in updates}, list(updates.values())

    @property
    def _by_steps(self) -> bool:
        """Whether sites count by the steps that they say they took."""
        return self.weights is None and (not self._rule.robust or self.share is not None)

    def _weights(self, models: Mapping[str, FLModel]) -> list[float] | None:
        if self.weights is None:
            return [_steps(model) for model in models.values()] if self._by_steps else None
        if missing := [name for name in models if name not in self.weights]:
            raise SettingError(f"weights has no number for {', '.join(missing)}: give one to every site.")
        return [float(self.weights[name]) for name in models]

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


def _steps(model: FLModel) -> float:
    """What a site says of its own work; NVFlare counts a site that says nothing as one."""
    said = model.meta.get(FLMetaKey.NUM_STEPS_CURRENT_ROUND, 1.0)
    if not isinstance(said, Real) or not 0 <= said < math.inf:
        raise AggregationError(f"{str(said)[:SHOWN]} as its steps, which is no number of them")
    return float(said)


def _shown(form: tuple[str, Any]) -> str:
    """A result's form as the log has it."""
    kind, entries = form
    if entries is None:
        return f"what cannot be read ({kind})"
    return f"{kind} {', '.join(f'{name} {tag} {list(shape)}' for name, tag, shape in sorted(entries))}"[:SHOWN]


def _is_file(value: Any) -> bool:
    return hasattr(value, "file_path") and hasattr(value, "key") and hasattr(value, "materialize")


def _as_tensors(result: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    return {name: value if hasattr(value, "detach") else torch.from_numpy(value) for name, value in result.items()}
