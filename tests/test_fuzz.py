"""A short campaign of benchmarks/fuzz.py, and one test for each kind of defect that the long one found."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedincentive.plugins.fedml import settings as fedml
from fedincentive.plugins.flower import settings as flower

from fedincentive import Settings, mechanisms
from fedincentive.center import Center
from fedincentive.checks import shown
from fedincentive.errors import FedIncentiveError, GameError, LedgerError, ReportRefused, RunError, SettingError
from fedincentive.game import load
from fedincentive.ledger import Checkpoint, Entry, standalone
from fedincentive.manifest import SavedRun
from fedincentive.messages import Enrol, Report

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"
UNWRITABLE = 16**5000  # Python refuses to write so many digits


def laughs() -> list[Any]:
    """Forty lines of YAML aliases: small in memory, endless when written out."""
    value: list[Any] = ["lol"]
    for _ in range(40):
        value = [value] * 9
    return value


# By name: the test runner itself cannot write some of them out
SHOWN = {
    "unwritable": UNWRITABLE,
    "negative": -UNWRITABLE,
    "laughs": laughs(),
    "list": [UNWRITABLE],
    "long": "x" * 10**6,
}
TYPES: dict[str, Any] = {
    "too large": 10**400, "unwritable": UNWRITABLE, "list": [], "mapping": {"a": [1]}, "laughs": laughs(), "bytes": b"x",  # noqa: E501
    "lists": {"w": [1.0]}, "numbered": {1: np.zeros(2)}, "array": np.zeros(3),
}  # fmt: skip
VECTORS = {"laughs": laughs(), "too large": [10**400], "deep": [[[[1.0]]]], "text": ["x"], "nan": [float("nan")]}


def test_a_short_campaign_finds_nothing() -> None:
    counts = ["--frames", "6000", "--reports", "2000", "--settings", "1500"]
    done = subprocess.run([sys.executable, SCRIPT, *counts, "--seed", "7"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^frames +6,000 inputs: [\d,]+ refused, [\d,]+ taken; slowest", done.stdout, re.M), done.stdout
    assert "0 kinds of failure; peak memory" in done.stdout


def test_a_failure_is_printed_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    text = (
        SCRIPT.read_text()
        .replace("SettingError, 0.1),", "(), 0.1),", 1)
        .replace("Path(__file__)", f"Path({str(SCRIPT)!r})")
    )
    broken.write_text(text)
    arguments = [sys.executable, broken, "--settings", "300", "--only", "fedml"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1, done.stderr
    again = re.search(r"again: python benchmarks/fuzz.py (--seed 1 --only fedml --at \d+)", done.stdout)
    assert again and "FAILURE in fedml: SettingError" in done.stdout
    done = subprocess.run([sys.executable, broken, *again[1].split()], capture_output=True, text=True, timeout=100)
    assert "SettingError" in done.stderr and "1 kinds of failure" in done.stdout


@pytest.mark.parametrize("which", SHOWN)
def test_any_value_is_shown_at_once_and_in_short(which: str) -> None:
    value: Any = SHOWN[which]
    start = time.process_time()
    assert len(shown(value)) < 500
    for field in dataclasses.fields(Settings):
        try:
            Settings.read({field.name: value})
        except SettingError as error:
            assert f"incentive.{field.name}" in str(error) and len(str(error)) < 4100
    with pytest.raises(SettingError, match="game"):
        load({"game": value})
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    "name", ["rounds", "round_limit", "scale", "minor", "seed", "sampled", "epochs", "batch", "repeats"]
)
def test_whole_numbers_have_64_bits(name: str) -> None:
    with pytest.raises(SettingError, match=rf"incentive\.{name} must be .* a number of about 401 digits"):
        Settings.read({name: 10**400})


def test_messages_of_errors_are_bounded() -> None:
    assert len(str(FedIncentiveError("x" * 10**7))) < 4100


@pytest.mark.parametrize(
    "text",
    [
        "9" * 5000, "0x" + "f" * 5000, "2024-99-99", "!!int x", "!!float x", "!!timestamp x", "0b_", "!!map x", "!!set x",  # noqa: E501
        "{" * 20_000, "[" * 20_000, "&a [*a]", "*b", "!!python/object:os.system {}", "\ta", "? [a]\n  : b", "- " * 3000,
    ],
)  # fmt: skip
def test_no_yaml_is_more_than_a_wrong_setting(text: str, tmp_path: Path) -> None:
    path = tmp_path / "game.yaml"
    start = time.process_time()
    for where in (f"game: {{kind: example, w0: {text}}}", f"game:\n  kind: {text}\n", f"incentive: {text}", text):
        path.write_text(where)
        with pytest.raises((SettingError, GameError)):
            load(path)
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize("which", VECTORS)
def test_lists_of_numbers_are_no_deeper_than_a_matrix(which: str) -> None:
    with pytest.raises((SettingError, GameError), match="w0 must be"):
        load({"game": {"kind": "example", "w0": VECTORS[which]}})


def test_a_range_that_no_float_holds_is_refused() -> None:
    each = {"s_max": 1, "a": {"low": -1e308, "high": 1e308}}
    with pytest.raises(SettingError, match=r"game\.each\.a: the range from -1e\+308 to 1e\+308 is too wide"):
        load({"game": {"kind": "shared-error", "agents": 2, "each": each}})


def opened(phase: str, **settings: Any) -> Center:
    values = Settings.read({"mechanism": "2p-upbred" if phase == "contribute" else "fedavg", "rounds": 1, **settings})
    agents = [Enrol(name, 10.0, 5.0) for name in "ab"]
    return Center(values, mechanisms.get(values.mechanism, values), agents, {"w": np.zeros(2)})


@pytest.mark.parametrize(
    "name",
    ["run", "round", "phase", "agent", "s", "delivered", "valuation", "update", "nonce", "signature", "cosignature"],
)
@pytest.mark.parametrize("which", TYPES)
def test_a_report_of_wrong_types_is_refused_before_it_is_used(name: str, which: str) -> None:
    value = TYPES[which]
    center = opened("contribute")
    report = dataclasses.replace(Report("run", 0, "contribute", "a", s=1.0), **{name: value})
    if name == "round" and isinstance(value, int):
        assert not center.submit(report)  # only late
        return
    with pytest.raises(ReportRefused) as refused:
        center.submit(report)
    assert len(str(refused.value)) < 1000 and center.counts["refused"] == 1
    assert center.submit(Report("run", 0, "contribute", "a", s=1.0))


@pytest.mark.parametrize("dtype", ["O", "M8[s]", "m8[s]"])
def test_an_update_of_no_numbers_is_refused(dtype: str) -> None:
    report = Report("run", 0, "train", "a", delivered=5.0, update={"w": np.zeros(2, dtype)}, signature="x")
    with pytest.raises(ReportRefused, match="send numbers"):
        opened("train").submit(report)


def test_a_valuation_that_64_bits_do_not_hold_is_refused() -> None:
    center = opened("train", minor=10**15)
    report = Report("run", 0, "train", "a", delivered=5.0, update={"w": np.zeros(2)}, valuation=1e8)
    with pytest.raises(ReportRefused, match="valuation = 100000000.0"):
        center.submit(report)


@pytest.mark.parametrize("name", ["comm_round", "client_num_per_round", "client_num_in_total", "random_seed"])
@pytest.mark.parametrize("value", ["many", None, float("inf"), float("nan"), [3], "9" * 5000])
def test_fedmls_own_numbers_are_checked(name: str, value: object) -> None:
    usual = {"federated_optimizer": "upbred", "comm_round": 3, "client_num_per_round": 2, "client_num_in_total": 3}
    with pytest.raises(SettingError, match=rf"_args\.{name} must be a whole number"):
        fedml.read(SimpleNamespace(**{**usual, name: value}))


@pytest.mark.parametrize("text", ["game: {", "[1]", "\xff", "a: 2024-99-99"])
def test_fedmls_yaml_may_hold_anything(text: str, tmp_path: Path) -> None:
    path = tmp_path / "fedml.yaml"
    path.write_text(text, encoding="latin-1")
    usual = {"federated_optimizer": "upbred", "comm_round": 3, "client_num_per_round": 2, "client_num_in_total": 3}
    args = SimpleNamespace(**usual, yaml_config_file=str(path))
    if text == "[1]":
        assert fedml.read(args)
        return
    with pytest.raises(SettingError, match=r"fedml.yaml is not valid YAML"):
        fedml.read(args)


@pytest.mark.parametrize("keys", [("options.x", "options.x.y"), ("cost.a", "cost"), ("cost", "cost.a")])
def test_flowers_tables_are_not_values_too(keys: tuple[str, str]) -> None:
    with pytest.raises(SettingError, match="keep one of them"):
        flower.read({f"incentive.{key}": 1 for key in keys})


DEEP = "[" * 100_000


def test_files_that_are_nested_without_end_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep"
    path.write_text(DEEP)
    with pytest.raises(LedgerError, match="not a ledger entry"):
        Entry.from_json(DEEP)
    with pytest.raises(RunError, match="is not the manifest of a run"):
        SavedRun.read(path)
    for text in (DEEP, "[]", "3"):
        path.write_text(text)
        try:
            assert standalone.main([str(path)]) == 1
        except SystemExit as end:
            assert end.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_checkpoint_counts_in_64_bits() -> None:
    seen = "9" * 5000 + ":" + "ab" * 32
    with pytest.raises(LedgerError, match="A checkpoint is written"):
        Checkpoint.parse(seen)
    assert Checkpoint.find(seen) == []
