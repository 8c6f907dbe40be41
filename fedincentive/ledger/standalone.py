#!/usr/bin/env python3
"""Check a fedincentive ledger without installing fedincentive.

    python3 standalone.py ledger.jsonl [--checkpoint COUNT:HASH[@LEDGER] ...] [--keys FILE|DIR] [--note FILE]
    python3 standalone.py receipt FILE --key VKEY [--witness VKEY ...] [--need N]

Reads what `fedincentive ledger export --format jsonl` wrote and trusts nothing in it: the hash chain, the canonical
form, the zero sum of every entry, its claims, every amount derived again from the inputs beside it, and each entry held
to the terms that its run begins with. In a signed run every agent signed the terms and every report, and every input of
every payment is what the agents said. Whose the keys are no file can say of itself: --keys holds them to those that you
know, and --note holds the entries to checkpoints that others kept. A receipt proves one entry: its hash, its path to
the root, the log's signature, the witnesses' with their times.

Prints one line per finding; exits 0 when there is none, 1 when there are, 2 when it was called wrongly. Needs Python
3.9 and nothing else. It shares no code with the package on purpose: two writings of the same rules check each other.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import re
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256, sha512
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

Amounts = dict[str, int]
Body = dict[str, Any]
Complain = Callable[[str, str], None]
Finding = tuple[str, int, str]
KINDS = {
    "terms/1": ("terms",),
    "commitment/1": ("commitment",),
    "reports/1": ("reports-contribute", "reports-train", "reports-value"),
    "audit/1": ("audit",),
    "audit/2": ("audit",),
    "audit/3": ("audit",),
    "worth/1": ("worth",),
    "key/1": ("key",),
    "contribution/1": ("settlement",),
    "tranche/1": ("tranche", "settlement"),
    "tranche/2": ("tranche", "settlement"),
    "clawback/1": ("clawback",),
    "deposit/1": ("deposit",),
    "deposit/2": ("deposit",),
    "forfeit/1": ("forfeit",),
    "refund/1": ("refund",),
    "lump/1": ("lump",),
    "truthful/1": ("truthful",),
    "truthful/2": ("truthful",),
    "relative/1": ("relative",),
    "pair/1": ("groves-d",),
    "share/1": ("share",),
    "reimburse/1": ("reimburse",),
    "sandwich/1": ("sandwich",),
    "level/1": ("level",),
    "download/1": ("download",),
    "reversal/1": ("correction",),
    "transfer/1": ("correction",),
    "reversal/2": ("correction",),
    "transfer/2": ("correction",),
    "dispute/1": ("dispute",),
    "close/1": ("close",),
    "payout/1": ("payout",),
}
AUDITS = ("audit/1", "audit/2", "audit/3")  # the second one where terms have a lag, the third where they have rechecks
MEMOS = ("dispute/1", "close/1", "payout/1")  # may come after later rounds; their kinds may end with a digest
PAYS = {
    **dict.fromkeys(("contribution/1", "tranche/1", "tranche/2", "clawback/1"), "contribution"),
    **dict.fromkeys(("truthful/1", "truthful/2"), "truthful"),
    **dict.fromkeys(("deposit/1", "deposit/2", "forfeit/1", "refund/1"), "deposit"),
    "lump/1": "lump",
}
TRUTHFUL = ("truthful/2", "truthful/1")  # the first one is what new runs agree on
POOLED = (  # the rules of other mechanisms
    *("relative/1", "pair/1", "share/1", "reimburse/1", "sandwich/1", "level/1", "download/1"),
)
LIMIT = 2**63 - 1
EVERY = 5.0  # seconds between two words on how far it is


# The ledger's writing, and exact amounts


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def digest(domain: str, text: str) -> str:
    return sha256(f"fedincentive/{domain}/1\n{text}".encode("ascii")).hexdigest()


def exactly(value: Any) -> int:
    """An int that is an int: JSON's 1.0 and true must not pass for 1."""
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def exact(value: Any) -> Fraction:
    """An exact number that can be written out: 1e99999999 has a hundred million digits."""
    text = str(value)
    if type(value) not in (int, str) or len(text) > 1000 or re.search(r"e[+-]?\d{4}|_", text, re.IGNORECASE):
        raise ValueError(f"{text[:40]!r} is not a price")
    return Fraction(value)


def rate(value: Any) -> Fraction:
    if (price := exact(value)) < 0:
        raise ValueError(f"{value} is a negative price")
    return price


def shares(exact: dict[str, Fraction], rotation: int) -> Amounts:
    """Floors of exact fractions plus one unit to the largest remainders; ties take turns in name order."""
    floors = {name: value.numerator // value.denominator for name, value in exact.items()}
    rest = {name: exact[name] - floors[name] for name in exact}
    missing = -sum(floors.values())
    ranked = sorted(exact, key=lambda name: (-rest[name], name))
    winners = set(ranked[:missing])
    if missing > 0:
        cut = rest[ranked[missing - 1]]
        tied = [name for name in ranked if rest[name] == cut]
        units = len(winners.intersection(tied))
        first = rotation * units % len(tied)
        winners.difference_update(tied)
        winners.update((tied + tied)[first : first + units])
    return {name: floors[name] + (name in winners) for name in exact}


def balanced(rate: Fraction, points: Amounts, scale: int, minor: int, rotation: int) -> Amounts:
    """rate (s_i - mean of the others' s), in minor units."""
    n, total = len(points), sum(exactly(p) for p in points.values())
    if n < 2 or rate < 0:
        raise ValueError("a payment needs two agents and a rate that is not negative")
    per_step = rate * exactly(minor) / exactly(scale)
    return shares({a: per_step * (s - Fraction(total - s, n - 1)) for a, s in points.items()}, exactly(rotation))


# The rules of other mechanisms


def pooled(rule: str, given: Body, minor: int, rotation: int) -> Amounts:
    if rule == "relative/1":
        return relative_amounts(given["rates"], given["amounts"], given["unit"], minor, rotation)
    if rule == "pair/1":
        return pair_amounts(given, minor, rotation)
    if rule == "share/1":
        return share_amounts(given["budget"], given["scores"], rotation)
    if rule == "reimburse/1":
        return reimbursements(given["rates"], given["points"], given["scale"], minor)
    if rule == "sandwich/1":
        return sandwich_amounts(given["fees"], given["penalties"], given["costs"], given["seed"])
    if rule == "download/1":
        return hold_downloads(given)
    if not all(type(level) is int for level in given["levels"].values()):
        raise ValueError("a level is not a whole number")
    return {}


def relative_amounts(rates: Body, amounts: Amounts, unit: int, minor: int, rotation: int) -> Amounts:
    """phi_i - mean of the others' phi, phi_i the units nearest to rate_i amount_i / unit."""
    same_names(rates, amounts)
    if len(amounts) < 2 or exactly(unit) < 1:
        raise ValueError("a comparison needs two agents and a unit")
    phi = {a: round(exact(rates[a]) * exactly(amounts[a]) * minor / unit) for a in amounts}
    total = sum(phi.values())
    return shares({a: Fraction(p) - Fraction(total - p, len(phi) - 1) for a, p in phi.items()}, exactly(rotation))


def pair_amounts(given: Body, minor: int, rotation: int) -> Amounts:
    """groves-d: every agent's own square and products, its pairs' parts charged to the others."""
    names, h, unit = sorted(given["gram"]), rate(given["h"]), exactly(given["unit"])
    same_names(given["k"], given["gram"])
    if len(names) < 3 or unit < 1:
        raise ValueError("groves-d needs three agents and a unit")
    k = {name: rate(given["k"][name]) for name in names}
    inner = {}
    for place, a in enumerate(names):
        if sorted(given["gram"][a]) != names[: place + 1] or given["gram"][a][a] < 0:
            raise ValueError(f"the products of {a!r} are not those with itself and the names before it")
        for b in given["gram"][a]:
            inner[a, b] = inner[b, a] = Fraction(exactly(given["gram"][a][b]), unit)
    due = {}
    for i in names:
        others = [name for name in names if name != i]
        own = (k[i] * h * h - h) / 2 * inner[i, i] + h * h * k[i] * sum(inner[i, j] for j in others)
        squares = sum((k[j] * h * h - h) / 2 * inner[j, j] for j in others)
        pairs = sum((k[j] + k[m]) * inner[j, m] for j in others for m in others if j < m)
        due[i] = own - squares / len(others) - h * h * pairs / (len(others) - 1)
    weight = rate(given["weight"])
    return shares({name: Fraction(weight * minor * amount) for name, amount in due.items()}, exactly(rotation))


def share_amounts(budget: int, scores: Amounts, rotation: int) -> Amounts:
    """The budget by scores; nobody is paid where all are 0."""
    total = sum(map(exactly, scores.values()))
    if exactly(budget) < 0 or not scores or min(scores.values()) < 0:
        raise ValueError("a share needs a budget and scores that are not negative")
    if total == 0:
        return {**dict.fromkeys(scores, 0), "treasury": 0}
    parts = {agent: Fraction(budget * score, total) for agent, score in scores.items()}
    return shares({**parts, "treasury": Fraction(-budget)}, exactly(rotation))


def reimbursements(rates: Body, points: Amounts, scale: int, minor: int) -> Amounts:
    same_names(rates, points)
    if exactly(scale) < 1 or not points or min(map(exactly, points.values())) < 0:
        raise ValueError("points are not negative, and their scale is at least 1")
    paid = {agent: round(rate(rates[agent]) * points[agent] * minor / scale) for agent in points}
    return {**paid, "treasury": -sum(paid.values())}


def sandwich_amounts(fees: Amounts, penalties: Amounts, costs: Amounts, seed: Any) -> Amounts:
    """In each trio, drawn by the digests of seed and name, the strictly middle cost wins 3/n of the others' fees."""
    for given in (fees, penalties, costs):
        same_names(given, fees)
        if min(map(exactly, given.values())) < 0:
            raise ValueError("fees, penalties and costs are not negative")
    if len(fees) < 3 or type(seed) is not str:
        raise ValueError("trios need three agents and a seed")
    paid = {agent: -fees[agent] - penalties[agent] for agent in fees}
    drawn = sorted(fees, key=lambda agent: (sha256(f"{seed}\n{agent}".encode()).hexdigest(), agent))
    while len(drawn) >= 3:
        trio, drawn = sorted(drawn[:3], key=lambda agent: costs[agent]), drawn[3:]
        if costs[trio[0]] < costs[trio[1]] < costs[trio[2]]:
            paid[trio[1]] += 3 * (sum(fees.values()) - fees[trio[1]]) // len(fees)
    return {**paid, "treasury": -sum(paid.values())}


def hold_downloads(given: Body) -> Amounts:
    """CGSV's weights r and parts q of the model's change, in billionths; nothing is posted."""
    keep, altruism, unit = rate(given["keep"]), rate(given["altruism"]), 10**9
    raw, scores = {}, given["scores"]
    if len(given["before"]) < 2 or not set(scores) <= set(given["before"]):
        raise ValueError("somebody has a score and no weight, or there are fewer than two agents")
    if any(abs(exactly(score)) > unit for score in scores.values()):
        raise ValueError("a cosine is above 1")
    if not Fraction(1, 10**6) <= altruism <= 10**9:
        raise ValueError(f"altruism is {altruism}")
    for agent, r in given["before"].items():
        if exactly(r) < 0:
            raise ValueError(f"the weight of {agent!r} is negative")
        moved = keep * r + (1 - keep) * scores[agent] if agent in scores else r
        raw[agent] = max(Fraction(moved), Fraction(unit, 1000))
    weights = {agent: r * unit // sum(raw.values()) for agent, r in raw.items()}
    if {agent: exactly(r) for agent, r in given["weights"].items()} != weights:
        raise ValueError("the weights do not follow from the scores")
    same_names(given["shares"], weights)
    steep = {agent: math.tanh(float(altruism * r / unit)) for agent, r in weights.items()}
    for agent, share in given["shares"].items():
        if abs(exactly(share) - unit * steep[agent] / max(steep.values())) > 1.5:  # tanh differs in its last bit
            raise ValueError(f"the part of {agent!r} is {share}, which does not follow from its weight")
    return {}


def same_names(some: Body, others: Body) -> None:
    if set(some) != set(others):
        raise ValueError(f"{sorted(set(some) ^ set(others))[0]!r} is not named everywhere")


# A run entry by entry: its amounts derived again, and each entry held to the terms


class Runs:
    """What has to be remembered of each run to derive the next entry's amounts."""

    def __init__(self, minor: int, bodies: dict[int, Body], signatures: Signatures | None = None) -> None:
        self.minor, self.bodies = minor, bodies
        self.signatures = signatures or Signatures()
        self.said: dict[str, Said] = {}  # of the signed runs
        self.delivered: dict[str, Amounts] = {}
        self.posted: dict[str, Amounts] = {}
        self.terms: dict[str, list[Any]] = {}
        self.valued: dict[str, Amounts] = {}
        self.reversed: set[int] = set()
        self.so_far: dict[str, Body] = {}
        self.closed = 0  # entries in closed periods
        self.scores: dict[str, Amounts] = {}
        self.by_step: dict[str, dict[int, Amounts]] = {}  # what was delivered, in audited runs
        self.escrow: dict[str, Amounts] = {}
        self.depositors: dict[str, list[str]] = {}

    def derive(self, body: Body, complain: Complain) -> Amounts:
        given, rule = body["inputs"], body["rule"]
        if rule in ("terms/1", "commitment/1", "reports/1", "worth/1", "key/1", *AUDITS, *MEMOS):
            return {}
        if rule == "contribution/1":
            return balanced(rate(given["beta"]), given["s"], given["scale"], self.minor, body["round"])
        if rule == "tranche/1":
            return self.tranche(body, given, complain)
        if rule in TRUTHFUL:
            return self.truthful(body, given, complain)
        if rule in ("tranche/2", "clawback/1"):
            return self.scored(body, given, complain)
        if PAYS.get(rule) == "deposit":
            return self.deposited(body, given, complain)
        if rule == "lump/1":
            return shares({agent: exact(money) * self.minor for agent, money in given["amounts"].items()}, 0)
        if rule in POOLED:
            return pooled(rule, given, self.minor, body["round"])
        target = self.bodies.get(given["corrects"])
        if target is None or target["run"] != body["run"]:
            raise ValueError("it corrects no earlier entry of its run")
        if rule in ("transfer/1", "transfer/2"):
            return dict(given["amounts"])
        if given["corrects"] in self.reversed:
            complain("recompute", "the entry it corrects was reversed before")
        self.reversed.add(given["corrects"])
        return {account: -amount for account, amount in target["postings"].items()}

    def tranche(self, body: Body, given: Body, complain: Complain) -> Amounts:
        run = body["run"]
        terms = [given["beta"], given["rounds"], given["scale"]]
        if self.terms.setdefault(run, terms) != terms:
            complain("terms", "beta, rounds or scale changed within the run")
        delivered, posted = self.delivered.setdefault(run, {}), self.posted.setdefault(run, {})
        for agent, points in given["delivered"].items():
            delivered[agent] = delivered.get(agent, 0) + exactly(points)
        if delivered != given["total"]:
            complain("total", "the totals are not the sums of what was delivered")
        per_round = rate(given["beta"]) / exactly(given["rounds"])
        due = balanced(per_round, delivered, given["scale"], self.minor, body["round"])
        derived = {agent: amount - posted.get(agent, 0) for agent, amount in due.items()}
        for agent, amount in body["postings"].items():
            posted[agent] = posted.get(agent, 0) + amount
        return derived

    def scored(self, body: Body, given: Body, complain: Complain) -> Amounts:
        """Points of the asked compared with the asked, or taken back: what is due on all so far, less what was paid."""
        run, asked, told = body["run"], exactly(given["asked"]), given["scores"]
        terms = [given["beta"], given["rounds"], given["scale"]]
        if self.terms.setdefault(run, terms) != terms:
            complain("terms", "beta, rounds or scale changed within the run")
        scores = self.scores.setdefault(run, dict.fromkeys(told, 0))
        steps, posted = self.by_step.setdefault(run, {}), self.posted.setdefault(run, {})
        among = set(told if given.get("delivered") is None else given["delivered"])
        rounds = [(given.get("delivered", {}), 1)]
        if body["rule"] == "clawback/1":
            among, rounds, taken = set(given["failed"]), [], dict.fromkeys(given["failed"], 0)
            for agent, first in given["failed"].items():
                for points in [steps[at] for at in steps if at >= exactly(first) and steps[at].get(agent)]:
                    rounds.append(({one: points[one] * (one == agent) for one in points}, -1))
                    taken[agent] += points[agent]
                    among |= set(points)
                    points[agent] = 0
            if taken != given["taken"]:
                complain("total", "other points are taken back than were delivered")
        elif "delivered" in given and len(among) != asked:
            complain("total", f"{len(among)} agents delivered, asked were {asked}")
        for points, sign in rounds:
            for agent in points:
                scores[agent] += sign * (len(points) * exactly(points[agent]) - sum(points.values()))
        if body["kind"] != "settlement" and scores != told:
            complain("total", "the scores do not follow from what was delivered")
        if "step" in given:
            steps[exactly(given["step"])] = dict(given["delivered"])
        self.scores[run] = dict(told)
        price = rate(given["beta"]) * len(told) / (exactly(given["rounds"]) * asked * (asked - 1))
        due = {a: price * exactly(told[a]) * self.minor / exactly(given["scale"]) - posted.get(a, 0) for a in among}
        mean = sum(due.values(), Fraction(0)) / len(due)
        for agent, amount in body["postings"].items():
            posted[agent] = posted.get(agent, 0) + amount
        return shares({agent: amount - mean for agent, amount in due.items()}, body["round"])

    def deposited(self, body: Body, given: Body, complain: Complain) -> Amounts:
        money, run = {agent: exactly(amount) for agent, amount in given["deposits"].items()}, body["run"]
        if min(money.values(), default=0) < 0:
            raise ValueError("a deposit is negative")
        if body["rule"] in ("deposit/1", "deposit/2"):
            self.escrow[run], self.depositors[run] = dict(money), sorted(money)
            return {"escrow": sum(money.values()), **{agent: -amount for agent, amount in money.items()}}
        held, agents = self.escrow.get(run, {}), self.depositors.get(run, [])
        if {agent: held.get(agent) for agent in money} != money:
            raise ValueError("the escrow does not hold these deposits")
        self.escrow[run] = {agent: amount for agent, amount in held.items() if agent not in money}
        if body["rule"] == "refund/1":
            if self.escrow[run]:
                complain("terms", "it does not give back all that the escrow holds")
            return {"escrow": -sum(money.values()), **money}
        part = {agent: Fraction(sum(money.values()) - money.get(agent, 0), len(agents) - 1) for agent in agents}
        return shares({**part, "escrow": Fraction(-sum(money.values()))}, body["round"])

    def truthful(self, body: Body, given: Body, complain: Complain) -> Amounts:
        value, h, minor = given["valuations"], given["h"], self.minor
        before: Amounts = given["previous"] if "previous" in given else given.get("baseline", {})
        known = self.valued.get(body["run"])
        if body["rule"] == TRUTHFUL[0] and h == "previous" and ("baseline" in given) != (known is None):
            complain("previous", "the first entry of a run, and no other, is measured from a baseline")
        elif h == "previous" and known is not None and before != known:
            complain("previous", "the previous valuations are not those of the run's last truthful entry")
        self.valued[body["run"]] = value
        if h not in ("previous", "zero", "clarke") or given["phi"] not in ("none", "paper", "audited"):
            raise ValueError("h or phi is unknown")
        amounts: Amounts = {}
        total, total_before = sum(map(exactly, value.values())), sum(map(exactly, before.values()))
        for agent in value:
            base = {"zero": 0, "previous": total_before - before.get(agent, 0)}
            gap = abs(value[agent] - exactly(given.get("references", {}).get(agent, value[agent])))
            fine = 0
            if given["phi"] == "paper" and gap:
                fine = exactly(given["fine"]) + round(Fraction(gap * gap, minor))
            if given["phi"] == "audited" and (gap > given["tolerance"] or agent in given.get("failed", {})):
                fine = exactly(given["fine"])
            amounts[agent] = (
                total - value[agent] - fine - (exactly(given["pivots"][agent]) if h == "clarke" else base[h])
            )
        amounts["treasury"] = -sum(amounts.values())
        return amounts

    def hold(self, body: Body, complain: Complain) -> None:
        """Everything in which an entry differs from the terms, which are its run's first entry."""
        run, kind, rule, given = body["run"], body["kind"], body["rule"], body["inputs"]
        if rule in (*MEMOS, *AUDITS, "clawback/1", "forfeit/1", "key/1"):  # their kinds end with a digest or a number
            kind = kind.split("-")[0]
        if kind not in KINDS[rule]:
            complain("kind", f"a {kind} cannot have the rule {rule}")
        so_far = self.so_far.setdefault(run, {"terms": None, "first": None, "last": 0, "counts": {}, "entries": 0})
        before = so_far["counts"].get(kind, 0)
        so_far["counts"][kind], so_far["entries"] = before + 1, so_far["entries"] + 1
        if rule == "terms/1":
            if so_far["entries"] > 1:
                complain("terms", "terms come once, before all other entries of a run")
            if given["terms"]["minor"] != self.minor:
                complain("terms", "they count other minor units than the ledger")
            so_far["terms"] = given["terms"]
            self.signatures.hold_keys(run, given["terms"], complain)
            if "center" in given["terms"]:
                self.said[run] = Said(run, given["terms"], self.signatures)
                self.said[run].accept(body, complain)
            return
        terms, said = so_far["terms"], self.said.get(run)
        if kind == "correction":
            self.hold_correction(body, said is not None, complain)
        if rule in MEMOS:
            self.hold_memo(body, said, complain)
            return
        if so_far["entries"] == 1:
            self.signatures.hold_keys(run, {}, complain)
        if rule == "reports/1" and said is not None:
            said.take(body, complain)
        elif rule == "reports/1":
            complain("signature", "there are signed reports, but the run's terms name no keys")
        elif rule == "key/1" and said is None:
            complain("signature", "a key changes, but the run's terms name no keys")
        elif rule == "key/1" and said is not None:
            said.change_key(body, complain)
        elif rule in AUDITS and (said is None or said.audits is None):
            complain("audit", "there are audits, but the run's terms name no auditors")
        elif rule in AUDITS and said is not None:
            self.fail(run, said.audit(body, complain), body["round"])
        elif rule == "worth/1":
            hold_worth(given, None if terms is None else terms["agents"], so_far, complain)
        if terms is None and kind == "commitment":
            so_far["committed"] = given
        if terms is None:
            self.hold_to_commitment(so_far.get("committed"), body, complain)
            return
        agents = {name: exactly(agreed["s_max"]) for name, agreed in terms["agents"].items()}
        held = {"escrow"} if "deposit" in terms["payments"] else set()
        for account in sorted(set(body["postings"]) - set(agents) - {"treasury"} - held):
            complain("terms", f"{account!r} has a posting but is not in the run's terms")
        if kind == "correction":
            if not str(given.get("reason", "")).strip():
                complain("terms", "a correction needs a reason")
            return
        if body["round"] < so_far["last"]:
            complain("order", "an entry of a later round came before it")
        so_far["last"] = max(so_far["last"], body["round"])
        if so_far["first"] is not None:
            self.hold_steps(so_far, kind, body["round"], said is not None, complain)
        self.hold_failures(so_far, body, complain)
        if kind == "commitment":
            if so_far["first"] is not None:
                complain("terms", "the commitments come once")
            so_far["first"] = body["round"]
            if given["s_max"] != agents or given["scale"] != terms["scale"]:
                complain("terms", "its s_max or scale are not those of the run's terms")
            prices = [exact(p["terms"].get("beta", 0)) for n, p in terms["payments"].items() if n == "contribution"]
            if set(terms["payments"]) <= set(PAYS.values()) and exact(given["beta"]) != sum(prices):
                complain("terms", "its beta is not the agreed one")
            points_within(given["s"], agents, 1, complain)
            if said is not None:
                said.commit(given["s"], complain)
        elif rule in PAYS:
            if kind in ("clawback", "forfeit") and body["kind"] != f"{kind}-{min(given['failed'].values())}":
                complain("kind", "its kind does not name the first step that failed")
            self.hold_payment(so_far, {**body, "kind": kind}, before, agents, complain)
        elif rule in POOLED:
            self.hold_pooled(so_far, body, before, agents, complain)

    def hold_steps(self, so_far: Body, kind: str, number: int, signed: bool, complain: Complain) -> None:
        """Every training round before this entry brought its reports and its payments; each lack is told once."""
        told, trained = so_far.setdefault("lacks", set()), so_far["counts"].get("reports-train", 0)
        before = min(number - so_far["first"], exactly(so_far["terms"]["rounds"]))
        if kind == "reports-train":
            trained -= 1
        wanted = {one: min(before, trained) if signed else before for one in each_step(so_far["terms"])}
        if kind == "reports-train":
            wanted = {**dict.fromkeys(wanted, before), kind: before}
        for one, least in wanted.items():
            found = trained if one == "reports-train" else so_far["counts"].get(one, 0)
            if found < least and one not in told:
                told.add(one)
                complain("terms", f"{least} training rounds came before it, and only {found} {one} entries")

    def ends(self) -> tuple[list[str], list[str]]:
        """(what is wrong with runs whose audits are settled, which runs are not at their end and what they lack)."""
        wrong, open_ = [], []
        for run, so_far in self.so_far.items():
            terms, counts, held = so_far["terms"], so_far["counts"], sum(self.escrow.get(run, {}).values())
            if terms is None:
                continue
            trail = self.said[run].audits if run in self.said else None
            over = trail is not None and trail.over and not trail.steps
            if over and held:
                wrong.append(f"run {run!r} has settled its audits and did not give back {held} from the escrow")
            try:
                if run not in self.said and exactly(terms.get("sampled", 2**62)) < len(terms["agents"]):
                    self.signatures.sampled.append(run)
                steps = trail.trained if trail is not None and over else exactly(terms["rounds"])
                kinds = [*(["reports-train"] if run in self.said else []), *each_step(terms)]
                once = [name for name in ("deposit", "lump") if name in terms["payments"]]
                settlement = terms["payments"].get("contribution", {"terms": {}})["terms"].get("settlement")
                once += ["settlement"] if settlement in ("end", "commitment") else []
            except (KeyError, TypeError, ValueError, AttributeError):
                open_.append(f"{run!r} (its terms cannot be read)")
                continue
            lacks = [f"{counts.get(kind, 0)} of {steps} {kind}" for kind in kinds if counts.get(kind, 0) < steps]
            lacks += [f"no {kind}" for kind in once if not counts.get(kind)]
            lacks += ["audits open"] if trail is not None and not over else []
            lacks += [f"{held} in escrow"] if held else []
            if lacks:
                open_.append(f"{run!r} ({', '.join(lacks)})")
        return wrong, open_

    def hold_correction(self, body: Body, signed: bool, complain: Complain) -> None:
        """Two persons sign a correction of version 2; a signed run has no others."""
        given = body["inputs"]
        if not body["rule"].endswith("/2"):
            if signed:
                complain("signature", "a correction in a signed run needs the signatures of an author and an approver")
            return
        said = {key: value for key, value in given.items() if key != "signatures"}
        said.update(run=body["run"], round=body["round"], rule=body["rule"])
        message = f"fedincentive/correction/1\n{canonical(said)}".encode("ascii")
        signers = [verifier_key(given[who]) for who in ("author", "approver")]
        if signers[0].name == signers[1].name or signers[0].raw == signers[1].raw:
            complain("signature", "its author approved it")
        for who in ("author", "approver"):
            key = verifier_key(given[who])
            if not self.signatures.check(key, from_base64(given["signatures"][who]), message):
                complain("signature", f"the {who} {key.name!r} did not sign it")
            if self.signatures.known is not None and key not in self.signatures.known:
                complain("keys", f"the key of {key.name!r}, {given[who]!r}, is not one that is known")

    def hold_memo(self, body: Body, said: Said | None, complain: Complain) -> None:
        rule, run, given = body["rule"], body["run"], body["inputs"]
        if rule == "close/1":
            if (
                given["after"] != self.closed
                or exactly(given["size"]) <= self.closed
                or run != f"period:{given['period']}"
            ):
                complain("terms", "the period does not begin where the one before it ended")
            self.closed = given["size"]
        elif rule == "payout/1":
            if run != (f"period:{given['of']}" if given["by"] == "period" else given["of"]):
                complain("terms", "the payout stands in another run")
            if set(given["paid"]) & set(given["open"]) or not all(
                type(units) is int for units in given["paid"].values()
            ):
                complain("recompute", "what was paid and what is open cannot be told apart")
        elif said is None:
            complain("signature", "there is a dispute, but the run has no terms with keys")
        else:
            claim, agent = given["claim"], given["agent"]
            target = self.bodies.get(given["disputes"], {"inputs": {}})
            once = {k: v for k, v in target["inputs"].items() if k in ("terms", "model", "seen")}
            written = {**once, **target["inputs"].get("said", {}).get(agent, {}), "round": claim["round"]}
            own = {k: v for k, v in claim.items() if k not in ("run", "phase", "agent")}
            number = claim["round"] + (claim["phase"] == "contribute")  # phase 1's last word stands in the next entry
            if target.get("run") != run or written == {**own, "signature": given["signature"]}:
                complain("signature", f"entry {given['disputes']} has what {agent!r} signed, or is not of this run")
            elif claim["phase"] == "confirm" and agent in target["inputs"].get("withheld", []):  # its last link
                if target["round"] != claim["round"]:
                    complain("signature", "the report is not of the round it disputes")
            elif (target["kind"], target["round"]) != (f"reports-{claim['phase']}", number):
                complain("signature", "the report is not of the round and phase it disputes")
            message = f"fedincentive/report/1\n{canonical(claim)}".encode("ascii")
            wanted = {"run": run, "agent": agent, "terms": said.terms}
            try:
                key = verifier_key(said.key_at(agent, claim["round"]))
                good = self.signatures.check(key, from_base64(given["signature"]), message)
            except (ValueError, TypeError):
                good = False
            if not good or {**claim, **wanted} != claim:
                complain("signature", f"{agent!r} did not sign the report for this run")

    def hold_period(self, body: Body, heads: list[str], complain: Complain) -> None:
        """The checkpoint at which a period was closed must be of these entries, and signed by a run's center."""
        note = read_note("\n".join(body["inputs"]["note"]))
        leaves = [sha256(b"\x00" + head.encode("ascii")).digest() for head in heads[1 : note.size + 1]]
        if note.size != body["inputs"]["size"] or note.size >= len(heads) or root_of(leaves) != note.root:
            complain("note", "the checkpoint of the period is not of the entries before it")
        if note.origin != f"fedincentive-ledger/{heads[1][:32]}":
            complain("note", "the checkpoint of the period is another ledger's")
        if not self.is_centers(note):
            complain("note", "no center of this ledger's runs signed the checkpoint of the period")
        self.cosigners(note)

    def is_centers(self, note: Checkpointed) -> bool:
        terms = [so_far["terms"] for so_far in self.so_far.values() if so_far["terms"] and "center" in so_far["terms"]]
        return any(note.is_signed_by(verifier_key(one)) for one in {agreed["center"] for agreed in terms})

    def cosigners(self, note: Checkpointed) -> dict[str, int]:
        """Which agents of this ledger's runs cosigned a checkpoint, and when; ValueError where one is forged."""
        held = {key for said in self.said.values() for keys in said.held.values() for _, key in keys if key}
        times = {(key := verifier_key(one)).name: note.cosigned_at(key) for one in sorted(held)}
        return {name: moment for name, moment in times.items() if moment is not None}

    def hold_notes(self, notes: Iterable[Checkpointed], heads: list[str], complain: Complain) -> None:
        """Checkpoints that others kept must be of these entries and signed by a run's center. The cosignatures are
        checked of the newest one, which stands for all entries before it."""
        newest: Checkpointed | None = None
        peaks: list[tuple[int, bytes]] = []  # whole subtrees from the left: how many leaves each has, and its root
        grown = 0
        for note in sorted(notes, key=lambda note: (note.size, len(note.lines))):
            what = f"the checkpoint of {note.size} entries"
            while grown < min(note.size, len(heads) - 1):
                grown += 1
                grow(peaks, sha256(b"\x00" + heads[grown].encode("ascii", "replace")).digest())
            if len(heads) < 2 or note.origin != f"fedincentive-ledger/{heads[1][:32]}":
                complain("note", f"{what} is another ledger's, of {note.origin!r}")
            elif not self.is_centers(note):
                complain("note", f"no center of this ledger's runs signed {what}")
            elif note.size > grown:
                complain("note", f"{what} was seen, {grown} are here: the tail was cut")
            elif root_over(peaks) != note.root:
                complain("note", f"{what} has another root: the chain was made anew")
            else:
                newest = note
        if newest is not None:
            self.signatures.witnessed = newest.size, self.cosigners(newest)

    def hold_payment(self, so_far: Body, body: Body, before: int, agents: Amounts, complain: Complain) -> None:
        terms, kind, given = so_far["terms"], body["kind"], body["inputs"]
        if PAYS[body["rule"]] not in terms["payments"]:
            complain("terms", "this payment was not agreed")
            return
        if body["run"] in self.said and PAYS[body["rule"]] in ("contribution", "truthful") and kind != "clawback":
            self.said[body["run"]].pay(body, complain)
        if PAYS[body["rule"]] in ("deposit", "lump"):
            self.hold_beside(so_far, body, before, agents, complain)
            return
        for name in ("deposit", "lump"):
            if name in terms["payments"] and not so_far["counts"].setdefault(name, 0):
                complain("terms", f"no {name} came before it, which was agreed")
        agreed, rounds = terms["payments"][PAYS[body["rule"]]]["terms"], exactly(terms["rounds"])
        settlement = agreed.get("settlement", "tranches")
        by_scores = "sampled" in agreed or "auditors" in agreed
        rule = "tranche/2" if by_scores else "tranche/1"
        when = {"tranches": ("tranche", rule, None), "end": ("settlement", rule, rounds - 1)}
        when["commitment"] = ("settlement", "contribution/1", 0)
        if kind == "clawback":
            when["tranches"] = ("clawback", "clawback/1", None) if "auditors" in agreed else ("tranche", rule, None)
        newer = TRUTHFUL[0] in terms["payments"].get("truthful", {}).get("rules", [])
        wanted = ("truthful", TRUTHFUL[0 if newer else 1], None) if kind == "truthful" else when[settlement]
        if (kind, body["rule"]) != wanted[:2]:
            complain("terms", f"agreed are entries of kind {wanted[0]} by rule {wanted[1]}")
            return
        most = rounds if wanted[2] is None else 1
        if kind == "clawback":
            self.hold_failed(so_far, body, complain)
        elif so_far["first"] is None:
            complain("terms", "it comes before the commitments")
        elif before >= most:
            complain("terms", f"{before} entries of this kind came before it, agreed are {most}")
        elif body["round"] != so_far["first"] + (before if wanted[2] is None else wanted[2]):
            complain("terms", "it is not of the round in which it was due")
        if kind == "truthful":
            self.hold_truthful(terms, agreed, given, agents, complain)
            return
        for key in ("beta", "scale") if settlement == "commitment" else ("beta", "scale", "rounds"):
            if given[key] != agreed[key]:
                complain("terms", f"{key} is {given[key]!r}, agreed is {agreed[key]!r}")
        if by_scores and settlement != "commitment":
            asked = min(agreed.get("sampled", len(agents)), len(agents))
            if given["asked"] != asked or set(given["scores"]) != set(agents):
                complain("terms", f"agreed are {asked} agents asked, and a score of each agent of the terms")
            if ("step" in given) != ("auditors" in agreed and kind == "tranche"):
                complain("terms", "a tranche names its step in audited runs, and in no others")
            if exactly(given.get("step", before)) != before:
                complain("terms", f"it says step {given['step']}, the next one is {before}")
            points = given.get("delivered", {})
            points_within(points, {a: most for a, most in agents.items() if a in points}, 1, complain)
            return
        points = given["s" if settlement == "commitment" else "delivered"]
        points_within(points, agents, rounds if settlement == "end" else 1, complain)

    def hold_beside(self, so_far: Body, body: Body, before: int, agents: Amounts, complain: Complain) -> None:
        """Deposits and lump sums: their amounts are those of the terms, and they come when they are due."""
        terms, kind, given = so_far["terms"], body["kind"], body["inputs"]
        agreed, first = terms["payments"][PAYS[body["rule"]]]["terms"], so_far["first"]
        if kind == "forfeit":
            self.hold_failed(so_far, body, complain)
        elif first is None:
            complain("terms", "it comes before the commitments")
        elif before:
            complain("terms", f"{before} entries of this kind came before it, agreed is 1")
        elif kind == "refund" and body["run"] in self.said and (trail := self.said[body["run"]].audits) is not None:
            if trail.steps or not trail.over:
                complain("terms", "it comes before all audits are settled")
        elif body["round"] < first + exactly(terms["rounds"]) - 1 if kind == "refund" else body["round"] != first:
            complain("terms", "it is not of the round in which it was due")
        if kind == "lump":
            sums = {agent: exact(agreed["lump_sums"].get(agent, 0)) for agent in agents}
            spread = sum(sums.values(), Fraction(0)) / len(sums)
            if given["amounts"] != {agent: str(money - spread) for agent, money in sums.items()}:
                complain("terms", "the lump sums are not the agreed ones")
            return
        newer = "deposit/2" in terms["payments"]["deposit"].get("rules", [])
        due = {agent: deposit(agreed, points, len(agents), newer=newer) for agent, points in agents.items()}
        if kind == "deposit" and body["rule"] != ("deposit/2" if newer else "deposit/1"):
            complain("terms", f"its rule is {body['rule']}, which was not agreed")
        if {agent: given.get("deposit") for agent, given in terms["agents"].items()} != due:
            complain("terms", "the deposits in the terms are not those that its numbers ask for")
        told = given["deposits"]
        if told != (due if kind == "deposit" else {agent: due.get(agent) for agent in told}):
            complain("terms", "the deposits are not the agreed ones")
        if kind == "forfeit" and set(told) != set(given["failed"]):
            complain("terms", "other deposits are forfeited than of those that failed")

    def hold_failed(self, so_far: Body, body: Body, complain: Complain) -> None:
        """A forfeit or claw-back takes up all audits that failed since the last one, and no others."""
        known, kind, given = so_far.setdefault("failed", {}), body["kind"], body["inputs"]["failed"]
        before = so_far.setdefault("followed", {}).setdefault(kind, {})
        new = {a: n for a, n in known.items() if a not in before or (kind != "forfeit" and n < before[a])}
        if given != new:
            complain("terms", "it does not follow from the audits that failed")
        if body["round"] != so_far.get("failed_in"):
            complain("terms", "no audit failed in its round")
        before.update(given)

    def hold_failures(self, so_far: Body, body: Body, complain: Complain) -> None:
        """What is due on an audit that failed comes in its round, and before the refund."""
        failed, payments = so_far.get("failed", {}), so_far["terms"]["payments"]
        if not failed or (body["round"] == so_far["failed_in"] and body["kind"] != "refund"):
            return
        kinds = ["forfeit"] * ("deposit" in payments)
        kinds += ["clawback"] * ("auditors" in payments.get("contribution", {"terms": {}})["terms"])
        for kind in kinds:
            before = so_far.setdefault("followed", {}).setdefault(kind, {})
            for agent in sorted(set(failed) - set(before)):
                complain("terms", f"{agent!r} failed an audit, and no {kind} followed")
                before[agent] = failed[agent]

    def fail(self, run: str, failed: Amounts, number: int) -> None:
        """An entry of this round says that these agents failed the audits of these steps."""
        so_far = self.so_far.setdefault(run, {"terms": None, "first": None, "last": 0, "counts": {}, "entries": 0})
        known = so_far.setdefault("failed", {})
        for agent, step in failed.items():
            known[agent] = min(exactly(step), known.get(agent, step))
        so_far["failed_in"] = number if failed else so_far.get("failed_in")
        if run in self.said:
            self.said[run].failed = known

    def hold_pooled(self, so_far: Body, body: Body, before: int, agents: Amounts, complain: Complain) -> None:
        """Once in every training round, at the agreed rates, budget or curvatures."""
        terms, kind, given = so_far["terms"], body["kind"], body["inputs"]
        if kind not in terms["payments"]:
            complain("terms", "this payment was not agreed")
            return
        agreed, rounds = terms["payments"][kind]["terms"], exactly(terms["rounds"])
        if so_far["first"] is None:
            complain("terms", "it comes before the commitments")
        elif before >= rounds or body["round"] != so_far["first"] + before:
            complain("terms", "it is not of the round in which it was due")
        asked = min(exactly(terms.get("sampled", len(agents))), len(agents))
        wanted, delivered = agreed_inputs(kind, agreed, given, agents, asked, before, rounds, self.minor)
        if kind == "download":
            wanted["before"] = so_far.get("weights", dict.fromkeys(agents, 0))
            so_far["weights"] = given["weights"]
        for key, value in wanted.items():
            if given[key] != value:
                complain("terms", f"{key} is {given[key]!r}, agreed is {value!r}")
        if delivered is not None:
            points_within(delivered, agents, 1, complain)
        if (said := self.said.get(body["run"])) is not None:
            said.pay(body, complain)
            if delivered is not None:
                said.compare("delivered", delivered, said.delivered, complain)

    def hold_truthful(self, terms: Body, agreed: Body, given: Body, agents: Amounts, complain: Complain) -> None:
        oracles, newer = set(terms["oracles"]), TRUTHFUL[0] in terms["payments"]["truthful"]["rules"]
        if newer and agreed.get("unchecked") != "yes" and not {"update", "valuation"} <= oracles:
            complain("terms", "it pays on words that no oracle checks, which was not agreed")
        if "baseline" in given and set(given["baseline"]) != (set(agents) if "valuation" in oracles else set()):
            complain("terms", "its baseline is not of the agents in the terms, or nobody could know it")
        cap = exact(agreed["loss_cap"]) * exact(agreed["value_per_nat"])
        price = exact(agreed["fine"]) if "fine" in agreed else len(agents) * cap
        fine = round(price * self.minor / (exact(agreed["audit"]) * exact(agreed["detection"])))
        audited = agreed["phi"] == "audited" and {"update", "valuation"} <= set(terms["oracles"])
        phi = "audited" if audited else "paper" if "valuation" in terms["oracles"] else "none"
        tolerance = round(Fraction(float(agreed["delta_v"])) * self.minor)
        for key, value in {"h": agreed["h"], "phi": phi, "fine": fine, "tolerance": tolerance}.items():
            if given[key] != value:
                complain("terms", f"{key} is {given[key]!r}, agreed is {value!r}")
        if set(given["valuations"]) != set(agents):
            complain("terms", "other agents are valued than those in the run's terms")
        values = [*given["valuations"].values(), *given.get("baseline", {}).values()]
        if any(abs(exactly(value)) > cap * self.minor + 1 for value in values):
            complain("terms", f"somebody is valued beyond {float(cap):g}, which was agreed")

    def hold_to_commitment(self, committed: Body | None, body: Body, complain: Complain) -> None:
        """A run of an older release has no terms, only what it committed to."""
        if committed is None or body["rule"] not in ("tranche/1", "contribution/1"):
            return
        if "beta" in committed and body["inputs"]["beta"] != committed["beta"]:
            complain("terms", "beta is not the committed one")
        if committed.get("s_max") and body["kind"] == "tranche":
            points_within(body["inputs"]["delivered"], committed["s_max"], 1, complain)
        for account in sorted(set(body["postings"]) - set(committed.get("s_max") or body["postings"]) - {"treasury"}):
            complain("terms", f"{account!r} has a posting but did not commit")


def hold_worth(given: Body, agents: Body | None, so_far: Body, complain: Complain) -> None:
    """What updates were worth: finite numbers of the run's agents, training round after training round."""
    same_names(given["values"], given["spread"])
    for agent, value in given["values"].items():
        half = float(given["spread"][agent])
        if agents is not None and agent not in agents:
            complain("terms", f"{agent!r} has a value but is not in the terms")
        if not (abs(float(value)) < float("inf") and 0.0 <= half < float("inf")):
            complain("terms", f"the value of {agent!r} is {value} +- {half}")
    if so_far.get("valued") is not None and exactly(given["step"]) != so_far["valued"] + 1:
        complain("terms", f"it is of training round {given['step']}, the one before it was of {so_far['valued']}")
    so_far["valued"] = given["step"]


def deposit(agreed: Body, points: int, n: int, *, newer: bool) -> int:
    """The least deposit for these points among n agents, in minor units, rounded up; by deposit/2 where `newer`."""
    q, delta, kept = chance_of_audit(agreed), exact(agreed["detection"]), -(-points // exactly(agreed["scale"]))
    earned = exact(agreed["beta"]) * kept * n / (exactly(agreed["rounds"]) * min(agreed.get("sampled", n), n))
    missed = (1 - delta) ** min(exactly(agreed["openings"]), kept)
    invented = earned / (q * (1 - missed)) - earned if missed != 1 else Fraction(0)
    kappa = Fraction(n - 1, n - min(exactly(agreed["colluding"]), n - 1))
    steered = exact(agreed["steering"]) * (1 / q + exactly(agreed["lag"])) * (kappa if newer else 1)
    least = max(invented, earned / q - earned + steered) * (1 if newer else kappa)
    return -(-least * exactly(agreed["minor"]) // 1)


def chance_of_audit(agreed: Body) -> Fraction:
    """Second looks at passes are part of `audit`, but where that is 1, and in runs that agreed on no `rechecks`."""
    asked = exact(agreed["audit"])
    return asked / (1 + exact(agreed.get("rechecks", 0))) if asked < 1 else asked


def each_step(terms: Body) -> list[str]:
    """The kinds of payments that every training round brings."""
    paid, kinds = terms["payments"], []
    asked = min(terms.get("sampled", len(terms["agents"])), len(terms["agents"]))
    for name in paid:
        agreed = paid[name]["terms"]
        if name == "contribution" and agreed.get("settlement", "tranches") == "tranches":
            kinds.append("tranche")
        elif name == "truthful" and TRUTHFUL[0] in paid[name]["rules"]:
            checked = {"update", "valuation"} <= set(terms["oracles"])
            kinds += ["truthful"] if checked or agreed.get("unchecked") == "yes" else []
        elif name in ("groves-d", "share", "reimburse", "sandwich", "level", "download") or (
            name == "relative" and (asked > 1 or agreed["compares"] == "costs")
        ):
            kinds.append(name)
    return kinds


def agreed_inputs(
    kind: str, agreed: Body, given: Body, agents: Amounts, asked: int, before: int, rounds: int, minor: int
) -> tuple[Body, Amounts | None]:
    """(what an entry's inputs must be by the terms, the delivered points that it names)."""

    def per_agent(name: str) -> dict[str, Fraction]:
        given = agreed.get(name, "0")
        return {a: exact(given[a] if isinstance(given, dict) else given) for a in agents}

    if kind == "groves-d":
        eta, rho, absent = exact(agreed["eta"]), exact(agreed["discount"]), given["absent"]
        if len(given["gram"]) != asked or not set(absent) <= set(given["gram"]) <= set(agents):
            raise ValueError("it pays other agents than those that were asked")
        hold_gram(given["gram"], absent)
        weight = Fraction(round(rho ** (rounds - 1 - before) * 10**12), 10**12)
        curvature = {a: str(k) for a, k in per_agent("curvature").items() if a in given["gram"]}
        h = str(eta / max(asked - len(absent), 1))
        return {"step": before, "unit": 10**9, "h": h, "k": curvature, "weight": str(weight)}, None
    if kind == "share":
        whole, by = round(exact(agreed["budget"]) * minor), agreed.get("contribution", "points")
        if set(given["scores"]) != set(agents):
            raise ValueError("other agents have scores than those in the run's terms")
        part = whole * (before + 1) // rounds - whole * before // rounds
        return {"step": before, "budget": part, "by": by}, given["scores"] if by == "points" else None
    if kind == "reimburse":
        rates = {a: str(c / rounds) for a, c in per_agent("cost").items()}
        return {"rates": rates, "scale": agreed["scale"]}, given["points"]
    if kind == "sandwich":
        return fact_inputs(agreed, given["points"], per_agent, before, rounds, minor), given["points"]
    if kind == "level":
        hold_levels(agreed, given, per_agent, minor)
        return {}, given["points"]
    if kind == "download":
        if set(given["before"]) != set(agents):
            raise ValueError("other agents have weights than those in the run's terms")
        wanted = {key: str(exact(agreed[key])) for key in ("keep", "altruism")}
        return {"step": before, **wanted}, given["points"]
    if kind == "relative" and agreed["compares"] == "costs":
        borne = exact(agreed["part"]) if "part" in agreed else 1 - Fraction(1, len(agents))
        rates = {a: str(borne * c / rounds) for a, c in per_agent("cost").items()}
        return {"rates": rates, "unit": agreed["scale"]}, given["amounts"]
    if kind == "relative":
        if len(given["amounts"]) != asked or not set(given["amounts"]) <= set(agents):
            raise ValueError("it compares other agents than those that were asked")
        return {"rates": dict.fromkeys(given["amounts"], str(-exact(agreed["eta"]) / (2 * asked))), "unit": 10**9}, None
    return {}, None


def hold_gram(gram: dict[str, Amounts], absent: list[str]) -> None:
    """Inner products that updates can have: none of who was absent, and none beyond the product of two lengths."""
    for a, row in gram.items():
        for b, inner in row.items():
            if inner and (a in absent or b in absent):
                raise ValueError("an absent agent has an update")
            lengths = (exactly(gram[a][a]) + 1) * (exactly(gram[b][b]) + 1)
            if (abs(exactly(inner)) - 1) ** 2 * 10**6 > lengths * (10**6 + 1):
                raise ValueError(f"<{a}, {b}> is {inner}, more than the lengths of the two updates allow")


def fact_inputs(
    agreed: Body, points: Amounts, per_agent: Callable[[str], dict[str, Fraction]], before: int, rounds: int, minor: int
) -> Body:
    """A T-th of the fee and of lam (K + m - s)^2, with lam = gap^2/(4 (1-lenience/2) fee) and K = gap/(2 lam)."""
    fees, gaps, targets, left = (
        per_agent("fees"),
        per_agent("gaps"),
        per_agent("targets"),
        1 - exact(agreed["lenience"]) / 2,
    )
    charged, penalties = {}, {}
    for agent, fee in fees.items():
        whole, gap = round(fee * minor), gaps[agent]
        charged[agent] = whole * (before + 1) // rounds - whole * before // rounds
        penalties[agent] = 0
        if fee and gap:
            lam = gap**2 / (4 * left * fee)
            short = gap / (2 * lam) + targets[agent] - Fraction(exactly(points[agent]), exactly(agreed["scale"]))
            penalties[agent] = round(lam * short**2 * minor / rounds)
    costs = {agent: round(cost * 10**12) for agent, cost in per_agent("cost").items()}
    seed = f"{exactly(agreed['seed'])}/{before}"
    return {"fees": charged, "penalties": penalties, "costs": costs, "seed": seed, "step": before}


def hold_levels(agreed: Body, given: Body, per_agent: Callable[[str], dict[str, Fraction]], minor: int) -> None:
    """Degraded models: nobody's is worth more than its points have earned, beyond m_i their cost."""
    bases, targets, costs, floors = (per_agent(name) for name in ("bases", "targets", "cost", "floors"))
    if set(given["levels"]) != set(bases):
        raise ValueError("other agents have levels than those in the run's terms")
    for agent, level in given["levels"].items():
        beyond = max(Fraction(exactly(given["points"][agent]), exactly(agreed["scale"])) - targets[agent], Fraction(0))
        worth, cap = (1 + exact(agreed["epsilon"])) * costs[agent] * beyond, float(bases[agent])
        if agreed["shape"] == "taylor" and worth:
            root = (1 + max(cap - float(floors[agent]), 0.0)) ** 0.5  # 1 / (1 - a)
            slope, bend = 2 * root**3, 6 * root**4
            more = ((slope**2 + 2 * bend * float(worth)) ** 0.5 - slope) / bend
            cap = float(floors[agent]) + max(1 / root - more, 1e-9) ** -2 - 1
        else:
            cap += float(worth)
        if exactly(level) > cap * minor + 1:
            raise ValueError(
                f"{agent!r} was given a level of {level}, its points have earned at most {cap * minor:.0f}"
            )


def points_within(given: Amounts, most: Amounts, times: int, complain: Complain) -> None:
    if set(given) != set(most):
        complain("terms", "other agents have points than those in the run's terms")
    for agent in set(given) & set(most):
        if not 0 <= exactly(given[agent]) <= times * most[agent]:
            complain("terms", f"{agent!r} has {given[agent]} points, agreed are 0 to {times * most[agent]}")


def link_before(link: Any, steps: int) -> str | None:
    """The link that comes so many steps earlier in a hash chain, where its anchor is; None if it is no link."""
    if not isinstance(link, str) or not re.fullmatch("[0-9a-f]{64}", link):
        return None
    for _ in range(steps):
        link = sha256(bytes.fromhex(link)).hexdigest()
    return link


def drawn(link: str, agents: Iterable[str], size: int) -> set[str]:
    """Who is asked in a round: the first `size` agents in the order that its link gives."""
    ranked = sorted(agents, key=lambda agent: (sha256(f"{link}\n{agent}".encode()).digest()[:8], agent))
    return set(ranked[:size])


# What the agents of a signed run said


class Said:
    """What the agents of one signed run have said so far, and whether what is paid for is that."""

    def __init__(self, run: str, terms: Body, signatures: Signatures) -> None:
        self.run, self.signatures = run, signatures
        self.terms = digest("terms", canonical(terms))
        self.keys = {agent: agreed.get("key") for agent, agreed in terms["agents"].items()}
        self.held = {agent: [(0, key)] for agent, key in self.keys.items()}  # from which round on; None: revoked
        self.recovery, self.changes = terms.get("recovery"), 0
        self.s = {agent: exactly(agreed["s0"]) for agent, agreed in terms["agents"].items()}
        self.s.update(terms.get("start", {}))
        self.sampled = exactly(terms.get("sampled", len(self.keys)))
        self.link, self.last = terms.get("draws"), -1  # the center's hash chain, and the step of the link
        self.first: Any = None  # the first training round
        self.delivered: Amounts = {}
        self.total = dict.fromkeys(self.keys, 0)
        self.values: Amounts = {}
        self.values_before: Amounts = {}
        self.trained: Any = None  # the last round that training was reported of
        self.audits = Examined(run, terms, self.terms, signatures) if "auditors" in terms else None
        self.failed: Amounts = {}  # who failed an audit counts 0 from then on
        self.answered: Amounts = {}  # what the asked delivered in that round
        self.scores = dict.fromkeys(self.keys, 0)

    def accept(self, body: Body, complain: Complain) -> None:
        accepted = body["inputs"].get("accepted", {})
        for agent in self.keys:
            if not self.is_signed(agent, accepted.get(agent), body["round"], "accept", {}):
                complain("signature", f"{agent!r} did not sign the terms")
        if self.audits is not None:
            self.audits.show(0, {agent: words.get("reveal") for agent, words in accepted.items()}, complain)

    def key_at(self, agent: str, number: Any) -> str | None:
        """The key that counts in a round."""
        fitting = [key for since, key in self.held.get(agent, []) if since <= exactly(number)]
        return fitting[-1] if fitting else None

    def change_key(self, body: Body, complain: Complain) -> None:
        """The owner replaces a key, which the old and the new one sign, or the terms' recovery key revokes it."""
        given, self.changes = body["inputs"], self.changes + 1
        if body["kind"] != f"key-{self.changes}":
            complain("kind", f"it is change {self.changes} of a key")
        if given["terms"] != self.terms or self.audits is not None:
            complain("signature", "it is for other terms, or for an audited run, whose hash chains come from the keys")
            return
        said, signatures = given["statement"]["said"], given["statement"]["signatures"]
        agent, rotates = said["agent"], said["change"] == "rotate"
        known = self.held.get(agent, [(0, None)])[-1][1]
        signers = {"old": known, "new": said.get("new")} if rotates else {"by": self.recovery}
        wanted = {"agent": agent, "change": "rotate", **signers}
        if not rotates:
            wanted = {"agent": agent, "change": "revoke", "key": known, **signers}
            wanted.update({"reason": said["reason"]} if "reason" in said else {})
        message = f"fedincentive/key/1\n{canonical(said)}".encode("ascii")
        try:
            keys = {role: verifier_key(text) for role, text in signers.items()}
            fine = (
                said == wanted and set(signatures) == set(signers) and set(given["statement"]) == {"said", "signatures"}
            )
            fine = fine and all(type(value) is str for value in said.values()) and known is not None
            if rotates:
                raws = [verifier_key(key).raw for _, key in self.held[agent] if key is not None]
                fine = fine and keys["new"].name == agent and keys["new"].raw not in raws
            else:
                fine = fine and keys["by"].raw != verifier_key(known).raw
            for role, key in keys.items():
                fine = self.signatures.check(key, from_base64(signatures[role]), message) and fine
        except (ValueError, TypeError, KeyError):
            fine = False
        if not fine:
            complain("signature", f"the key of {agent!r} changes without the signatures that this needs")
            return
        self.held[agent].append((body["round"], said.get("new")))
        self.signatures.hold_named({agent: said["new"]} if rotates else {}, complain)

    def audit(self, body: Body, complain: Complain) -> Amounts:
        """Who failed counts nothing from that step on; returns the step of each."""
        assert self.audits is not None
        lost = self.audits.take(body, complain)
        for agent, steps in lost.items():
            self.total[agent] -= sum(delivered.get(agent, 0) for delivered in steps)
            self.delivered[agent] = 0
        self.trained = body["round"]
        return {agent: self.audits.failed[agent] for agent in lost}

    def take(self, body: Body, complain: Complain) -> None:
        given, phase = body["inputs"], body["kind"][len("reports-") :]
        if given["terms"] != self.terms:
            complain("signature", "the reports are for other terms")
        everybody = {name: given[name] for name in ("model", "seen") if name in given}
        for agent, words in given["said"].items():
            number = words["round"] if phase == "contribute" else body["round"]
            if not self.is_signed(agent, words, number, phase, everybody):
                complain("signature", f"{agent!r} did not sign what is said in its name")
        spoke = list(given["said"])
        if phase == "contribute":  # the last round of phase 1 counts; the absent stand with an earlier word or none
            spoke = [agent for agent in spoke if exactly(given["said"][agent]["round"]) == body["round"] - 1]
            if any(words["round"] >= body["round"] for words in given["said"].values()):
                complain("claims", "it has words of a round that was still to come")
        answered = [*spoke, *given.get("absent", [])]
        asked = min(self.sampled, len(self.keys)) if phase == "train" else len(self.keys)
        failed = set(self.failed) if phase == "train" else set()
        if phase == "train":
            self.first = body["round"] if self.first is None else self.first
            self.draw(answered, given.get("reveal"), body["round"] - self.first, complain)
        if asked == len(self.keys):  # who failed an audit is asked no more
            asked -= len(failed)
        elif asked - len(failed) <= len(answered) <= asked:
            asked = len(answered)
        if len(answered) != asked or len(set(answered) & set(self.keys) - failed) != asked:
            complain("claims", f"it accounts for {len(answered)} agents, asked were {asked}, each once")
        told = {
            name: {agent: exactly(words[name]) for agent, words in given["said"].items() if name in words}
            for name in ("s", "delivered", "valuation")
        }
        if phase != "value":
            self.s.update(told["s"])
        if phase != "contribute":
            self.values.update(told["valuation"])
        if phase == "train":  # the absent delivered nothing; who was not asked counts as before
            counted = {agent: points * (agent not in self.failed) for agent, points in told["delivered"].items()}
            drawn = [*given.get("absent", []), *(failed if self.sampled >= len(self.keys) else ())]
            self.answered = {**dict.fromkeys(drawn, 0), **counted}
            self.delivered.update({**dict.fromkeys(failed, 0), **self.answered})
            for agent, points in self.answered.items():
                compared = len(self.answered) * points - sum(self.answered.values())
                self.scores[agent] = self.scores.get(agent, 0) + compared
            self.total = {agent: points + self.delivered.get(agent, 0) for agent, points in self.total.items()}
            self.values_before, self.trained = dict(self.values), body["round"]
            if self.audits is not None:
                self.audits.report(given, dict(self.delivered), complain)

    def draw(self, answered: Sequence[str], link: Any, step: int, complain: Complain) -> None:
        """Who is asked in a sampled round follows from the link, and the link from the one before it, or the anchor."""
        if self.link is None:
            return
        if link_before(link, step - self.last) != self.link:
            complain("claims", f"{link!r} is not the link of step {step} that the terms anchor")
            return
        self.link, self.last = link, step
        for agent in sorted((drawn(link, self.keys, self.sampled) - set(self.failed)) ^ set(answered)):
            complain("claims", f"{agent!r} was asked and is not accounted for, or was not asked and is")

    def commit(self, s: Amounts, complain: Complain) -> None:
        self.compare("s", s, self.s, complain)
        self.delivered = dict(self.s)

    def pay(self, body: Body, complain: Complain) -> None:
        given, rule = body["inputs"], body["rule"]
        if rule != "contribution/1" and body["round"] != self.trained:
            complain("claims", f"no signed reports of round {body['round']} come before it")
        if rule == "contribution/1":
            self.compare("s", given["s"], self.s, complain)
        if body["kind"] == "tranche":
            last = self.answered if rule == "tranche/2" else self.delivered
            self.compare("delivered", given["delivered"], last, complain)
        elif rule == "tranche/2":
            self.compare("scores", given["scores"], self.scores, complain)
        if rule == "tranche/1":
            self.compare("total", given["total"], self.total, complain)
        if rule in TRUTHFUL:
            self.compare("valuations", given["valuations"], self.values, complain)
            if "previous" in given:
                self.compare("previous", given["previous"], self.values_before, complain)
                self.values_before = dict(self.values)

    def compare(self, what: str, given: Amounts, said: Amounts, complain: Complain) -> None:
        for agent in sorted(set(given) | set(said)):
            if exactly(given.get(agent, 0)) != said.get(agent, 0):
                complain("claims", f"{what} of {agent!r} is {given.get(agent, 0)}, it said {said.get(agent, 0)}")

    def is_signed(self, agent: str, words: Any, number: Any, phase: str, everybody: Body) -> bool:
        """Whether the agent signed all these words for this run, these terms, this round and this phase."""
        try:
            names = ("s", "delivered", "update", "valuation", "nonce", "seen", "reveal", "declined")
            own = {k: words[k] for k in names if k in words}
            if set(words) - {*names, "signature", *(["round"] if phase == "contribute" else [])}:
                return False
            place = {"run": self.run, "terms": self.terms, "round": number, "phase": phase, "agent": agent}
            said = f"fedincentive/report/1\n{canonical({**everybody, **own, **place})}".encode("ascii")
            key = verifier_key(self.key_at(agent, number))
            return self.signatures.check(key, from_base64(words["signature"]), said)
        except (ValueError, TypeError, KeyError):
            return False


class Examined:
    """The hash chains of an audited run draw who is audited, and by whom; verdicts say who failed."""

    def __init__(self, run: str, terms: Body, digest: str, signatures: Signatures) -> None:
        self.run, self.terms, self.signatures = run, digest, signatures
        self.keys, self.rounds = terms["auditors"], exactly(terms["rounds"])
        told = terms["settings"]
        self.rule = AUDITS[2 if "rechecks" in told else "lag" in terms]
        newer = self.rule == AUDITS[2]
        self.limit = int((chance_of_audit(told) if newer else float(told["audit"])) * 2**64)
        self.again = int((exact(told["rechecks"]) if newer else 0.1) * 2**64)
        self.chains = {agent: (-1, agreed["anchor"]) for agent, agreed in terms["agents"].items()}
        self.agents = sorted(self.chains)
        self.chains["center"] = (-1, terms["anchor"])
        self.lag = exactly(terms["lag"]) if "lag" in terms else None  # steps after which nobody waits for a link
        self.steps: list[Body] = []  # not settled yet
        self.trained, self.over = 0, False
        self.failed: dict[str, int] = {}
        self.twice: set[str] = set()  # of whom a pass is checked again in the step at hand

    def show(self, step: int, links: Body, complain: Complain) -> None:
        for name, link in links.items():
            at, known = self.chains.get(name, (-1, ""))
            fine = type(link) is str and re.fullmatch("[0-9a-f]{64}", link) and at <= step
            if not fine or hashed_back(link, step - at) != known:
                complain("beacon", f"the link of {name!r} for step {step} is not the one anchored in the terms")
            else:
                self.chains[name] = (step, link)

    def report(self, given: Body, delivered: Amounts, complain: Complain) -> None:
        """What the links so far draw must have been audited before the next training round is reported."""
        while self.steps and (draw := self.draw(self.steps[0], False)) is not None:
            if draw[1]:
                who = ", ".join(sorted(draw[1]))
                complain("audit", f"in step {self.steps[0]['step']} {who} were drawn to be audited, and were not")
            del self.steps[0]
        if self.over:
            complain("audit", "it trains on after the audits of the run had ended")
        said = given["said"]
        links = {agent: words.get("reveal") for agent, words in said.items()} if self.trained else {}
        self.show(self.trained, {"center": given.get("reveal"), **links}, complain)
        updates = {agent: words["update"] for agent, words in said.items() if agent not in self.failed}
        asked = sorted({*said, *given.get("absent", [])})
        step = {"step": self.trained, "asked": asked, "updates": updates, "delivered": delivered}
        self.steps.append({**step, "model": given.get("model")})
        self.trained += 1

    def draw(self, step: Body, over: bool) -> tuple[str, set[str], list[str], list[str]] | None:
        """The value, who is drawn by it, who kept back a link to the end, and who for too long; None where links are
        still to come."""
        number = step["step"] + 1
        asked = next((later["asked"] for later in self.steps if later["step"] == number), self.agents if over else None)
        if asked is None:
            return None
        links, hidden = {}, []
        for name in ["center", *asked]:
            at, link = self.chains[name]
            if at >= number:
                links[name] = hashed_back(link, at - number)
            elif name not in self.failed:
                hidden.append(name)
        waits = not over and (self.lag is None or self.trained - number < self.lag)
        if "center" in hidden or (hidden and waits):
            return None
        value = sha256(f"fedincentive/beacon/1\n{self.terms}\n{number}\n{canonical(links)}".encode()).hexdigest()
        updates = {agent: update for agent, update in step["updates"].items() if agent not in self.failed}
        twice: dict[str, int] = {}
        for update in updates.values():
            twice[update] = twice.get(update, 0) + 1
        drawn = {
            agent
            for agent in updates
            if hidden or drawn_number(value, f"audit\n{agent}") < self.limit or twice[updates[agent]] > 1
        }
        return (value, drawn - set(hidden), hidden, []) if over else (value, drawn, [], hidden)

    def take(self, body: Body, complain: Complain) -> dict[str, list[Amounts]]:
        """Who failed, each with what was delivered in the steps that count no more."""
        given, number = body["inputs"], exactly(body["inputs"]["step"])
        over = "links" in given
        if body["kind"] != f"audit-{number}" or given["terms"] != self.terms:
            complain("audit", "it is of another step, or for other terms")
        if body["rule"] != self.rule:
            complain("audit", "its rule is not the one of the terms")
        if over:
            if self.trained != self.rounds and not self.failed:  # too few may be left to train on
                complain("audit", "it ends the audits of a run that still trains")
            self.show(self.trained, given["links"], complain)
            self.over = True
        while self.steps and self.steps[0]["step"] < number:
            draw = self.draw(self.steps[0], over)
            if draw is None or draw[1] or draw[2]:
                complain("audit", f"step {self.steps[0]['step']} was to be audited before step {number}")
            del self.steps[0]
        step: Body = self.steps[0] if self.steps else {"step": None}
        draw = self.draw(step, over) if step["step"] == number else None
        if draw is None:
            complain("audit", f"step {number} was audited before, or nobody knows yet who is drawn")
            return {}
        value, drawn, hidden, late = draw
        drawn |= set(given["suspected"]) & set(step["updates"]) - set(self.failed)
        votes: dict[str, list[tuple[str, str]]] = {agent: [] for agent in sorted(drawn)}
        second = value
        if self.rule == AUDITS[2]:  # the center's next link, which no auditor had seen, draws who is checked again
            at, link = self.chains["center"]
            after = {"center": given["next"] if at <= number + 2 else hashed_back(link, at - number - 2)}
            if at <= number + 2:
                self.show(number + 2, after, complain)
            if after["center"] != given["next"]:
                complain("beacon", f"the center's link for step {number + 2} is not the one it showed")
            text = f"fedincentive/beacon/1\n{value}\n{number + 2}\n{canonical({'center': given['next']})}"
            second = sha256(text.encode()).hexdigest()
        self.twice = {agent for agent in drawn if drawn_number(second, f"repeat\n{agent}") < self.again}
        for item in given["heard"]:
            self.hear(body, item, value, votes, complain)
        ends = {agent: self.decision(agent, heard) for agent, heard in votes.items()}
        for agent in [agent for agent, end in ends.items() if end is None]:
            complain("audit", f"{agent!r} was drawn to be audited in step {number}, and that was not decided")
        failed = [agent for agent, end in ends.items() if end == "fail"]
        if [given["failed"], given["withheld"], given.get("late", [])] != [failed, hidden, late]:
            complain(
                "audit", f"by the verdicts {failed} failed and {hidden + late} kept back a link, it says otherwise"
            )
        self.failed.update({agent: number for agent in [*failed, *hidden]})
        lost = {agent: [later["delivered"] for later in self.steps] for agent in [*failed, *hidden]}
        del self.steps[0]
        return lost

    def hear(self, body: Body, item: Body, value: str, votes: Any, complain: Complain) -> None:
        auditor = item["auditor"]
        found = {agent: "silent" for agent in item.get("silent", [])}
        if "silent" not in item:
            found = {one["agent"]: one["found"] for one in item["verdicts"]}
            place = {"run": self.run, "terms": self.terms, "round": body["round"], "phase": "audit", "agent": auditor}
            own = {name: item[name] for name in ("nonce", "seen", "verdicts") if name in item}
            said = f"fedincentive/report/1\n{canonical({**place, **own, 'model': self.steps[0]['model']})}"
            key = verifier_key(self.keys.get(auditor))
            good = self.signatures.check(key, from_base64(item["signature"]), said.encode("ascii"))
            if not good or any(one["step"] != self.steps[0]["step"] for one in item["verdicts"]):
                complain("signature", f"auditor {auditor!r} did not sign what is said in its name")
        for agent, word in found.items():
            if agent not in votes or self.decision(agent, votes[agent]) is not None:
                complain("audit", f"{auditor!r} was asked about {agent!r}, who was not drawn or was decided on")
                continue
            silent = [name for name, told in votes[agent] if told == "silent"]
            left = set(self.keys) - {name for name, told in votes[agent] if told != "silent"}
            turn = min(
                left,
                key=lambda name: (
                    silent.count(name), drawn_number(f"{value}\nauditors\n{agent}", name), name,
                ),
            )  # fmt: skip
            if turn != auditor:
                complain("audit", f"{auditor!r} looked at {agent!r}, it was another auditor's turn")
            votes[agent].append((auditor, word))

    def decision(self, agent: str, heard: list[tuple[str, str]]) -> str | None:
        """A pass that is not checked again, or what two auditors found."""
        found = [word for _, word in heard if word != "silent"]
        alone = self.lag is None or len(found) == len(heard)  # that an auditor was silent is the center's word
        if found == ["pass"] and alone and agent not in self.twice:
            return "pass"
        return next((word for word in ("pass", "fail") if found.count(word) >= 2), None)


def hashed_back(link: str, steps: int) -> str:
    for _ in range(steps):
        link = sha256(bytes.fromhex(link)).hexdigest()
    return link


def drawn_number(value: str, label: str) -> int:
    return int.from_bytes(sha256(f"{value}\n{label}".encode()).digest()[:8], "big")


class Signatures:
    """Checks signatures, counts them, says how far it is, and knows whose keys the reader knows."""

    def __init__(self, total: int = 0, known: Iterable[Key] | None = None, *, skip: bool = False) -> None:
        self.total, self.skip = total, skip
        self.known = None if known is None else set(known)
        self.count = 0
        self.signed: list[str] = []
        self.unsigned: list[str] = []
        self.sampled: list[str] = []  # unsigned runs in which a sample is asked
        self.unfinished: list[str] = []  # runs without their last entries
        self.witnessed: tuple[int, dict[str, int]] | None = None  # the newest checkpoint given, and who cosigned it
        self.began = self.spoke = time.monotonic()

    def check(self, key: Key, signature: bytes, message: bytes) -> bool:
        self.count += 1
        good = self.skip or ed25519(key.raw, signature, message)
        if (now := time.monotonic()) - self.spoke > EVERY:
            self.spoke, pace = now, self.count / (now - self.began)
            left = max(self.total - self.count, 0) / pace
            say(f"{self.count} of {self.total} signatures, {pace:.0f} a second, {left:.0f} s left", sys.stderr)
        return good

    def hold_keys(self, run: str, terms: Body, complain: Complain) -> None:
        """The terms' keys must be known ones of those they are said to be of."""
        (self.signed if "center" in terms else self.unsigned).append(run)
        if self.known is None:
            return
        if "center" not in terms:
            complain("keys", f"run {run!r} is not signed at all")
            return
        given = {agent: agreed.get("key") for agent, agreed in terms["agents"].items()}
        given |= {**terms.get("auditors", {}), "center": terms["center"]}
        self.hold_named(given, complain)

    def hold_named(self, given: Body, complain: Complain) -> None:
        for name, text in given.items() if self.known is not None else ():
            try:
                strange = Key(name, verifier_key(text).raw) not in (self.known or ())
            except ValueError:
                strange = True
            if strange:
                complain("keys", f"the key of {name!r}, {text!r}, is not one that is known")


# Ed25519 (RFC 8032): points are X, Y, Z, T with x = X/Z, y = Y/Z, xy = T/Z on -x^2 + y^2 = 1 + D x^2 y^2

Point = tuple[int, int, int, int]
P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ZERO: Point = (0, 1, 1, 0)


def prepared(a: Point) -> Point:
    """A point as `plus` wants its second one."""
    x, y, z, t = a
    return (y - x) % P, (y + x) % P, 2 * z % P, 2 * D * t % P


def plus(a: Point, b: Point) -> Point:
    x, y, z, t = a
    minus, both, twice, product = b
    k, m, n, o = (y - x) * minus, (y + x) * both, t * product, z * twice
    e, f, g, h = (m - k) % P, (o - n) % P, (o + n) % P, (m + k) % P
    return e * f % P, g * h % P, f * g % P, e * h % P


def point_of(raw: bytes) -> Point:
    """The point of a key: written in the one way, on the curve, and not of small order, where anybody can sign."""
    y, sign = int.from_bytes(raw, "little") & (2**255 - 1), raw[31] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if len(raw) != 32 or y >= P or (x * x - square) % P or (x == 0 and sign):
        raise ValueError("it is not a point of the curve in its one writing")
    x = x if x & 1 == sign else P - x
    point = eightfold = (x, y, 1, x * y % P)
    for _ in range(3):
        eightfold = plus(eightfold, prepared(eightfold))
    if eightfold[0] == 0:
        raise ValueError("anybody can sign for this key")
    return point


def multiples(point: Point, width: int) -> list[list[Point]]:
    """Row k has the point times d 2^(width k), for d from -2^(width-1) up: a multiple is then one sum over the rows."""
    rows, half = [], 1 << width - 1
    for _ in range(256 // width):
        step, upward = prepared(point), [point]
        while len(upward) < half:
            upward.append(plus(upward[-1], step))
        point = plus(upward[-1], prepared(upward[-1]))
        up = [prepared(one) for one in upward]
        rows.append([(b, a, z, P - t) for a, b, z, t in reversed(up)] + [prepared(ZERO), *up[:-1]])
    return rows


def sum_over(total: Point, rows: list[list[Point]], scalar: int) -> Point:
    """total + scalar times the rows' point."""
    width = 256 // len(rows)
    places, mask = range(0, 256, width), (1 << width) - 1
    scalar += sum(1 << place + width - 1 for place in places)  # so that each digit counts from the lowest
    for place, row in zip(places, rows):  # noqa: B905 (Python 3.9)
        total = plus(total, row[scalar >> place & mask])
    return total


@lru_cache(maxsize=1)
def base_multiples() -> list[list[Point]]:
    return multiples(point_of(bytes([0x58] + 31 * [0x66])), 8)


@lru_cache(maxsize=1000)  # a quarter of a megabyte each
def key_multiples(raw: bytes) -> list[list[Point]]:
    x, y, z, t = point_of(raw)
    return multiples((P - x, y, z, P - t), 4)


def ed25519(raw: bytes, signature: bytes, message: bytes) -> bool:
    """Whether R = s B - k A, byte for byte, with the one writing of s."""
    s = int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or s >= ORDER:
        return False
    k = int.from_bytes(sha512(signature[:32] + raw + message).digest(), "little") % ORDER
    x, y, z, _ = sum_over(sum_over(ZERO, base_multiples(), s), key_multiples(raw), k)
    z = pow(z, -1, P)
    return (y * z % P | (x * z % P & 1) << 255).to_bytes(32, "little") == signature[:32]


# Keys, signed notes and receipts, as C2SP and the package's documentation write them


class Key(NamedTuple):
    """Whose it is, and the 32 bytes."""

    name: str
    raw: bytes

    @property
    def in_notes(self) -> str:
        return self.name.replace("%", "%25").replace(" ", "%20").replace("+", "%2B")

    def number(self, kind: int) -> bytes:
        """The four bytes by which notes mean this key; kind 1 signs, kind 4 cosigns."""
        return sha256(self.in_notes.encode() + b"\n" + bytes([kind]) + self.raw).digest()[:4]


def from_base64(text: Any) -> bytes:
    blob = base64.b64decode(text, validate=True)
    if base64.b64encode(blob).decode() != text:
        raise ValueError("there is another way to write these bytes")
    return blob


@lru_cache(maxsize=10_000)
def verifier_key(text: Any) -> Key:
    """The key in a line NAME+NUMBER+BASE64; ValueError when it is none."""
    if type(text) is not str or text.count("+") < 2:
        raise ValueError(f"{str(text)[:120]!r} is not a verifier key: it is written name+8 hex digits+base64")
    name, number, rest = text.split("+", 2)
    key, blob = Key(name.replace("%20", " ").replace("%2B", "+").replace("%25", "%"), b""), from_base64(rest)
    if len(blob) != 33 or blob[0] not in (1, 4) or not key.name.isprintable() or not 0 < len(key.name) <= 200:
        raise ValueError(f"{text[:120]!r} is not an Ed25519 key with a name")
    key = Key(key.name, blob[1:])
    if key.in_notes != name or key.number(blob[0]).hex() != number:
        raise ValueError(f"a part of the key {text[:120]!r} was changed")
    point_of(key.raw)
    return key


def read_keys(given: str) -> list[Key]:
    """The keys in a folder of NAME.pub files, in a file with one in each line, or in the text itself."""
    path = Path(given)
    if "+" in given and not path.exists():
        return [verifier_key(given)]
    files = sorted(path.glob("*.pub")) if path.is_dir() else [path]
    lines = [line.strip() for file in files for line in file.read_text("utf-8").splitlines()]
    found = [verifier_key(line) for line in lines if line and not line.startswith("#")]
    if not found:
        raise ValueError(f"{given} has no keys")
    return [*found, *replaced_keys(path, found)] if path.is_dir() else found


def replaced_keys(folder: Path, known: Sequence[Key]) -> list[Key]:
    """The keys that known ones have replaced, or the recovery key revoked, by the statements in a folder."""
    vouched = [
        read_statement(file) for file in sorted([*folder.glob("*.rotated-*.json"), *folder.glob("*.revoked-*.json")])
    ]
    found = list(known)
    for _ in vouched:
        mine = [(before, by) for before, by in vouched if by.name in (before.name, "recovery")]
        found += [before for before, by in mine if by in found and before not in found]
    return found[len(known) :]


def read_statement(file: Path) -> tuple[Key, Key]:
    """The key that a statement takes out of use, and the new one or the recovery key, which signed that."""
    try:
        held = json.loads(file.read_text("utf-8"))
        said, signatures = held["said"], held["signatures"]
        rotates = said["change"] == "rotate"
        before, by = (verifier_key(said[name]) for name in (("old", "new") if rotates else ("key", "by")))
        message = f"fedincentive/key/1\n{canonical(said)}".encode("ascii")
        signers = {"old": before, "new": by} if rotates else {"by": by}
        fine = before.name == said["agent"] and (not rotates or by.name == before.name)
        if not fine or not all(ed25519(key.raw, from_base64(signatures[n]), message) for n, key in signers.items()):
            raise ValueError("somebody else signed it")
        return before, by
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{file} does not prove that a key was changed ({error}): remove it") from error


class Checkpointed(NamedTuple):
    """A signed note about a log: what is signed, what that says, and the lines of those who signed."""

    text: str
    origin: str
    size: int
    root: bytes
    lines: list[tuple[str, bytes]]  # name, number of the key with the signature

    def is_signed_by(self, key: Key) -> bool:
        blobs = self.blobs(key, 1)
        return bool(blobs) and all(ed25519(key.raw, blob, self.text.encode()) for blob in blobs)

    def cosigned_at(self, key: Key) -> int | None:
        """When the key cosigned first; None when it did not. ValueError where a line claims so and is forged."""
        times = []
        for blob in self.blobs(key, 4):
            moment = int.from_bytes(blob[:8], "big")
            said = f"cosignature/v1\ntime {moment}\n{self.text}".encode()
            if moment > LIMIT or not ed25519(key.raw, blob[8:], said):
                raise ValueError(f"the cosignature of {key.name!r} is forged")
            times.append(moment)
        return min(times, default=None)

    def blobs(self, key: Key, kind: int) -> list[bytes]:
        who = key.in_notes, key.number(kind)
        return [blob[4:] for name, blob in self.lines if (name, blob[:4]) == who]


def read_note(note: str) -> Checkpointed:
    """ValueError when it is no log's checkpoint in the form of a signed note."""
    text, separator, signed = note.rpartition("\n\n")
    head, lines = text.split("\n"), []
    if len(note) > 2**22 or any(c != "\n" and unicodedata.category(c) in ("Cc", "Cs") for c in note):
        raise ValueError("the note is too long or has control characters")
    if not separator or len(head) < 3 or not all(head) or not signed.endswith("\n"):
        raise ValueError("the note needs an origin, a size, a root, an empty line and signatures")
    if not re.fullmatch(r"0|[1-9][0-9]{0,18}", head[1]) or int(head[1]) > LIMIT or len(from_base64(head[2])) != 32:
        raise ValueError("the note's size or root is malformed")
    if re.fullmatch(r"cosignature/.*|fedincentive/[a-z-]+/[0-9]+", head[0]):
        raise ValueError(f"the origin {head[0]!r} is kept for other signatures")
    for line in signed[:-1].split("\n"):
        dash, name, blob = line.split(" ")
        if (
            dash != "\u2014"
            or not name
            or "+" in name
            or re.search(r"\s", name)
            or not 5 <= len(from_base64(blob)) <= 8192
        ):
            raise ValueError("a line of the note is not a signature")
        lines.append((name, from_base64(blob)))
    if max(Counter((name, blob[:4]) for name, blob in lines).values()) > 16:
        raise ValueError("one key signed the note too often")
    return Checkpointed(text + "\n", head[0], int(head[1]), from_base64(head[2]), lines)


def notes_in(text: str) -> list[Checkpointed]:
    """The checkpoints in a run's notes.jsonl, in an agent's receipt, or the one that a file is. A line that is none is
    passed over, as a crash may have cut it; ValueError where there is no other."""
    found, wrong = [], ""
    for part in text.splitlines() if text.startswith("{") else [text]:
        try:
            found.append(read_note(json.loads(part)["note"] if part.startswith("{") else part))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            wrong = str(error)[:200]
    if not found:
        raise ValueError(f"there is no checkpoint in it: {wrong or 'it is empty'}")
    return found


def grow(peaks: list[tuple[int, bytes]], leaf: bytes) -> None:
    """Add a leaf to a Merkle tree of which only the whole subtrees are kept."""
    peaks.append((1, leaf))
    while len(peaks) > 1 and peaks[-1][0] == peaks[-2][0]:
        (size, right), (_, left) = peaks.pop(), peaks.pop()
        peaks.append((2 * size, sha256(b"\x01" + left + right).digest()))


def root_over(peaks: list[tuple[int, bytes]]) -> bytes:
    """The root of that tree (RFC 6962)."""
    total = peaks[-1][1] if peaks else sha256().digest()
    for _, left in reversed(peaks[:-1]):
        total = sha256(b"\x01" + left + total).digest()
    return total


def root_of(leaves: list[bytes]) -> bytes:
    """The root of the Merkle tree over leaves (RFC 6962)."""
    peaks: list[tuple[int, bytes]] = []
    for leaf in leaves:
        grow(peaks, leaf)
    return root_over(peaks)


def check_body(body: Body) -> None:
    """ValueError where an entry could not have been made."""

    def plain(value: Any, depth: int) -> bool:
        if type(value) in (int, str):
            return abs(value) <= LIMIT if type(value) is int else value.isprintable()
        if type(value) is dict:
            return depth > 0 and all(k and k.isprintable() and plain(v, depth - 1) for k, v in value.items())
        return type(value) is list and depth > 0 and all(plain(v, depth - 1) for v in value)

    if set(body) != {"claims", "inputs", "kind", "postings", "round", "rule", "run", "version"}:
        raise ValueError("the entry has other fields than entries have")
    amounts, claims = body["postings"], body["claims"]
    fine = (
        exactly(body["version"]) == 1
        and 0 <= exactly(body["round"]) <= LIMIT
        and type(body["run"]) is str and body["run"].isprintable() and 0 < len(body["run"]) <= 200
        and re.fullmatch(r"[a-z][a-z0-9-]{0,39}", body["kind"])
        and re.fullmatch(r"[a-z][a-z0-9-]*/[1-9][0-9]*", body["rule"])
        and type(body["inputs"]) is type(amounts) is dict and type(claims) is list
        and plain(body["inputs"], 6) and plain(amounts, 6)
        and all(type(claim) is str and claim.isprintable() for claim in claims)
        and sum(map(exactly, amounts.values())) == 0 and all(len(account) <= 200 for account in amounts)
        and not (body["kind"] == "commitment" and amounts)
        and not ("budget-balanced" in claims and "treasury" in amounts)
        and not (body["kind"] == "correction" and exactly(body["inputs"].get("corrects")) < 1)
    )  # fmt: skip
    if not fine:
        raise ValueError("the entry is not one that a ledger holds")


class Shown(NamedTuple):
    """What a receipt shows."""

    body: Body
    seq: int
    hash: str
    note: Checkpointed


def read_receipt(text: str) -> Shown:
    """The entry of a receipt that is under its note's root; ValueError otherwise. No signature is checked."""
    if len(text) > 2**26:
        raise ValueError("the file is too large")
    held = json.loads(text)
    if type(held) is not dict or set(held) != {"body", "note", "path", "previous", "receipt", "seq"}:
        raise ValueError("it has other fields than a receipt")
    if canonical(held) + "\n" != text or exactly(held["receipt"]) != 1:
        raise ValueError("it is not of version 1 in canonical form")
    seq, path, previous = exactly(held["seq"]), held["path"], held["previous"]
    if type(path) is not list or len(path) > 128 or not re.fullmatch("[0-9a-f]{64}", previous):
        raise ValueError("its path or the hash before it is malformed")
    check_body(held["body"])
    note = read_note(held["note"])
    entry = digest("entry", f"{seq}\n{previous}\n{digest('body', canonical(held['body']))}")
    if not is_under(note, seq, entry, [from_base64(one) for one in path]):
        raise ValueError(f"entry {seq}, as it stands here, is not under the root of the note")
    return Shown(held["body"], seq, entry, note)


def is_under(note: Checkpointed, seq: int, entry: str, path: list[bytes]) -> bool:
    """Whether the path leads from the entry to the note's root (RFC 9162, 2.1.3.2)."""
    at, last = seq - 1, note.size - 1
    if not 0 <= at <= last or any(len(one) != 32 for one in path):
        return False
    total = sha256(b"\x00" + entry.encode("ascii")).digest()
    for beside in path:
        if last == 0:
            return False
        left = at % 2 == 1 or at == last
        total = sha256(b"\x01" + (beside + total if left else total + beside)).digest()
        while left and at % 2 == 0 and at:
            at, last = at >> 1, last >> 1
        at, last = at >> 1, last >> 1
    return last == 0 and total == note.root


def check_receipt(text: str, logs: Sequence[Key], witnesses: Iterable[Key] = ()) -> tuple[Shown, dict[str, int]]:
    """What a receipt shows and when each of the witnesses cosigned it; ValueError where it proves nothing."""
    shown, times = read_receipt(text), {}
    if not any(shown.note.is_signed_by(key) for key in logs):
        raise ValueError("the log did not sign the note with the key given")
    for key in witnesses:
        if (moment := shown.note.cosigned_at(key)) is not None:
            times[key.name] = moment
    return shown, times


# The two commands


def say(text: str, where: Any = None) -> None:
    """What comes from the files may be any text; terminals get ASCII."""
    print(text.encode("ascii", "backslashreplace").decode(), file=where or sys.stdout, flush=True)


def check_entry(body: Body, runs: Runs, keys: set[tuple[Any, ...]], complain: Complain) -> None:
    amounts = body["postings"]
    if body["version"] != 1:
        complain("body", "its format is unknown")
    key = (body["run"], body["round"], body["kind"], body["inputs"].get("corrects", 0))
    if key in keys:
        complain("duplicate", "the run has this round and kind already")
    keys.add(key)
    if sum(exactly(amount) for amount in amounts.values()):
        complain("zero-sum", f"its amounts sum to {sum(amounts.values())}")
    if "budget-balanced" in body["claims"] and "treasury" in amounts:
        complain("claims", "it claims to be budget-balanced but posts to the treasury")
    if body["rule"] not in KINDS:
        complain("rule", "its rule is unknown here")
        return
    derived = runs.derive(body, complain)
    runs.hold(body, complain)
    for account in sorted(set(derived) | set(amounts)):
        if derived.get(account) != amounts.get(account):
            complain("recompute", f"{account!r} has {amounts.get(account)}, its inputs give {derived.get(account)}")


def check(
    lines: list[str],
    checkpoints: Sequence[str] = (),
    signatures: Signatures | None = None,
    notes: Sequence[Checkpointed] = (),
) -> tuple[list[Finding], str]:
    """The findings (name, seq, message) in the lines of an export, and its checkpoint COUNT:HASH@LEDGER."""
    findings: list[Finding] = []
    bodies: dict[int, Body] = {}
    keys: set[tuple[Any, ...]] = set()
    last: str | None = None
    try:
        header = json.loads(next(iter(lines), "{}"))
    except RecursionError as error:
        raise ValueError("its first line is nested too deeply") from error
    ours = {"ledger": "fedincentive", "version": 1}
    if type(header) is not dict or {**header, **ours} != header or type(header.get("minor")) is not int:
        return [("header", 0, "this is not the export of a fedincentive ledger of version 1")], "0:"
    heads = [digest("ledger", canonical(header))]
    runs = Runs(header["minor"], bodies, signatures)
    for line in lines[1:]:
        seq = len(heads)

        def complain(name: str, message: str, seq: int = seq) -> None:
            findings.append((name, seq, message))

        try:
            item = json.loads(line)
            if last is not None:
                complain("form", "there are lines after the checkpoint")
            if "checkpoint" in item:
                last = str(item["checkpoint"])
                continue
            if line.rstrip("\n") != canonical(item):
                complain("body", "the line is not in canonical form")
            if item["seq"] != seq:
                complain("gap", "its number is not the next one")
            body_hash = digest("body", canonical(item["body"]))
            if digest("entry", f"{exactly(item['seq'])}\n{heads[-1]}\n{body_hash}") != item["hash"]:
                complain("chain", "its contents, its number or the entry before it were changed")
            heads.append(str(item["hash"]))
            corrects = item["body"]["inputs"].get("corrects") if item["body"]["kind"] == "correction" else None
            if corrects is not None and not (0 < corrects < seq and item["body"]["inputs"]["hash"] == heads[corrects]):
                complain("corrects", f"entry {corrects} is not the one it corrects")
            check_entry(item["body"], runs, keys, complain)
            if item["body"]["rule"] == "close/1":
                runs.hold_period(item["body"], heads, complain)
            bodies[seq] = item["body"]
        except Exception as error:  # anybody may have written the file: what cannot be read is a finding
            complain("recompute", f"it cannot be read or derived: {type(error).__name__} {str(error)[:200]}")
            heads += [""] * (len(heads) == seq)
    wrong, unfinished = runs.ends()
    findings += [("terms", len(heads) - 1, message) for message in wrong]
    runs.signatures.unfinished = unfinished
    end = f"{len(heads) - 1}:{heads[-1]}"
    if last is None or last.partition("@")[0] != end:
        wanted = "should end at {last}" if last else "lacks its last line, which says where it should end"
        findings.append(("checkpoint", len(heads) - 1, f"the file ends at {end} but {wanted.format(last=last)}"))
    for seen in checkpoints:
        count, _, known = seen.partition("@")[0].partition(":")
        if int(count) >= len(heads):
            findings.append(("checkpoint", int(count), f"{seen} was seen, the file ends at {end}: it was cut"))
        elif heads[int(count)] != known:
            findings.append(("checkpoint", int(count), f"{seen} was seen: the chain was made anew"))
    try:
        runs.hold_notes(notes, heads, lambda name, message: findings.append((name, len(heads) - 1, message)))
    except ValueError as error:
        findings.append(("note", len(heads) - 1, str(error)))
    return findings, end + (f"@{heads[1][:16]}" if len(heads) > 1 else "")


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    return main_receipt(given[1:]) if given[:1] == ["receipt"] else main_ledger(given)


def wrong_call(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    parser.error(message.encode("ascii", "backslashreplace").decode())


def main_ledger(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Check a fedincentive ledger exported as JSONL.", epilog="standalone.py receipt --help: one entry."
    )
    parser.add_argument("export", help="the JSONL file")
    parser.add_argument(
        "--checkpoint", action="append", default=[], metavar="COUNT:HASH[@LEDGER]", help="a head seen before"
    )
    parser.add_argument(
        "--keys", action="append", metavar="FILE|DIR|VKEY", help="the keys you know; runs with others are found"
    )
    parser.add_argument(
        "--note", action="append", default=[], metavar="FILE", help="checkpoints that were kept: notes.jsonl, a receipt"
    )
    parser.add_argument("--no-signatures", action="store_true", help="quick: everything but the signatures")
    options = parser.parse_args(arguments)
    for seen in options.checkpoint:
        if not re.match("[0-9]{1,18}:", seen):
            wrong_call(parser, f"a checkpoint is written COUNT:HASH, not {seen!r}")
    try:
        known = None if options.keys is None else [key for one in options.keys for key in read_keys(one)]
        with open(options.export, encoding="ascii") as file:
            lines = file.readlines()
        signatures = Signatures(sum(line.count('"signature":') for line in lines), known, skip=options.no_signatures)
        notes = [note for one in options.note for note in notes_in(Path(one).read_text("utf-8", "replace"))]
        findings, end = check(lines, options.checkpoint, signatures, notes)
    except (OSError, ValueError) as error:
        wrong_call(parser, f"what was given cannot be read: {error}")
    for name, seq, message in findings:
        say(f"{name}: entry {seq}: {message}")
    if signatures.skip:
        say(f"SIGNATURES WERE NOT CHECKED ({signatures.count}): anybody may have written what is said in agents' names")
    elif signatures.signed:
        say(f"{signatures.count} signatures checked in {time.monotonic() - signatures.began:.1f} s")
        if signatures.known is None:
            say("whose the keys are was not checked: give those that you know with --keys", sys.stderr)
    if signatures.witnessed is not None:
        size, times = signatures.witnessed
        who = ", ".join(map(repr, sorted(times))) or "nobody"
        say(f"{len(notes)} checkpoints given; of those that hold, the newest has {size} entries, cosigned by {who}")
    if signatures.unsigned:
        some = ", ".join(map(repr, signatures.unsigned[:5])) + ", ..." * (len(signatures.unsigned) > 5)
        say(f"not signed, so nobody knows who said what: {some}", sys.stderr)
    if signatures.sampled:
        some = ", ".join(map(repr, signatures.sampled[:5])) + ", ..." * (len(signatures.sampled) > 5)
        say(f"who was asked is only said by the center, and not shown: {some}", sys.stderr)
    for run in signatures.unfinished[:10]:
        say(f"unfinished: run {run}")
    if len(signatures.unfinished) > 10:
        say(f"unfinished: {len(signatures.unfinished) - 10} more runs")
    found = f"{len(findings)} finding{'' if len(findings) == 1 else 's'}"
    say(f"{found}, ends at {end}" if findings else f"clean, ends at {end}")
    return 1 if findings else 0


def main_receipt(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="standalone.py receipt", description="Check that a receipt proves its entry.")
    parser.add_argument("file", help="the receipt")
    parser.add_argument("--key", action="append", required=True, metavar="VKEY|FILE", help="the log's key, or keys")
    parser.add_argument("--witness", action="append", default=[], metavar="VKEY|FILE|DIR", help="a witness's key")
    parser.add_argument("--need", type=int, default=0, help="how many of the witnesses must have cosigned")
    options = parser.parse_args(arguments)
    try:
        logs = [key for one in options.key for key in read_keys(one)]
        witnesses = [key for one in options.witness for key in read_keys(one)]
        text = Path(options.file).read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        wrong_call(parser, f"what was given cannot be read: {error}")
    try:
        shown, times = check_receipt(text, logs, witnesses)
    except Exception as error:  # anybody may have written it
        say(f"this receipt proves nothing: {str(error)[:200] or type(error).__name__}")
        return 1
    body = shown.body
    say(
        f"entry {shown.seq}, hash {shown.hash}: run {body['run']!r}, round {body['round']}, "
        f"{body['kind']} ({body['rule']})"
    )
    for account, amount in sorted(body["postings"].items()):
        say(f"  {account!r} {amount:+d} minor units")
    say(f"it is under the root of the log {shown.note.origin!r} with {shown.note.size} entries, which the log signed")
    for name, moment in sorted(times.items(), key=lambda one: one[1]):
        say(f"  cosigned by {name!r} at {date(moment)}")
    if len(times) < options.need:
        say(f"{len(times)} of the witnesses given cosigned it, {options.need} are needed")
        return 1
    return 0


def date(moment: int) -> str:
    try:
        return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"second {moment}"


if __name__ == "__main__":
    sys.exit(main())
