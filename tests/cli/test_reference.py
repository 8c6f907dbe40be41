"""The reference page is what the command prints."""

from __future__ import annotations

from pathlib import Path

from fedincentive.cli.settings import reference

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == reference() + "\n", "Run: fedincentive settings > docs/settings.md"
