"""The exports say what the ledger says, to the last unit."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
from entries import settlement, truthful

from fedincentive import ledger
from fedincentive.ledger import Entry
from fedincentive.ledger.export import decimal, to_beancount, to_csv, to_jsonl


@pytest.fixture
def bean_check(needs):
    """beancount's checker, run as a program; it may be installed beside this interpreter or on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "bean-check"
    program = str(beside) if beside.exists() else needs("bean-check")

    def check(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
        path = folder / "ledger.beancount"
        path.write_text(text, encoding="utf-8")
        return subprocess.run([program, "--no-cache", str(path)], capture_output=True, text=True, check=False)

    return check


def fill(book, entries) -> None:
    for entry in entries:
        book.append(entry)


def test_decimal_is_exact():
    assert [decimal(a, 1000) for a in (0, 1, -1, 999, -1000, 2**63 - 1)] == [
        "0.000", "0.001", "-0.001", "0.999", "-1.000", "9223372036854775.807",
    ]  # fmt: skip
    assert decimal(-5, 1) == "-5"


def test_csv_has_every_posting(book, run_entries):
    fill(book, run_entries())
    rows = list(csv.DictReader(io.StringIO("".join(to_csv(book)))))
    totals: dict[str, int] = {}
    for row in rows:
        if row["account"]:
            totals[row["account"]] = totals.get(row["account"], 0) + int(row["minor_units"])
            assert row["units"] == decimal(int(row["minor_units"]), 10**6)
    assert totals == book.balances()
    assert [row["kind"] for row in rows if not row["account"]] == ["commitment"]


FORMULAS = ("=1+1", "+x", "-x", "@sum", " =x", "'t", "\uff1dx", "-5")


def test_no_name_is_a_formula_in_a_spreadsheet(tmp_path):
    with ledger.open(tmp_path / "a.db") as book:
        book.append(Entry("=run", 0, "refund", "x/1", {}, dict.fromkeys(FORMULAS, -1) | {"ann": len(FORMULAS)}))
        rows = list(csv.DictReader(io.StringIO("".join(to_csv(book)))))
    assert {row["run"] for row in rows} == {"'=run"}
    assert {row["account"] for row in rows} == {*(f"'{name}" for name in FORMULAS[:-1]), "-5", "ann"}
    assert {row["account"].removeprefix("'") for row in rows} == {*FORMULAS, "ann"}
    assert {row["minor_units"] for row in rows} == {"-1", "8"}
    assert {row["units"] for row in rows} == {"-0.000001", "0.000008"}


def test_jsonl_is_the_same_from_both_stores(tmp_path, postgres, run_entries):
    texts = set()
    for target in (tmp_path / "a.db", postgres.empty()):
        with ledger.open(target) as book:
            fill(book, run_entries())
            texts.add("".join(to_jsonl(book)))
    assert len(texts) == 1


STRANGE = ("ann", "ANN", "a n\u00f6n", 'q"uote', "back\\slash", "1", "-x", "a:b")


@pytest.mark.parametrize("minor", [1, 100, 10**6])
def test_bean_check_accepts_the_journal_and_rejects_one_unit(tmp_path, bean_check, minor):
    with ledger.open(tmp_path / "a.db", minor=minor) as book:
        for round in range(3):
            s = {name: (k * 37 + round) % 11 for k, name in enumerate(STRANGE)}
            book.append(settlement('a "run"', round, beta="7/3", s=s, scale=1, minor=minor))
        book.append(truthful('a "run"', 3, valuations={"ann": 5, "ANN": 7}, minor=minor))
        text = "".join(to_beancount(book))
    accepted = bean_check(text, tmp_path)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    amounts = list(re.finditer(r"^  (?:Liabilities|Equity)\S+  (-?[\d.]+) CREDIT$", text, re.MULTILINE))
    assert len(amounts) == 27
    for match in amounts[::9]:
        digits = match[1]
        last = digits[:-1] + str((int(digits[-1]) + 1) % 10)
        rejected = bean_check(text[: match.start(1)] + last + text[match.end(1) :], tmp_path)
        assert rejected.returncode != 0
        assert "does not balance" in rejected.stdout + rejected.stderr


def test_bean_check_rejects_a_wrong_balance_by_one_unit(tmp_path, bean_check):
    """Two postings off by one unit each way balance within their entry; the asserted balances do not forgive them."""
    with ledger.open(tmp_path / "a.db") as book:
        book.append(Entry("r", 0, "settlement", "x/1", {}, {"a": 5, "b": -5}))
        text = "".join(to_beancount(book))
    assert bean_check(text, tmp_path).returncode == 0
    shifted = text.replace("  0.000005 CREDIT", "  0.000006 CREDIT").replace("  -0.000005 CREDIT", "  -0.000006 CREDIT")
    assert shifted != text
    assert bean_check(shifted, tmp_path).returncode != 0
