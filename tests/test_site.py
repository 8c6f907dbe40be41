"""The documentation as a site, built as `make docs` builds it: complete, without a dead link, readable offline."""

from __future__ import annotations

import os
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from missing import missing

CHECKOUT = Path(__file__).parents[1]
MKDOCS = CHECKOUT / ".venv" / "docs" / "bin" / "mkdocs"
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}  # without a click


class Links(HTMLParser):
    """What a page leads to, what it fetches, and the anchors it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.led, self.fetched, self.anchors = [], [], set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {name for name in (given.get("id"), given.get("name")) if name}
        if tag == "a" and given.get("href"):
            self.led.append(given["href"])
        if tag in FETCHED and given.get(FETCHED[tag]) and given.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(given[FETCHED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Links]:
    if not MKDOCS.exists():
        missing(f"{MKDOCS} builds the site and is not there: make docs installs it.")
    folder = tmp_path_factory.mktemp("site")
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    words = [str(MKDOCS), "build", "-q", "-d", str(folder)]  # mkdocs.yml is strict: a warning ends it
    done = subprocess.run(words, cwd=CHECKOUT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return {page: Links(page) for page in folder.rglob("*.html")}


def test_every_page_of_the_documentation_is_in_it(site: dict[Path, Links]) -> None:
    folder = min(site, key=lambda page: len(page.parts)).parent
    made = {page.relative_to(folder).with_suffix("") for page in site}
    pages = {page.relative_to(CHECKOUT / "docs").with_suffix("") for page in CHECKOUT.glob("docs/**/*.md")}
    assert {page.with_name("index") if page.name == "README" else page for page in pages} <= made


def test_no_link_is_dead(site: dict[Path, Links]) -> None:
    pages = {page.resolve(): links for page, links in site.items()}
    for page, links in site.items():
        for link in [*links.led, *links.fetched] if page.name != "404.html" else ():  # its links are from the root
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page.resolve()
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{page.name} leads to {link}"
            if parts.fragment and target in pages and not parts.fragment.startswith("__"):
                assert unquote(parts.fragment) in pages[target].anchors, f"{page.name} leads to {link}"


def test_a_reader_needs_no_network(site: dict[Path, Links]) -> None:
    assert [(page.name, link) for page, links in site.items() for link in links.fetched if "//" in link] == []
