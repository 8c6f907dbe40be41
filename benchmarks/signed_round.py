"""What signatures cost a center: a training round of many agents with keys and without, in one process.

    python benchmarks/signed_round.py --agents 100 --rounds 60

plays three runs side by side, round by round, and measures in processor time what the center takes to submit all
reports and to close the round; the agents' own work is not counted.

    without keys     nothing is signed; the digests of the updates, which a center with keys makes, are made too
    with keys        all of it: words, claims, entries, tree, checkpoint, proofs, the signed broadcast
    unchecked        the same without OpenSSL's bare checks: its key objects take every signature as good, so that the
                     checks, which take twenty times as long as all else, do not blur the difference

`checks` is the second less the third, and `beyond` the third less the first, taken round by round: what signatures cost
beyond the checks themselves. On a busy machine both grow, so compare them with each other. Every number is a median
over the rounds. Then the size of state.json after the first and the last round. The mechanism pays
in each round, so that both centers write to the ledger; `--mechanism upbred` pays nothing and writes only with keys.
"""

from __future__ import annotations

import argparse
import gc
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from tqdm import tqdm

from fedincentive import engine, ledger
from fedincentive.center import Center
from fedincentive.game import random_data_value
from fedincentive.identity import CENTER, digest
from fedincentive.messages import Report
from fedincentive.provenance.keys import make
from fedincentive.settings import Settings


def cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def seats(folder: Path, options: argparse.Namespace, keys: Path | None) -> Iterator[tuple[Center, list[Report]]]:
    """A center and the reports of its next training round, round after round; it is for the caller to close it."""
    values = {"mechanism": options.mechanism, "beta": "0.5", "rounds": options.rounds}
    values |= {} if keys is None else {"keys": str(keys)}
    with ledger.open(folder / "ledger.db") as book:
        center, table = engine.table(
            random_data_value(3, options.agents), Settings.read(values), ledger=book, state=folder / "state"
        )
        with center:
            while not center.done:
                phase, reports = center.broadcast().phase, list(engine.answers(center.broadcast(), table))
                if phase == "train":
                    yield center, reports
                else:
                    play(center, reports)


def play(center: Center, reports: list[Report]) -> None:
    for report in reports:
        center.submit(report)
    center.close()


class TakesAll:
    """In the place of an agent's key in OpenSSL."""

    def verify(self, signature: bytes, said: bytes) -> None:
        pass


@contextmanager
def unchecked(center: Center) -> Iterator[None]:
    """All that a center with keys does but OpenSSL's checks."""
    assert center.keys is not None
    keys = [center.keys.public[agent] for agent in center.run.agents]
    own = [key._key for key in keys]
    for key in keys:
        key.__dict__["_key"] = TakesAll()
    try:
        yield
    finally:
        for key, checking in zip(keys, own, strict=True):
            key.__dict__["_key"] = checking


def with_digests(center: Center, reports: list[Report]) -> None:
    """A round without keys, and the digests that a center with keys makes of the updates."""
    for report in reports:
        digest(report.update)
        center.submit(report)
    center.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--mechanism", default="2p-upbred")
    options = parser.parse_args()
    logging.getLogger("fedincentive").setLevel(logging.ERROR)
    took: dict[str, list[float]] = {"without keys": [], "with keys": [], "unchecked": []}
    sizes = []
    with tempfile.TemporaryDirectory(prefix="fedincentive-signed-") as name:
        folder = Path(name)
        for agent in (CENTER, *random_data_value(3, options.agents).agents):
            make(agent, folder / "keys")
        for kind in took:
            (folder / kind).mkdir()
        runs = [seats(folder / kind, options, None if kind == "without keys" else folder / "keys") for kind in took]
        for played in tqdm(zip(*runs, strict=True), total=options.rounds, disable=None):
            gc.collect()
            for kind, (center, reports) in zip(took, played, strict=True):
                work = partial(with_digests if kind == "without keys" else play, center, reports)
                with unchecked(center) if kind == "unchecked" else nullcontext():
                    took[kind].append(cpu(work))
            sizes.append((folder / "with keys" / "state" / "state.json").stat().st_size)
    for kind, seconds in took.items():
        print(f"{kind:<15} {1000 * statistics.median(seconds):7.2f} ms a round of {options.agents} agents")
    for what, less, more in (("checks", "unchecked", "with keys"), ("beyond", "without keys", "unchecked")):
        low, middle, high = statistics.quantiles([1000 * (b - a) for a, b in zip(took[less], took[more], strict=True)])
        print(f"{what:<15} {middle:7.2f} ms: median of {options.rounds} pairs, quartiles {low:.2f} and {high:.2f}")
    print(f"{'state.json':<15} {sizes[0]} bytes after the first round with keys, {sizes[-1]} after the last")


if __name__ == "__main__":
    main()
