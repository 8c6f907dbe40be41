"""What a newcomer types first: scaffolds that run, folders in the place of ledgers, and answers that help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commands import command

import fedincentive
from fedincentive.cli.ledger import counted

GAMES = Path(__file__).parents[2] / "examples" / "games"


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run as a host leaves it."""
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    fedincentive.play(
        GAMES / "hospitals.yaml", rounds=2, run="first", ledger=folder / "ledger.sqlite", state=folder / "state"
    )
    return folder


def test_a_new_game_gains_for_everyone_and_plays_in_five_rounds(tmp_path):
    assert command("new", "game", tmp_path).exit_code == 0
    quote = json.loads(command("quote", tmp_path / "game.yaml", "--json").output)
    assert quote["losers"] == [] and quote["phase_one_rounds"] == 5
    assert quote["net_welfare"] > quote["net_welfare_unpaid"] > quote["net_welfare_alone"]
    played = json.loads(command("play", tmp_path / "game.yaml", "--json").output)
    assert all(row["s"] == row["s_max"] for row in played["agents"])
    assert played["outcome"]["contributed"] == 5


@pytest.mark.parametrize(
    ("what", "program", "says"),
    [("mechanism", "my_mechanism.py", "Certificate: 3 agents"), ("payment", "my_payment.py", "[ 30.   0. -30.]")],
)
def test_a_new_mechanism_and_payment_run_at_once(tmp_path, what, program, says):
    assert f"python {program}" in command("new", what, tmp_path).output
    done = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and says in done.stdout, done.stderr


def test_nothing_that_exists_is_overwritten(tmp_path):
    (tmp_path / "game.yaml").write_text("mine")
    done = command("new", "mechanism", tmp_path)
    assert done.exit_code == 2 and "game.yaml exists already" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["game.yaml"] and (
        tmp_path / "game.yaml"
    ).read_text() == "mine"


@pytest.mark.parametrize("place", [".", "state"])
def test_a_run_folder_is_taken_where_a_ledger_is(run_folder, place):
    for words in (("balances",), ("show",), ("head",), ("verify", "--recompute"), ("statement",)):
        more = ("clinic",) if words == ("statement",) else ()
        by_folder = command("ledger", words[0], run_folder / place, *more, *words[1:])
        by_file = command("ledger", words[0], run_folder / "ledger.sqlite", *more, *words[1:])
        assert by_folder.exit_code == 0 and by_folder.output == by_file.output


def test_a_ledger_of_play_is_found_from_its_runs_folder(tmp_path):
    command("play", GAMES / "hospitals.yaml", "--ledger", tmp_path / "a.sqlite")
    done = command("ledger", "head", tmp_path / "a.sqlite.runs" / "run")
    assert done.exit_code == 0 and done.output == command("ledger", "head", tmp_path / "a.sqlite").output


def test_a_report_on_a_run_folder_is_written_into_it(run_folder):
    done = command("report", run_folder)
    assert done.exit_code == 0 and "clinic" in (run_folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("notes.txt", "is neither a run with a ledger nor a study of `fedincentive reproduce`. Name a ledger file or"),
        ("a.sqlite", "a.sqlite or such a folder."),
        ("manifest.json", "holds a study that was not finished. Continue it with `fedincentive reproduce"),
    ],
)
def test_a_report_on_any_other_folder_says_what_to_name(tmp_path, file, says):
    (tmp_path / file).touch()
    done = command("report", tmp_path)
    assert done.exit_code == 1 and says in done.output and (file == "manifest.json") == ("--resume" in done.output)


def test_a_folder_without_a_ledger_says_so(tmp_path):
    done = command("ledger", "balances", tmp_path)
    assert done.exit_code == 2 and "folder without a ledger" in done.output


@pytest.mark.parametrize("words", [("balances",), ("show",), ("statement", "clinic")])
def test_a_run_that_is_not_there_is_named_with_the_nearest(run_folder, words):
    done = command("ledger", words[0], run_folder, *words[1:], "--run", "frist")
    assert done.exit_code == 2 and "There is no run 'frist' in this ledger. Did you mean 'first'?" in done.output


def test_a_liars_row_has_what_it_said_and_what_is_true():
    found = json.loads(command("play", GAMES / "hospitals.yaml", "--lies", "clinic=under-train", "--json").output)
    honest = json.loads(command("play", GAMES / "hospitals.yaml", "--json").output)
    rows, before = ({row["agent"]: row for row in each["agents"]} for each in (found, honest))
    assert (rows["clinic"]["said"], rows["clinic"]["true"]) == (25.0, 12.0)
    assert rows["clinic"]["cost"] == pytest.approx(12 * 0.04)  # it bears what it really did ...
    assert rows["clinic"]["payment"] == before["clinic"]["payment"]  # ... and is paid for what it said
    assert (
        rows["clinic"]["utility"] > before["clinic"]["utility"] and rows["city"]["utility"] < before["city"]["utility"]
    )
    verdicts = {finding["claim"]: finding for finding in found["certificate"]["findings"]}
    assert verdicts["full-contribution"]["status"] == "not verifiable"
    assert verdicts["full-contribution"]["detail"].startswith("delivery is reported")
    assert verdicts["budget-balanced"]["status"] == "held"
    text = command("play", GAMES / "hospitals.yaml", "--lies", "clinic=under-train").output
    assert "said" in text and "true" in text


def test_no_claim_that_rests_on_words_is_held():
    found = fedincentive.play(GAMES / "hospitals.yaml", lies={"clinic": "under-train"})
    assert not [one for one in found.certificate.findings if one.status == "held" and one.basis != "exact"]


def test_costs_in_the_wrong_place_are_told(tmp_path):
    text = (GAMES / "hospitals.yaml").read_text().replace("incentive:", "incentive:\n  cost: 0.01")
    (tmp_path / "game.yaml").write_text(text)
    for name in ("play", "quote"):
        assert "The costs that agents bear are `cost` in the game's" in command(name, tmp_path / "game.yaml").output


def test_an_existing_run_names_the_option(tmp_path):
    words = ("play", GAMES / "hospitals.yaml", "--ledger", tmp_path / "a.sqlite")
    assert command(*words).exit_code == 0
    assert "--resume" in command(*words).output


def test_a_name_that_is_like_none_gets_the_list(tmp_path):
    (tmp_path / "g.yaml").write_text((GAMES / "hospitals.yaml").read_text().replace("curve: power-law", "curve: nope"))
    said = command("play", tmp_path / "g.yaml").output
    assert "game.curve is 'nope'. Known: " in said and "power-law" in said


def test_one_of_a_thing_is_one():
    assert [counted(n, "finding") for n in (0, 1, 2)] == ["0 findings", "1 finding", "2 findings"]
    assert counted(1, "entry", "entries") == "1 entry" and counted(3, "entry", "entries") == "3 entries"


@pytest.mark.parametrize("part", ["fedml", "flower", "nvflare", "flute"])
def test_doctor_speaks_of_every_host(part):
    found = json.loads(command("doctor", "--json").output)
    assert part in [one["part"] for one in found["findings"]]


def test_whatever_people_script_prints_json(run_folder, tmp_path):
    command("keys", "new", "clinic", "city", "--dir", tmp_path / "keys")
    (tmp_path / "keys" / "city.key").unlink()
    keys = json.loads(command("keys", "show", tmp_path / "keys", "--json").output)
    assert [(key["name"], key["own"]) for key in keys] == [("city", False), ("clinic", True)]
    alias = command("names", "new", "Clinic, South", "--map", tmp_path / "names.csv").output.strip()
    assert json.loads(command("names", "show", "--map", tmp_path / "names.csv", "--json").output) == {
        alias: "Clinic, South"
    }
    known = {row["setting"]: row for row in json.loads(command("settings", "--json").output)}
    assert "`trimmed-mean`" in known["aggregation"]["allowed"] and known["beta"]["topic"] == "Payments"


@pytest.mark.parametrize("name", ["a\nb", "a\u202eb", "treasury", " a", "ann\u00a0"])
def test_a_quote_takes_no_name_that_a_run_refuses(name, tmp_path):
    game = yaml.safe_load((GAMES / "hospitals.yaml").read_text())
    game["game"]["agents"][0]["name"] = name
    (tmp_path / "game.yaml").write_text(yaml.safe_dump(game))
    for word in ("quote", "play"):
        done = command(word, tmp_path / "game.yaml")
        assert done.exit_code == 1 and done.stderr.startswith(("Error: Agent ", "Error: Enrol ")), (word, done.stderr)
        assert "\u202e" not in done.stderr


def test_a_game_in_which_most_lose_says_so_and_what_to_do(tmp_path):
    game = yaml.safe_load((GAMES / "hospitals.yaml").read_text())
    game["game"]["each"] |= {"a": 0.1, "b": 0.2}
    (tmp_path / "my game.yaml").write_text(yaml.safe_dump(game))
    done = command("play", tmp_path / "my game.yaml")
    assert "Most agents would be better off training alone. `fedincentive quote '" in done.stdout
    assert "Most agents" not in command("play", GAMES / "hospitals.yaml").stdout
    game["incentive"]["accept_losses"] = True
    (tmp_path / "my game.yaml").write_text(yaml.safe_dump(game))
    assert "a game is played in any case" in command("play", tmp_path / "my game.yaml").stderr


def test_a_certificate_is_not_looked_for_in_a_database():
    done = command("certify", "postgresql://localhost/ledgers")
    words = " ".join(done.stderr.split())
    assert "a certificate is kept with the run's state, not in its ledger. Name the run's folder." in words
    assert "there is nothing at nope" in command("certify", "nope").stderr


def test_the_report_of_a_game_says_who_gained(run_folder):
    """What a closed-form game knows of costs and of training alone is in the manifest, and so on the page."""
    assert command("report", run_folder).exit_code == 0
    page = (run_folder / "report.html").read_text()
    assert "The model is worth more to every agent than its data and its payments cost it, by the" in page
    assert "against training alone" in page


def test_a_ledger_of_one_run_is_taken_where_a_run_is(run_folder, tmp_path):
    by_folder = command("certify", run_folder)
    assert by_folder.exit_code == 0 and command("certify", run_folder / "ledger.sqlite").output == by_folder.output
    fedincentive.play(GAMES / "hospitals.yaml", rounds=1, ledger=tmp_path / "a.sqlite", run="one")
    fedincentive.play(GAMES / "hospitals.yaml", rounds=1, ledger=tmp_path / "a.sqlite", run="two")
    assert "is the ledger of 2 runs: name the folder of one" in command("certify", tmp_path / "a.sqlite").output
    head = command("ledger", "head", tmp_path / "a.sqlite").output
    assert command("ledger", "head", tmp_path / "a.sqlite.runs").output == head


@pytest.mark.parametrize("name", ["quote", "play"])
def test_an_absurd_size_is_named(tmp_path, name):
    (tmp_path / "g.yaml").write_text((GAMES / "hospitals.yaml").read_text().replace("s_max: 60", "s_max: 1e30"))
    said = command(name, tmp_path / "g.yaml").output
    assert "game.agents[0] (university).s_max must be between 0.0 and 9000000000000.0, not" in said


def test_an_account_that_is_not_there_gets_the_nearest(run_folder):
    done = command("ledger", "statement", run_folder, "clinc")
    assert done.exit_code == 1 and "There is no account 'clinc' here. Did you mean 'clinic'?" in done.output
