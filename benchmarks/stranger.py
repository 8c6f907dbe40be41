"""How long a stranger needs from a clone of this repository to a report, typing only what the README says.

python benchmarks/stranger.py            # needs pip's index or its cache, and a C++ compiler
python benchmarks/stranger.py --extras   # instead: what each extra takes, by the minute and the gigabyte

Each step is timed by the clock on the wall, once. The commands are those of the README's "In five minutes"; `watch`,
which would go on, is asked for one look with --json.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]


def commands(readme: str) -> list[str]:
    """The indented lines after "In five minutes", without their comments."""
    _, _, after = readme.partition("In five minutes")
    lines = after.split("\n\n", 2)[1].splitlines()
    return [line.split("  # ")[0].split(" # ")[0].strip() for line in lines]


def extras() -> None:
    """Installs the wheel with each extra into an empty environment, past pip's cache."""
    pip = ["pip", "-q", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-m", *pip, "wheel", "--no-deps", "-w", place, str(CHECKOUT)], check=True)
        (wheel,) = Path(place).glob("*.whl")
        for extra in ("", "[torch]", "[fedml]", "[flower]", "[nvflare]"):
            env = Path(place) / f"env-{extra.strip('[]')}"
            subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
            start = time.monotonic()
            subprocess.run(
                [env / "bin" / "python", "-m", *pip, "install", "--no-cache-dir", f"{wheel}{extra}"], check=True
            )
            seconds = time.monotonic() - start
            size = sum(path.lstat().st_size for path in env.rglob("*") if path.is_file())
            print(f"{seconds:7.0f} s, {size / 1e9:5.2f} GB  the wheel{extra}", flush=True)
            shutil.rmtree(env)


def main() -> None:
    if sys.argv[1:] == ["--extras"]:
        return extras()
    with tempfile.TemporaryDirectory() as place:
        clone, env = Path(place) / "fedincentive", Path(place) / "env"
        python = str(env / "bin" / "python")
        steps = [
            ["git", "clone", "-q", str(CHECKOUT), str(clone)],
            [sys.executable, "-m", "venv", str(env)],
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "."],
        ]
        typed = commands((CHECKOUT / "README.md").read_text())
        assert len(typed) == 5 and all(words.startswith("fedincentive ") for words in typed), typed
        steps += [[*words.split(), *(["--json"] if " watch " in words else [])] for words in typed]
        where, began = {**os.environ, "PATH": f"{env / 'bin'}{os.pathsep}{os.environ['PATH']}"}, time.monotonic()
        where |= {"FEDINCENTIVE_CUDA": "0"}
        where.pop("PYTHONPATH", None)
        for words in steps:
            start = time.monotonic()
            done = subprocess.run(
                words, cwd=clone if clone.exists() else place, env=where, capture_output=True, text=True
            )
            if done.returncode:
                sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
            print(f"{time.monotonic() - start:7.1f} s  {' '.join(words).replace(place, '...')}", flush=True)
        report = (clone / "report.html").read_text()
        assert "1 ledger verified." in report and "The model is worth more to every agent" in report
        print(f"{time.monotonic() - began:7.1f} s  from nothing to a report of {len(report):,} characters")


if __name__ == "__main__":
    main()
