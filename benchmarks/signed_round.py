"""What signatures cost a center: a training round of many agents with keys and without.

    python benchmarks/signed_round.py --agents 100 --rounds 40

plays both runs and prints, in processor time per round, what submitting all reports and closing the round takes; what
of it OpenSSL takes for the agents' signatures and cosignatures; what making the words that they signed takes (canonical
JSON, the update's digest, base64); and what is left: keeping the signed words in the ledger and the state, the tree,
the checkpoint, the proofs. Then the size of state.json after the first and the last round. Medians; the agents' own
work is not counted.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from fedincentive import engine, ledger
from fedincentive.center import Center
from fedincentive.center.log import with_cosignatures
from fedincentive.game import random_data_value
from fedincentive.identity import CENTER
from fedincentive.messages import Report
from fedincentive.payments import quantise
from fedincentive.provenance.keys import PrivateKey, make
from fedincentive.provenance.notes import Note
from fedincentive.settings import Settings


def cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def play(folder: Path, agents: int, rounds: int, keys: Path | None) -> tuple[list[float], list[float], list[int]]:
    """The center's seconds for each training round, those of its checks, and the bytes of state.json after it."""
    values = {"mechanism": "upbred", "beta": "0.5", "rounds": rounds, **({} if keys is None else {"keys": str(keys)})}
    seconds, checks, sizes = [], [], []
    with ledger.open(folder / "ledger.db") as book:
        center, seats = engine.table(
            random_data_value(3, agents), Settings.read(values), ledger=book, state=folder / "state"
        )
        with center, tqdm(total=rounds, disable=None, leave=False) as bar:
            while not center.done:
                phase, reports = center.broadcast().phase, list(engine.answers(center.broadcast(), seats))
                if phase == "train" and keys is not None:
                    checks.append(cpu(lambda reports=reports: check(center, reports)))
                took = cpu(lambda reports=reports: [*map(center.submit, reports), center.close()])
                if phase == "train":
                    seconds.append(took)
                    sizes.append((folder / "state" / "state.json").stat().st_size)
                    bar.update()
    return seconds, checks, sizes


def check(center: Center, reports: list[Report]) -> None:
    """Everybody's signature and cosignature."""
    assert center.keys is not None
    told = center.broadcast().log
    assert told is not None and all(map(center.claimed, reports))
    with_cosignatures(Note.parse(told["note"]), {r.agent: r.cosignature for r in reports}, center.keys.public)


def openssl(agents: int) -> float:
    """Seconds of checking one signature and one cosignature of each agent."""
    key = PrivateKey("agent")
    said = bytes(600)
    signature = key.sign(said)
    return median(lambda: [key.public.verify(signature, said) for _ in range(2 * agents)])


def median(work: Callable[[], object]) -> float:
    return statistics.median(cpu(work) for _ in range(30))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    logging.getLogger("fedincentive").setLevel(logging.ERROR)
    medians, checks, sizes = {}, [], []
    with tempfile.TemporaryDirectory(prefix="fedincentive-signed-") as name:
        folder = Path(name)
        for agent in (CENTER, *random_data_value(3, options.agents).agents):
            make(agent, folder / "keys")
        for kind, keys in (("without keys", None), ("with keys", folder / "keys")):
            (folder / kind).mkdir()
            seconds, checks, sizes = play(folder / kind, options.agents, options.rounds, keys)
            medians[kind] = statistics.median(seconds)
            print(f"{kind:<14} {1000 * medians[kind]:7.2f} ms a round of {options.agents} agents")
    library = openssl(options.agents)
    # numbers are counted once in either run; with keys it is a part of the checks
    counting = median(lambda: [quantise(0.1 + k) for k in range(3 * options.agents)])
    words = statistics.median(checks) - counting - library
    print(f"OpenSSL        {1000 * library:7.2f} ms: {2 * options.agents} signatures")
    print(f"their words    {1000 * words:7.2f} ms")
    print(f"beyond that    {1000 * (medians['with keys'] - medians['without keys'] - library - words):7.2f} ms")
    print(f"state.json     {sizes[0]} bytes after the first round with keys, {sizes[-2]} after the last")


if __name__ == "__main__":
    main()
