#!/usr/bin/env python3
"""Check a fedincentive ledger without installing fedincentive.

    python3 standalone.py ledger.jsonl [--checkpoint COUNT:HASH[@LEDGER] ...]

Reads what `fedincentive ledger export --format jsonl` wrote and trusts nothing in it: the hash chain, the canonical
form, the zero sum of every entry, its claims, every amount derived again from the inputs beside it, and each entry held
to the terms that its run begins with. Prints one line per finding; exits 0 when there is none, 1 when there are, 2 when
it was called wrongly. Needs Python 3.9 and nothing else. It shares no code with the package on purpose: two writings of
the same rules check each other.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from hashlib import sha256
from typing import Any

Amounts = dict[str, int]
Body = dict[str, Any]
Complain = Callable[[str, str], None]
Finding = tuple[str, int, str]
KINDS = {
    "terms/1": ("terms",),
    "commitment/1": ("commitment",),
    "contribution/1": ("settlement",),
    "tranche/1": ("tranche", "settlement"),
    "truthful/1": ("truthful",),
    "reversal/1": ("correction",),
    "transfer/1": ("correction",),
}
PAYS = {"contribution/1": "contribution", "tranche/1": "contribution", "truthful/1": "truthful"}


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def digest(domain: str, text: str) -> str:
    return sha256(f"fedincentive/{domain}/1\n{text}".encode("ascii")).hexdigest()


def exactly(value: Any) -> int:
    """An int that is an int: JSON's 1.0 and true must not pass for 1."""
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def rate(value: Any) -> Fraction:
    """An exact price that can be written out: 1e99999999 has a hundred million digits."""
    text = str(value)
    if type(value) not in (int, str) or len(text) > 1000 or re.search(r"e[+-]?\d{4}|_", text, re.IGNORECASE):
        raise ValueError(f"{text[:40]!r} is not a price")
    if (price := Fraction(value)) < 0:
        raise ValueError(f"{text} is a negative price")
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


class Runs:
    """What has to be remembered of each run to derive the next entry's amounts."""

    def __init__(self, minor: int, bodies: dict[int, Body]) -> None:
        self.minor, self.bodies = minor, bodies
        self.delivered: dict[str, Amounts] = {}
        self.posted: dict[str, Amounts] = {}
        self.terms: dict[str, list[Any]] = {}
        self.valued: dict[str, Amounts] = {}
        self.reversed: set[int] = set()
        self.so_far: dict[str, Body] = {}

    def derive(self, body: Body, complain: Complain) -> Amounts:
        given, rule = body["inputs"], body["rule"]
        if rule in ("terms/1", "commitment/1"):
            return {}
        if rule == "contribution/1":
            return balanced(rate(given["beta"]), given["s"], given["scale"], self.minor, body["round"])
        if rule == "tranche/1":
            return self.tranche(body, given, complain)
        if rule == "truthful/1":
            return self.truthful(body, given, complain)
        target = self.bodies.get(given["corrects"])
        if target is None or target["run"] != body["run"]:
            raise ValueError("it corrects no earlier entry of its run")
        if rule == "transfer/1":
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

    def truthful(self, body: Body, given: Body, complain: Complain) -> Amounts:
        value, h, minor = given["valuations"], given["h"], self.minor
        before, known = given.get("previous", {}), self.valued.get(body["run"])
        if h == "previous" and known is not None and before != known:
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
            return
        terms = so_far["terms"]
        if terms is None and kind == "commitment":
            so_far["committed"] = given
        if terms is None:
            self.hold_to_commitment(so_far.get("committed"), body, complain)
            return
        agents = {name: exactly(agreed["s_max"]) for name, agreed in terms["agents"].items()}
        for account in sorted(set(body["postings"]) - set(agents) - {"treasury"}):
            complain("terms", f"{account!r} has a posting but is not in the run's terms")
        if kind == "correction":
            if not str(given.get("reason", "")).strip():
                complain("terms", "a correction needs a reason")
            return
        if body["round"] < so_far["last"]:
            complain("order", "an entry of a later round came before it")
        so_far["last"] = max(so_far["last"], body["round"])
        if kind == "commitment":
            if so_far["first"] is not None:
                complain("terms", "the commitments come once")
            so_far["first"] = body["round"]
            if given["s_max"] != agents or given["scale"] != terms["scale"]:
                complain("terms", "its s_max or scale are not those of the run's terms")
            prices = [Fraction(p["terms"].get("beta", 0)) for n, p in terms["payments"].items() if n == "contribution"]
            if set(terms["payments"]) <= {"contribution", "truthful"} and Fraction(given["beta"]) != sum(prices):
                complain("terms", "its beta is not the agreed one")
            points_within(given["s"], agents, 1, complain)
        elif rule in PAYS:
            self.hold_payment(so_far, body, before, agents, complain)

    def hold_payment(self, so_far: Body, body: Body, before: int, agents: Amounts, complain: Complain) -> None:
        terms, kind, given = so_far["terms"], body["kind"], body["inputs"]
        if PAYS[body["rule"]] not in terms["payments"]:
            complain("terms", "this payment was not agreed")
            return
        agreed, rounds = terms["payments"][PAYS[body["rule"]]]["terms"], exactly(terms["rounds"])
        settlement = agreed.get("settlement", "tranches")
        when = {"tranches": ("tranche", "tranche/1", None), "end": ("settlement", "tranche/1", rounds - 1)}
        when["commitment"] = ("settlement", "contribution/1", 0)
        wanted = ("truthful", "truthful/1", None) if kind == "truthful" else when[settlement]
        if (kind, body["rule"]) != wanted[:2]:
            complain("terms", f"agreed are entries of kind {wanted[0]} by rule {wanted[1]}")
            return
        most = rounds if wanted[2] is None else 1
        if so_far["first"] is None:
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
        points = given["s" if settlement == "commitment" else "delivered"]
        points_within(points, agents, rounds if settlement == "end" else 1, complain)

    def hold_truthful(self, terms: Body, agreed: Body, given: Body, agents: Amounts, complain: Complain) -> None:
        cap = Fraction(agreed["loss_cap"]) * Fraction(agreed["value_per_nat"])
        fine = Fraction(agreed.get("fine", len(agents) * cap))
        fine = round(fine * self.minor / (Fraction(agreed["audit"]) * Fraction(agreed["detection"])))
        audited = agreed["phi"] == "audited" and {"update", "valuation"} <= set(terms["oracles"])
        phi = "audited" if audited else "paper" if "valuation" in terms["oracles"] else "none"
        tolerance = round(Fraction(float(agreed["delta_v"])) * self.minor)
        for key, value in {"h": agreed["h"], "phi": phi, "fine": fine, "tolerance": tolerance}.items():
            if given[key] != value:
                complain("terms", f"{key} is {given[key]!r}, agreed is {value!r}")
        if set(given["valuations"]) != set(agents):
            complain("terms", "other agents are valued than those in the run's terms")
        if any(abs(value) > cap * self.minor + 1 for value in given["valuations"].values()):
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


def points_within(given: Amounts, most: Amounts, times: int, complain: Complain) -> None:
    if set(given) != set(most):
        complain("terms", "other agents have points than those in the run's terms")
    for agent in set(given) & set(most):
        if not 0 <= exactly(given[agent]) <= times * most[agent]:
            complain("terms", f"{agent!r} has {given[agent]} points, agreed are 0 to {times * most[agent]}")


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


def check(lines: list[str], checkpoints: Sequence[str] = ()) -> tuple[list[Finding], str]:
    """The findings (name, seq, message) in the lines of an export, and its checkpoint COUNT:HASH@LEDGER."""
    findings: list[Finding] = []
    bodies: dict[int, Body] = {}
    keys: set[tuple[Any, ...]] = set()
    last: str | None = None
    header = json.loads(next(iter(lines), "{}"))
    header = header if isinstance(header, dict) else {}
    if header.get("ledger") != "fedincentive" or header.get("version") != 1 or type(header.get("minor")) is not int:
        return [("header", 0, "this is not the export of a fedincentive ledger of version 1")], "0:"
    heads = [digest("ledger", canonical(header))]
    runs = Runs(header["minor"], bodies)
    for line in lines[1:]:
        seq = len(heads)

        def complain(name: str, message: str, seq: int = seq) -> None:
            findings.append((name, seq, message))

        try:
            item = json.loads(line)
            if last is not None:
                complain("form", "there are lines after the checkpoint")
            if "checkpoint" in item:
                last = item["checkpoint"]
                continue
            if line.rstrip("\n") != canonical(item):
                complain("body", "the line is not in canonical form")
            if item["seq"] != seq:
                complain("gap", "its number is not the next one")
            body_hash = digest("body", canonical(item["body"]))
            if digest("entry", f"{exactly(item['seq'])}\n{heads[-1]}\n{body_hash}") != item["hash"]:
                complain("chain", "its contents, its number or the entry before it were changed")
            heads.append(item["hash"])
            corrects = item["body"]["inputs"].get("corrects") if item["body"]["kind"] == "correction" else None
            if corrects is not None and not (0 < corrects < seq and item["body"]["inputs"]["hash"] == heads[corrects]):
                complain("corrects", f"entry {corrects} is not the one it corrects")
            check_entry(item["body"], runs, keys, complain)
            bodies[seq] = item["body"]
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            complain("recompute", f"it cannot be read or derived: {type(error).__name__} {error}")
            heads += [""] * (len(heads) == seq)
    end = f"{len(heads) - 1}:{heads[-1]}"
    if last is None or last.partition("@")[0] != end:
        findings.append(("checkpoint", len(heads) - 1, f"the file ends at {end} but should end at {last}"))
    for seen in checkpoints:
        count, _, known = seen.partition("@")[0].partition(":")
        if int(count) >= len(heads):
            findings.append(("checkpoint", int(count), f"{seen} was seen, the file ends at {end}: it was cut"))
        elif heads[int(count)] != known:
            findings.append(("checkpoint", int(count), f"{seen} was seen: the chain was made anew"))
    return findings, end + (f"@{heads[1][:16]}" if len(heads) > 1 else "")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check a fedincentive ledger exported as JSONL.")
    parser.add_argument("export", help="the JSONL file")
    parser.add_argument(
        "--checkpoint", action="append", default=[], metavar="COUNT:HASH[@LEDGER]", help="a head seen before"
    )
    options = parser.parse_args(arguments)
    for seen in options.checkpoint:
        if not seen.partition(":")[0].isdigit():
            parser.error(f"a checkpoint is written COUNT:HASH, not {seen!r}")
    try:
        with open(options.export, encoding="ascii") as file:
            findings, end = check(file.readlines(), options.checkpoint)
    except (OSError, ValueError, RecursionError) as error:
        parser.error(f"{options.export} cannot be read: {error}")
    for name, seq, message in findings:
        print(f"{name}: entry {seq}: {message}")
    print(f"{len(findings)} findings, ends at {end}" if findings else f"clean, ends at {end}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
