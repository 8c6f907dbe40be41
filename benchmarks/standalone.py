"""How long the stand-alone verifier takes for a ledger of many signed reports: a real run, its export, its check.

    python benchmarks/standalone.py --agents 100 --rounds 1000

plays a signed run of that many training rounds, exports its ledger, and checks the export with all signatures in a
Python that sees nothing but the standard library; the verifier's own progress lines are shown. The agents sign what
they say and do not look at the center's log.
"""

from __future__ import annotations

import argparse
import logging
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from fedincentive import Settings, ledger, mechanisms
from fedincentive.center import Center
from fedincentive.identity import CENTER, answers, claim, signed
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.messages import Enrol, Report
from fedincentive.provenance.keys import KeyRing, PrivateKey, words
from fedincentive.terms import digest


def play(folder: Path, agents: int, rounds: int) -> Path:
    """The export of a signed run."""
    keys = [PrivateKey(name) for name in (CENTER, *(f"agent-{k:04d}" for k in range(agents)))]
    ring, names = KeyRing([key.public for key in keys], keys), [key.name for key in keys[1:]]
    settings = Settings.read({"mechanism": "fedavg", "rounds": rounds, "report_values": False})
    enrolled = [Enrol(name, 10.0, 5.0, key=ring.public[name].vkey) for name in names]
    with ledger.open(folder / "ledger.db") as book, tqdm(total=rounds, disable=None, leave=False) as bar:
        center = Center(settings, mechanisms.get("fedavg", settings), enrolled, {"w": np.zeros(4)}, book, keys=ring)
        while not center.done:
            told = center.broadcast()
            trains, answered = told.phase == "train", answers(told, digest(center.run.terms))
            for k, name in enumerate(names):
                report = Report(told.run, told.round, told.phase, name, nonce=f"{told.round:032x}")
                if trains:
                    report = replace(report, delivered=float(k % 10 + 1), update={"w": np.full(4, 0.1 * k)})
                said = claim(report, answered, settings.scale, settings.minor, center.run.s_max[name])
                center.submit(replace(report, signature=signed(ring.private[name], words("report", said))))
            center.close()
            bar.update(trains)
        with open(folder / "ledger.jsonl", "w", encoding="ascii") as file:
            file.writelines(to_jsonl(book))
    return folder / "ledger.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1000)
    options = parser.parse_args()
    logging.getLogger("fedincentive").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="fedincentive-standalone-") as name:
        began = time.monotonic()
        export = play(Path(name), options.agents, options.rounds)
        print(f"{options.agents} agents, {options.rounds} rounds: played in {time.monotonic() - began:.0f} s, ", end="")
        print(f"{export.stat().st_size / 2**20:.0f} MiB of JSONL", flush=True)
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-I", "-S", standalone.__file__, export], stdout=subprocess.PIPE, text=True
        )
        print(done.stdout.strip())
        spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before.ru_utime
        print(f"all of it in {time.monotonic() - began:.1f} s, {spent:.1f} s of them processor time")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
