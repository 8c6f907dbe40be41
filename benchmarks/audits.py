"""Audits of honest agents and of liars, and what they cost: `python benchmarks/audits.py [--audits 10000] [--cost]`.

`--cost WHAT` measures what audits add to that kind of run, with `--pairs 1` by one pair, `--cost all` to every kind.

Agents train softmax regression on records they committed to. Honest ones must never fail, whatever is drawn; one that
trains on half of its records must fail as often as coins and steps say. The last line is the ledger's growth by round.

What audits add at q = 0.1 is measured on whole runs: ten sites share scikit-learn's digits, a fifth held out, and play
2p-upbred with phase 1, 25 training rounds, a valuation of each model, payments, everybody's signatures and a witnessed
ledger. The run that counts trains a convolutional network of 86,000 parameters in torch (one thread) for 5 epochs a
round. Beside it stand one of 7,700 parameters and the softmax regression of `make demo`, in which hardly anything is
trained. What is added is the processor time of everybody, the center, the agents and the auditors, less that of the
same signed run without auditors, as a share of the latter. Agents train alike in both runs, so that their training is
left out of the difference, where it would only be noise. The two runs take turns round by round, so that a machine that
is slower for a while is so for both, and the median of some pairs counts. How many are audited is drawn: what audits
add is scaled from the examinations that took place to the q of the agents' steps that are expected, second looks at
passes included, so that luck with the coins does not count. Less than q = 10 % of what a run trains it cannot be.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from threading import Semaphore
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from fedincentive import Settings, draws, engine, ledger, mechanisms
from fedincentive.agent import Agent, LossSite, Notary, SoftmaxSite
from fedincentive.audit import Auditor
from fedincentive.center import Center
from fedincentive.identity import CENTER
from fedincentive.messages import RoundResult, Update
from fedincentive.provenance.audits import chance
from fedincentive.provenance.keys import KeyRing, PrivateKey
from fedincentive.provenance.records import Commitment

AUDITORS = ("ann", "bea", "cleo")


class Counted:
    """A site at which it is counted how often an update is made, and how long that takes."""

    made, seconds = 0, 0.0

    def update(self, *given: Any) -> Any:
        began = time.thread_time()
        found = super().update(*given)
        self.made, self.seconds = self.made + 1, self.seconds + time.thread_time() - began
        return found


class CountedSoftmax(Counted, SoftmaxSite):
    """With softmax regression in NumPy."""


class CountedNetwork(Counted, LossSite):
    """With a convolutional network in torch, for pictures of 8 x 8 pixels."""

    channels = 16, 32

    def __init__(
        self, name: str, x: np.ndarray, y: np.ndarray, classes: int, settings: Settings, held_out: Any
    ) -> None:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(settings.seed)
        self.name, self.settings, self.torch = name, settings, torch
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(1, self.channels[0], 3, padding=1), torch.nn.ReLU(),
            torch.nn.Conv2d(*self.channels, 3), torch.nn.ReLU(),
            torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(9 * self.channels[1], classes),
        )  # fmt: skip
        self.x, self.y = self._tensors(x, y)
        self.held_out = self._tensors(*held_out)
        super().__init__(
            len(y),
            self._work,
            self._loss,
            order=draws.order(settings.seed, name, len(y)),
            reward=float(np.log(classes)),
            cost_per_point=settings.cost_of(name),
            value_per_nat=settings.value_per_nat,
            w0={key: value.numpy().copy() for key, value in self.net.state_dict().items()},
            records=lambda: [point.tobytes() + label.tobytes() for point, label in zip(x, y, strict=True)],
        )

    def _tensors(self, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        pixels = self.torch.from_numpy(x.astype(np.float32)).reshape(-1, 1, 8, 8)
        return pixels, self.torch.from_numpy(y.astype(np.int64))

    def _load(self, w: Update) -> None:
        self.net.load_state_dict({key: self.torch.from_numpy(np.array(value)) for key, value in w.items()})

    def _loss(self, w: Update) -> float:
        self._load(w)
        with self.torch.no_grad():
            x, y = self.held_out
            return float(self.torch.nn.functional.cross_entropy(self.net(x), y))

    def _work(self, w: Update, points: np.ndarray, step: int) -> Update:
        self._load(w)
        optimizer = self.torch.optim.SGD(self.net.parameters(), lr=self.settings.learning_rate)
        draw = np.random.default_rng(draws.local_seed(self.settings.seed, self.name, step))
        for _ in range(self.settings.epochs):
            shuffled = self.torch.from_numpy(points[draw.permutation(len(points))])
            for batch in shuffled.split(self.settings.batch):
                optimizer.zero_grad()
                self.torch.nn.functional.cross_entropy(self.net(self.x[batch]), self.y[batch]).backward()
                optimizer.step()
        return {key: value.numpy() - w[key] for key, value in self.net.state_dict().items()}


class CountedLargerNetwork(CountedNetwork):
    """With four times as many channels, which is still a small network, but no toy."""

    channels = 64, 128


class Played(NamedTuple):
    center: Center
    seconds: float  # of the processor, for everybody
    size: int  # bytes of its ledger's bodies
    training: float  # seconds of it in which agents trained
    examined: int  # updates that auditors made again
    again: float  # seconds in which they did


class Turns:
    """Lets two threads take turns until one of them is over."""

    def __init__(self) -> None:
        self.may_go, self.over = (Semaphore(1), Semaphore(0)), False

    def hand_over(self, mine: int) -> None:
        if not self.over:
            self.may_go[1 - mine].release()
            self.may_go[mine].acquire()

    def played(self, mine: int, play: Callable[..., Played]) -> Played:
        self.may_go[mine].acquire()
        try:
            return play(progress=lambda result: self.hand_over(mine))
        finally:
            self.over = True
            self.may_go[1 - mine].release()


class Federation:
    """Ten sites with records of 64 numbers each, and everybody's keys."""

    def __init__(self, data: Mapping[str, tuple[np.ndarray, np.ndarray]], held_out: int = 50) -> None:
        self.data, self.names, self.held_out = data, list(data), held_out
        private = [PrivateKey(name) for name in (CENTER, *self.names, *AUDITORS)]
        self.ring = KeyRing([key.public for key in private], private)
        self.kept = {name: Commitment.to(self.site(name, Settings()).records() or []) for name in self.names}

    @classmethod
    def random(cls, count: int = 10, size: int = 300) -> Federation:
        draw = np.random.default_rng(1)
        return cls({f"agent-{i:02d}": (draw.normal(size=(size, 64)), draw.integers(0, 10, size)) for i in range(count)})

    @classmethod
    def digits(cls, count: int = 10) -> Federation:
        """Scikit-learn's digits, in equal shares; a fifth of each is held out."""
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        parts = np.array_split(np.random.default_rng(0).permutation(len(y)), count)
        return cls({f"agent-{i:02d}": (x[part] / 16.0, y[part]) for i, part in enumerate(parts)}, held_out=36)

    def site(self, name: str, settings: Settings, kind: type[Any] = CountedSoftmax) -> Any:
        (x, y), k = self.data[name], self.held_out
        return kind(name, x[k:], y[k:], 10, settings, held_out=(x[:k], y[:k]))

    def play(
        self,
        run: str,
        rounds: int,
        *,
        mechanism: str = "fedavg",
        kind: type[Any] = CountedSoftmax,
        liar: str | None = None,
        progress: Callable[[RoundResult], None] | None = None,
        **changes: object,
    ) -> Played:
        """A run to its end."""
        settings = Settings.read({"mechanism": mechanism, "run": run, "rounds": rounds, "epochs": 2, **changes})
        agents = [
            Agent(
                name,
                own := self.site(name, settings, kind),
                s0=own.s_max if mechanism == "fedavg" else own.s_max // 2,
                lies="under-train" if name == liar else None,
                notary=Notary.of(self.ring, name, chain=settings.chain),
                commitment=str(self.kept[name]),
            )
            for name in self.names
        ]
        sites = {name: self.site(name, settings, kind) for name in self.names}
        auditors = [
            Auditor.of(self.ring, name, sites.__getitem__, commitments=self.kept.__getitem__)
            for name in settings.auditors or ()
        ]
        with tempfile.TemporaryDirectory() as folder, ledger.open(Path(folder) / "l.sqlite") as book:
            played = mechanisms.get(mechanism, settings)
            enrolled = [agent.enrol() for agent in agents]
            began = time.thread_time()
            center = Center(settings, played, enrolled, agents[0].site.w0 or {}, book, keys=self.ring)
            engine.run(center, [*agents, *auditors], progress=progress)
            seconds = time.thread_time() - began
            size = sum(len(record.body) for record in book.rows(run))
        training = sum(agent.site.seconds for agent in agents)
        made, again = (sum(getattr(site, what) for site in sites.values()) for what in ("made", "seconds"))
        return Played(center, seconds, size, training, made, again)


ROUNDS = 25
GAME = {"mechanism": "2p-upbred", "beta": "0.15", "cost": 0.07, "value_per_nat": 60.0, "learning_rate": 0.1}
RUNS = {  # what is trained: the site, the epochs, how many pairs of runs
    "a network, 5 epochs": (CountedLargerNetwork, 5, 3),
    "a tiny network, 5 epochs": (CountedNetwork, 5, 5),
    "softmax, 1 epoch": (CountedSoftmax, 1, 5),
}


def cost(federation: Federation, what: str, pairs: int | None = None, first: int = 0) -> None:
    """What audits add at q = 0.1 to runs of this much training."""
    kind, epochs, several = RUNS[what]
    pairs = pairs or several
    expected = 0.1 * ROUNDS * len(federation.names)
    raw, added, messages, share, local = [], [], [], [], []
    for k in range(first, first + pairs):
        audited = {"auditors": AUDITORS, "audit": 0.1}
        turns, runs = Turns(), (("plain", {}), ("tenth", audited))
        common = {**GAME, "kind": kind, "epochs": epochs}
        plays = [partial(federation.play, f"{name}-{epochs}-{k}", ROUNDS, **common, **a) for name, a in runs]
        with ThreadPoolExecutor(2) as pool:
            plain, tenth = pool.map(turns.played, (0, 1), plays)
        assert not tenth.center.run.failed and tenth.center.run.status == plain.center.run.status == "complete"
        more = (tenth.seconds - tenth.training) - (plain.seconds - plain.training)
        raw.append(more / plain.seconds)
        added.append(raw[-1] * expected / tenth.examined)
        messages.append((more - tenth.again) / plain.seconds * expected / tenth.examined)
        share.append(plain.training / plain.seconds)
        local.append(plain.training / ROUNDS / len(federation.names))
    print(
        f"audits at q = 0.1, {what}, {median(share):.1%} of the time training, {median(local) * 1000:.3g} ms each: "
        f"{median(added):+.2%} ({pairs} pairs of runs from {min(added):+.2%} to {max(added):+.2%}), "
        f"{median(messages):+.2%} of it other than training again; with the coins as they fell {median(raw):+.2%}",
        flush=True,
    )


def honest(federation: Federation, wanted: int) -> None:
    """Audits of honest agents, none of which may fail, and of a liar among them. Every step of the honest ones is
    audited, so that few runs have many audits."""
    done = failed = found = runs = 0
    with tqdm(total=wanted, unit="audits", disable=None, leave=False) as bar:
        while done < wanted:
            told = {"auditors": AUDITORS, "audit": 1.0, "report_values": False}
            center = federation.play(f"honest-{runs}", 20, **told).center
            audited = center.run.checked["audited"]
            done, failed, runs = done + audited, failed + len(center.run.failed), runs + 1
            bar.update(audited)
    print(f"{done} audits of honest agents: {failed} failed", flush=True)
    for k in range(20):
        center = federation.play(f"liar-{k}", 10, liar="agent-03", auditors=AUDITORS, audit=0.3).center
        found += "agent-03" in center.run.failed
        assert set(center.run.failed) <= {"agent-03"}
    expected = 1.0 - float(1 - chance(0.3, Settings().rechecks)) ** 10
    print(f"a liar among ten, q = 0.3, 10 steps: found in {found} of 20 runs (expected {expected:.0%})")
    lengths = [federation.play(f"long-{n}", n, auditors=AUDITORS, audit=0.1).size for n in (20, 40, 80)]
    growth = ", ".join(f"{size / 1000:.0f} kB" for size in lengths)
    signed = federation.play("signed", 30).size
    print(f"ledger after 20, 40, 80 rounds: {growth} (signed, 30 rounds: {signed / 1000:.0f} kB)")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--audits", type=int, default=10**4, help="of honest agents")
    parser.add_argument(
        "--cost", choices=[*RUNS, "all"], metavar="WHAT", help=f"the cost instead: {', '.join(RUNS)}, all"
    )
    parser.add_argument("--pairs", type=int, help="of runs by which the cost is measured")
    parser.add_argument("--first", type=int, default=0, help="the number of the first pair, to measure them in pieces")
    options = parser.parse_args()
    logging.getLogger("fedincentive").setLevel(logging.ERROR)
    if options.cost is None:
        honest(Federation.random(), options.audits)
        return
    for what in RUNS if options.cost == "all" else [options.cost]:
        cost(Federation.digits(), what, options.pairs, options.first)


if __name__ == "__main__":
    main()
