"""`fedincentive attest` and `fedincentive audit`, as a person at a site uses them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from keyring import folder_of

from fedincentive.cli import main
from fedincentive.provenance.records import read

GAME = {
    "game": {
        "kind": "data-value",
        "each": {"cost": 0.01, "b": 20.0},
        "w0": [0.25, -1.0],
        "agents": [{"name": n, "s_max": 20, "s0": 20, "ideal": [1.0, k]} for k, n in enumerate(("ada", "bob", "cyd"))],
    },
    "incentive": {"mechanism": "fedavg", "rounds": 3, "auditors": ["x", "y", "z"]},
}


def ran(*words: Any, code: int = 0) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def write(path: Path) -> Path:
    """Four records in the form that the file's name asks for."""
    x, y = np.arange(12.0).reshape(4, 3), np.arange(4)
    if path.suffix == ".npy":
        np.save(path, x)
    elif path.suffix == ".npz":
        np.savez(path, x=x, y=y)
    elif path.suffix in (".csv", ".jsonl"):
        path.write_text("a,1\nb,2\nc,3\nd,4\n")
    else:
        path.mkdir()
        for k in range(4):
            (path / f"scan-{k}.txt").write_text(str(k))
    return path


def test_data_that_cannot_be_committed_to_is_named_once(tmp_path: Path) -> None:
    same, none, one = (tmp_path / f"{name}.npy" for name in ("same", "none", "one"))
    np.save(same, np.ones((3, 2)))
    np.save(none, np.ones((0, 2)))
    np.save(one, np.float64(1))
    said = {path: ran("attest", "commit", path, code=1) for path in (same, none, one)}
    assert "Record 1 is record 0 again, and 2 of 3 are such copies" in said[same]
    assert f"{none} has no records." in said[none]
    assert said[one].count("one.npy") == 1
    assert not list(tmp_path.glob("*.records"))


@pytest.mark.parametrize("name", ["data.npy", "data.npz", "data.csv", "data.jsonl", "folder"])
def test_a_site_commits_opens_and_anybody_checks(tmp_path: Path, name: str) -> None:
    data = write(tmp_path / name)
    commitment = ran("attest", "commit", data).splitlines()[-1]
    assert read(commitment)[0] == 4
    kept = Path(f"{data}.records")
    assert kept.stat().st_mode & 0o777 == 0o600
    openings = tmp_path / "openings"
    openings.write_text(ran("attest", "open", data, 2, 0))
    assert ran("attest", "check", openings, commitment).count("is under the root") == 2
    wrong = json.loads(openings.read_text().splitlines()[0])
    openings.write_text(json.dumps({**wrong, "index": 1}) + "\nnonsense\n")
    assert ran("attest", "check", openings, commitment, code=1).count("is not proven") == 2
    assert "no record 4" in ran("attest", "open", data, 4, code=1)
    assert "is not overwritten" in ran("attest", "commit", data, code=1)
    assert "is no commitment" in ran("attest", "check", openings, "records/1:x", code=1)


def test_a_record_that_was_changed_since_cannot_be_opened(tmp_path: Path) -> None:
    data = write(tmp_path / "data.csv")
    ran("attest", "commit", data, "--header", "--out", tmp_path / "kept")
    data.write_text("a,1\nb,2\nc,4\nd,4\n")
    assert '"index": 2' in ran("attest", "open", data, 2, "--header", "--kept", tmp_path / "kept")
    assert "not the one that was committed" in ran(
        "attest", "open", data, 1, "--header", "--kept", tmp_path / "kept", code=1
    )


def test_what_two_sites_share_is_counted_without_showing_it(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("ann\nbob\n")
    (tmp_path / "two.csv").write_text("bob\ncyd\n")
    for number, new in (("one", ["--new"]), ("two", [])):
        shown = ran("attest", "tags", tmp_path / f"{number}.csv", "--key", tmp_path / "key", *new)
        (tmp_path / f"{number}.tags").write_text(shown)
        assert "bob" not in shown
    assert os.stat(tmp_path / "key").st_mode & 0o777 == 0o600
    said = ran("attest", "duplicates", tmp_path / "one.tags", tmp_path / "two.tags", code=1)
    assert "one.tags: 0 records" in said and "two.tags: 1 records that were shown before, 1 of" in said
    assert "0 records" in ran("attest", "duplicates", tmp_path / "one.tags")
    (tmp_path / "key").write_text("no key")
    assert "attest tags --new" in ran("attest", "tags", tmp_path / "one.csv", "--key", tmp_path / "key", code=1)


@pytest.mark.parametrize(("name", "content"), [("a.npy", b"x"), ("a.npz", b"PK"), ("a.csv", b""), ("a.bin", b"x")])
def test_data_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert f"{name} " in ran("attest", "commit", tmp_path / name, code=1)


def test_arrays_of_different_lengths_and_pickles_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3), y=np.zeros(4))
    assert "one row for each record" in ran("attest", "commit", tmp_path / "a.npz", code=1)
    np.save(tmp_path / "b.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "b.npy is not" in ran("attest", "commit", tmp_path / "b.npy", code=1)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audited run in which bob sends another update than its own."""
    from fedincentive import play

    folder = tmp_path_factory.mktemp("played")
    (folder / "game.yaml").write_text(yaml.safe_dump(GAME))
    keys = folder_of(folder / "keys", ("ada", "bob", "cyd", "x", "y", "z"))
    ended = play(
        folder / "game.yaml", ledger=folder / "l.sqlite", keys=str(keys), run="trial", lies={"bob": "sign-flip"}
    )
    assert ended.status == "complete"
    return folder


def test_a_person_audits_what_a_run_kept(played: Path) -> None:
    run, game = played / "l.sqlite.runs" / "trial", ("--game", played / "game.yaml")
    said = ran("audit", run, "--round", 0, "--agent", "bob", *game, code=1)
    assert "the agent signed 20 points" in said and "FAILED: made again, the update is" in said
    said = ran("audit", run, "--round", 0, "--agent", "ada", *game)
    assert said.endswith("passed\n") and "has the signed digest" in said
    assert "has it no more" in ran("audit", run, "--round", 1, "--agent", "ada", *game, code=1)
    assert "it has those of round 0)" in ran("audit", run, "--round", 1, "--agent", "ada", *game, code=1)
    said = ran("audit", run, "--round", 99, "--agent", "ada", *game, code=1)
    assert re.search(r"no training round that was reported; they are 0 to \d\.", said)
    for site, words in {
        "json:loads": "JSONDecodeError",
        "os:strerror": "TypeError",
        "json:dumps": "a str without s_max",
    }.items():
        assert words in ran("audit", run, "--round", 0, "--agent", "ada", "--site", site, code=1)
    assert "write MODULE:FUNCTION" in ran("audit", run, "--round", 0, "--agent", "ada", "--site", "json", code=2)
    assert "reported nothing" in ran("audit", run, "--round", 0, "--agent", "eve", *game, code=1)
    assert "--game" in ran("audit", run, "--round", 0, "--agent", "ada", code=2)
    assert "--site nothing" in ran("audit", run, "--round", 0, "--agent", "ada", "--site", "nothing:x", code=1)
    assert "is another one" in ran(
        "audit", run, "--round", 1, "--agent", "ada", *game, "--model", run / "model-0.safetensors", code=1
    )


@pytest.mark.parametrize(("leaving", "ends"), [(("bob",), "complete"), (("ada", "bob", "cyd"), "declined")])
def test_play_shows_who_took_part_and_who_left(tmp_path: Path, leaving: tuple[str, ...], ends: str) -> None:
    agents = [{**agent, "outside_option": 99 if agent["name"] in leaving else -99} for agent in GAME["game"]["agents"]]
    game = {"game": {**GAME["game"], "agents": agents}, "incentive": {"rounds": 3, "opt_in": True, "beta": "0.02"}}
    (tmp_path / "game.yaml").write_text(yaml.safe_dump(game))
    said = ran("play", tmp_path / "game.yaml")
    assert f": {ends} after" in said and "bob declined" in said
    if ends == "complete":
        assert re.search(r"^ada +20 ", said, re.M) and not re.search(r"^bob +20 ", said, re.M)
