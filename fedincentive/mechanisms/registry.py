"""Mechanisms by name: ours, and those that installed packages offer in the group `fedincentive.mechanisms`.

A package extends the registry in its pyproject.toml, without importing anything of ours at install time:

    [project.entry-points."fedincentive.mechanisms"]
    my-mechanism = "my_package:MyMechanism"
"""

from __future__ import annotations

from ..errors import SettingError
from ..game import Game
from ..registry import Registry
from ..settings import Settings
from .base import Mechanism
from .cgsv import CosineRewards
from .fact import FactMechanism
from .fedavg import FedAvg
from .fedavg_strategic import FedAvgStrategic
from .fedbr import FedBR, FedBRBG
from .gradient_relative import GradientRelativeUpbred
from .needs import OneForOneMechanism, PayWhatYouContributeMechanism
from .shaping import AccuracyShaping, RealFMMechanism
from .shares import SharedBudget
from .t_upbred import TruthfulUpbred
from .two_phase import TrimmedTwoPhase, TwoPhase
from .upbred import Upbred

PAPER = (FedAvg, Upbred, TruthfulUpbred, TwoPhase, TrimmedTwoPhase, FedAvgStrategic)
PEERS = (
    FedBR, FedBRBG, AccuracyShaping, RealFMMechanism, FactMechanism, OneForOneMechanism,
    PayWhatYouContributeMechanism, GradientRelativeUpbred, SharedBudget, CosineRewards,
)  # fmt: skip
OURS: dict[str, type[Mechanism]] = {cls.name: cls for cls in (*PAPER, *PEERS)}
REGISTRY = Registry("fedincentive.mechanisms", OURS, "mechanism")


def names() -> list[str]:
    """Every name `get` knows, ours first."""
    return REGISTRY.names()


def get(name: str, settings: Settings) -> Mechanism:
    """The mechanism called `name`, for these settings.

    >>> [payment.name for payment in get("2p-upbred", Settings()).payments]
    ['contribution']
    """
    made = REGISTRY.find(name)(settings)
    if not isinstance(made, Mechanism):
        raise SettingError(f"{REGISTRY.whose(name)} is {made!r}: derive it from mechanisms.Mechanism.")
    return made


def prepared(settings: Settings, game: Game | None) -> Settings:
    """The settings with what their mechanism has to know of a closed-form game, where it is played on one."""
    made = REGISTRY.find(settings.mechanism)
    return made.prepared(settings, game) if game is not None and hasattr(made, "prepared") else settings


def strategy(settings: Settings) -> str:
    """How agents of a closed-form game play the mechanism of these settings unless they are told otherwise."""
    return str(REGISTRY.find(settings.mechanism).strategy)
