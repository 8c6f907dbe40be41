"""The live page, a report and a statement as people see them: on a desk, on a phone, and on paper.

`pytest tests/reports/test_pictures.py --basetemp=pictures` keeps the pictures, to be looked at.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from commands import command
from keyring import folder_of

import fedincentive
from fedincentive.cli.watch import Page
from fedincentive.game import load
from fedincentive.reports.live import Follower

GAME = Path(__file__).parents[2] / "examples" / "games" / "hospitals.yaml"
WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The addresses of a report and a statement of a signed run; its folder."""
    folder = tmp_path_factory.mktemp("pages")
    folder_of(folder / "keys", load(GAME).game.agents)
    run = folder / "run"
    run.mkdir()
    fedincentive.play(GAME, rounds=12, currency="EUR", keys=str(folder / "keys"), ledger=run / "ledger.sqlite",
                      state=run / "state")  # fmt: skip
    assert command("report", run, "--out", folder / "report.html").exit_code == 0
    done = command("ledger", "statement", run, "clinic", "--note", run / "state" / "notes.jsonl", "--format", "html",
                   "-o", folder / "statement.html")  # fmt: skip
    assert done.exit_code == 0, done.output
    return {name: (folder / f"{name}.html").as_uri() for name in ("report", "statement")} | {"run": str(run)}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["report", "statement"])
def test_a_page_fits_the_screen(name: str, width: str, pages: dict[str, str], chromium, tmp_path: Path) -> None:
    chromium.open(pages[name], WIDTHS[width])
    found = chromium.look()
    assert chromium.picture(tmp_path / f"{name}-{width}.png").stat().st_size > 10_000
    assert found["width"] == WIDTHS[width] and found["content"] <= WIDTHS[width]  # no scrolling sideways
    assert found["cells"] and found["letters"] and not chromium.requests and not chromium.complaints
    chromium.ask("document.querySelectorAll('details').forEach(e => e.open = true)")
    wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"
    assert chromium.ask(wide) == []  # nor does any table or list, once it is opened


@pytest.mark.parametrize("width", WIDTHS)
def test_the_live_page_fits_the_screen(width: str, pages: dict[str, str], chromium, tmp_path: Path) -> None:
    with Follower(pages["run"]) as follower, Page("127.0.0.1", 0, follower) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        chromium.open(page.address, WIDTHS[width])
        chromium.until("document.body.innerText.includes('complete')")
        found = chromium.look()
        assert chromium.picture(tmp_path / f"watch-{width}.png").stat().st_size > 10_000
        page.shutdown()
    assert found["content"] <= WIDTHS[width] and found["letters"] and not found["cut"]
    assert {*chromium.requests} == {page.address.replace("/?", "/now?")} and not chromium.complaints


@pytest.mark.parametrize("name", ["report", "statement"])
def test_nothing_is_cut_on_paper(name: str, pages: dict[str, str], chromium, tmp_path: Path) -> None:
    """Every letter of the PDF lies within its page, and the PDF has the words and amounts of the page."""
    pdfium = pytest.importorskip("pypdfium2", reason="it reads the printed pages; `make test` installs it")
    chromium.open(pages[name], 1031, media="print")  # A4 on its side, less the margins
    assert chromium.look()["cut"] == []
    cells = "[...document.querySelectorAll('td, .lead')].filter(e => e.checkVisibility()).map(e => e.innerText)"
    wanted = chromium.ask(cells)
    said = ""
    for sheet in pdfium.PdfDocument(chromium.pdf(tmp_path / f"{name}.pdf")):
        wide, high = sheet.get_size()
        assert wide > high
        letters = sheet.get_textpage()
        said += letters.get_text_range()
        for k in range(letters.count_chars()):
            left, bottom, right, top = letters.get_charbox(k)
            assert 0 <= left <= right <= wide and 0 <= bottom <= top <= high, said[-80:]
    found = "".join(said.split())
    assert len(wanted) > 20
    assert [words for words in wanted if "".join(words.split()) not in found] == []
