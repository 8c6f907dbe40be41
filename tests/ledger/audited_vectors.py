"""Makes audited_vectors.json: whole audited runs with every amount, by a third writing of the rules. Not a test itself.

    python tests/ledger/audited_vectors.py > tests/ledger/audited_vectors.json

Here everything is worked out anew for every entry, from all that was delivered: nothing is carried over but what was
posted.
"""

from __future__ import annotations

import json
import math
import random
import runpy
from fractions import Fraction
from pathlib import Path
from typing import Any

rounded = runpy.run_path(str(Path(__file__).with_name("vectors.py")))["rounded"]
Run = dict[str, Any]


def deposit(run: Run, points: int) -> int:
    """In minor units: what makes one round of lying lose on average, for a pair that shares what comes back."""
    n, q, s = len(run["s_max"]), Fraction(run["audit"]), math.ceil(Fraction(points, run["scale"]))
    q = q if q == 1 else q / (1 + Fraction(run["rechecks"]))  # the rest of q is for second looks at passes
    earned = Fraction(run["beta"]) * s / run["rounds"] / Fraction(run["sampled"] or n, n)
    seen = 1 - math.prod([1 - Fraction(run["detection"])] * min(run["openings"], s), start=Fraction(1))
    partners = min(run["colluding"], n - 1)
    worst = earned / q - earned + Fraction(run["steering"]) * (1 / q + 3) / (1 - Fraction(partners - 1, n - 1))
    if seen:
        worst = max(worst, earned / (q * seen) - earned)
    return math.ceil(worst * run["minor"])


def owed(run: Run, history: list[dict[str, int]], agent: str) -> Fraction:
    """What all rounds so far come to, in minor units."""
    total, n = Fraction(0), len(run["s_max"])
    for points in history:
        if agent in points:
            others = [p for a, p in points.items() if a != agent]
            more = Fraction(points[agent]) - Fraction(sum(others), len(others))
            total += more * Fraction(n, len(points))
    return total * Fraction(run["beta"]) / run["rounds"] * run["minor"] / run["scale"]


def post(run: Run, history: list[dict[str, int]], posted: dict[str, int], among: list[str], at: int) -> dict[str, int]:
    left = {agent: owed(run, history, agent) - posted[agent] for agent in among}
    mean = sum(left.values()) / len(left)
    amounts = rounded({agent: value - mean for agent, value in left.items()}, at)
    for agent, amount in amounts.items():
        posted[agent] += amount
    return amounts


def play(run: Run) -> list[list[Any]]:
    """(kind, postings) of every entry that moves money."""
    agents = sorted(run["s_max"])
    held = {agent: deposit(run, run["s_max"][agent]) for agent in agents}
    entries: list[list[Any]] = [["deposit", {**{a: -d for a, d in held.items()}, "escrow": sum(held.values())}]]
    history: list[dict[str, int]] = []
    posted, gone = dict.fromkeys(agents, 0), set()
    for at in range(run["rounds"] + 1):
        if at < run["rounds"]:
            history.append({a: 0 if a in gone else p for a, p in run["delivered"][at].items()})
            entries.append(["tranche", post(run, history, posted, sorted(history[-1]), at)])
        failed = run["failed"].get(str(at), {})
        if not failed:
            continue
        touched = set(failed)
        for agent, step in failed.items():
            for points in history[step:]:
                touched |= set(points) if points.get(agent) else set()
        for agent, step in failed.items():
            for points in history[step:]:
                points.update({agent: 0} if agent in points else {})
        first = min(failed.values())
        entries.append([f"clawback-{first}", post(run, history, posted, sorted(touched), at)])
        lost = {agent: held.pop(agent) for agent in failed}
        gone |= set(failed)
        share = {a: Fraction(sum(d for f, d in lost.items() if f != a), len(agents) - 1) for a in agents}
        entries.append([f"forfeit-{first}", rounded({**share, "escrow": Fraction(-sum(lost.values()))}, at)])
    if held:
        entries.append(["refund", {**held, "escrow": -sum(held.values())}])
    return entries


def vectors(seed: int = 7) -> list[dict]:
    rng = random.Random(seed)
    found = []
    for _ in range(30):
        agents = [f"a{k}" for k in range(rng.randint(2, 6))]
        rounds = rng.randint(2, 5)
        s_max = {a: rng.choice([rng.randint(1, 9) * 10**6, rng.randint(1, 10**8)]) for a in agents}
        sampled = rng.choice([None, None, rng.randint(2, len(agents))])
        drawn = [sorted(rng.sample(agents, sampled or len(agents))) for _ in range(rounds)]
        given = [{a: rng.choice([s_max[a], s_max[a], 0, rng.randint(0, s_max[a])]) for a in asked} for asked in drawn]
        failed: dict[str, dict[str, int]] = {}
        liars = rng.sample(agents, rng.randint(0, len(agents) - 1))
        for liar in liars:
            at = rng.randint(0, rounds)
            failed.setdefault(str(at), {})[liar] = rng.randint(0, min(at, rounds - 1))
        run: Run = {
            "s_max": s_max, "rounds": rounds, "sampled": sampled, "delivered": given, "failed": failed, "scale": 10**6,
            "minor": rng.choice([1, 100, 10**6]), "beta": rng.choice(["1/2", "2", "0.07"]),
            "audit": rng.choice(["0.1", "0.5", "1.0"]),
            "detection": rng.choice(["0.9", "0.5", "1.0"]), "openings": rng.choice([0, 1, 10]),
            "steering": rng.choice(["0", "0.3"]), "colluding": rng.choice([1, 2, 3]),
        }  # fmt: skip
        found.append(run)
    for run in found:
        run["rechecks"] = rng.choice(["0.1", "0.25", "0.0"])
        run["entries"] = play(run)
    return found


if __name__ == "__main__":
    print(json.dumps(vectors(), separators=(",", ":"), sort_keys=True).replace('},{"audit', '},\n{"audit'))
