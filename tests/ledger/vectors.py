"""Makes vectors.json, the amounts that every implementation of the rules must agree on. Not a test itself.

    python tests/ledger/vectors.py > tests/ledger/vectors.json

The amounts come from a third writing of the rules, as close to the paper's formulas as it can be; the first few were
also worked out by hand and stand in test_standalone.py.
"""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from hashlib import sha256


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
    found += [newer(vector) for vector in found if vector["rule"] == "truthful/1"]
    rng = random.Random(seed + 1)
    for k in range(15):
        names = [f"a{j}" for j in range(3 + k % 6)]
        minor, round_ = rng.choice([1, 100, 10**6]), rng.randint(0, 40)
        makers = (comparison, pairs, share, reimbursement, sandwich, level)
        found += [make(rng, names, minor, round_) for make in makers]
    rng = random.Random(seed + 2)
    return [*found, *(download(rng, [f"a{j}" for j in range(2 + k % 6)], k) for k in range(15))]


def newer(vector: dict) -> dict:
    """The same as a run's first entry by truthful/2, which has a baseline where the older rule had reported values."""
    inputs = {key: value for key, value in vector["inputs"].items() if key != "previous"}
    if inputs["h"] == "previous":
        inputs["baseline"] = vector["inputs"]["previous"]
    return {**vector, "rule": "truthful/2", "inputs": inputs}


def mean_of(values: list) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def comparison(rng: random.Random, names: list[str], minor: int, round_: int) -> dict:
    rates = {name: Fraction(rng.randint(-50, 50), rng.choice([1, 3, 7, 100])) for name in names}
    given = {name: rng.choice([rng.randint(0, 4), rng.randint(0, 10**9)]) for name in names}
    unit = rng.choice([1, 10, 10**6])
    phi = {name: round(rates[name] * given[name] * minor / unit) for name in names}
    due = {a: phi[a] - mean_of([phi[b] for b in names if b != a]) for a in names}
    inputs = {"rates": {name: str(r) for name, r in rates.items()}, "amounts": given, "unit": unit}
    return {"rule": "relative/1", "round": round_, "minor": minor, "inputs": inputs, "postings": rounded(due, round_)}


def pairs(rng: random.Random, names: list[str], minor: int, round_: int) -> dict:
    """groves-d written out with vectors: every sum over pairs as the formula has it."""
    d = {name: [rng.randint(-9, 9) for _ in range(3)] for name in names}
    unit, h, weight = rng.choice([1, 10, 1000]), Fraction(rng.randint(1, 9), 7), Fraction(rng.randint(1, 10), 10)
    k = {name: Fraction(rng.randint(0, 9), 5) for name in names}

    def inner(a: str, b: str) -> Fraction:
        return Fraction(sum(x * y for x, y in zip(d[a], d[b], strict=True)), unit)

    def q(a: str) -> Fraction:
        return (k[a] * h**2 - h) / 2 * inner(a, a)

    due = {}
    for i in names:
        others = [name for name in names if name != i]
        charged = [(k[j] + k[m]) * inner(j, m) for j in others for m in others if j < m]
        gained = h**2 * k[i] * sum(inner(i, j) for j in others)
        due[i] = q(i) - mean_of([q(j) for j in others]) + gained - h**2 * sum(charged, Fraction(0)) / (len(names) - 2)
    ordered = sorted(names)
    gram = {a: {b: int(inner(a, b) * unit) for b in ordered[: place + 1]} for place, a in enumerate(ordered)}
    curvature = {name: str(k[name]) for name in names}
    inputs = {"gram": gram, "unit": unit, "h": str(h), "k": curvature, "weight": str(weight)}
    postings = rounded({name: weight * minor * amount for name, amount in due.items()}, round_)
    return {"rule": "pair/1", "round": round_, "minor": minor, "inputs": inputs, "postings": postings}


def share(rng: random.Random, names: list[str], minor: int, round_: int) -> dict:
    scores = {name: rng.choice([0, rng.randint(0, 5), rng.randint(0, 10**9)]) for name in names}
    budget, total = rng.randint(0, 10**6), sum(scores.values())
    parts = {name: Fraction(budget * scores[name], total) if total else Fraction(0) for name in names}
    postings = rounded({**parts, "treasury": -sum(parts.values(), Fraction(0))}, round_)
    inputs = {"budget": budget, "scores": scores}
    return {"rule": "share/1", "round": round_, "minor": minor, "inputs": inputs, "postings": postings}


def reimbursement(rng: random.Random, names: list[str], minor: int, round_: int) -> dict:
    rates = {name: Fraction(rng.randint(0, 50), rng.choice([1, 3, 7, 100])) for name in names}
    points, scale = {name: rng.randint(0, 10**7) for name in names}, rng.choice([1, 10, 10**6])
    paid_back = {name: round(rates[name] * points[name] * minor / scale) for name in names}
    inputs = {"rates": {name: str(r) for name, r in rates.items()}, "points": points, "scale": scale}
    postings = {**paid_back, "treasury": -sum(paid_back.values())}
    return {"rule": "reimburse/1", "round": round_, "minor": minor, "inputs": inputs, "postings": postings}


def sandwich(rng: random.Random, names: list[str], minor: int, round_: int) -> dict:
    fees, penalties, costs = ({name: rng.randint(0, most) for name in names} for most in (10**6, 1000, 9))
    seed = str(rng.randint(0, 10**6))
    ranked = sorted((sha256(f"{seed}\n{name}".encode()).hexdigest(), name) for name in names)
    won = dict.fromkeys(names, 0)
    for k in range(len(names) // 3):
        trio = [name for _, name in ranked[3 * k : 3 * k + 3]]
        for name in trio:
            if min(costs[t] for t in trio) < costs[name] < max(costs[t] for t in trio):
                won[name] = Fraction(3 * (sum(fees.values()) - fees[name]), len(names)).__floor__()
    posted = {name: won[name] - fees[name] - penalties[name] for name in names}
    inputs = {"fees": fees, "penalties": penalties, "costs": costs, "seed": seed}
    postings = {**posted, "treasury": -sum(posted.values())}
    return {"rule": "sandwich/1", "round": round_, "minor": minor, "inputs": inputs, "postings": postings}


def level(rng: random.Random, names: list[str], minor: int, round_: int) -> dict:
    levels = {name: rng.randint(-(10**6), 10**6) for name in names}
    return {"rule": "level/1", "round": round_, "minor": minor, "inputs": {"levels": levels}, "postings": {}}


def download(rng: random.Random, names: list[str], round_: int) -> dict:
    """CGSV: some begin with weights, some with none, and the last of three or more sends no update."""
    before = {name: rng.randint(1, 10**9) if round_ % 2 else 0 for name in names}
    scores = {name: rng.randint(-(10**9), 10**9) for name in names if len(names) < 3 or name != names[-1]}
    keep, altruism = rng.choice(["19/20", "0", "0.5"]), rng.choice(["1", "0.5", "10000000"])
    raw = [max(before[a] + (1 - Fraction(keep)) * (scores.get(a, before[a]) - before[a]), 10**6) for a in names]
    weights = {name: int(r * 10**9 / sum(raw)) for name, r in zip(names, raw, strict=True)}
    steep = [(1 - e) / (1 + e) for e in (math.exp(-2 * float(altruism) * r / 1e9) for r in weights.values())]
    shares = {name: round(10**9 * x / max(steep)) for name, x in zip(names, steep, strict=True)}
    inputs = {"before": before, "scores": scores, "weights": weights, "shares": shares}
    inputs |= {"keep": keep, "altruism": altruism}
    return {"rule": "download/1", "round": round_, "minor": 10**6, "inputs": inputs, "postings": {}}


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
