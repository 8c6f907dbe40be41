"""Shared by all suites: the rule for missing tools, and one hypothesis profile."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from chromium import Chromium
from missing import missing

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def log_level() -> None:
    """Studies and benchmarks silence the package; whoever reads its log after them must not notice."""
    logging.getLogger("fedincentive").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def needs():
    """`needs("mpirun")` gives the program's path, or fails in CI and skips elsewhere."""

    def find(program: str) -> str:
        path = shutil.which(program)
        if path is None:
            missing(f"{program} is missing; `make system-deps` installs it.")
        return str(path)

    return find


@pytest.fixture(scope="session")
def chromium(needs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser for the whole session."""
    with Chromium(needs("chromium"), tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def phone(chromium: Chromium, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """`phone(page)`: what a page says of itself at a phone's width, with "requests" and the browser's "console"."""

    def show(page: str, width: int = 390, media: str = "screen") -> dict[str, Any]:
        (tmp_path / "page.html").write_text(page)
        chromium.open((tmp_path / "page.html").as_uri(), width, 844, media)
        asked = [address for address in chromium.requests if not address.startswith("data:")]
        return {**chromium.look(), "requests": asked, "console": chromium.complaints}

    return show
