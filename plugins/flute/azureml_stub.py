"""What FLUTE uses of azureml: a run that has an id and logs numbers. Only where azureml itself is not installed."""

from __future__ import annotations

import importlib.util
import logging
import sys
import types
from typing import Any

ID = "offline-run-0-0"  # FLUTE names the folder of results after the first two of the last four parts


class OfflineRun:
    id = ID

    @classmethod
    def get_context(cls) -> OfflineRun:
        return cls()

    def log(self, name: str, value: Any, *_: Any, **__: Any) -> None:
        logging.getLogger("fedincentive.flute").debug("%s = %s", name, value)


def install() -> None:
    if "azureml" not in sys.modules and importlib.util.find_spec("azureml") is None:
        package, core = types.ModuleType("azureml"), types.ModuleType("azureml.core")
        package.core, core.Run = core, OfflineRun  # type: ignore[attr-defined]
        sys.modules.update({"azureml": package, "azureml.core": core})
