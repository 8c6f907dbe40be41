"""The lie search, the claims and their replays, on games small enough to search in seconds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fedincentive.cli import main
from fedincentive.league import COLUMNS, ROWS, Reports, draw, judge, lies, measure, running
from fedincentive.league.base import LeagueRow, Promise

N = 4


@pytest.fixture(scope="module")
def games():
    """A game with the rows whose claims break, and ours."""
    rows = ("2p-upbred", "2p-attested", "fact", "pwyc", "shaping", "shapley-share", "fedavg", "planner")
    wanted = running.Wanted(games=1, n=3, rows=rows)
    with np.errstate(all="ignore"):
        played = list(running.play(wanted, jobs=1))
    return wanted, played, {(v.row, v.claim): v for v in running.verdicts(wanted, played)}


@pytest.mark.parametrize(
    ("row", "claim", "verdict"),
    [
        ("fact", "truthful", "broken"),  # lying towards the median pays
        ("fact", "treasury never pays", "held"),
        ("pwyc", "budget balanced", "broken"),
        ("pwyc", "needs met", "held"),
        ("shaping", "truthful", "outside its assumptions"),  # costs are asked, and overstating them pays
        ("shaping", "full contribution", "broken"),
        ("shapley-share", "false-name-proof", "broken"),
        ("2p-upbred", "full contribution", "held"),
        ("2p-upbred", "budget balanced", "held"),
        ("2p-upbred", "delivered", "broken"),
        ("2p-attested", "delivered", "held"),
    ],
)
def test_claims_hold_or_break_as_they_should(games, row, claim, verdict):
    assert games[2][row, claim].verdict == verdict


@pytest.mark.parametrize("row", ["fact", "shaping", "shapley-share", "2p-upbred"])
def test_the_printed_command_replays_the_lie_with_the_same_gain(games, row):
    lying = [v for (name, _), v in games[2].items() if name == row and "--replay" in v.command]
    assert lying
    for verdict in lying:
        done = CliRunner().invoke(main, verdict.command.split()[1:])
        assert done.exit_code == 0, done.output
        gain = re.search(r"gain (\S+)", verdict.worst)
        again = re.search(r"gain (\S+?)[ \n]", done.output + "\n")
        assert gain and again and float(again[1]) == pytest.approx(float(gain[1]), rel=0.02)


def test_2p_has_the_best_welfare_and_the_worst_net_welfare(games):
    table = {row["row"]: row for row in running.table(games[1])}
    assert table["2p-upbred"]["W"] == pytest.approx(table["fedavg"]["W"])
    assert table["2p-upbred"]["W"] == max(row["W"] for row in table.values())
    assert table["2p-upbred"]["NW"] == pytest.approx(min(row["NW"] for row in table.values()))
    assert table["planner"]["NW"] == max(row["NW"] for row in table.values())
    assert table["2p-upbred"]["fabr."] > 0.1 and table["2p-attested"]["fabr."] == pytest.approx(0.0, abs=1e-6)


def test_facts_middle_wins_more_than_an_honest_extreme():
    """By hand: with the others' reports fixed, the lowest cost never wins, the median wins most often."""
    stage = draw("data-value", 1, 6, 0.0)
    row, reports = ROWS["fact"], Reports.honest(stage)
    lowest, middle = int(stage.c.argmin()), float(np.sort(stage.c)[2:4].mean())
    assert row.chances(reports.c)[lowest] == 0.0
    assert row.chances(reports.lying("c", lowest, middle).c)[lowest] == pytest.approx(0.6)  # 2 below, 3 above, of 10


class Known(LeagueRow):
    """Pays -(told - 2 truth)^2, so that the best lie is twice the truth and gains truth^2."""

    name, source, asks, chooses = "known", "test", ("c",), False
    promises = (Promise("truthful"),)

    def moves(self, stage, reports, start=None):
        return ROWS["fedavg"].moves(stage, reports)

    def pays(self, stage, reports, S):
        return -((reports.c - 2.0 * stage.c) ** 2) * 1e4 + 0.0 * S


def test_the_search_finds_a_known_best_lie():
    stage = draw("data-value", 3, N, 0.1)
    reports = Reports.honest(stage)
    s = stage.s_max
    lie = lies.best_report(Known(), stage, reports, "c", s, Known().utilities(stage, reports, s))
    i = int(stage.c.argmax())
    assert lie.agent == stage.game.agents[i]
    assert lie.told == pytest.approx(2.0 * stage.c[i]) and lie.gain == pytest.approx(1e4 * stage.c[i] ** 2)


def test_a_row_without_lies_to_search_is_not_verifiable():
    stage = draw("data-value", 0, N, 0.1)
    with np.errstate(all="ignore"):
        found = judge(ROWS["t-upbred"], [stage], [measure(ROWS["t-upbred"], stage, 0)])
    assert {v.claim: v.verdict for v in found}["truthful"] == "not verifiable"


def test_two_names_and_mergers_of_the_contribution_payment_are_the_closed_forms():
    from fedincentive.payments import Contribution

    stage = draw("data-value", 2, 5, 0.1)
    row, reports = ROWS["2p-upbred"], Reports.honest(stage)
    payment = Contribution(row.beta(stage))
    split, merged = (lies.best(search(row, stage, reports, stage.s_max)) for search in (lies.two_names, lies.mergers))
    assert split.gain == pytest.approx(-payment.splitting(stage.game.agents, stage.s_max).min())
    assert merged.gain == pytest.approx(payment.merging(stage.game.agents, stage.s_max)[0])


def run(*arguments):
    return CliRunner().invoke(main, ["league", *arguments])


def test_the_command_prints_table_columns_and_claims(tmp_path):
    picture = tmp_path / "league.png"
    done = run("--games", "1", "--n", "3", "--row", "fedavg", "--row", "2p-upbred", "--figure", str(picture))
    assert done.exit_code == 0, done.output
    assert done.output.startswith("| | W | NW |") and "\n| 2p-upbred | " in done.output
    assert "2p-upbred: delivered" in done.output and picture.stat().st_size > 5000
    found = json.loads(run("--games", "1", "--n", "3", "--row", "fedavg", "--json").output)
    assert found["sources"] == {"fedavg": "McMahan et al. 2017"}
    assert list(found["table"][0])[2:-1] == list(COLUMNS) and found["games"][0]["row"] == "fedavg"


def test_a_game_file_is_played_instead_of_random_ones(tmp_path):
    file = tmp_path / "game.yaml"
    file.write_text("game: {kind: repaired}\nincentive: {mechanism: upbred}\n")
    done = run(str(file), "--row", "upbred", "--row", "one-for-one", "--row", "groves-d")
    assert done.exit_code == 0, done.output
    assert "one-for-one is not played on some games: needs a data-value game." in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--row", "fackt"], "no row 'fackt' in the league. Did you mean 'fact'"),
        (["--replay", "fact"], "--replay is 'fact': it is written ROW:KIND:AGENT:VALUE"),
        (["--replay", "fact:c:agent-9:0.1"], "agent 'agent-9', who is not in the game"),
        (["--replay", "fact:x:agent-1:0.1"], "has no lie of kind 'x'; known: c, s, deliver"),
        (["--replay", "fact:deliver:agent-1:1e9"], "points, not 1e"),
        (["--replay", "fact:c:agent-1:nan"], "the value nan: a finite number is needed"),
        (["--replay", "pwyc:need:agent-1:-5"], "the value -5: a finite number is needed, and no cost or need is below"),
        (["--replay", "2p-upbred:names:agent-9:1"], "names 'agent-9', who is not in the game"),
        (["--replay", "2p-upbred:merge:agent-1:1"], "no pair of the game's agents. Known: agent-1 and agent-2"),
        (["--figure", "x.gif"], "must end in .png or .svg"),
        (["--fit", "nan"], "fit is nan"),
    ],
)
def test_wrong_calls_are_told_without_a_traceback(arguments, message):
    done = run("--games", "1", *arguments)
    assert done.exit_code == 1 and message in done.output and "Traceback" not in done.output


def test_the_page_has_what_the_command_prints():
    """The rows that are quick to play, on the page's own games; `benchmarks/league_page.py` writes them all."""
    page = (Path(__file__).parents[2] / "docs" / "league.md").read_text()
    block = page.split("<!-- table -->")[1].split("<!-- end -->")[0].strip().splitlines()
    assert block[0] == "| | " + " | ".join(COLUMNS) + " |"
    printed = {line.split("|")[1].strip(): line for line in block[2:]}
    assert list(printed) == list(ROWS)
    quick = ("planner", "fedavg", "upbred", "2p-upbred", "2p-attested", "size-share")
    with np.errstate(all="ignore"):
        played = list(running.play(running.Wanted(rows=quick), jobs=1))
    for line in running.markdown(running.table(played)).splitlines()[2:]:
        cells, before = line.split("|"), printed[line.split("|")[1].strip()].split("|")
        for now, then in zip(cells[2:-1], before[2:-1], strict=True):
            assert bool(now.strip()) == bool(then.strip())
            if now.strip():
                last = 10.0 ** -len(then.partition(".")[2].strip())
                assert float(now) == pytest.approx(float(then), abs=1.1 * last)
    claims = page.split("<!-- claims -->")[1]
    for row in ROWS.values():
        assert all(f"{row.name}: {promise.claim}" in claims for promise in row.promises)


def test_every_lie_on_the_page_is_replayed_with_the_gain_that_is_printed():
    """So every row whose claim a lie breaks is held to the page; what is no lie has a command that plays that row."""
    page = (Path(__file__).parents[2] / "docs" / "league.md").read_text()
    found = re.findall(r"^(\S+): (.*)\n    fedincentive (league .*)$", page.split("<!-- claims -->")[1], re.MULTILINE)
    replayed = set()
    for row, words, command in found:
        if "--replay" not in command:
            assert command.endswith(f" --row {row}")
            continue
        done = run(*command.split()[1:])
        assert done.exit_code == 0, done.output
        printed, again = (float(re.search(r"gain (\d\S*?)[ \n]", text + "\n")[1]) for text in (words, done.output))
        assert again == pytest.approx(printed, rel=2e-3), command
        replayed.add(row)
    assert replayed >= {"t-upbred", "2p-upbred", "fedbr-bg", "shaping", "realfm", "fact", "one-for-one", "pwyc"}


def league_of(tmp_path, game, *rows):
    file = tmp_path / "game.yaml"
    file.write_text(json.dumps({"game": game}))
    done = run(str(file), "--json", *(word for row in rows for word in ("--row", row)))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} in the JSON"))


def test_rows_that_do_not_suit_a_game_are_left_out_with_the_reason(tmp_path):
    """No data is worth minus infinity here: the other rows are played all the same."""
    shared = {"kind": "shared-error", "agents": 4, "each": {"a": 2, "b": 1, "s_max": 8, "cost": 0.02}}
    found = league_of(tmp_path, shared, "upbred", "realfm", "shapley-share", "loo-share")
    unsuited = {one["row"]: one["unsuited"] for one in found["games"]}
    assert unsuited == {
        "upbred": "",
        "realfm": "the value of no data is not finite",
        "shapley-share": "what some coalitions have is not finite",
        "loo-share": "",
    }
    (upbred,) = (row for row in found["table"] if row["row"] == "upbred")
    assert upbred["vs out"] is None and upbred["vs alone"] is not None  # nothing to compare with
    rows = ("planner", "t-upbred", "loo-share", "gradient-relative")
    found = league_of(tmp_path, {"kind": "example"}, *rows)  # as printed: no points, no value
    unsuited = {one["row"]: one["unsuited"] for one in found["games"]}
    assert unsuited["planner"] == unsuited["loo-share"] == "what agents have where contributions rest is not finite"
    assert "the quantised value is" in unsuited["gradient-relative"] and unsuited["t-upbred"] == ""
    assert [row["regret"] for row in found["table"] if row["row"] == "t-upbred"] == [0.0]


def test_a_common_curve_is_known_by_its_values(tmp_path):
    """Murhekar's claim is judged wherever all agents value data alike, in a game file too."""
    each = {"a": 2, "b": 3, "prior": 1, "fit": 0.2, "s_max": 12, "cost": {"low": 0.01, "high": 0.03}}
    for spill, verdict in ((1, "held"), (0.5, "outside its assumptions")):
        game = {"kind": "data-value", "agents": 3, "each": {**each, "spill": spill}}
        found = {v["claim"]: v for v in league_of(tmp_path, game, "fedbr-bg")["verdicts"]}
        assert found["maximal p-means"]["verdict"] == verdict


def test_the_league_wants_two_agents_and_few_coalitions(tmp_path):
    each = {"a": 2, "b": 3, "s_max": 12, "cost": 0.01}
    file = tmp_path / "one.yaml"
    file.write_text(json.dumps({"game": {"kind": "data-value", "agents": 1, "each": each}}))
    done = run(str(file))
    assert done.exit_code == 1 and "has 1 agent: the league compares agents with each other" in done.output
    many = league_of(tmp_path, {"kind": "data-value", "agents": 13, "each": each}, "shapley-share")
    assert many["games"][0]["unsuited"] == "8192 coalitions are too many to search"
