"""FLUTE at FLUTE_HOME, with the tasks of the example and of the tests among its experiments; skipped aloud without."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from flute_example import EXAMPLE

ROOT = Path(__file__).parents[2]
SHOWN = ("core", "utils", "extensions", "e2e_trainer.py", "experiments/__init__.py")


@pytest.fixture(scope="session")
def checkout() -> Callable[[Path], Path]:
    """`checkout(folder)` makes it a folder like FLUTE's checkout, which itself stays as it is."""
    given = Path(os.environ.get("FLUTE_HOME", "")).resolve()
    if not (given / "e2e_trainer.py").is_file():
        pytest.skip("FLUTE_HOME names no checkout of github.com/microsoft/msrflute: nothing of FLUTE is tested.")

    def make(folder: Path) -> Path:
        (folder / "experiments").mkdir(parents=True)
        for name in SHOWN:
            (folder / name).symlink_to(given / name)
        return folder

    return make


@pytest.fixture(scope="session")
def home(checkout: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the tasks of the example and of the tests."""
    folder = checkout(tmp_path_factory.mktemp("flute"))
    (folder / "experiments" / "digits").symlink_to(EXAMPLE / "digits")
    (folder / "experiments" / "prototypes").symlink_to(Path(__file__).parent / "prototypes")
    return folder


@pytest.fixture
def flute(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`flute(config, task)` runs the program in this process and returns the folder of its results."""
    monkeypatch.chdir(home)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "support"))

    def run(settings: dict[str, Any], task: str = "digits") -> Path:
        import torch.distributed as dist
        from fedincentive.plugins.flute.__main__ import main

        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(settings))
        arguments = {"config": path, "outputPath": tmp_path, "dataPath": home, "task": task, "backend": "gloo"}
        flat = [str(word) for key, value in arguments.items() for word in (f"-{key}", value)]
        monkeypatch.setattr(sys, "argv", ["flute", *flat])
        try:
            main()
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
        return tmp_path

    return run
