"""A rule is one object: every host takes what it lists and calls from there, and other packages add their own."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from packages import install, install_shrunk_mean

import fedincentive
from fedincentive import aggregation, mechanisms
from fedincentive.aggregation import StoredUpdate, StoredUpdates, rule, store, trim_count
from fedincentive.cli import main
from fedincentive.errors import SettingError
from fedincentive.settings import Settings

NAMES = aggregation.names()
X = [{"w": np.random.default_rng(i).normal(size=40).astype(np.float32), "steps": np.int64([i])} for i in range(15)]
LAST = {"w": np.zeros(40, np.float32), "steps": np.int64([0])}
POINTS = [float(i + 1) for i in range(15)]
IN_A_RUN = {  # what the functions get with alpha 0.2, normalize "paper", clip 2.5 and weights by points
    "mean": {"weights": POINTS},
    "trimmed-mean": {"alpha": 0.2, "weights": POINTS, "normalize": "paper"},
    "median": {},
    "krum": {"f": trim_count(0.2, 15)},
    "multi-krum": {"f": trim_count(0.2, 15)},
    "geometric-median": {"weights": POINTS},
    "centered-clipping": {"center": LAST, "radius": 2.5},
    "norm-clipping": {"max_norm": 2.5, "weights": POINTS},
    **{name: {"f": 3} for name in ("meamed", "bulyan", "mda", "monna", "smea", "caf")},
}
ON_FILES = {  # as options of the command
    "mean": ["--weights", ",".join(map(str, POINTS))],
    "trimmed-mean": ["--trim", "2"],
    "median": [],
    "krum": ["--f", "3"],
    "multi-krum": ["--alpha", "0.2", "--m", "3"],
    "geometric-median": ["--threads", "1"],
    "centered-clipping": ["--clip", "2.5", "--center", "last"],
    "norm-clipping": ["--clip", "2.5"],
    **{name: ["--f", "3"] for name in ("meamed", "bulyan", "mda", "smea")},
    "monna": ["--f", "3", "--trusted", "4"],
    "caf": ["--alpha", "0.2"],
}
OF_THE_COMMAND = {
    **IN_A_RUN,
    "trimmed-mean": {"trim": 2},
    "multi-krum": {"f": 3, "m": 3},
    "monna": {"f": 3, "trusted": 4},
    "geometric-median": {},
    "norm-clipping": {"max_norm": 2.5},
}


@pytest.fixture
def house(tmp_path_factory, monkeypatch):
    """The package of somebody else who has a rule of a few lines."""
    monkeypatch.syspath_prepend(str(install_shrunk_mean(tmp_path_factory.mktemp("house"))))


@pytest.fixture
def files(tmp_path: Path, monkeypatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    store("last", LAST)
    return [str(store(f"{i}.safetensors", update)) for i, update in enumerate(X)]


def command(*words: str):
    return CliRunner().invoke(main, ["aggregate", *words])


def same(a, b) -> bool:
    return list(a) == list(b) and all(a[name].tobytes() == b[name].tobytes() for name in b)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_calls_the_function_with_its_own_options(name: str) -> None:
    settings = Settings.read({"alpha": 0.2, "normalize": "paper", "clip": 2.5})
    direct = rule(name).call(X, **IN_A_RUN[name])
    assert same(rule(name).in_run(X, settings, POINTS, LAST), direct)
    assert same(rule(name)(X, **IN_A_RUN[name]), direct)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_knows_every_rule(files, name: str) -> None:
    done = command("--rule", name, *ON_FILES[name], "--out", "out", *files)
    assert done.exit_code == 0 and f"out: {name} of 15 updates" in done.output, done.output
    with StoredUpdate("out") as found:
        assert same(dict(found), rule(name).call(X, **OF_THE_COMMAND[name]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rule", "krum"], "--rule krum needs either --f or --alpha."),
        (["--rule", "krum", "--f", "1", "--alpha", "0.1"], "--rule krum needs either --f or --alpha."),
        (["--rule", "norm-clipping"], "--rule norm-clipping needs --clip."),
        (["--rule", "centered-clipping", "--clip", "1"], "--rule centered-clipping needs --center."),
        (
            ["--rule", "median", "--weights", "1"],
            "--weights does not go with --rule median: it may belong to --rule mean,",
        ),
        (["--rule", "krum", "--f", "1", "--nan-policy", "drop"], "--nan-policy does not go with --rule krum"),
        (["--rule", "crum", "--f", "1"], "no aggregation rule 'crum'. Did you mean 'krum'?"),
        (["--rule", "nope", "--f", "1"], "no aggregation rule 'nope'. Known: bulyan, caf, centered-clipping, "),
        (["--rule", "krum", "--f", "7"], "Krum needs n >= 2f + 3 clients. Got f=7, n=15."),
    ],
)
def test_mistakes_are_met_in_words(files, words: list[str], message: str) -> None:
    done = command(*words, "--out", "out", *files)
    assert done.exit_code != 0 and message in done.output and not Path("out").exists()


@pytest.mark.parametrize("name", ["model.npy", "model.NPZ", "model.pt", "model.bin"])
def test_a_result_is_not_written_under_the_name_of_another_format(files, name: str) -> None:
    done = command("--rule", "median", "--out", name, *files)
    assert done.exit_code == 2 and not Path(name).exists()
    assert f"--out {name}: the result is a safetensors file. Name it model.safetensors." in done.output


def test_the_help_says_what_each_rule_needs() -> None:
    text = " ".join(command("--help").output.split())
    for each in aggregation.rules():
        assert f"{each.name} {each.conventions}" in text
    assert "to n - f - 1, n >= 2f + 1. Needs --f or --alpha. Takes --convention" in text


def test_files_of_which_a_rule_needs_all(files) -> None:
    held = StoredUpdates([*files[:14], X[14]])  # one is in memory
    assert same(rule("krum").use(held, f=2), rule("krum")(X, f=2))
    with pytest.raises(fedincentive.errors.AggregationError, match="is also where the result should go"):
        rule("krum").use(StoredUpdates(files, out=files[3]), f=2)
    saying = [str(store(f"{i}.p", update, {"format": "pt", "client": str(i)})) for i, update in enumerate(X)]
    rule("geometric-median").use(StoredUpdates(saying, out="out"))
    with StoredUpdate("out") as found:
        assert found.metadata["format"] == "pt" and "client" not in found.metadata


def test_a_rule_of_another_package(house, files) -> None:
    found = rule("shrunk-mean")
    assert aggregation.names() == [*NAMES, "shrunk-mean"]
    expected = {name: sum(update[name] for update in X) / 15 * 0.5 for name in X[0]}
    assert same(found(X, factor=0.5), expected)
    with pytest.raises(SettingError, match="'shrunk_mean'. Did you mean 'shrunk-mean'"):
        rule("shrunk_mean")
    done = command("--rule", "shrunk-mean", "--clip", "0.5", "--out", "out", *files)
    assert done.exit_code == 0, done.output
    with StoredUpdate("out") as written:
        assert same(dict(written), expected)
    assert "shrunk-mean The mean, shrunk. Needs --clip." in " ".join(command("--help").output.split())
    made = mechanisms.get("fedavg", Settings.read({"aggregation": "shrunk-mean", "alpha": 0.3}))
    assert made.least(10) == 4
    with pytest.raises(SettingError, match="'shrunk-mean' with alpha = 0.3: that needs at least 2 agents, not 1"):
        made.check(1)


def test_rules_of_others_that_cannot_be_used(tmp_path: Path, monkeypatch) -> None:
    code = "from fedincentive.aggregation import Rule\nCALLED_B = Rule('b', sum)\n"
    points = (
        "[fedincentive.rules]\na = wrong_rules:CALLED_B\nc = builtins:sum\ngone = no_rules:X\nmean = builtins:sum\n"
    )
    monkeypatch.syspath_prepend(str(install(tmp_path, "wrong_rules", code, points)))
    for name, message in (
        ("a", r"rule 'a' \(wrong_rules:CALLED_B\) is Rule\('b'\): make it an aggregation.Rule of that name"),
        ("c", r"rule 'c' \(builtins:sum\) is <built-in"),
        ("gone", r"rule 'gone' \(no_rules:X\) cannot be loaded: No module"),
    ):
        with pytest.raises(SettingError, match=message):
            rule(name)
    assert rule("mean").call is aggregation.weighted_mean  # ours cannot be replaced
    with pytest.warns(UserWarning, match="'(a|c|gone)'"):
        assert [each.name for each in aggregation.rules()] == NAMES


def test_there_is_no_second_table() -> None:
    """Outside of rules.py no list, mapping, comparison or text of ours enumerates rules."""
    package = Path(fedincentive.__file__).parent
    for path in sorted(package.rglob("*.py")):
        if path == package / "aggregation" / "rules.py" or path.name == "__init__.py":  # which export functions
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            words = [c.value for c in ast.iter_child_nodes(node) if isinstance(c, ast.Constant)]
            where = f"{path.relative_to(package)}, line {getattr(node, 'lineno', 0)}"
            if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
                assert len(set(NAMES) & set(words)) < 2, f"{where} lists rules: ask aggregation.names()."
            if isinstance(node, ast.Compare):
                assert not set(NAMES) & set(words), f"{where} asks for a rule's name: ask the Rule."
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = [name for name in NAMES if "-" in name and name in node.value]
                assert len(named) < 2, f"{where} names {named}: take the text from the rules."
