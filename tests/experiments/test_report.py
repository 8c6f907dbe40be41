"""The report: what it says, and how a browser shows it on a phone without asking anyone for anything."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from fedincentive.errors import RunError
from fedincentive.experiments import report, runner


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return runner.run("moral-hazard", tmp_path_factory.mktemp("runs"), seeds=1, only=["digits"], jobs=1)


def test_the_page_says_what_happened(run: Path) -> None:
    page = report.write(run).read_text()
    for part in ("data:image/png;base64,", "Contributions and payments", "Certificate", "budget-balanced", "Settings"):
        assert part in page
    manifest = json.loads((run / "manifest.json").read_text())
    (head,) = manifest["ledgers"].values()
    assert head["hash"][:16] in page and "verified:" in page
    payments = [agent["payment"] for agent in runner.lines(run / "results.jsonl")[1]["result"]["agents"].values()]
    assert f"{payments[0]:,.2f}" in page and payments[0] < 0


def test_nothing_is_asked_from_elsewhere(run: Path) -> None:
    page = report.page([run])
    assert not re.search(r"<script|<iframe|<object|@import|url\(", page)
    for address in re.findall(r'(?:src|href)="([^"]*)"', page):
        assert address.startswith(("data:", "#"))


def test_a_forged_ledger_is_called_broken(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "moral-hazard"
    shutil.copytree(run, folder)
    (book,) = (folder / "ledger").glob("*.db")
    with sqlite3.connect(book) as database:
        for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type='trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{trigger}"')
    assert "BROKEN" in report.page([folder])
    shutil.rmtree(folder / "ledger")
    assert "only its head was kept" in report.page([folder])


def test_markup_in_results_is_text(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "moral-hazard"
    shutil.copytree(run, folder)
    text = (folder / "results.jsonl").read_text().replace("agent-0", "<b>agent</b>")
    (folder / "results.jsonl").write_text(text)
    page = report.page([folder])
    assert "<b>agent" not in page and "&lt;b&gt;agent" in page


def test_several_studies_make_one_page_with_contents(run: Path) -> None:
    runner.run("step-sizes", run.parent)
    page = report.write(run.parent).read_text()
    assert page.index('href="#step-sizes"') < page.index('href="#moral-hazard"')
    assert page.count("<section") == 2


def test_a_directory_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="neither a run with a ledger nor a study"):
        report.write(tmp_path)


def test_a_browser_shows_it_on_a_phone(run: Path, phone) -> None:
    found = phone(report.page([run]))
    assert found["width"] == 390 and found["content"] <= 390  # the page itself never scrolls sideways
    assert found["images"] == 1 and found["drawn"] and found["tables"] >= 3 and found["cells"]
    assert found["text"] >= 15 and found["requests"] == [] and found["console"] == []
