"""FLUTE's e2e_trainer.py with our strategies: python -m fedincentive.plugins.flute, and the arguments of that program.

In FLUTE's checkout; under `python -m torch.distributed.run --nproc_per_node=N -m ...` with workers of their own, and
without it in one process.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import yaml

from ...errors import FedIncentiveError, SettingError
from . import azureml_stub
from .settings import check, is_mechanism, read

PROGRAM = "e2e_trainer.py"
NEEDED = {"torch": "torch", "easydict": "easydict", "cerberus": "cerberus", "psutil": "psutil", "scipy": "scipy",
          "sklearn": "scikit-learn"}  # fmt: skip
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def main() -> None:
    try:
        config = _look_around()
        importlib.import_module("core.federated")  # before the others: FLUTE's modules import each other in a circle
        importlib.import_module(".activation", __package__).activate()
        if is_mechanism(config["strategy"]):  # FLUTE's first model is another one in every process and run
            importlib.import_module(".client", __package__).set_seed(read(config)[0].seed)
        sys.argv[0] = PROGRAM
        runpy.run_path(PROGRAM, run_name="__main__")
    except FedIncentiveError as error:
        if int(os.environ.get("RANK", 0)) == 0:
            print(f"fedincentive: {error}", file=sys.stderr)
        sys.exit(2)


def _look_around() -> Any:
    """The configuration. What cannot work is refused before any process waits for another."""
    if not Path(PROGRAM).is_file():
        raise SettingError(f"{PROGRAM} is not in {os.getcwd()}: run this in a checkout of FLUTE (docs/flute.md).")
    if missing := [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]:
        raise SettingError(f"FLUTE needs {', '.join(missing)}: pip install 'fedincentive[flute]'.")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-config")
    given = parser.parse_known_args()[0].config
    if given is None:
        raise SettingError("-config is missing: name FLUTE's YAML, as for its e2e_trainer.py.")
    try:
        config = yaml.safe_load(Path(given).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingError(f"-config {given} cannot be read: {error}") from None
    check(config)
    if "RANK" not in os.environ:
        os.environ.update(ALONE)
    sys.path.insert(0, os.getcwd())
    azureml_stub.install()
    return config


if __name__ == "__main__":
    main()
