"""Makes vectors.json, the amounts that every implementation of the rules must agree on. Not a test itself.

    python tests/ledger/vectors.py > tests/ledger/vectors.json

The amounts come from a third writing of the rules, as close to the paper's formulas as it can be; the first few were
also worked out by hand and stand in test_standalone.py.
"""

from __future__ import annotations

import json
import random
from fractions import Fraction


def rounded(exact: dict[str, Fraction], rotation: int) -> dict[str, int]:
    """Units are given one by one: each to the largest remainder, and among equal ones in turn."""
    amounts = {name: value.__floor__() for name, value in exact.items()}
    remainders = {name: exact[name] - amounts[name] for name in exact}
    while sum(amounts.values()) < 0:
        most = max(remainders.values())
        ring = sorted(name for name in exact if remainders[name] == most)
        units = min(-sum(amounts.values()), len(ring))
        for k in range(units):
            name = ring[(rotation * units + k) % len(ring)]
            amounts[name] += 1
        for name in ring:
            remainders[name] = Fraction(-1)
    return amounts


def paid(beta: Fraction, s: dict[str, int], scale: int, minor: int, rotation: int) -> dict[str, int]:
    def mean_of_others(agent: str) -> Fraction:
        return sum((Fraction(p, scale) for a, p in s.items() if a != agent), Fraction(0)) / (len(s) - 1)

    return rounded({a: beta * (Fraction(s[a], scale) - mean_of_others(a)) * minor for a in s}, rotation)


def vectors(seed: int = 2024) -> list[dict]:
    rng = random.Random(seed)
    found = []
    for _ in range(60):
        names = [f"a{k}" for k in range(rng.randint(2, 9))]
        beta = Fraction(rng.randint(0, 50), rng.choice([1, 3, 7, 20, 100]))
        scale, minor, round_ = rng.choice([1, 10, 10**6]), rng.choice([1, 100, 10**6]), rng.randint(0, 40)
        s = {name: rng.choice([rng.randint(0, 4), rng.randint(0, 10**9)]) for name in names}
        inputs = {"beta": str(beta), "s": s, "scale": scale}
        found.append(
            {"rule": "contribution/1", "round": round_, "minor": minor, "inputs": inputs,
             "postings": paid(beta, s, scale, minor, round_)}
        )  # fmt: skip
        found.append(truthful(rng, names, minor, round_))
    return [*found, *(newer(vector) for vector in found if vector["rule"] == "truthful/1")]


def newer(vector: dict) -> dict:
    """The same as a run's first entry by truthful/2, which has a baseline where the older rule had reported values."""
    inputs = {key: value for key, value in vector["inputs"].items() if key != "previous"}
    if inputs["h"] == "previous":
        inputs["baseline"] = vector["inputs"]["previous"]
    return {**vector, "rule": "truthful/2", "inputs": inputs}


def truthful(rng: random.Random, names: list[str], minor: int, round_: int) -> dict:
    value = {name: rng.randint(-(10**6), 10**6) for name in names}
    reference = {name: value[name] + rng.choice([0, 0, 1, 5, 3000]) for name in names}
    previous = {name: rng.randint(0, 10**6) for name in names}
    pivots = {name: rng.randint(0, 10**6) for name in names}
    h, phi = rng.choice(["previous", "zero", "clarke"]), rng.choice(["none", "paper", "audited"])
    gamma, tolerance, failed = rng.randint(0, 10**6), rng.choice([0, 3]), {names[0]: "update"}
    amounts = {}
    for name in names:
        gap = abs(value[name] - reference[name])
        fine = 0
        if phi == "paper" and value[name] != reference[name]:
            fine = gamma + round(Fraction(gap, minor) ** 2 * minor)
        if phi == "audited" and (gap > tolerance or name in failed):
            fine = gamma
        others = sum(value[other] for other in names if other != name)
        base = {"zero": 0, "clarke": pivots[name], "previous": sum(previous[o] for o in names if o != name)}[h]
        amounts[name] = others - fine - base
    amounts["treasury"] = -sum(amounts.values())
    inputs = {
        "valuations": value, "references": reference, "previous": previous, "pivots": pivots, "h": h, "phi": phi,
        "fine": gamma, "tolerance": tolerance, "failed": failed,
    }  # fmt: skip
    return {"rule": "truthful/1", "round": round_, "minor": minor, "inputs": inputs, "postings": amounts}


if __name__ == "__main__":
    print(
        json.dumps(vectors(), indent=None, separators=(",", ":"), sort_keys=True).replace('},{"inputs', '},\n{"inputs')
    )
