"""Scalar rounds a second in NVFlare, and what a training round costs beside stock FedAvg, in its simulator.

    python benchmarks/nvflare_rounds.py [--only scalar|training] [--sites 3] [--rounds 8]

plays a closed-form game with many contribute rounds, then trains examples/nvflare with IncentiveRecipe and with
NVFlare's own FedAvgRecipe, the same script and sites, and prints the medians of the times between the rounds in the
servers' logs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "nvflare"
GAME = """
game:
  kind: data-value
  each: {{cost: 0.01, b: 20.0}}
  w0: [0.25, -1.0]
  agents: [{agents}]
"""
RECIPES = {
    "game": """
from fedincentive.plugins.nvflare import IncentiveRecipe
recipe = IncentiveRecipe(mechanism="2p-upbred", beta="0.5", gamma=0.5, round_limit=200, when_short="train", name="game",
                         game="game.yaml", min_clients={sites}, num_rounds=1)
""",
    "ours": """
from net import Net
from fedincentive.plugins.nvflare import IncentiveRecipe
recipe = IncentiveRecipe(mechanism="2p-upbred", beta="0.01", gamma=10000.0, cost=0.005, name="ours", model=Net(),
                         min_clients={sites}, num_rounds={rounds}, train_script="client.py")
""",
    "stock": """
from net import Net
from nvflare.app_opt.pt.recipes import FedAvgRecipe
recipe = FedAvgRecipe(name="stock", model=Net(), min_clients={sites}, num_rounds={rounds}, train_script="client.py")
""",
}
SIMULATED = """
from nvflare.recipe import SimEnv
recipe.execute(SimEnv(num_clients={sites}, workspace_root="workspace"))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["scalar", "training"])
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), given)


def compare(folder: Path, given: argparse.Namespace) -> None:
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    names = (f"{{name: site-{i + 1}, s_max: 400, s0: 100, ideal: [1.0, 2.0]}}" for i in range(given.sites))
    (folder / "game.yaml").write_text(GAME.format(agents=", ".join(names)))
    print(f"{given.sites} sites in the simulator", flush=True)
    if given.only != "training":
        scalar = between(played(folder, "game", given), r"Round \d+ \(contribute\)")
        print(f"scalar rounds: {1 / scalar:.1f} a second ({1000 * scalar:.0f} ms each)", flush=True)
    if given.only != "scalar":
        ours = between(played(folder, "ours", given), r"Round \d+ \(train\)")
        print(f"training rounds: {ours:.2f} s with 2p-upbred", flush=True)
        stock = between(played(folder, "stock", given), r"Round \d+ started")
        print(f"{stock:.2f} s with stock FedAvg ({ours / stock:.2f} x)", flush=True)


def played(folder: Path, name: str, given: argparse.Namespace) -> str:
    """The server's log of a job."""
    code = (RECIPES[name] + SIMULATED).format(sites=given.sites, rounds=given.rounds)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def between(log: str, words: str) -> float:
    """The median of the seconds between lines with these words; a line without a time has that of the one before."""
    times, now = [], None
    for line in log.splitlines():
        if stamp := re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", line):
            now = datetime.strptime(stamp[0], "%Y-%m-%d %H:%M:%S,%f")
        if now and re.search(words, line):
            times.append(now)
    return statistics.median(
        (later - earlier).total_seconds() for earlier, later in zip(times, times[1:], strict=False)
    )


if __name__ == "__main__":
    main()
