"""The examples in the docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import fedincentive.game

MODULES = [module.name for module in pkgutil.iter_modules(fedincentive.game.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in(name):
    result = doctest.testmod(importlib.import_module(f"fedincentive.game.{name}"))
    assert result.failed == 0
