"""Update files as people have them: torch's, NumPy's, Hugging Face's shards, folders; nothing in them is executed."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from libraries import library

from fedincentive.aggregation import StoredUpdate, StoredUpdates, geometric_median, krum, median, rule, store
from fedincentive.aggregation.testing import updates
from fedincentive.cli import main
from fedincentive.errors import AggregationError

X = [{"w": row.reshape(20, 50), "b": row[:7] * 2} for row in updates("normal", 7, 1000, np.float32)]
EXPECTED = median(X)


def save(folder: Path, kind: str, number: int, update: dict[str, np.ndarray]) -> Path:
    torch = library("torch")
    path = folder / f"{number}.{kind}"
    tensors = {name: torch.from_numpy(array) for name, array in update.items()}
    if kind == "safetensors":
        return store(path, update)
    if kind in ("pt", "bin"):
        torch.save(tensors, path)
    elif kind == "ckpt":
        torch.save({"state_dict": tensors, "epoch": 3}, path)
    elif kind == "npz":
        np.savez(path, **update)
    elif kind in ("shards", "torch-shards"):
        path.mkdir()
        ending = "safetensors" if kind == "shards" else "bin"
        stem = "model" if kind == "shards" else "pytorch_model"
        for part, (name, array) in enumerate(update.items()):
            if kind == "shards":
                store(path / f"{stem}-{part}.{ending}", {name: array})
            else:
                torch.save({name: tensors[name]}, path / f"{stem}-{part}.{ending}")
        where = {name: f"{stem}-{part}.{ending}" for part, name in enumerate(update)}
        (path / f"{stem}.{ending}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
        (path / "config.json").write_text("{}")
    return path


@pytest.mark.parametrize("kind", ["safetensors", "pt", "bin", "ckpt", "npz", "shards", "torch-shards"])
def test_every_format(tmp_path, kind):
    paths = [save(tmp_path, kind, i, update) for i, update in enumerate(X)]
    found = median(paths)
    assert all(np.array_equal(found[name], EXPECTED[name]) for name in EXPECTED)
    chosen = rule("krum").use(StoredUpdates(paths, out=tmp_path / "out"), f=2)
    with StoredUpdate(chosen) as kept:
        assert np.array_equal(kept["w"], krum(X, 2)["w"])
    done = CliRunner().invoke(main, ["aggregate", "--rule", "median", "--out", str(tmp_path / "o"), *map(str, paths)])
    assert done.exit_code == 0, done.output
    with StoredUpdate(tmp_path / "o") as written:
        assert np.array_equal(written["b"], EXPECTED["b"])
    with pytest.raises(AggregationError, match="is the same file"):
        median([paths[0], paths[1], paths[0]])


def test_a_shard_is_no_other_clients_file(tmp_path):
    """Or its client would vote with the other one's values."""
    paths = [store(tmp_path / f"{name}.safetensors", {"w": np.full(1, float(i))}) for i, name in enumerate("ab")]
    (tmp_path / "c.index.json").write_text('{"weight_map": {"w": "a.safetensors"}}')
    with pytest.raises(AggregationError, match="a.safetensors.* is the same file as that of client"):
        median([*paths, tmp_path / "c.index.json"])


def test_one_array_in_a_file_and_mixed_formats(tmp_path):
    rows = updates("normal", 3, 10)
    for i, row in enumerate(rows):
        np.save(tmp_path / f"{i}.npy", row)
    found = median([tmp_path / f"{i}.npy" for i in range(3)])
    assert np.array_equal(found["values"], median(rows))
    mixed = [save(tmp_path, kind, 9, X[i]) for i, kind in enumerate(("safetensors", "pt", "npz", "shards"))]
    assert np.array_equal(median([*mixed, *X[4:]])["w"], EXPECTED["w"])


def test_a_folder_stands_for_the_files_in_it(tmp_path):
    inside = tmp_path / "updates"
    inside.mkdir()
    for i, update in enumerate(X):
        save(inside, ("pt", "safetensors", "shards")[i % 3], i, update)
    (inside / "notes.txt").write_text("not an update")
    done = CliRunner().invoke(main, ["aggregate", "--rule", "median", "--out", str(tmp_path / "out"), str(inside)])
    assert done.exit_code == 0 and "median of 7 updates" in done.output, done.output
    with StoredUpdate(tmp_path / "out") as written:
        assert np.array_equal(written["w"], EXPECTED["w"])
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(
        main, ["aggregate", "--trim", "0", "--out", str(tmp_path / "out"), str(tmp_path / "empty")]
    )
    assert done.exit_code != 0 and "has no update files" in done.output


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("name", ["evil.pt", "evil.bin", "evil.npy", "evil.npz"])
def test_nothing_in_a_file_is_executed(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    if name.endswith(("pt", "bin")):
        library("torch").save({"w": Evil()}, name)
    else:
        with open(name, "wb") as file:
            np.save(file, np.array([Evil()], dtype=object), allow_pickle=True)
    with pytest.raises(AggregationError, match=f"{name} of client '0' cannot be"):
        median([name])
    Path("raw.pt").write_bytes(pickle.dumps({"w": Evil()}))
    with pytest.raises(AggregationError, match="raw.pt of client '0' cannot be loaded as weights only"):
        median(["raw.pt"])
    assert not Path("executed").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pt", b"", "a.pt of client '0' cannot be loaded"),
        ("a.npz", b"PK", "a.npz of client '0' cannot be read"),
        ("a.index.json", b"[]", "is not an index of shards"),
        ("a.index.json", b'{"weight_map": {"w": 5}}', "it needs a weight_map"),
        ("a.index.json", b'{"weight_map": {"w": "../b.safetensors"}}', "'../b.safetensors', which is not in its own"),
        ("a.bin.index.json", b'{"weight_map": {"w": "/b.bin"}}', "'/b.bin', which is not in its own folder"),
        ("a.index.json", b'{"weight_map": {"w": "b\\u0000.safetensors"}}', "no file can have that name"),
        ("a.index.json", b'{"weight_map": {"w": "\\ud800.safetensors"}}', "no file can have that name"),
        ("a.safetensors", b"\3" + bytes(7) + b"[1]", "its header cannot be read .it is not a JSON object"),
        (
            "a.index.json",
            b'{"weight_map": {"w": "gone.safetensors"}}',
            "gone.safetensors of client '0' cannot be opened",
        ),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, message):
    library("torch")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AggregationError, match=message):
        median([tmp_path / name])


def test_distance_rules_read_files_larger_than_memory(tmp_path):
    """Pieces of 16 KB of each client: the same choice as in memory."""
    x = [{"w": row, "n": np.int64([i])} for i, row in enumerate(updates("normal", 9, 40000, np.float32))]
    paths = [store(tmp_path / f"{i}.safetensors", update) for i, update in enumerate(x)]
    for name, options in (
        ("krum", {"f": 2}),
        ("multi-krum", {"f": 2}),
        ("mda", {"f": 2}),
        ("norm-clipping", {"clip": 1.0}),
    ):
        found = rule(name).use(StoredUpdates(paths, memory=2**18), **options)
        expected = rule(name).use(x, **options)
        assert np.allclose(found["w"], expected["w"], rtol=1e-6, atol=1e-9) and found["n"] == expected["n"] == 8
    found = geometric_median(StoredUpdates(paths, memory=2**18))["w"]
    assert np.allclose(found, geometric_median(x)["w"], rtol=1e-5, atol=1e-6)


def test_no_debris_where_there_is_no_terminal(tmp_path):
    paths = [save(tmp_path, "safetensors", i, update) for i, update in enumerate(X)]
    command = [sys.executable, "-m", "fedincentive.cli", "aggregate", "--trim", "1", "--out", str(tmp_path / "out")]
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "" and "\r" not in done.stdout, (done.stdout, done.stderr)
