"""GAME.yaml: what it builds, and a clear error for everything it should not say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedincentive.errors import FedIncentiveError, SettingError
from fedincentive.game import ConvexCost, DataValue, LinearCost, Quadratic, load, outside_options, read

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "games").glob("*.yaml"))


def test_there_are_example_games():
    assert {path.stem for path in EXAMPLES} >= {"example1", "repaired", "quadratic", "hospitals"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_game_is_read_with_its_price(path):
    file = load(path)
    assert file.game.n >= 2 and np.isfinite(file.game.utilities(file.game.w0, file.game.s0)).all()
    assert isinstance(file.incentive["beta"], str)


def rows(*agents, **section):
    return {"game": {"kind": "data-value", "agents": list(agents), **section}}


def test_a_row_overrides_each_and_defaults_fill_the_rest():
    game = read(
        rows({"name": "a", "s_max": 4}, {"name": "b", "s_max": 8, "cost": 0.5, "s0": 1}, each={"cost": 0.25, "b": 2.0})
    )
    assert game.agents == ("a", "b")
    np.testing.assert_array_equal(game.s0, [2.0, 1.0])  # half of s_max unless said
    np.testing.assert_array_equal(game.cost.c, [0.25, 0.5])
    assert isinstance(game.cost, LinearCost) and isinstance(game.valuation, DataValue)
    assert game.outside_option is None and game.budget is None


def test_a_number_of_agents_is_drawn_from_ranges_and_the_seed():
    section = {"kind": "data-value", "agents": 12, "seed": 3, "each": {"s_max": {"low": 2, "high": 9}, "cost": 0.1}}
    one, two = read({"game": section}), read({"game": section})
    np.testing.assert_array_equal(one.s_max, two.s_max)
    assert one.agents[0] == "agent-01" and len(set(one.s_max)) == 12
    assert one.s_max.min() >= 2.0 and one.s_max.max() <= 9.0
    assert not np.array_equal(read({"game": {**section, "seed": 4}}).s_max, one.s_max)


def test_outside_options_and_budgets_may_be_given_for_some():
    game = read(rows({"s_max": 4, "outside_option": 0.3, "budget": 2}, {"s_max": 8}))
    plain = read(rows({"s_max": 4}, {"s_max": 8}))
    assert game.outside_option[0] == 0.3
    assert game.outside_option[1] == pytest.approx(outside_options(plain)[1])
    np.testing.assert_array_equal(game.budget, [2.0, np.inf])


@pytest.mark.parametrize("curve", ["power-law", "logarithm", "line"])
def test_every_curve_and_convex_costs_can_be_named(curve):
    game = read(rows({"s_max": 4}, {"s_max": 5}, curve=curve, each={"cost": 0.1, "cost_power": 2}))
    assert isinstance(game.cost, ConvexCost)
    assert type(game.valuation.curve).__name__.lower().startswith(curve[:4].replace("-", ""))


def test_a_quadratic_game_takes_its_matrices():
    game = read(
        {
            "game": {
                "kind": "quadratic",
                "w0": [0.0, 1.0],
                "coupling": [[1.0, 0.0], [0.0, 2.0]],
                "interaction": [[0.0, 0.5], [0.25, 0.0]],
                "each": {"s_max": 3, "ideal": {"low": -1, "high": 1}},
                "agents": [{"k": 1, "ideal": [5, 6]}, {"k": 2}],
            }
        }
    )
    assert isinstance(game.valuation, Quadratic)
    np.testing.assert_array_equal(game.valuation.x[0], [5.0, 6.0])
    assert np.all(np.abs(game.valuation.x[1]) <= 1.0)
    np.testing.assert_array_equal(game.valuation.stiffness, np.eye(2))


def test_random_and_shared_error_games_can_be_named():
    assert read({"game": {"kind": "random-quadratic", "agents": 7, "parameters": 3}}).m == 3
    shared = read({"game": {"kind": "shared-error", "agents": 3, "target": [1, 2], "w0": [0, 0], "each": {"s_max": 5}}})
    np.testing.assert_array_equal(shared.optimum(), [1.0, 2.0])


TWO = ({"s_max": 4}, {"s_max": 5})
BAD = [
    ({}, "`game` is missing"),
    ({"gane": {}}, "no section 'gane'. Did you mean 'game'"),
    ({"game": 3}, "game must be a mapping"),
    ({"game": {}}, "game.kind is required"),
    ({"game": {"kind": "exampel"}}, "game.kind is 'exampel'. Did you mean 'example'"),
    ({"game": {"kind": "example", "so": [1, 1]}}, "game has no setting 'so'. Did you mean 's0'"),
    ({"game": {"kind": "example", "s0": [0, 0]}}, "sum to 0"),
    ({"game": {"kind": "example", "s0": [0, 6]}}, "s0 of agent 'agent-2' is 6"),
    ({"game": {"kind": "example", "w0": [float("nan"), 0]}}, "finite"),
    ({"game": {"kind": "example"}, "incentive": 5}, "incentive must be a mapping"),
    (rows(), "agents is empty"),
    (rows({"name": "a"}, {"s_max": 1}), r"game.agents\[0\] \(a\).s_max is required"),
    (rows({"s_max": -1}, {"s_max": 1}), r"s_max must be between 0.0 and 9"),
    (rows({"s_max": 1, "s0": 2}, {"s_max": 1}), "s0 of agent 'agent-1' is 2"),
    (rows({"s_max": 1, "cost": -2}, {"s_max": 1}), "cost must be at least 0"),
    (rows({"s_max": 1, "cost": "much"}, {"s_max": 1}), "cost must be a finite number"),
    (rows({"s_max": float("nan")}, {"s_max": 1}), "s_max must be a finite number"),
    (rows({"s_max": 1, "name": "x"}, {"s_max": 1, "name": "x"}), "'x' is used more than once"),
    (rows({"s_max": 1, "name": ""}, {"s_max": 1}), "name must be a non-empty string"),
    (rows({"s_max": 1, "budgt": 1}, {"s_max": 1}), "no setting 'budgt'. Did you mean 'budget'"),
    (rows("a", "b"), "must be a mapping such as"),
    (rows(*TWO, each={"coost": 1}), "game.each has no setting 'coost'. Did you mean 'cost'"),
    (rows(*TWO, each={"cost": {"low": 1}}), "game.each.cost.high must be a finite number"),
    (rows(*TWO, each={"cost": {"low": 2, "high": 1}}), "game.each.cost.low = 2 is above"),
    (rows(*TWO, each={"cost": {"min": 2}}), "game.each.cost has no setting 'min'"),
    (rows(*TWO, each={"ideal": [1.0, 2.0]}), "list of 1 numbers, as many as w0"),
    (rows(*TWO, curve="log"), "game.curve is 'log'"),
    (rows(*TWO, each={"spill": 2}), "spill must be between 0"),
    (rows(*TWO, w0=3), "game.w0 must be a list"),
    (rows(*TWO, seed=-1), "seed must be at least 0"),
    ({"game": {"kind": "data-value", "agents": 0}}, "agents must be between 1"),
    ({"game": {"kind": "data-value", "agents": 3}}, "game.each.s_max is required"),
    ({"game": {"kind": "quadratic", "agents": 2, "each": {"s_max": 1}, "coupling": [[1]]}}, "coupling must have shape"),
    ({"game": {"kind": "quadratic", "agents": 2, "each": {"s_max": 1}, "stiffness": [[0]]}}, "positive definite"),
]


@pytest.mark.parametrize(("values", "message"), BAD)
def test_bad_files_are_refused_with_the_key_and_the_remedy(values, message):
    with pytest.raises(FedIncentiveError, match=message):
        read(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("game: [", "not valid YAML"),
        ("- 1", "must have a section `game`, and it holds \\[1\\]"),
        ("game: {kind: example, kind: repaired}", "'kind' is written twice"),
        ("", "must have a section `game`, and it is empty"),
    ],
)
def test_bad_text_is_refused_with_the_path(tmp_path, text, message):
    path = tmp_path / "GAME.yaml"
    path.write_text(text)
    with pytest.raises(SettingError, match=message):
        read(path)


def test_a_missing_file_and_binary_noise_are_named(tmp_path):
    with pytest.raises(SettingError, match="nowhere.yaml cannot be read"):
        read(tmp_path / "nowhere.yaml")
    (tmp_path / "noise.yaml").write_bytes(b"\xff\xfe\x00game")
    with pytest.raises(SettingError, match="not UTF-8"):
        read(tmp_path / "noise.yaml")


def test_a_caller_can_allow_its_own_sections():
    values = {"game": {"kind": "repaired"}, "play": {"plots": True}}
    assert load(values, sections=("play",)).rest == {"play": {"plots": True}}
    with pytest.raises(SettingError, match="no section 'play'"):
        load(values)
