"""What the pages refer to exists: tests by name, files by link."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).parents[1]
PAGES = sorted([CHECKOUT / "README.md", *CHECKOUT.glob("docs/**/*.md"), *CHECKOUT.glob("examples/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(CHECKOUT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}."


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text())
    assert f'version = "{cited["version"]}"' in (CHECKOUT / "pyproject.toml").read_text()


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub and the site make them."""
    words = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^```.*?^```", "", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", word.lower()).strip().replace(" ", "-") for word in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(CHECKOUT)))
def test_anchors_lead_to_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        if "://" not in target:
            assert anchor in headings(page.parent / target if target else page), f"{page.name}: {target}#{anchor}"


def test_every_page_is_in_the_site_and_nothing_else() -> None:
    def pages(nav: object) -> list[str]:
        if isinstance(nav, str):
            return [nav]
        return [page for item in nav for page in pages(list(item.values())[0] if isinstance(item, dict) else item)]

    site = yaml.load((CHECKOUT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)
    shown = pages(site["nav"])
    own = {str(page.relative_to(CHECKOUT / "docs")) for page in CHECKOUT.glob("docs/**/*.md")}
    examples = {page for page in shown if page.startswith("examples/")}
    assert len(shown) == len(set(shown)) and set(shown) - examples == own
    assert examples == {str(page.relative_to(CHECKOUT)) for page in CHECKOUT.glob("examples/*/README.md")}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(CHECKOUT)))
def test_tests_that_are_named_exist(page: Path) -> None:
    defined = "\n".join(path.read_text() for path in (CHECKOUT / "tests").rglob("*.py"))
    for name in re.findall(r"`(test_\w+_\w+_\w+)`", page.read_text()):
        assert f"def {name}(" in defined, f"{page.name} names {name}, which is not a test."
