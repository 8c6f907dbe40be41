"""ByzFL's own aggregators and attacks, of the installed library."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

import pytest


def byzfl() -> Any:
    """Its aggregators; attacks are in `.attacks`.

    Its top module imports torchvision and seaborn for benchmarks. It is left out, so that neither needs to be there
    (torchvision's wheels do not load beside a torch without CUDA).
    """
    spec = importlib.machinery.PathFinder.find_spec("byzfl")
    if spec is None:
        if os.environ.get("CI") == "true":
            raise ImportError("byzfl is not installed")
        pytest.skip("byzfl is not installed; `make test` installs it", allow_module_level=True)
    if "byzfl" not in sys.modules:
        top = ModuleType("byzfl")
        top.__path__ = list(spec.submodule_search_locations or [])
        sys.modules["byzfl"] = top
    aggregators = importlib.import_module("byzfl.aggregators")
    attacks = importlib.import_module("byzfl.attacks.attacks")
    found = ModuleType("byzfl_parts")
    for module in (aggregators, attacks):
        vars(found).update({name: thing for name, thing in vars(module).items() if isinstance(thing, type)})
    return found
