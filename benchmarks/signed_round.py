"""What signatures cost a center: a training round of many agents with keys and without, in one process.

    python benchmarks/signed_round.py --agents 100 --rounds 60

plays three runs side by side, round by round, and measures in processor time what the center takes to submit all
reports and to close the round; the agents' own work is not counted.

    without keys     nothing is signed
    and the checks   the same, and at the places where a center with keys checks: OpenSSL's bare checks of the
                     signatures and cosignatures of the run with keys, and the digests of its updates
    with keys        all of it: words, claims, entries, tree, checkpoint, proofs, the signed broadcast

`beyond` is the third less the second, taken round by round: what signatures cost beyond the checks themselves. Every
number is a median over the rounds. Then the size of state.json after the first and the last round.
"""

from __future__ import annotations

import argparse
import gc
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tqdm import tqdm

from fedincentive import engine, ledger
from fedincentive.center import Center
from fedincentive.game import random_data_value
from fedincentive.identity import CENTER, answers, claim, digest
from fedincentive.messages import Report
from fedincentive.provenance.keys import from_base64, make, words
from fedincentive.provenance.notes import Note, SignatureLine, cosigned_words
from fedincentive.settings import Settings
from fedincentive.terms import digest as digest_of_terms


def cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def seats(folder: Path, agents: int, rounds: int, keys: Path | None) -> Iterator[tuple[Center, list[Report]]]:
    """A center and the reports of its next training round, round after round; it is for the caller to close it."""
    values = {"mechanism": "upbred", "beta": "0.5", "rounds": rounds, **({} if keys is None else {"keys": str(keys)})}
    with ledger.open(folder / "ledger.db") as book:
        center, table = engine.table(
            random_data_value(3, agents), Settings.read(values), ledger=book, state=folder / "state"
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


Check = Callable[[], object]


def bare_checks(center: Center, reports: list[Report]) -> tuple[list[Check], list[Check]]:
    """For each report OpenSSL's check of the signature and the digest of the update, with all else at hand; and
    OpenSSL's checks of the cosignatures."""
    told, run = center.broadcast(), center.run
    assert center.keys is not None and told.log is not None
    note, answered = Note.parse(told.log["note"]), answers(told, digest_of_terms(run.terms))
    signatures: list[Check] = []
    cosignatures: list[Check] = []
    for report in reports:
        key = center.keys.public[report.agent]
        said = claim(report, answered, center.settings.scale, center.settings.minor, run.s_max[report.agent])
        line = SignatureLine.parse(report.cosignature or "")
        cosigned = cosigned_words(note.text, int.from_bytes(line.blob[:8], "big"))
        signature = partial(key.verify, from_base64(report.signature or ""), words("report", said))
        signatures.append(lambda check=signature, update=report.update: (check(), digest(update)))
        cosignatures.append(partial(key.verify, line.blob[8:], cosigned))
    return signatures, cosignatures


def with_checks(center: Center, reports: list[Report], checks: tuple[list[Check], list[Check]]) -> None:
    """A round without keys, and the bare checks at the places where a center with keys makes them."""
    for report, check in zip(reports, checks[0], strict=True):
        check()
        center.submit(report)
    for check in checks[1]:
        check()
    center.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    logging.getLogger("fedincentive").setLevel(logging.ERROR)
    took: dict[str, list[float]] = {"without keys": [], "and the checks": [], "with keys": []}
    sizes = []
    with tempfile.TemporaryDirectory(prefix="fedincentive-signed-") as name:
        folder = Path(name)
        for agent in (CENTER, *random_data_value(3, options.agents).agents):
            make(agent, folder / "keys")
        runs = [
            seats(folder / kind, options.agents, options.rounds, folder / "keys" if kind == "with keys" else None)
            for kind in took
        ]
        for kind in took:
            (folder / kind).mkdir()
        for played in tqdm(zip(*runs, strict=True), total=options.rounds, disable=None):
            checks = bare_checks(*played[-1])
            gc.collect()
            for kind, (center, reports) in zip(took, played, strict=True):
                work = partial(play, center, reports)
                if kind == "and the checks":
                    work = partial(with_checks, center, reports, checks)
                took[kind].append(cpu(work))
            sizes.append((folder / "with keys" / "state" / "state.json").stat().st_size)
    for kind, seconds in took.items():
        print(f"{kind:<15} {1000 * statistics.median(seconds):7.2f} ms a round of {options.agents} agents")
    beyond = [1000 * (b - a) for a, b in zip(took["and the checks"], took["with keys"], strict=True)]
    low, middle, high = statistics.quantiles(beyond, n=4)
    print(f"{'beyond':<15} {middle:7.2f} ms: median of {len(beyond)} paired rounds, quartiles {low:.2f} and {high:.2f}")
    print(f"{'state.json':<15} {sizes[0]} bytes after the first round with keys, {sizes[-1]} after the last")


if __name__ == "__main__":
    main()
