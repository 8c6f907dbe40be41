"""What closing a round costs as a run grows: the state, the ledger and the checkpoints, in rounds that pay.

    python benchmarks/closing_rounds.py --rounds 100000

plays one run of two agents and prints the median time of closing a round (without the agents' work) around rounds 10,
1,000, 10,000 and so on, its processor time and the ratio of that to round 10 (a disk that others use is not steady),
and the size of state.json and manifest.json.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

from fedincentive import engine, ledger
from fedincentive.game import repaired_example
from fedincentive.settings import Settings

AROUND = 50  # rounds on either side


def measure(folder: Path, rounds: int, places: list[int]) -> dict[int, tuple[float, float, int]]:
    """Median seconds, of the processor too, and bytes of state.json and manifest.json at each place."""
    settings = Settings.read({"mechanism": "2p-upbred", "beta": "0.5", "gamma": 20.0, "rounds": rounds})
    found, passed, worked = {}, [], []
    with ledger.open(folder / "ledger.db") as book:
        center, agents = engine.table(repaired_example(), settings, ledger=book, state=folder / "state")
        with center, tqdm(total=rounds, disable=None, leave=False) as bar:
            while not center.done:
                for report in engine.answers(center.broadcast(), agents):
                    center.submit(report)
                began, at_work = time.perf_counter(), time.process_time()
                center.close()
                passed.append(time.perf_counter() - began)
                worked.append(time.process_time() - at_work)
                bar.update()
                place = center.run.trained - AROUND
                if place in places and place not in found:
                    size = sum((folder / "state" / name).stat().st_size for name in ("state.json", "manifest.json"))
                    medians = [statistics.median(times[-2 * AROUND :]) for times in (passed, worked)]
                    found[place] = (medians[0], medians[1], size)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_000 + AROUND)
    rounds = parser.parse_args().rounds
    places = [place for place in (10, 1_000, 4_000, 10_000, 100_000) if place + AROUND <= rounds]
    with tempfile.TemporaryDirectory(prefix="fedincentive-rounds-") as folder:
        found = measure(Path(folder), rounds, places)
    first = next(iter(found.values()))[1]
    for place, (passed, worked, size) in found.items():
        times = f"{1000 * passed:6.2f} ms, {1000 * worked:5.2f} ms of the processor"
        print(f"round {place:>7,}: {times} ({worked / first:4.2f} x round 10), {size:,} bytes")


if __name__ == "__main__":
    main()
