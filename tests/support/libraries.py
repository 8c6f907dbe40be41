"""Libraries that tests compare with and that are not needed to use the package."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def library(name: str) -> Any:
    """The module; where it is not installed the test fails in CI and is skipped elsewhere."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"{error}; `make test` installs it", allow_module_level=True)
