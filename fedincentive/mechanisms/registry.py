"""Mechanisms by name: ours, and those that installed packages offer in the group `fedincentive.mechanisms`.

A package extends the registry in its pyproject.toml, without importing anything of ours at install time:

    [project.entry-points."fedincentive.mechanisms"]
    my-mechanism = "my_package:MyMechanism"
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from ..checks import nearest
from ..errors import SettingError
from ..settings import Settings
from .base import Mechanism
from .fedavg import FedAvg
from .fedavg_strategic import FedAvgStrategic
from .t_upbred import TruthfulUpbred
from .two_phase import TrimmedTwoPhase, TwoPhase
from .upbred import Upbred

GROUP = "fedincentive.mechanisms"
OURS = {cls.name: cls for cls in (FedAvg, Upbred, TruthfulUpbred, TwoPhase, TrimmedTwoPhase, FedAvgStrategic)}


def names() -> list[str]:
    """Every name `get` knows, ours first."""
    return [*OURS, *(name for name in sorted(_installed()) if name not in OURS)]


def get(name: str, settings: Settings) -> Mechanism:
    """The mechanism called `name`, for these settings.

    >>> get("2p-upbred", Settings()).payment
    'contribution'
    """
    if name in OURS:
        return OURS[name](settings)
    extensions = _installed()
    if name not in extensions:
        raise SettingError(f"There is no mechanism {name!r}.{nearest(name, names())}")
    try:
        made = extensions[name].load()(settings)
    except (ImportError, AttributeError) as error:
        raise SettingError(f"Mechanism {name!r} ({extensions[name].value}) cannot be loaded: {error}.") from error
    if not isinstance(made, Mechanism):
        raise SettingError(
            f"Mechanism {name!r} ({extensions[name].value}) is {made!r}: derive it from mechanisms.Mechanism."
        )
    return made


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}
