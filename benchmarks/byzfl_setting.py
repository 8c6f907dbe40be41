"""ByzFL's benchmark setting on real handwriting, with our rules and with ByzFL's own in one run.

    python benchmarks/byzfl_setting.py --data mnist_by_writer.npz [--quick | --full] [--csv FILE]

ByzFL's small CNN (431,080 values), 10 honest clients with batches of 25, momentum 0.9 at the clients, step size 0.1,
f = 1 to 4 attackers, data split by ByzFL's gamma similarity (1: all clients alike, 0: two neighbouring digits each),
Clipping(2) + NNM before the trimmed mean or the geometric median. Each cell is trained twice from the same model, on
the same batches in the same order: once with our rule, once with ByzFL's. In the first of the two trainings both
libraries aggregate the very same updates at every tenth step, one after the other: from these pairs come the largest
difference of results (in parts of the longer of the two) and how many times faster ours is (the median).

The trimmed mean is the same rule in both, to the last digits of float32; training makes more of such differences with
every step, so that its accuracies differ all the same. ByzFL's geometric median is three smoothed steps and ours the
minimiser, which is also where ByzFL's goes when it may take some thousand steps (tests/aggregation/test_byzfl.py).
ByzFL trains 800 steps with every f. The default here is 30 steps with f = 1 and 4, so accuracies are those of a
beginning training; a cell takes about half a minute of one processor. `--full` is the whole setting, and takes days.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedincentive.adversary import flip_labels
from fedincentive.aggregation import rule

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from peers import byzfl

theirs = byzfl()
HONEST, BATCH, MOMENTUM, STEP, DECAY, CLIP = 10, 25, 0.9, 0.1, 1e-4, 2.0
RULES = {"trimmed-mean": "TrMean", "geometric-median": "GeometricMedian"}
ATTACKS = ("sign-flip", "alie", "ipm", "label-flip")


def network() -> nn.Sequential:
    """ByzFL's cnn_mnist."""
    pooled = [nn.ReLU(), nn.MaxPool2d(2)]
    convolutions = [nn.Conv2d(1, 20, 5), *pooled, nn.Conv2d(20, 50, 5), *pooled, nn.Flatten()]
    return nn.Sequential(*convolutions, nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


def split(labels: np.ndarray, gamma: float, rng: np.random.Generator) -> list[np.ndarray]:
    """A part gamma dealt to all alike, the rest sorted by label and cut into ten."""
    drawn = rng.permutation(len(labels))
    alike, rest = np.split(drawn, [int(gamma * len(labels))])
    rest = rest[np.argsort(labels[rest], kind="stable")]
    parts = zip(np.array_split(alike, HONEST), np.array_split(rest, HONEST), strict=True)
    return [np.concatenate(pair) for pair in parts]


def ours(name: str, f: int):
    chosen = rule(f"clipping+nnm+{name}")
    return lambda updates: chosen.use(updates, clip=CLIP, f=f)


def peers(name: str, f: int):
    last = theirs.TrMean(f) if name == "trimmed-mean" else theirs.GeometricMedian()
    clipping, mixing = theirs.Clipping(CLIP), theirs.NNM(f)
    return lambda updates: last(mixing(clipping(torch.stack(updates))))


def sent(attack: str, honest: list[torch.Tensor], flipped: torch.Tensor | None) -> torch.Tensor:
    made = {
        "sign-flip": lambda: theirs.SignFlipping()(honest),
        "alie": lambda: theirs.ALittleIsEnough()(honest),
        "ipm": lambda: theirs.InnerProductManipulation()(honest),
        "inf": lambda: torch.full_like(honest[0], torch.inf),
        "label-flip": lambda: flipped,
    }
    return made[attack]()


class Training:
    """One training with one aggregation: deterministic, given the seed."""

    def __init__(self, data, parts, seed: int):
        torch.manual_seed(seed)
        self.images, self.labels = data
        self.parts, self.rng = parts, np.random.default_rng(seed)
        self.model = network()
        size = sum(p.numel() for p in self.model.parameters())
        self.momentum = torch.zeros(HONEST + 1, size)  # the last row is the label flippers'

    def gradient(self, chosen: np.ndarray, labels: np.ndarray) -> torch.Tensor:
        self.model.zero_grad()
        cross_entropy(self.model(self.images[chosen]), torch.from_numpy(labels)).backward()
        return torch.cat([(p.grad + DECAY * p.data).flatten() for p in self.model.parameters()])

    def updates(self, attack: str, f: int) -> list[torch.Tensor]:
        drawn = [self.rng.choice(part, BATCH) for part in self.parts]
        found = [self.gradient(chosen, self.labels[chosen]) for chosen in drawn]
        if attack == "label-flip":  # they train on the first clients' images with labels 9 - y
            wrong = [self.gradient(chosen, flip_labels(self.labels[chosen], 10)) for chosen in drawn[:f]]
            found.append(torch.stack(wrong).mean(dim=0))
        for row, gradient in enumerate(found):
            self.momentum[row] = MOMENTUM * self.momentum[row] + (1 - MOMENTUM) * gradient
        honest = [self.momentum[row].clone() for row in range(HONEST)]
        return honest + [sent(attack, honest, self.momentum[HONEST].clone())] * f

    def move(self, direction: torch.Tensor) -> None:
        if not torch.isfinite(direction).all():
            return
        with torch.no_grad():
            for p, change in zip(self.model.parameters(), self.cut(direction), strict=True):
                p -= STEP * change

    def cut(self, flat: torch.Tensor):
        pieces = flat.split([p.numel() for p in self.model.parameters()])
        return [piece.view_as(p) for piece, p in zip(pieces, self.model.parameters(), strict=True)]

    def accuracy(self, images: torch.Tensor, labels: np.ndarray) -> float:
        with torch.no_grad():
            right = [self.model(part).argmax(dim=1) for part in images.split(500)]
        return 100 * float((torch.cat(right).numpy() == labels).mean())


def timed(call, updates) -> tuple[torch.Tensor, float]:
    begin = time.perf_counter()
    made = call(updates)
    return made, time.perf_counter() - begin


def cell(data, test, gamma: float, f: int, attack: str, name: str, steps: int, seed: int) -> dict:
    mine, other = ours(name, f), peers(name, f)
    accuracies, ratios, apart, milliseconds = [], [], 0.0, []
    for library in ("ours", "byzfl"):
        parts = split(data[1], gamma, np.random.default_rng(seed))
        training = Training(data, parts, seed)
        for step in range(steps):
            updates = training.updates(attack, f)
            if library == "byzfl":
                training.move(other(updates))
                continue
            if step % 10 == 0:  # paired on the same updates, after one call each that is not counted
                if step == 0:
                    other(updates), mine(updates)
                expected, slow = timed(other, updates)
                found, fast = timed(mine, updates)
                ratios.append(slow / fast)
                milliseconds.append(1e3 * fast)
                longest = float(max(expected.norm(), found.norm()))
                apart = max(apart, float((expected - found).norm()) / longest if longest else 0.0)
            else:
                found = mine(updates)
            training.move(found)
        accuracies.append(training.accuracy(*test))
    return {
        "rule": name, "similarity": gamma, "attack": attack, "f": f,
        "ours": accuracies[0], "byzfl": accuracies[1], "apart": apart,
        "faster": statistics.median(ratios), "milliseconds": statistics.median(milliseconds),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="x_train, y_train, x_test, y_test: 28 x 28 digits, .npz")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--f", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--similarity", type=float, nargs="+", default=[1.0, 0.0])
    parser.add_argument("--attacks", nargs="+", choices=[*ATTACKS, "inf"], default=["sign-flip", "alie", "label-flip"])
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES))
    parser.add_argument("--test", type=int, default=2000, help="test images")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--quick", action="store_true", help="f = 1 and 4, similarity 0.5, one attack, 5 steps")
    parser.add_argument("--full", action="store_true", help="f = 1 to 4, three similarities, all attacks, 800 steps")
    if parser.parse_known_args()[0].full:
        parser.set_defaults(f=[1, 2, 3, 4], similarity=[1.0, 0.5, 0.0], attacks=list(ATTACKS), steps=800)
    if parser.parse_known_args()[0].quick:
        parser.set_defaults(f=[1, 4], similarity=[0.5], attacks=["alie"], steps=5)
    options = parser.parse_args()
    stored = np.load(options.data)
    images = {
        part: (torch.from_numpy(stored[f"x_{part}"])[:, None] / 255 - 0.1307) / 0.3081 for part in ("train", "test")
    }
    labels = {part: stored[f"y_{part}"].astype(np.int64) for part in ("train", "test")}
    data, test = (images["train"], labels["train"]), (images["test"][: options.test], labels["test"][: options.test])
    cells = list(product(options.rules, options.similarity, options.attacks, options.f))
    print(f"{len(cells)} cells, each trained twice for {options.steps} steps; accuracies on {len(test[1])} images")
    print("rule             similarity     attack  f  ours % ByzFL %    apart  faster")
    rows = []
    for at, (name, gamma, attack, f) in enumerate(cells):
        row = cell(data, test, gamma, f, attack, name, options.steps, options.seed)
        rows.append(row)
        print(
            f"{name:16s} {gamma:10.2f} {attack:>10s} {f:2d} {row['ours']:7.2f} {row['byzfl']:7.2f} {row['apart']:8.1e} "
            f"{row['faster']:6.1f}x",
            flush=True,
        )
        if sys.stderr.isatty():
            print(f"{at + 1} of {len(cells)}", end="\r", file=sys.stderr)
    for name in options.rules:
        mine = [row for row in rows if row["rule"] == name]
        points = [abs(row["ours"] - row["byzfl"]) for row in mine]
        print(
            f"{name}: accuracies at most {max(points):.2f} points apart (median {statistics.median(points):.2f}); on "
            f"the same updates results at most {max(row['apart'] for row in mine):.1e} apart; ours "
            f"{statistics.median(row['faster'] for row in mine):.1f} times faster (medians, "
            f"{statistics.median(row['milliseconds'] for row in mine):.1f} ms a call)"
        )
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
