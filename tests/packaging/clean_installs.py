"""`make wheels` ends with this: each wheel is installed from its file into an empty environment, and used.

python tests/packaging/clean_installs.py dist
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

UV = Path(".venv/tools/bin/uv").resolve()
USE = """
import tempfile, numpy as np, fedincentive, fedincentive.plugins
from fedincentive.aggregation import native
assert fedincentive.trimmed_mean([np.array([v], "f4") for v in (1, 2, 3, 4, 1000)], 1)[0] == 3
native.load()
with tempfile.TemporaryDirectory() as folder:
    outcome = fedincentive.play({"game": {"kind": "repaired"}}, beta="0.5", rounds=3, ledger=folder + "/l.db")
assert outcome.status == "complete"
"""


def main(folder: Path) -> None:
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        sys.exit(f"There is no wheel in {folder}.")
    for wheel in wheels:
        found = re.search(r"-cp3(\d+)-", wheel.name)
        assert found and "manylinux" in wheel.name, f"{wheel.name} is not for a Python version and manylinux."
        with tempfile.TemporaryDirectory() as empty:
            home = Path.home() / ".pyenv" / "versions"
            versions = [*sorted(home.glob(f"3.{found[1]}.*/bin/python")), f"3.{found[1]}"]
            subprocess.run([UV, "venv", "-q", "--python", str(versions[0]), f"{empty}/env"], check=True)
            python = f"{empty}/env/bin/python"
            subprocess.run([UV, "pip", "install", "-q", "--python", python, wheel.resolve()], check=True)
            subprocess.run([python, "-c", USE], cwd=empty, check=True)
            subprocess.run(
                [f"{empty}/env/bin/fedincentive", "watch", "--help"], cwd=empty, check=True, stdout=subprocess.DEVNULL
            )
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, installed and used")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
