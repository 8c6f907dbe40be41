"""Mechanisms in FLUTE: the ledgers of every other host, also after a crash and with workers of their own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import data_parity
import numpy as np
import parity
import pytest
import torch
import yaml
from fedincentive.plugins.flute.__main__ import ALONE
from flute_example import EXAMPLE, config
from programs import PATH, blocks, shell

from fedincentive import ledger
from fedincentive.aggregation import StoredUpdate
from fedincentive.hosting import Session


def ledger_of(folder: Path, run: str = "digits") -> Path:
    return folder / "fedincentive-runs" / run / "ledger.sqlite"


def model_of(folder: Path, run: str = "digits") -> dict[str, np.ndarray]:
    with StoredUpdate(next((folder / "fedincentive-runs" / run / "state").glob("model-*.safetensors"))) as file:
        return dict(file)


def entries(folder: Path, run: str = "digits") -> list[Any]:
    with ledger.read(ledger_of(folder, run)) as book:
        return list(book.entries(run))


def bits(folder: Path, run: str = "digits") -> dict[str, bytes]:
    return {name.removeprefix("w:"): array.tobytes() for name, array in model_of(folder, run).items()}


def with_incentive(**incentive: Any) -> dict[str, Any]:
    found = config()
    found["server_config"]["incentive"] |= incentive
    return found


@pytest.mark.parametrize("mechanism", parity.MECHANISMS)
def test_closed_form_game_gives_the_engines_ledger(flute: Any, mechanism: str, tmp_path: Path) -> None:
    game = tmp_path / "game.yaml"
    game.write_text(yaml.safe_dump({"game": parity.GAME}))
    incentive = {**parity.INCENTIVE, "run": parity.RUN, "game": str(game)}
    settings = {**config(max_iteration=parity.ROUNDS, incentive=incentive), "strategy": mechanism}
    assert parity.head_of(ledger_of(flute(settings), parity.RUN)) == parity.in_engine(mechanism, tmp_path)


@pytest.mark.parametrize("name", parity.PEERS)
def test_so_it_does_under_other_papers_mechanisms(flute: Any, name: str, tmp_path: Path) -> None:
    game = tmp_path / "game.yaml"
    game.write_text(yaml.safe_dump({"game": parity.GAME}))
    told = parity.peer(name)
    mechanism, rounds = told.pop("mechanism"), told.pop("rounds")
    settings = {**config(max_iteration=rounds, incentive={**told, "game": str(game)}), "strategy": mechanism}
    assert parity.head_of(ledger_of(flute(settings), parity.RUN)) == parity.peer_in_engine(name, tmp_path)


def trained(flute: Any, mechanism: str, **incentive: Any) -> Any:
    incentive |= {**data_parity.INCENTIVE, "seed": data_parity.SEED, "run": "run", "classes": 10, "held_out": False}
    incentive["accept_losses"] = True  # the price is far above what these models are worth
    settings = {**config(max_iteration=data_parity.ROUNDS, incentive=incentive), "strategy": mechanism}
    settings["model_config"] = {"model_type": "Prototypes", "model_folder": "experiments/prototypes/model.py"}
    return data_parity.found_in(flute(settings, "prototypes") / "fedincentive-runs" / "run")


@pytest.mark.parametrize("mechanism", data_parity.MECHANISMS)
def test_training_gives_the_engines_ledger_and_model(flute: Any, mechanism: str) -> None:
    assert trained(flute, mechanism) == data_parity.EXPECTED[mechanism]


def test_so_it_does_where_each_agent_has_a_model_of_its_own(flute: Any, tmp_path: Path) -> None:
    found = trained(flute, "cgsv", options=data_parity.OWN_MODELS["cgsv"])
    assert found == data_parity.own_models_in_engine("cgsv", tmp_path)


def test_the_example_learns_and_flute_has_its_model(flute: Any) -> None:
    folder = flute(config())
    kept = torch.load(folder / "offline-run" / "models" / "latest_model.tar", weights_only=False)["model_state_dict"]
    assert {name: tensor.numpy().tobytes() for name, tensor in kept.items()} == bits(folder)
    assert len(entries(folder)) == 7


def test_the_readmes_commands_run_and_workers_end_with_the_same_bytes(checkout: Any, tmp_path: Path) -> None:
    """All but the lines that get FLUTE and fedincentive. Two workers train different agents at the same time."""
    one, several = blocks((EXAMPLE / "README.md").read_text(), "sh")
    clone, install, commands = one.split("\n", 2)
    assert clone.startswith("git clone ") and install.startswith("pip install ")
    shutil.copytree(EXAMPLE, tmp_path / "example")
    flute = checkout(tmp_path / "example" / "msrflute")
    env = {**{key: value for key, value in os.environ.items() if key not in ALONE}, "PATH": PATH}
    said = shell(commands, cwd=flute.parent, env=env, together=True).stdout
    assert "clean" in said.lower() and "Run digits (2p-upbred) ended: complete" in said
    shell(several, cwd=flute, env=env, together=True)
    assert parity.head_of(ledger_of(flute / "out-3")) == parity.head_of(ledger_of(flute / "out"))
    assert bits(flute / "out-3") == bits(flute / "out")


def test_the_first_model_is_drawn_by_the_seed(flute: Any, tmp_path: Path) -> None:
    """FLUTE draws it anew in every process; the examples set their own to zeros."""
    drawn = "".join(line for line in (EXAMPLE / "digits" / "model.py").open() if "zeros_" not in line)
    (tmp_path / "model.py").write_text(drawn)
    found = {}
    for run, seed in (("one", 1), ("again", 1), ("other", 2)):
        settings = with_incentive(run=run, seed=seed)
        settings["model_config"]["model_folder"] = os.path.relpath(tmp_path / "model.py")  # FLUTE adds "./"
        found[run] = bits(flute(settings), run)
    assert found["one"] == found["again"] and found["one"] != found["other"]


def test_a_resumed_run_ends_with_the_same_bytes(flute: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = [(e.kind, e.postings) for e in entries(flute(with_incentive(run="whole")), "whole")]
    note = Session.note

    def dies(self: Session, result: Any, **more: Any) -> None:
        note(self, result, **more)
        if result.phase == "train" and result.step == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Session, "note", dies)
    with pytest.raises(KeyboardInterrupt):
        flute(with_incentive(run="digits"))
    monkeypatch.setattr(Session, "note", note)
    with pytest.raises(SystemExit):
        flute(with_incentive(run="digits"))  # it exists: resuming must be asked for
    flute(config(resume_from_checkpoint=True))
    assert bits(tmp_path) == bits(tmp_path, "whole")
    assert [(e.kind, e.postings) for e in entries(tmp_path)] == whole


def test_who_delivers_otherwise_is_trained_on_its_own(flute: Any) -> None:
    """A free-rider gives nothing, and only two are asked in a round."""
    settings = config(num_clients_per_iteration=2)
    settings["server_config"]["incentive"]["strategy"] = {"west": "free-rider"}
    found = [entry.postings for entry in entries(flute(settings))]
    assert sum(postings.get("west", 0) for postings in found) < 0
    assert all(sum(postings.values()) == 0 for postings in found)


@pytest.mark.parametrize(
    ("incentive", "data", "said"),
    [
        (
            {"held_out": False},
            {"list_of_train_data": None, "desired_max_samples": 20},
            "desired_max_samples is 20, but",
        ),
        ({"beta": "0.05", "auditors": ["a", "b", "c"]}, {}, "auditors"),
    ],
)
def test_what_cannot_be_paid_for_is_refused(
    flute: Any, capsys: Any, incentive: dict[str, Any], data: dict[str, Any], said: str
) -> None:
    settings = with_incentive(**incentive)
    settings["client_config"]["data_config"]["train"] |= data
    with pytest.raises(SystemExit):
        flute(settings)
    found = capsys.readouterr().err
    assert said in found and "Traceback" not in found


def test_models_of_their_own_are_refused(flute: Any, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        flute({**with_incentive(), "strategy": "accuracy-shaping"})
    assert "gives every agent a model of its own" in capsys.readouterr().err
