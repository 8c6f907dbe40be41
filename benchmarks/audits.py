"""Audits of honest agents and of liars, and what they cost: `python benchmarks/audits.py [AUDITS]`.

Agents train softmax regression on records they committed to. Honest ones must never fail, whatever is drawn; one that
trains on half of its records must fail as often as coins and steps say. The same run with and without audits at q = 0.1
says what audits add; the last line is the ledger's growth by round.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fedincentive import Settings, engine, ledger, mechanisms
from fedincentive.agent import Agent, Notary, SoftmaxSite
from fedincentive.audit import Auditor
from fedincentive.center import Center
from fedincentive.identity import CENTER
from fedincentive.provenance.keys import KeyRing, PrivateKey
from fedincentive.provenance.records import Commitment

AUDITORS = ("ann", "bea", "cleo")


class Federation:
    """Ten sites with 300 records of 64 numbers each, and everybody's keys."""

    def __init__(self, count: int = 10, size: int = 300) -> None:
        self.names = [f"agent-{i:02d}" for i in range(count)]
        draw = np.random.default_rng(1)
        self.data = {name: (draw.normal(size=(size, 64)), draw.integers(0, 10, size)) for name in self.names}
        private = [PrivateKey(name) for name in (CENTER, *self.names, *AUDITORS)]
        self.ring = KeyRing([key.public for key in private], private)
        self.kept = {name: Commitment.to(self.site(name, Settings()).records() or []) for name in self.names}

    def site(self, name: str, settings: Settings) -> SoftmaxSite:
        x, y = self.data[name]
        return SoftmaxSite(name, x, y, 10, settings, held_out=(x[:50], y[:50]))

    def play(self, run: str, rounds: int, *, liar: str | None = None, **changes: object) -> tuple[Center, float, int]:
        """A run to its end, its CPU time, and the bytes of its ledger's bodies."""
        base = {"mechanism": "fedavg", "run": run, "rounds": rounds, "epochs": 2, "report_values": False}
        settings = Settings.read({**base, **changes})
        agents = [
            Agent(
                name,
                self.site(name, settings),
                s0=300.0,
                lies="under-train" if name == liar else None,
                notary=Notary.of(self.ring, name, chain=settings.chain),
                commitment=str(self.kept[name]),
            )
            for name in self.names
        ]
        sites = {name: self.site(name, settings) for name in self.names}
        auditors = [
            Auditor.of(self.ring, name, sites.__getitem__, commitments=self.kept.__getitem__)
            for name in settings.auditors or ()
        ]
        with tempfile.TemporaryDirectory() as folder, ledger.open(Path(folder) / "l.sqlite") as book:
            mechanism = mechanisms.get("fedavg", settings)
            enrolled = [agent.enrol() for agent in agents]
            began = time.process_time()
            center = Center(settings, mechanism, enrolled, agents[0].site.w0 or {}, book, keys=self.ring)
            engine.run(center, [*agents, *auditors])
            return center, time.process_time() - began, sum(len(record.body) for record in book.rows(run))


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 10**4
    federation, done, failed, found, lying, runs = Federation(), 0, 0, 0, 0, 0
    while done < wanted:
        center, _, _ = federation.play(f"honest-{runs}", 20, auditors=AUDITORS)
        done, failed, runs = done + center.run.checked["audited"], failed + len(center.run.failed), runs + 1
    print(f"{done} audits of honest agents: {failed} failed")
    for k in range(20):
        center, _, _ = federation.play(f"liar-{k}", 10, liar="agent-03", auditors=AUDITORS, audit=0.3)
        found, lying = found + ("agent-03" in center.run.failed), lying + 1
        assert set(center.run.failed) <= {"agent-03"}
    print(f"a liar among ten, q = 0.3, 10 steps: found in {found} of {lying} runs (expected {1 - 0.7**10:.0%})")
    plain = [federation.play(f"plain-{k}", 30, epochs=20)[1:] for k in range(3)]
    tenth = [federation.play(f"tenth-{k}", 30, auditors=AUDITORS, audit=0.1, epochs=20)[1:] for k in range(3)]
    without, with_audits = min(seconds for seconds, _ in plain), min(seconds for seconds, _ in tenth)
    print(
        f"30 rounds: {without:.2f} s signed, {with_audits:.2f} s audited at q = 0.1: {with_audits / without - 1:+.1%}"
    )
    lengths = [federation.play(f"long-{n}", n, auditors=AUDITORS, audit=0.1)[2] for n in (20, 40, 80)]
    growth = ", ".join(f"{size / 1000:.0f} kB" for size in lengths)
    print(f"ledger after 20, 40, 80 rounds: {growth} (signed, 30 rounds: {plain[0][1] / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
