"""Where FedML chooses what to run: our names go to our runners, everything else stays FedML's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ... import mechanisms
from ...checks import nearest
from ...errors import SettingError

_MARK = "_fedincentive"


def install() -> None:
    """Wrap the two places where FedMLRunner chooses a runner, and teach its defender our rules. Twice is once."""
    from fedml.runner import FedMLRunner

    from . import defenses

    for name in ("_init_simulation_runner", "_init_cross_silo_runner"):
        original = getattr(FedMLRunner, name)
        if not hasattr(original, _MARK):
            setattr(FedMLRunner, name, _choosing(original))
    defenses.install()


def _choosing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def choose(  # type: ignore[no-untyped-def]
        self, args, device, dataset, model, client_trainer=None, server_aggregator=None
    ) -> Any:
        if ours(args, client_trainer, server_aggregator):
            from .runner import Runner

            return Runner(args, device, dataset, model, client_trainer, server_aggregator)
        refuse_misspelt(args)
        if getattr(args, "training_type", "") == "simulation" and getattr(args, "backend", "") == "sp":
            from . import defenses

            defenses.install_in_single_process(args)
        return original(self, args, device, dataset, model, client_trainer, server_aggregator)

    setattr(choose, _MARK, True)
    return choose


def ours(args: Any, client_trainer: Any, server_aggregator: Any) -> bool:
    """Is one of our mechanisms named in the YAML, or given with our ServerAggregator?"""
    if str(args.federated_optimizer) in mechanisms.names():
        return True
    return getattr(server_aggregator, "mechanism", None) is not None


def refuse_misspelt(args: Any) -> None:
    """FedML answers an unknown optimizer with Exception("Exception"); a near miss of one of ours deserves its name."""
    from fedml import constants

    name = str(args.federated_optimizer)
    theirs = {value for key, value in vars(constants).items() if key.upper().startswith("FEDML_FEDERATED_OPTIMIZER")}
    hint = nearest(name, mechanisms.names())
    if name not in theirs | {"LSA", "SA"} and hint.startswith(" Did"):
        raise SettingError(f"train_args.federated_optimizer is {name!r}.{hint}")
