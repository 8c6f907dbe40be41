"""The page of results says what the committed results say."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from fedincentive.experiments import paper_claims, runner
from fedincentive.experiments.studies import STUDIES, trimming

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


PAPER = ("welfare-vs-time", "welfare-vs-agents", "payments-vs-contribution", "adversarial")


@pytest.mark.parametrize(("mark", "folder"), [("claims", RESULTS), ("paper claims", RESULTS / "paper")])
def test_the_tables_on_the_page_are_computed_from_the_results(mark: str, folder: Path) -> None:
    page = (RESULTS / "README.md").read_text()
    found = re.search(rf"<!-- {mark} -->\n(.*)<!-- /{mark} -->", page, re.DOTALL)
    assert found and found.group(1) == paper_claims.table(folder)


@pytest.mark.parametrize("name", [*STUDIES, *(f"paper/{name}" for name in PAPER)])
def test_every_study_is_there_with_its_figures(name: str) -> None:
    folder = RESULTS / name
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["results_sha256"] == hashlib.sha256((folder / "results.jsonl").read_bytes()).hexdigest()
    page = (RESULTS / "README.md").read_text()
    for figure in folder.glob("*.png"):
        assert f"({name}/{figure.name})" in page and figure.with_suffix(".svg").exists()
    assert list(folder.glob("*.png")) and runner.lines(folder / "results.jsonl")


def test_no_path_of_a_machine_is_in_the_results() -> None:
    for path in RESULTS.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".csv", ".md"):
            assert not re.search(r"/(tmp|home|root|work|Users)/", path.read_text()), path


def test_the_committed_results_are_small() -> None:
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) < 4_000_000


def test_the_table_of_trimming_is_the_one_computed_from_the_results() -> None:
    page = (RESULTS / "README.md").read_text()
    assert trimming.table(runner.lines(RESULTS / "trimming" / "results.jsonl")) in page


def test_the_results_at_the_papers_scale_are_of_one_clean_commit() -> None:
    made = [json.loads((RESULTS / "paper" / name / "manifest.json").read_text()) for name in PAPER]
    (commit,) = {manifest["versions"]["commit"] for manifest in made}
    assert re.fullmatch(r"[0-9a-f]{40}", commit)
    assert all(manifest["preset"] == "paper" and manifest["cut_to"] for manifest in made)
