"""Where FedML chooses what to run: our names go to our runners, everything else stays FedML's."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ... import mechanisms
from ...checks import nearest
from ...errors import SettingError

_MARK = "_fedincentive"
CHOICES = (
    "_init_simulation_runner",
    "_init_cross_silo_runner",
    "_init_cross_device_runner",
    "_init_cheetah_runner",
    "_init_model_serving_runner",
)
DRIVEN = {"simulation": ("sp", "MPI"), "cross_silo": ("GRPC", "MPI", "TRPC")}  # training_type -> backends


def install() -> None:
    """Wrap the places where FedMLRunner chooses a runner, and teach its defender our rules. Twice is once."""
    from fedml.runner import FedMLRunner

    from . import defenses

    for name in CHOICES:
        original = getattr(FedMLRunner, name)
        if not hasattr(original, _MARK):
            setattr(FedMLRunner, name, _choosing(original))
    defenses.install()


@contextmanager
def told_plainly() -> Iterator[None]:
    """A user's mistake is a sentence: where it ends the program, that is all it prints, without the way through FedML.

    A program that catches the error sees it as ever.
    """
    try:
        yield
    except SettingError:
        usual = sys.excepthook

        def hook(kind: Any, error: Any, trace: Any) -> None:
            if isinstance(error, SettingError):
                print(f"fedincentive: {error}", file=sys.stderr)
            else:
                usual(kind, error, trace)

        sys.excepthook = hook
        raise


def _choosing(original: Callable[..., Any]) -> Callable[..., Any]:
    from . import contribution

    @functools.wraps(original)
    @told_plainly()
    def choose(  # type: ignore[no-untyped-def]
        self, args, device, dataset, model, client_trainer=None, server_aggregator=None
    ) -> Any:
        if ours(args, client_trainer, server_aggregator):
            refuse_undriven(args)
            from .runner import Runner

            return Runner(args, device, dataset, model, client_trainer, server_aggregator)
        refuse_misspelt(args)
        contribution.install(args)
        from . import defenses

        defenses.refuse_unheard(args)
        if defenses.single_process(args):
            defenses.install_in_single_process(args)
        return original(self, args, device, dataset, model, client_trainer, server_aggregator)

    setattr(choose, _MARK, True)
    return choose


def ours(args: Any, client_trainer: Any, server_aggregator: Any) -> bool:
    """Is one of our mechanisms named in the YAML, or given with our ServerAggregator?"""
    if str(args.federated_optimizer) in mechanisms.names():
        return True
    return getattr(server_aggregator, "mechanism", None) is not None


def refuse_undriven(args: Any) -> None:
    """Where our mechanisms cannot be played, with what to use instead."""
    kind, backend = str(getattr(args, "training_type", "")), str(getattr(args, "backend", ""))
    said = f"train_args.federated_optimizer {args.federated_optimizer} is not driven"
    if kind not in DRIVEN:
        raise SettingError(
            f"{said} with common_args.training_type {kind!r}: use cross_silo with backend GRPC across machines, or "
            "simulation with backend sp on one."
        )
    if kind == "cross_silo" and getattr(args, "scenario", "horizontal") != "horizontal":
        raise SettingError(
            f"{said} with common_args.scenario {args.scenario!r}: use scenario horizontal, where each silo is one "
            "process; a silo may train with several GPUs inside its ClientTrainer."
        )
    if backend not in DRIVEN[kind]:
        why = " (in FedML 0.9.6 its server never ends, in plain FedAvg too)" if backend == "MQTT_S3" else ""
        raise SettingError(
            f"{said} with comm_args.backend {backend!r}{why}: with training_type {kind} use "
            f"{' or '.join(DRIVEN[kind])}.{nearest(backend, DRIVEN[kind]) if backend.upper() in DRIVEN[kind] else ''}"
        )


def refuse_misspelt(args: Any) -> None:
    """FedML answers an unknown optimizer with Exception("Exception"); a near miss of one of ours deserves its name."""
    from fedml import constants

    name = str(args.federated_optimizer)
    theirs = {value for key, value in vars(constants).items() if key.upper().startswith("FEDML_FEDERATED_OPTIMIZER")}
    hint = nearest(name, mechanisms.names())
    if name not in theirs | {"LSA", "SA"} and hint.startswith(" Did"):
        raise SettingError(f"train_args.federated_optimizer is {name!r}.{hint}")
