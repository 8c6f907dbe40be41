"""The user's own trainer, aggregator and settings under our mechanisms; mistakes are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fedml_runs import MAIN, write_config

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found(start: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("own") / "work"
    folder.mkdir()
    cf = write_config(folder, "sp", "2p-upbred", rounds=2, incentive={"beta": "0.5", "gamma": 500.0, "cost": 0.1})
    (folder / "main.py").write_text(MAIN.read_text())
    (folder / "own_classes.py").write_text((HERE / "own_classes.py").read_text())
    start(folder, folder / "own_classes.py", cf.name, log="own").ends_well(timeout=500)
    return json.loads((folder / "found.json").read_text())


def test_the_users_hooks_are_called_in_fedmls_order(found: dict[str, Any]) -> None:
    training = [
        "update_dataset",
        "set_model_params",
        "on_before_local_training",
        "train",
        "on_after_local_training",
        "set_model_params",
        "test",
    ]
    round_ = [*training * 3, "on_before_aggregation", "on_after_aggregation", "adopt", "test_all", "test"]
    tried = ["set_model_params", "test"]  # before anything is agreed
    last_values = ["set_model_params", "test"] * 3
    assert found["calls"] == [*tried, *round_ * 2, *last_values, "adopt"]  # and none of them in phase 1


def test_what_on_after_aggregation_makes_is_the_model(found: dict[str, Any]) -> None:
    assert found["bias"] == [0.25] * 10


def test_on_before_aggregation_may_drop_an_update_but_not_a_payment(found: dict[str, Any]) -> None:
    (model, paid), (other_model, other_paid) = found["stock"], found["dropping"]
    assert model != other_model and paid == other_paid


def test_our_classes_bring_mechanism_ledger_and_strategies(found: dict[str, Any]) -> None:
    mechanism, s, ledger_made = found["classes"]
    assert mechanism == "2p-upbred" and ledger_made
    assert s["agent-2"] == 7.0 and s["agent-1"] > 100


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("aggregate", "Aggregating overrides aggregate()"),
        ("unknown", "incentive has no setting 'gama'. Did you mean 'gamma'?"),
        ("host", "incentive has no setting 'round_timout'. Did you mean 'round_timeout'?"),
        ("fedml's", "incentive.rounds is FedML's own setting: give it as train_args.comm_round."),
        ("flat", "incentive_args.incentive.beta"),
        ("money", "incentive.beta must be a quoted decimal"),
        ("names", "incentive.agents has 1 names"),
        ("defense", "choose the rule with incentive.aggregation"),
        ("optimizer", "federated_optimizer is '2p-upbread'. Did you mean '2p-upbred'?"),
        ("again", "Run 'own' exists"),
        ("folder", "run_id is '../up': it names a folder"),
    ],
)
def test_mistakes_are_named(found: dict[str, Any], mistake: str, words: str) -> None:
    assert words in found["mistakes"][mistake]
