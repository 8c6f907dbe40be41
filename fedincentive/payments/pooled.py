"""The rules of other mechanisms, in exact integers: each makes postings of the inputs that an entry shows.

| rule | inputs | postings |
|---|---|---|
| relative/1 | rates, amounts, unit | phi_i - mean_{j != i} phi_j, phi_i = rate_i amount_i / unit |
| pair/1 | gram, unit, h, k, weight | groves-d: see `pair` |
| share/1 | budget, scores | the budget by scores, paid by the treasury |
| reimburse/1 | rates, points, scale | rate_i points_i / scale, paid by the treasury |
| sandwich/1 | fees, penalties, costs, seed | FACT: fees and penalties, and a prize for the middle cost of each trio |
| level/1 | levels | nothing: how good a model each agent was given |
| download/1 | before, scores, weights, shares, keep, altruism | nothing: CGSV's weights r and parts q after a round |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from math import lcm, tanh
from typing import Any

from ..checks import fraction
from ..entry import TREASURY
from ..errors import PaymentError
from .exact import MINOR, Amounts, apportion, bounded, check_agents, rate, relative, whole

PARTS = 10**9  # of a cosine, a weight or a part of a model
LEAST = PARTS // 1000  # that a weight of CGSV may fall to, before weights are scaled
ALTRUISM = Fraction(1, 10**6), Fraction(10**9)  # where tanh tells weights apart, or gives all the same


def comparison(
    rates: Mapping[str, Any], amounts: Mapping[str, int], unit: int, *, minor: int = MINOR, rotation: int = 0
) -> Amounts:
    """relative/1: phi_i - mean_{j != i} phi_j with phi_i the minor units nearest to rate_i amount_i / unit.

    >>> comparison({"a": "1", "b": "2"}, {"a": 3, "b": 5}, 1, minor=1)
    {'a': -7, 'b': 7}
    """
    check_agents(amounts, "the amount")
    _same(rates, amounts, "rate")
    whole("unit", unit, low=1)
    phi = {agent: round(signed(rates[agent]) * amount * minor / unit) for agent, amount in amounts.items()}
    return relative(phi, 1, rotation)


def signed(value: Any) -> Fraction:
    """An exact rate that may be negative, from its text."""
    if isinstance(value, bool) or not isinstance(value, (Fraction, int, str)):
        raise PaymentError(f"A rate must be exact: a fraction or a decimal string, not {value!r}.")
    try:
        return fraction(value)
    except (ValueError, ZeroDivisionError):
        raise PaymentError(f"A rate must be a number, not {value!r}.") from None


def pair(
    gram: Mapping[str, Mapping[str, int]],
    unit: int,
    h: Any,
    k: Mapping[str, Any],
    weight: Any = 1,
    *,
    minor: int = MINOR,
    rotation: int = 0,
) -> Amounts:
    """pair/1, the payment `groves-d` (docs/truthful.md), from inner products <d_i, d_j> in parts of 1/unit.

        q_i = (k_i h^2 - h)/2 <d_i, d_i>
        p_i = weight ( q_i - mean_{j != i} q_j + h^2 k_i sum_{l != i} <d_i, d_l>
                       - h^2/(n-2) sum_{j < l, both != i} (k_j + k_l) <d_j, d_l> )

    >>> gram = {"a": {"a": 2}, "b": {"a": 0, "b": 4}, "c": {"a": 0, "b": 0, "c": 6}}
    >>> pair(gram, 1, 1, dict.fromkeys("abc", 0), minor=1)
    {'a': 2, 'b': 0, 'c': -2}
    """
    agents = sorted(gram)
    n = len(agents)
    if n < 3:
        raise PaymentError(f"groves-d needs at least 3 agents, not {n}: a pair's part is charged to the others.")
    _same(k, gram, "curvature")
    whole("unit", unit, low=1)
    step, weigh = rate("h", h), rate("weight", weight)
    bend = {agent: rate(f"the curvature of {agent!r}", k[agent]) for agent in agents}
    for i, agent in enumerate(agents):
        if sorted(gram[agent]) != agents[: i + 1]:
            raise PaymentError(f"The row of {agent!r} must have the products with itself and all names before it.")
        for other, product in gram[agent].items():
            whole(f"<{agent}, {other}>", product, low=0 if agent == other else -(2**63) + 1)
    own = {a: (bend[a] * step**2 - step) / 2 * gram[a][a] for a in agents}
    crossed = {(a, b): step**2 * gram[a][b] for i, a in enumerate(agents) for b in agents[:i]}
    everyone = sum(own.values(), start=Fraction(0))
    both = sum((bend[a] + bend[b]) * product for (a, b), product in crossed.items())
    exact = {}
    for agent in agents:
        mine = {ab: product for ab, product in crossed.items() if agent in ab}
        gained = sum(bend[agent] * product for product in mine.values())
        others = both - sum((bend[a] + bend[b]) * product for (a, b), product in mine.items())
        exact[agent] = own[agent] - (everyone - own[agent]) / (n - 1) + gained - others / (n - 2)
    parts = {agent: Fraction(weigh * amount * minor / unit) for agent, amount in exact.items()}
    common = lcm(*(part.denominator for part in parts.values()))
    return bounded(apportion({a: int(part * common) for a, part in parts.items()}, common, whole("rotation", rotation)))


def shares(budget: int, scores: Mapping[str, int], *, rotation: int = 0) -> Amounts:
    """share/1: the budget in minor units, divided by scores (largest remainder); nobody is paid where all are 0.

    >>> shares(10, {"a": 1, "b": 2})
    {'a': 3, 'b': 7, 'treasury': -10}
    """
    whole("the budget", budget, low=0)
    check_agents(scores, "the score", low=0, least=1)
    total = sum(scores.values())
    if not total:
        return {**dict.fromkeys(sorted(scores), 0), TREASURY: 0}
    paid = apportion({agent: budget * score for agent, score in scores.items()}, total, rotation)
    return bounded({**paid, TREASURY: -budget})


def reimbursed(rates: Mapping[str, Any], points: Mapping[str, int], scale: int, *, minor: int = MINOR) -> Amounts:
    """reimburse/1: each agent's agreed rate for its points, from the treasury.

    >>> reimbursed({"a": "0.5"}, {"a": 3}, 1, minor=10)
    {'a': 15, 'treasury': -15}
    """
    check_agents(points, "the points", low=0, least=1)
    _same(rates, points, "rate")
    whole("scale", scale, low=1)
    paid = {
        agent: round(rate(f"the rate of {agent!r}", rates[agent]) * points[agent] * minor / scale) for agent in points
    }
    return bounded({**paid, TREASURY: -sum(paid.values())})


def trios(agents: Sequence[str], seed: str) -> list[tuple[str, ...]]:
    """Everyone in threes, in the order of the digests of seed and name; one or two may be left over.

    >>> [len(trio) for trio in trios(["a", "b", "c", "d"], "x")]
    [3]
    """
    order = sorted(agents, key=lambda name: (sha256(f"{seed}\n{name}".encode()).hexdigest(), name))
    return [tuple(order[k : k + 3]) for k in range(0, len(order) - 2, 3)]


def sandwich(fees: Mapping[str, int], penalties: Mapping[str, int], costs: Mapping[str, int], seed: str) -> Amounts:
    """sandwich/1 (FACT): everyone pays its fee and penalty; in each trio the strictly middle cost wins 3/n of the
    others' fees, rounded down. The treasury keeps the rest.

    >>> sandwich(dict.fromkeys("abc", 6), dict.fromkeys("abc", 0), {"a": 1, "b": 2, "c": 3}, "x")
    {'a': -6, 'b': 6, 'c': -6, 'treasury': 6}
    """
    check_agents(fees, "the fee", low=0, least=3)
    for name, given in (("penalty", penalties), ("cost", costs)):
        check_agents(given, f"the {name}", low=0, least=3)
        _same(given, fees, name)
    if not isinstance(seed, str):
        raise PaymentError(f"The seed of the trios must be a text, not {seed!r}.")
    total, paid = sum(fees.values()), {agent: -fees[agent] - penalties[agent] for agent in sorted(fees)}
    for trio in trios(list(fees), seed):
        low, middle, high = sorted(trio, key=lambda agent: costs[agent])
        if costs[low] < costs[middle] < costs[high]:
            paid[middle] += 3 * (total - fees[middle]) // len(fees)
    return bounded({**paid, TREASURY: -sum(paid.values())})


def levels(given: Mapping[str, int]) -> Amounts:
    """level/1: a memo; whole numbers, and nothing is posted."""
    check_agents(given, "the level", least=1)
    return {}


def reputations(before: Mapping[str, int], scores: Mapping[str, int], keep: Any) -> Amounts:
    """CGSV's weights in billionths, rounded down: keep r_i + (1 - keep) score_i, no less than 0.001, over their sum.
    Who has no score keeps its weight.

    >>> reputations({"a": 0, "b": 0}, {"a": 10**9, "b": -(10**9)}, "0.5")
    {'a': 998003992, 'b': 1996007}
    """
    kept = rate("keep", keep)
    raw = {
        agent: max(kept * r + (1 - kept) * scores[agent] if agent in scores else Fraction(r), Fraction(LEAST))
        for agent, r in sorted(before.items())
    }
    total = sum(raw.values(), start=Fraction(0))
    return {agent: int(r * PARTS / total) for agent, r in raw.items()}


def tanh_shares(weights: Mapping[str, int], altruism: Any) -> Amounts:
    """tanh(altruism r_i) over the largest of them, in billionths.

    >>> tanh_shares({"a": 500_000_000, "b": 250_000_000}, 1)
    {'a': 1000000000, 'b': 529997019}
    """
    steep = rate("altruism", altruism)
    if not ALTRUISM[0] <= steep <= ALTRUISM[1]:
        raise PaymentError(f"altruism is {altruism}: it must be from 0.000001 to a billion.")
    found = {agent: tanh(float(steep * r / PARTS)) for agent, r in weights.items()}
    return {agent: round(PARTS * x / max(found.values())) for agent, x in found.items()}


def download(
    before: Mapping[str, int],
    scores: Mapping[str, int],
    weights: Mapping[str, int],
    shares: Mapping[str, int],
    keep: Any,
    altruism: Any,
) -> Amounts:
    """download/1: a memo; weights follow from the scores exactly, parts to a billionth, and nothing is posted."""
    check_agents(before, "the weight", low=0)
    check_agents(scores, "the score", low=-PARTS, least=0)
    if odd := set(scores) - set(before):
        raise PaymentError(f"Agent {min(odd)!r} has a score and no weight.")
    if max(scores.values(), default=0) > PARTS:
        raise PaymentError("A cosine is above 1.")
    if dict(weights) != reputations(before, scores, keep):
        raise PaymentError("The weights do not follow from the scores.")
    wanted = tanh_shares(weights, altruism)
    _same(shares, wanted, "part")
    for agent, share in shares.items():
        if abs(whole(f"the part of {agent!r}", share) - wanted[agent]) > 1:  # libraries differ in the last bit of tanh
            raise PaymentError(f"The part of {agent!r} is {share}, its weight gives {wanted[agent]}.")
    return {}


def _same(some: Mapping[str, object], agents: Mapping[str, object], what: str) -> None:
    if set(some) != set(agents):
        odd = sorted(set(some) ^ set(agents))[0]
        raise PaymentError(f"Agent {odd!r} has a {what} and nothing else, or no {what}.")
