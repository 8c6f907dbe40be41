"""Robust rules for FedML's own optimizers, by `defense_type` in its YAML.

    defense_args:
      enable_defense: true
      defense_type: coordinate_trimmed_mean
      beta: 0.2                                # trimmed per side, as in FedML's own trimmed_mean
      share: 0.1                               # instead of beta: trimmed per side, as a part of all samples
      cap: 0.3                                 # with share: the most of all samples that one client may count for

What may stand before a rule is joined to its defense_type by +: nnm+coordinate_median.

FedML has rules of its own under other names; some of them do not do what they are called (its trimmed_mean sorts the
clients by sample count, its rfa returns client 0's model when the counts are equal), the single-process simulator
ignores the setting and the MPI one stops on it. Ours work in all of them and never change a client's update. So do
those that other packages add to `fedincentive.aggregation`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any

from ... import aggregation
from ...checks import nearest
from ...errors import SettingError

Updates = list[tuple[float, "OrderedDict[str, Any]"]]  # FedML's (sample count, state dict) of each client
_MARK = "_fedincentive"


def number(args: Any, name: str, default: float) -> float:
    value = getattr(args, name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise SettingError(f"defense_args.{name} must be a number of at least 0, not {value!r}.")
    return value


def byzantine(args: Any) -> int:
    if not hasattr(args, "byzantine_client_num"):
        raise SettingError(f"defense_args.byzantine_client_num is required with defense_type {args.defense_type}.")
    return int(number(args, "byzantine_client_num", 0))


# The rules' common options from FedML's own settings, with its defaults
OPTIONS: dict[str, Callable[[Any], float]] = {
    "alpha": lambda args: float(number(args, "beta", 0.1)),
    "f": byzantine,
    "m": lambda args: int(number(args, "krum_param_m", 1)),
    "clip": lambda args: float(number(args, "tau", 10.0)),
    "share": lambda args: float(number(args, "share", 0.0)),
    "cap": lambda args: float(number(args, "cap", 1.0)),
    "bucket": lambda args: int(number(args, "bucket", 2)),
}


@cache
def defenses() -> dict[str, aggregation.Rule]:
    """Every rule that makes sense on whole models, by its defense_type; FedML's own names stay FedML's."""
    known = {rule.defense or rule.name.replace("-", "_"): rule for rule in aggregation.rules() if rule.on_models}
    return {name: rule for name, rule in known.items() if name not in theirs()}


def defense(name: str) -> aggregation.Rule | None:
    """The rule of that defense_type, perhaps with what stands before it; None: it is not ours."""
    *before, last = name.strip().split("+")
    found = defenses().get(last)
    return aggregation.rule("+".join([*before, found.name])) if before and found is not None else found


def theirs() -> set[str]:
    from fedml.core.security import constants

    return {value for value in vars(constants).values() if isinstance(value, str)}


class Defense:
    """One of our rules behind the interface of FedML's defenses."""

    def __init__(self, args: Any) -> None:
        self.args = args
        self.rule = defense(args.defense_type) or defenses()[args.defense_type]

    def defend_on_aggregation(
        self, raw_client_grad_list: Updates, base_aggregation_func: Any = None, extra_auxiliary_info: Any = None
    ) -> Any:
        """The rule over the clients' models; rules that clip do so around the model the round started from."""
        by_share = "share" in self.rule.options and hasattr(self.args, "share")
        others = ("alpha",) if by_share else ("share", "cap")
        weighted = by_share or not self.rule.robust
        return self.rule.use(
            [model for _, model in raw_client_grad_list],
            weights=[float(count) for count, _ in raw_client_grad_list] if weighted else None,
            center=extra_auxiliary_info,
            **{o: read(self.args) for o, read in OPTIONS.items() if o in self.rule.options and o not in others},
        )

    run = defend_on_aggregation  # FedML's MPI aggregator calls this one

    def get_malicious_client_idxs(self) -> list[int]:
        return []


def chosen(args: Any) -> bool:
    """Is one of our rules switched on?"""
    return bool(getattr(args, "enable_defense", False)) and defense(str(getattr(args, "defense_type", ""))) is not None


def install() -> None:
    """Teach FedML's defender, a singleton that every ServerAggregator initialises, our names. Twice is once."""
    from fedml.core.security.fedml_defender import FedMLDefender

    if hasattr(FedMLDefender.init, _MARK):
        return
    original, on_aggregation = FedMLDefender.init, FedMLDefender.is_defense_on_aggregation

    def init(self: Any, args: Any) -> None:
        if not chosen(args):
            refuse_misspelt(args)
            original(self, args)
            return
        self.args, self.is_enabled, self.defense_type = args, True, args.defense_type.strip()
        self.defender = Defense(args)

    def is_defense_on_aggregation(self: Any) -> bool:
        return isinstance(self.defender, Defense) and self.is_enabled or on_aggregation(self)

    setattr(init, _MARK, True)
    FedMLDefender.init, FedMLDefender.is_defense_on_aggregation = init, is_defense_on_aggregation


def refuse_misspelt(args: Any) -> None:
    """FedML only says that the defense is not defined."""
    name = str(getattr(args, "defense_type", "")).strip()
    hint = nearest(name, defenses())
    if getattr(args, "enable_defense", False) and name not in theirs() and hint.startswith(" Did"):
        raise SettingError(f"defense_args.defense_type is {name!r}.{hint}")


def install_in_single_process(args: Any) -> None:
    """FedML's single-process FedAvg never asks its defender: let it, when one of our rules is switched on."""
    if not chosen(args) or str(args.federated_optimizer) != "FedAvg":
        return
    from fedml.simulation.sp.fedavg import fedavg_api

    original = fedavg_api.FedAvgAPI._aggregate
    if hasattr(original, _MARK):
        return

    def _aggregate(self: Any, w_locals: Updates) -> Any:
        if not chosen(self.args):
            return original(self, w_locals)
        return Defense(self.args).defend_on_aggregation(
            w_locals, extra_auxiliary_info=self.model_trainer.get_model_params()
        )

    setattr(_aggregate, _MARK, True)
    fedavg_api.FedAvgAPI._aggregate = _aggregate
