"""What the pages refer to exists: tests by name, files by link."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
PAGES = sorted([CHECKOUT / "README.md", *CHECKOUT.glob("docs/**/*.md"), *CHECKOUT.glob("examples/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(CHECKOUT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}."


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(CHECKOUT)))
def test_tests_that_are_named_exist(page: Path) -> None:
    defined = "\n".join(path.read_text() for path in (CHECKOUT / "tests").rglob("*.py"))
    for name in re.findall(r"`(test_\w+_\w+_\w+)`", page.read_text()):
        assert f"def {name}(" in defined, f"{page.name} names {name}, which is not a test."
