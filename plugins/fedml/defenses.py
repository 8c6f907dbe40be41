"""Robust rules for FedML's own optimizers, by `defense_type` in its YAML.

    defense_args:
      enable_defense: true
      defense_type: coordinate_trimmed_mean
      beta: 0.2                                # trimmed per side, as FedML counts: int(beta * clients)
      share: 0.1                               # instead of beta: trimmed per side, as a part of all samples
      cap: 0.3                                 # with share: the most of all samples that one client may count for

What may stand before a rule is joined to its defense_type by +: nnm+coordinate_median.

FedML has rules of its own under other names; some of them do not do what they are called (its trimmed_mean sorts the
clients by sample count, its rfa returns client 0's model when the counts are equal), the single-process simulator
ignores the setting and the MPI one stops on it. Ours work in all of them and never change a client's update. So do
those that other packages add to `fedincentive.aggregation`.
"""

from __future__ import annotations

import copy
import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

from ... import aggregation
from ...checks import nearest
from ...errors import SettingError

Updates = list[tuple[float, "OrderedDict[str, Any]"]]  # FedML's (sample count, state dict) of each client
_MARK = "_fedincentive"
DEFENDED = {"sp": ("FedAvg", "FedProx")}  # FedML's optimizers that ask for a defense; in other backends only FedAvg
log = logging.getLogger("fedincentive")


def number(args: Any, name: str, default: float) -> float:
    value = getattr(args, name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise SettingError(f"defense_args.{name} must be a number of at least 0, not {value!r}.")
    return value


def byzantine(args: Any) -> int:
    if not hasattr(args, "byzantine_client_num"):
        raise SettingError(f"defense_args.byzantine_client_num is required with defense_type {args.defense_type}.")
    return int(number(args, "byzantine_client_num", 0))


def trimmed(args: Any, n: int) -> float:
    """The part of n clients that is trimmed per side, as FedML counts it: whole clients, rounded down.

    The product is exact, so that a beta of 0.29 takes 29 of 100, where int(0.29 * 100) is 28.
    """
    beta = number(args, "beta", 0.1)
    k = math.floor(Fraction(str(beta)) * n)
    if 2 * k >= n:
        raise SettingError(f"defense_args.beta is {beta:g}: of {n} clients {k} trimmed per side leave none. Lower it.")
    if k == 0 and beta:
        _say_once(
            f"defense_args.beta = {beta:g} of {n} clients trims nobody (FedML counts whole clients, rounded down): "
            f"one hostile client can move the model. From {1 / n:.3g} on it trims one per side."
        )
    return k / n


@cache
def _say_once(words: str) -> None:
    log.warning("%s", words)


# The rules' common options from FedML's own settings, with its defaults
OPTIONS: dict[str, Callable[[Any], float]] = {
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
        weighted = by_share or not self.rule.robust
        left_out = () if by_share else ("share", "cap")
        options = {o: read(self.args) for o, read in OPTIONS.items() if o in self.rule.options and o not in left_out}
        if "alpha" in self.rule.options and not by_share:
            options["alpha"] = trimmed(self.args, len(raw_client_grad_list))
        return self.rule.use(
            [model for _, model in raw_client_grad_list],
            weights=[float(count) for count, _ in raw_client_grad_list] if weighted else None,
            center=extra_auxiliary_info,
            **options,
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


def refuse_unheard(args: Any) -> None:
    """Most of FedML's optimizers never ask its defender: a rule that would have no effect is an error."""
    backend = "sp" if single_process(args) else str(getattr(args, "backend", ""))
    heard = DEFENDED.get(backend, ("FedAvg",))
    if chosen(args) and str(args.federated_optimizer) not in heard:
        raise SettingError(
            f"defense_args.defense_type {args.defense_type} has no effect on train_args.federated_optimizer "
            f"{args.federated_optimizer}, which never asks for a defense in backend {backend}: use "
            f"{' or '.join(heard)}, or one of fedincentive's mechanisms with incentive.aggregation."
        )


def single_process(args: Any) -> bool:
    return getattr(args, "training_type", "") == "simulation" and getattr(args, "backend", "") == "sp"


def install_in_single_process(args: Any) -> None:
    """FedML's single-process FedAvg and FedProx never ask their defender: let them, when one of our rules is on."""
    if not chosen(args):
        refuse_misspelt(args)
        if getattr(args, "enable_defense", False):
            log.warning(
                "FedML's single-process simulator ignores defense_type %s; fedincentive's rules work there: %s.",
                getattr(args, "defense_type", None), ", ".join(defenses()),
            )  # fmt: skip
        return
    from fedml.simulation.sp.fedavg.client import Client as FedAvgClient
    from fedml.simulation.sp.fedavg.fedavg_api import FedAvgAPI
    from fedml.simulation.sp.fedprox.client import Client as FedProxClient
    from fedml.simulation.sp.fedprox.fedprox_trainer import FedProxTrainer

    log.info(
        "Every client of a round starts from the same model. FedML's own single-process FedAvg trains the clients of "
        "its first round one after another on one model, which looks better early and lets one spoil all."
    )
    for simulator, client in ((FedAvgAPI, FedAvgClient), (FedProxTrainer, FedProxClient)):
        if not hasattr(simulator._aggregate, _MARK):
            _defend(simulator, client)


def _defend(simulator: Any, client: Any) -> None:
    """Keep the model that a round starts from, give every client a copy of it, and let the rule aggregate."""
    aggregate, sampling, train = simulator._aggregate, simulator._client_sampling, client.train

    def _client_sampling(self: Any, *given: Any) -> Any:
        # The first thing of each round; the trainer still holds the global model.
        self.model_trainer.starts_from = (
            copy.deepcopy(self.model_trainer.get_model_params()) if chosen(self.args) else None
        )
        return sampling(self, *given)

    def _train(self: Any, w_global: Any, *given: Any) -> Any:
        start = getattr(self.model_trainer, "starts_from", None)
        return train(self, w_global if start is None else copy.deepcopy(start), *given)

    def _aggregate(self: Any, w_locals: Updates) -> Any:
        if not chosen(self.args):
            return aggregate(self, w_locals)
        start = self.model_trainer.starts_from
        return Defense(self.args).defend_on_aggregation(w_locals, extra_auxiliary_info=start)

    setattr(_aggregate, _MARK, True)
    simulator._aggregate, simulator._client_sampling, client.train = _aggregate, _client_sampling, _train
