"""Shared by all suites: the rule for missing tools, and one hypothesis profile."""

from __future__ import annotations

import os
import shutil

import hypothesis
import pytest

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def missing(what: str) -> None:
    """A missing tool fails the test in CI and is a loud skip elsewhere: a check never vanishes silently."""
    message = f"{what} is missing; `make system-deps` installs it."
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def needs():
    """`needs("mpirun")` gives the program's path, or fails in CI and skips elsewhere."""

    def find(program: str) -> str:
        path = shutil.which(program)
        if path is None:
            missing(program)
        return str(path)

    return find
