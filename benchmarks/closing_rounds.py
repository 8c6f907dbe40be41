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

PLACES = (10, 1_000, 4_000, 10_000, 30_000, 99_900)
AROUND = 50  # rounds on either side


def measure(folder: Path, rounds: int) -> None:
    settings = Settings.read({"mechanism": "2p-upbred", "beta": "0.5", "gamma": 20.0, "rounds": rounds})
    passed, worked, first = [], [], 0.0
    places = [place + AROUND for place in PLACES]
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
                if places and center.run.trained == places[0]:
                    taken, spent = (1000 * statistics.median(times[-2 * AROUND :]) for times in (passed, worked))
                    first = first or spent
                    size = sum((folder / "state" / name).stat().st_size for name in ("state.json", "manifest.json"))
                    ratio = f"{spent / first:4.2f} x round {PLACES[0]}"
                    at = f"round {places.pop(0) - AROUND:>7,}"
                    print(
                        f"{at}: {taken:6.2f} ms, {spent:5.2f} ms of the processor ({ratio}), {size:,} bytes", flush=True
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_100)
    with tempfile.TemporaryDirectory(prefix="fedincentive-rounds-") as folder:
        measure(Path(folder), parser.parse_args().rounds)


if __name__ == "__main__":
    main()
