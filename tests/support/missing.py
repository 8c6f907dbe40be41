"""The rule for what a test needs and the machine lacks."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(message: str) -> NoReturn:
    """It fails the test in CI and is a loud skip elsewhere: a check never vanishes silently."""
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
