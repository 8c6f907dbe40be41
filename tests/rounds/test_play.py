"""`fedincentive play`: the command a person types."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commands import command

FARMS = {
    "game": {
        "kind": "data-value",
        "curve": "logarithm",
        "w0": [1.0],
        "each": {"b": 1.0, "scale": 1.0, "cost": 0.2, "ideal": [0.0]},
        "agents": [
            {"name": "hill", "s_max": 20, "s0": 5},
            {"name": "dale", "s_max": 30, "s0": 5},
            {"name": "coast", "s_max": 40, "s0": 5},
        ],
    },
    "incentive": {"mechanism": "2p-upbred", "beta": "0.5", "gamma": 50.0, "eta": 0.5, "rounds": 6},
}  # fmt: skip


@pytest.fixture
def game(tmp_path):
    """Writes a game file; keyword arguments change its incentive mapping."""

    def write(**incentive) -> str:
        path = tmp_path / "game.yaml"
        path.write_text(yaml.safe_dump({**FARMS, "incentive": {**FARMS["incentive"], **incentive}}))
        return str(path)

    return write


def run(*arguments: str, code: int = 0) -> str:
    done = command("play", *arguments)
    assert done.exit_code == code, done.output
    return done.output


def test_the_table_and_the_certificate(game) -> None:
    text = run(game())
    assert "2p-upbred, run run: complete after" in text
    row = next(line.split() for line in text.splitlines() if line.startswith("coast"))
    assert row[1:5] == ["5", "40", "40", "40"] and row[7] == "7.5"  # 0.5 (40 - 25)
    assert "full-contribution     held" in text and "budget-balanced       held" in text


def test_json_has_everything(game) -> None:
    found = json.loads(run(game(), "--json"))
    assert [row["agent"] for row in found["agents"]] == ["hill", "dale", "coast"]
    assert [row["payment"] for row in found["agents"]] == [-7.5, 0.0, 7.5]
    for row in found["agents"]:
        assert row["utility"] == pytest.approx(row["value"] - row["cost"] + row["payment"])
    assert found["outcome"]["status"] == "complete" and found["certificate"]["regret"]["value"] == 0.0


@pytest.mark.parametrize("strategy", ["free-rider", "away"])
def test_the_certificate_goes_by_what_was_delivered(game, strategy) -> None:
    found = json.loads(run(game(), "--json", "--strategy", f"coast={strategy}"))
    rows, certificate = {row["agent"]: row for row in found["agents"]}, found["certificate"]
    assert rows["coast"]["s"] == 40 and rows["coast"]["delivered"] == 0
    assert certificate["welfare"]["value"] == pytest.approx(sum(row["value"] for row in rows.values()))
    claims = {finding["claim"]: finding for finding in certificate["findings"]}
    broken = claims["full-contribution"]
    assert broken["status"] == "broken" and "coast" in json.dumps(broken)
    assert claims["budget-balanced"]["status"] == "held"


def test_the_head_it_prints_is_a_checkpoint(game, tmp_path) -> None:
    (tmp_path / "log").write_text(run(game(), "--ledger", str(tmp_path / "a.db")))
    done = command("ledger", "verify", tmp_path / "a.db", "--checkpoint", tmp_path / "log")
    assert done.exit_code == 0 and "1 checkpoint checked" in done.output


@pytest.mark.parametrize("name", ["a\nb", "x" * 201])
def test_a_name_that_no_account_can_have_is_refused_before_anything_is_written(game, tmp_path, name) -> None:
    path = Path(game())
    rows = yaml.safe_load(path.read_text())
    rows["game"]["agents"][1]["name"] = name
    path.write_text(yaml.safe_dump(rows))
    assert "needs another name" in run(str(path), "--state", str(tmp_path / "run"), code=1)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["../out", "/out", "..", "x" * 201, "a\nb"])
def test_a_run_s_name_stays_inside_its_folder(game, tmp_path, name) -> None:
    assert "it names a folder" in run(game(run=name), "--ledger", str(tmp_path / "a.db"), code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["game.yaml"]


@pytest.mark.parametrize("name", ["fedavg", "upbred", "t-upbred", "2p-upbred", "trim-2p-upbred", "fedavg-strategic"])
def test_every_mechanism_plays(game, name) -> None:
    assert (
        json.loads(run(game(round_limit=300, when_short="train"), "--mechanism", name, "--json"))["outcome"][
            "mechanism"
        ]
        == name
    )


def test_the_ledger_is_written_and_verifies(game, tmp_path) -> None:
    book = str(tmp_path / "money.db")
    head = json.loads(run(game(), "--ledger", book, "--json"))["outcome"]["head"]
    checked = command("ledger", "verify", book, "--recompute")
    assert checked.exit_code == 0 and head in checked.output
    assert "exists in" in run(game(), "--ledger", book, code=1)
    assert json.loads(run(game(), "--ledger", book, "--resume", "--json"))["outcome"]["head"] == head


def test_resume_needs_a_place(game) -> None:
    assert "say where the run's state is with --state" in run(game(), "--resume", code=1)


def test_a_run_that_is_killed_is_resumed_from_the_command_line(game, tmp_path) -> None:
    """The real program, really killed."""
    path = game(rounds=60)
    command = [sys.executable, "-m", "fedincentive.cli", "play", path, "--resume", "--json"]
    whole = subprocess.run([*command, "--state", "whole"], cwd=tmp_path, capture_output=True, text=True, check=True)
    state = tmp_path / "killed" / "state.json"
    child = subprocess.Popen([*command, "--state", "killed"], cwd=tmp_path, stdout=subprocess.PIPE)
    while child.poll() is None and not (state.exists() and '"trained": 2' in state.read_text()):
        pass
    child.kill()
    child.communicate()
    assert child.returncode == -9
    done = subprocess.run([*command, "--state", "killed"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == json.loads(whole.stdout)


def test_a_short_phase_one_is_advised_on(game) -> None:
    text = run(game(beta="0.1"))
    assert "settled after" in text and "beta_NE" in text and "Above 0.2 every" in text
    assert "full-contribution     broken" in text


def test_nobody_bears_a_cost_where_nobody_trained(game) -> None:
    found = json.loads(run(game(beta="0.1"), "--json"))
    assert found["outcome"]["trained"] == 0 and any(row["s"] for row in found["agents"])
    assert [row["cost"] for row in found["agents"]] == [0.0, 0.0, 0.0]
    assert sum(row["utility"] for row in found["agents"]) == pytest.approx(found["certificate"]["net_welfare"]["value"])


def test_strategies_and_lies_by_name(game) -> None:
    found = json.loads(run(game(), "--strategy", "hill=free-rider", "--json"))
    assert found["agents"][0]["delivered"] == 0.0 and found["agents"][0]["payment"] < -7.5
    lied = json.loads(run(game(), "--mechanism", "t-upbred", "--lies", "coast=inflate-v", "--json"))
    assert lied["agents"][2]["payment"] < -100.0
    assert lied["certificate"]["welfare"]["basis"] == "reported"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mechanism", "2p"], "no mechanism '2p'"),
        (["--strategy", "hil=fixed"], "no agent 'hil'. Did you mean 'hill'"),
        (["--strategy", "hill=fixd"], "no strategy 'fixd'. Did you mean 'fixed'"),
        (["--lies", "hill=inflate"], "no misreport 'inflate'"),
        (["--strategy", "hill"], "'hill' is not of the form AGENT=NAME"),
    ],
)
def test_wrong_options_are_named(game, arguments, message) -> None:
    done = command("play", game(), *arguments)
    assert done.exit_code != 0 and message in done.output


def test_a_wrong_setting_in_the_file_is_named(game) -> None:
    assert "incentive has no setting 'gama'. Did you mean 'gamma'" in run(game(gama=1.0), code=1)


def test_the_pictures_are_drawn(game, tmp_path) -> None:
    from matplotlib import image

    text = run(game(), "--plot", str(tmp_path / "pictures"))
    for name in ("contributions", "payments"):
        assert str(tmp_path / "pictures" / f"{name}.png") in text
        pixels = image.imread(tmp_path / "pictures" / f"{name}.png")
        assert pixels.shape[0] > 500 and pixels.shape[1] > 800 and pixels.std() > 0.05
        drawing = (tmp_path / "pictures" / f"{name}.svg").read_text()
        assert drawing.startswith("<?xml") and drawing.rstrip().endswith("</svg>")


def test_the_same_run_draws_the_same_file(game, tmp_path) -> None:
    for place in ("one", "two"):
        run(game(), "--plot", str(tmp_path / place))
    assert (tmp_path / "one" / "payments.svg").read_bytes() == (tmp_path / "two" / "payments.svg").read_bytes()


def test_many_agents_are_shortened_in_the_table_and_drawn_as_a_spread(tmp_path) -> None:
    many = {"kind": "data-value", "curve": "logarithm", "w0": [0.0], "agents": 40,
            "each": {"b": 1.0, "scale": 1.0, "cost": 0.1, "s_max": {"low": 5, "high": 50}, "s0": 1}}  # fmt: skip
    path = tmp_path / "many.yaml"
    path.write_text(yaml.safe_dump({"game": many, "incentive": {"beta": "0.5", "gamma": 50.0, "rounds": 2}}))
    text = run(str(path), "--plot", str(tmp_path / "p"))
    assert "... and 15 more agents (--json shows all)" in text
    drawing = (tmp_path / "p" / "contributions.svg").read_text()
    assert "40 agents" in drawing and "median" in drawing and "agent-01" not in drawing


def test_without_matplotlib_the_remedy_is_named_before_anything_is_played(game, tmp_path) -> None:
    """A real interpreter in which matplotlib cannot be imported."""
    blocker = tmp_path / "blocked" / "matplotlib"
    blocker.mkdir(parents=True)
    (blocker / "__init__.py").write_text("raise ImportError('not installed')\n")
    command = [sys.executable, "-m", "fedincentive.cli", "play", game(), "--plot", "p", "--ledger", "l.db"]
    environment = {"PYTHONPATH": str(tmp_path / "blocked"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "pip install 'fedincentive[plots]'" in done.stderr
    assert not (tmp_path / "l.db").exists()


def test_the_installed_script_plays(game, tmp_path) -> None:
    script = Path(sys.executable).with_name("fedincentive")
    program = str(script) if script.exists() else shutil.which("fedincentive")
    done = subprocess.run([program, "play", game()], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "Certificate: 3 agents" in done.stdout
    assert done.stderr == ""  # no progress bar where nobody watches
