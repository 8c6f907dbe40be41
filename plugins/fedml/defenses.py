"""Robust rules for FedML's own optimizers, by `defense_type` in its YAML.

    defense_args:
      enable_defense: true
      defense_type: coordinate_trimmed_mean
      beta: 0.2                                # trimmed per side, as in FedML's own trimmed_mean

FedML has rules of its own under other names; some of them do not do what they are called (its trimmed_mean sorts the
clients by sample count, its rfa returns client 0's model when the counts are equal), the single-process simulator
ignores the setting and the MPI one stops on it. Ours work in all of them and never change a client's update.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import aggregation
from ...checks import nearest
from ...errors import SettingError

Updates = list[tuple[float, "OrderedDict[str, Any]"]]  # FedML's (sample count, state dict) of each client
_MARK = "_fedincentive"


def models(updates: Updates) -> list[OrderedDict[str, Any]]:
    return [model for _, model in updates]


def number(args: Any, name: str, default: float) -> float:
    value = getattr(args, name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise SettingError(f"defense_args.{name} must be a number of at least 0, not {value!r}.")
    return value


def byzantine(args: Any) -> int:
    if not hasattr(args, "byzantine_client_num"):
        raise SettingError(f"defense_args.byzantine_client_num is required with defense_type {args.defense_type}.")
    return int(number(args, "byzantine_client_num", 0))


def weighted_mean(args: Any, updates: Updates, before: Any) -> Any:
    return aggregation.weighted_mean(models(updates), np.array([count for count, _ in updates], dtype=np.float64))


def coordinate_trimmed_mean(args: Any, updates: Updates, before: Any) -> Any:
    k = aggregation.trim_count(float(number(args, "beta", 0.1)), len(updates))
    return aggregation.trimmed_mean(models(updates), k)


def coordinate_median(args: Any, updates: Updates, before: Any) -> Any:
    return aggregation.median(models(updates))


def robust_krum(args: Any, updates: Updates, before: Any) -> Any:
    return aggregation.krum(models(updates), byzantine(args))


def multi_krum(args: Any, updates: Updates, before: Any) -> Any:
    return aggregation.multi_krum(models(updates), byzantine(args), int(number(args, "krum_param_m", 1)))


def geometric_median(args: Any, updates: Updates, before: Any) -> Any:
    return aggregation.geometric_median(models(updates))


def centered_clipping(args: Any, updates: Updates, before: Any) -> Any:
    """Clipped around the model the round started from."""
    return aggregation.centered_clipping(models(updates), radius=float(number(args, "tau", 10.0)), center=before)


DEFENSES: dict[str, Callable[[Any, Updates, Any], Any]] = {
    rule.__name__: rule
    for rule in (
        weighted_mean,
        coordinate_trimmed_mean,
        coordinate_median,
        robust_krum,  # FedML has a krum
        multi_krum,
        geometric_median,
        centered_clipping,
    )
}


class Defense:
    """One of our rules behind the interface of FedML's defenses."""

    def __init__(self, args: Any) -> None:
        self.args = args
        self.rule = DEFENSES[args.defense_type.strip()]

    def defend_on_aggregation(
        self, raw_client_grad_list: Updates, base_aggregation_func: Any = None, extra_auxiliary_info: Any = None
    ) -> Any:
        return self.rule(self.args, raw_client_grad_list, extra_auxiliary_info)

    run = defend_on_aggregation  # FedML's MPI aggregator calls this one

    def get_malicious_client_idxs(self) -> list[int]:
        return []


def chosen(args: Any) -> bool:
    """Is one of our rules switched on?"""
    return bool(getattr(args, "enable_defense", False)) and str(getattr(args, "defense_type", "")).strip() in DEFENSES


def install() -> None:
    """Teach FedML's defender, a singleton that every ServerAggregator initialises, our names. Twice is once."""
    from fedml.core.security.fedml_defender import FedMLDefender

    if hasattr(FedMLDefender.init, _MARK):
        return
    theirs, on_aggregation = FedMLDefender.init, FedMLDefender.is_defense_on_aggregation

    def init(self: Any, args: Any) -> None:
        if not chosen(args):
            refuse_misspelt(args)
            theirs(self, args)
            return
        self.args, self.is_enabled, self.defense_type = args, True, args.defense_type.strip()
        self.defender = Defense(args)

    def is_defense_on_aggregation(self: Any) -> bool:
        return isinstance(self.defender, Defense) and self.is_enabled or on_aggregation(self)

    setattr(init, _MARK, True)
    FedMLDefender.init, FedMLDefender.is_defense_on_aggregation = init, is_defense_on_aggregation


def refuse_misspelt(args: Any) -> None:
    """FedML only says that the defense is not defined."""
    from fedml.core.security import constants

    name = str(getattr(args, "defense_type", "")).strip()
    theirs = {value for value in vars(constants).values() if isinstance(value, str)}
    hint = nearest(name, DEFENSES)
    if getattr(args, "enable_defense", False) and name not in theirs and hint.startswith(" Did"):
        raise SettingError(f"defense_args.defense_type is {name!r}.{hint}")


def install_in_single_process(args: Any) -> None:
    """FedML's single-process FedAvg never asks its defender: let it, when one of our rules is switched on."""
    if not chosen(args) or str(args.federated_optimizer) != "FedAvg":
        return
    from fedml.simulation.sp.fedavg import fedavg_api

    theirs = fedavg_api.FedAvgAPI._aggregate
    if hasattr(theirs, _MARK):
        return

    def _aggregate(self: Any, w_locals: Updates) -> Any:
        if not chosen(self.args):
            return theirs(self, w_locals)
        return Defense(self.args).defend_on_aggregation(
            w_locals, extra_auxiliary_info=self.model_trainer.get_model_params()
        )

    setattr(_aggregate, _MARK, True)
    fedavg_api.FedAvgAPI._aggregate = _aggregate
