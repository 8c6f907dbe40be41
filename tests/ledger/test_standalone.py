"""The stand-alone verifier: one file, no installation, and the same verdicts and amounts as the package."""

from __future__ import annotations

import ast
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from entries import settlement

from fedincentive import ledger
from fedincentive.ledger import Entry, standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.replay import Replay
from fedincentive.ledger.verify import verify

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())
BY_HAND = [
    # beta (n s_i - S)/(n - 1): 2 (3*3 - 18)/2 = -9, 2 (3*5 - 18)/2 = -3, 2 (3*10 - 18)/2 = 12
    ({"beta": "2", "s": {"a": 3, "b": 5, "c": 10}, "scale": 1}, 0, {"a": -9, "b": -3, "c": 12}),
    # 0.5, 0.5 and -1: the odd unit goes to a in even rounds, to b in odd ones
    ({"beta": "1", "s": {"a": 2, "b": 2, "c": 1}, "scale": 1}, 0, {"a": 1, "b": 0, "c": -1}),
    ({"beta": "1", "s": {"a": 2, "b": 2, "c": 1}, "scale": 1}, 1, {"a": 0, "b": 1, "c": -1}),
    # n = 2: p_2 = -p_1; 7.5 is floored to 7 and -7.5 to -8, and the unit goes to one of the equal remainders
    ({"beta": "3/2", "s": {"a": 5, "b": 0}, "scale": 1}, 0, {"a": 8, "b": -8}),
    ({"beta": "3/2", "s": {"a": 5, "b": 0}, "scale": 1}, 1, {"a": 7, "b": -7}),
    # identical agents: nobody pays
    ({"beta": "9", "s": {"a": 4, "b": 4, "c": 4}, "scale": 1}, 5, {"a": 0, "b": 0, "c": 0}),
]


def body(vector: dict) -> dict:
    kind = standalone.KINDS[vector["rule"]][-1]
    return {"run": "r", "kind": kind, "claims": [], "version": 1, **vector}


@pytest.mark.parametrize("vector", VECTORS, ids=[str(k) for k in range(len(VECTORS))])
def test_both_implementations_agree_with_the_vectors(vector):
    replay = Replay(vector["minor"], lambda seq: None)
    assert list(replay.problems(body(vector))) == []
    complaints: list = []
    runs = standalone.Runs(vector["minor"], {})
    assert runs.derive(body(vector), lambda *words: complaints.append(words)) == vector["postings"]
    assert complaints == []


def test_the_vectors_are_what_their_maker_makes():
    assert runpy.run_path(str(Path(__file__).with_name("vectors.py")))["vectors"]() == VECTORS


def test_the_vectors_cover_ties_and_every_rule():
    """A vector is only worth something where a wrong rule would show: most need units beyond the floors."""
    rounded = [v for v in VECTORS if v["rule"] == "contribution/1" and any(v["postings"].values())]
    assert len(rounded) > 40
    for rule in ("truthful/1", "truthful/2"):
        assert {(v["inputs"]["h"], v["inputs"]["phi"]) for v in VECTORS if v["rule"] == rule} == {
            (h, phi) for h in ("previous", "zero", "clarke") for phi in ("none", "paper", "audited")
        }


@pytest.mark.parametrize(("inputs", "round", "expected"), BY_HAND)
def test_amounts_worked_out_by_hand(inputs, round, expected):
    made = settlement("r", round, **inputs, minor=1)
    assert made.postings == expected
    runs = standalone.Runs(1, {})
    assert runs.derive(json.loads(made.body), lambda *words: None) == expected


def test_it_imports_nothing_but_the_standard_library():
    names = set()
    for node in ast.walk(ast.parse(Path(standalone.__file__).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module.split(".")[0])
    assert names <= set(sys.stdlib_module_names)


def run_alone(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A copy of the one file, in an interpreter without site-packages."""
    copy = tmp_path / "standalone.py"
    copy.write_bytes(Path(standalone.__file__).read_bytes())
    return subprocess.run(
        [sys.executable, "-I", "-S", str(copy), *arguments], capture_output=True, text=True, cwd=tmp_path, check=False
    )


@pytest.fixture
def exported(tmp_path, run_entries) -> tuple[Path, str]:
    with ledger.open(tmp_path / "a.db") as book:
        for entry in run_entries():
            book.append(entry)
        book.append(ledger.reversal(list(book.entries())[2], 9, "wrong"))
        path = tmp_path / "a.jsonl"
        path.write_text("".join(to_jsonl(book)))
        return path, str(book.head())


def test_a_clean_export(tmp_path, exported):
    path, head = exported
    done = run_alone(tmp_path, str(path), "--checkpoint", head)
    assert (done.returncode, done.stdout) == (0, f"clean, ends at {head}\n"), done.stderr


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (lambda lines: [lines[0], *lines[2:]], "gap: entry 1"),
        (lambda lines: lines[:-1], "checkpoint: entry 8: the file ends at 8:"),
        (lambda lines: lines[:-2] + lines[-1:], "checkpoint: entry 7"),
        (lambda lines: [*lines, lines[-2]], "form: entry 9: there are lines after the checkpoint"),
        (lambda lines: [lines[0].replace("1000000", "1000"), *lines[1:]], "chain: entry 1"),
        (lambda lines: [line.replace('"ann":', '"amy":') for line in lines], "chain: entry 1"),
        (lambda lines: [lines[0], lines[1].replace(":", ": ", 1), *lines[2:]], "body: entry 1"),
        (lambda lines: [lines[0], "{", *lines[2:]], "recompute: entry 1: it cannot be read"),
        (lambda lines: lines[1:], "header: entry 0"),
        (lambda lines: [], "header: entry 0"),
    ],
)
def test_a_spoiled_export_is_named(tmp_path, exported, spoil, finding):
    path, _ = exported
    path.write_text(
        "".join(line if line.endswith("\n") else line + "\n" for line in spoil(path.read_text().splitlines(True)))
    )
    done = run_alone(tmp_path, str(path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert finding in done.stdout
    assert re.search(r"\d findings?, ends at", done.stdout)


def test_an_old_checkpoint_reveals_a_shorter_or_other_chain(tmp_path, exported):
    path, head = exported
    longer = "99:" + "ab" * 32
    done = run_alone(tmp_path, str(path), "--checkpoint", longer, "--checkpoint", "3:" + "cd" * 32)
    assert done.returncode == 1
    assert "it was cut" in done.stdout
    assert "made anew" in done.stdout


def test_wrong_calls_exit_2(tmp_path, exported):
    path, _ = exported
    assert run_alone(tmp_path).returncode == 2
    assert run_alone(tmp_path, "missing.jsonl").returncode == 2
    assert run_alone(tmp_path, str(path), "--checkpoint", "nonsense").returncode == 2


def test_an_unknown_rule_is_said_and_not_taken_for_right(tmp_path):
    with ledger.open(tmp_path / "a.db") as book:
        book.append(Entry("r", 0, "settlement", "mine/1", {}, {"a": 1, "b": -1}))
        assert [name for name, _, _ in standalone.check(list(to_jsonl(book)))[0]] == ["rule"]


@pytest.mark.parametrize(("beta", "fine"), [("1e99999999", False), ("1e9_9999999", False), ("1" * 1001, False),
                                            ("-1", False), ("0", True), ("0e1", True), (0, True)])  # fmt: skip
def test_both_verifiers_take_the_same_prices_in_no_time(tmp_path, beta, fine):
    points = {"a": 1, "b": 1}
    zero = dict.fromkeys(points, 0)
    entry = Entry("r", 0, "settlement", "contribution/1", {"beta": beta, "s": points, "scale": 1}, zero)
    with ledger.open(tmp_path / "a.db") as book:
        book.append(entry)
        names = [finding.name for finding in verify(book, recompute=True).findings]
        assert names == ([] if fine else ["recompute"])
        findings, _ = standalone.check(list(to_jsonl(book)), [])
        assert bool(findings) is not fine
