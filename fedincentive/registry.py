"""Things by name: ours, and those that installed packages offer in a group of entry points.

A package adds to a registry in its pyproject.toml, without importing anything of ours at install time:

    [project.entry-points."fedincentive.mechanisms"]
    my-mechanism = "my_package:MyMechanism"
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .checks import nearest
from .errors import SettingError


class Registry:
    """What is known under a name in one group; ours cannot be replaced. Whoever asks checks what a package offers.

    >>> colours = Registry("example.colours", {"red": 0xFF0000}, "colour")
    >>> colours.names(), colours.find("red")
    (['red'], 16711680)
    >>> colours.find("rad")
    Traceback (most recent call last):
    fedincentive.errors.SettingError: There is no colour 'rad'. Did you mean 'red'?
    """

    def __init__(self, group: str, ours: Mapping[str, Any], what: str) -> None:
        self.group, self.ours, self.what = group, ours, what

    def names(self) -> list[str]:
        """Every name `find` knows, ours first; nothing is loaded."""
        return [*self.ours, *(name for name in sorted(self._installed()) if name not in self.ours)]

    def find(self, name: str) -> Any:
        """Ours of that name, or what the package that offers it means by it: a class, a function, an instance."""
        if name in self.ours:
            return self.ours[name]
        point = self._installed().get(name)
        if point is None:
            raise SettingError(f"There is no {self.what} {name!r}.{nearest(name, self.names())}")
        try:
            return point.load()
        except Exception as error:  # a package of others may fail in any way
            raise SettingError(f"{self.whose(name)} cannot be loaded: {error}.") from error

    def whose(self, name: str) -> str:
        """How errors call what a package offers: its name, and where it comes from."""
        point = self._installed().get(name)
        return f"{self.what.capitalize()} {name!r}" + (f" ({point.value})" if point and name not in self.ours else "")

    def _installed(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}
