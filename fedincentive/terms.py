"""The terms of a run: who takes part, with how much, at which price. They are the run's first entry in the ledger.

    {"mechanism", "rounds", "sampled", "scale", "minor", "currency", "payments": {name: {"rules", "terms"}}, "settings",
     "oracles": [...], "owed": ..., "center": key, "recovery": key, "start": {name: points}, "draws": anchor,
     "auditors": {name: key}, "anchor": the center's, "lag": steps,
     "agents": {name: {"s_max", "s0", "data", "key", "anchor", "deposit", "enrolled", "tags", "duplicates"}}}

`start` is the s that the mechanism itself gives an agent, where that is not its s0; `enrolled` the s_max that an agent
enrolled with, where it counts with fewer points: its budget covers no larger deposit, or others have some of its
records too (`duplicates`, by the agent that counts with them; `tags` is the digest of the list by which they were
found). `draws` anchors the center's hash chain: who is asked in a sampled round follows from the link that the center
shows with that round; in an audited run `anchor` is of the same chain, and `lag` says how many steps a link that is
withheld can delay a verdict, while `settings` have the chances by which audits are drawn. All is text and
whole numbers. With keys every agent signs the terms' digest before the first round, and every report after it names
that digest; `verify --recompute` holds every entry of the run to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from . import draws
from .entry import LIMIT, canonical
from .provenance import audits, beacon

KIND, RULE = "terms", "terms/1"
CENTER = "center"  # the name of the center's key
Texts = dict[str, Any]


def digest(terms: Mapping[str, Any]) -> str:
    """What agents sign, and reports name."""
    return sha256(b"fedincentive/terms/1\n" + canonical(terms).encode("ascii")).hexdigest()


def texts(value: Any) -> Any:
    """A value as a ledger holds it: exact numbers and floats by their shortest texts, what is not there left out.

    >>> from fractions import Fraction
    >>> texts({"beta": Fraction(1, 2), "eta": 0.1, "fine": None, "moves": False})
    {'beta': '1/2', 'eta': '0.1', 'moves': 'no'}
    """
    if isinstance(value, Mapping):
        return {str(key): texts(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [texts(item) for item in value]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return int(value) if abs(value) <= LIMIT else str(value)
    return repr(value) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Terms:
    """What a run's entries are held to. A run of an older release has no terms, only what its commitment says."""

    rounds: int | None  # T
    scale: int
    s_max: Mapping[str, int]
    s0: Mapping[str, int]  # what each begins with
    payments: Mapping[str, Mapping[str, Any]]
    oracles: tuple[str, ...] = ()
    beta: str | None = None  # of a commitment without terms
    keys: Mapping[str, str] | None = None  # the agents' public keys, in a signed run
    center: str | None = None
    recovery: str | None = None  # the key that may revoke the agents'
    digest: str = ""
    sampled: int | None = None  # how many are asked in a training round; None: all
    seed: int = 0  # who that is, in runs of older releases
    draws: str | None = None  # who that is: the anchor of the center's hash chain
    deposits: Mapping[str, int] = field(default_factory=dict)  # of an audited run, in minor units
    auditors: Mapping[str, str] = field(default_factory=dict)  # their public keys, in an audited run
    anchors: Mapping[str, str] = field(default_factory=dict)  # of the center's and the agents' hash chains
    audit_rule: str = ""  # by which audits are drawn and decided
    chance: audits.Chance = 0.0  # that an agent is audited in a step
    rechecks: audits.Chance = 0.0  # the chance that a pass is checked again
    lag: int | None = None  # steps after which nobody waits for a link; None in runs of older releases

    @property
    def bound(self) -> bool:
        """Whether there are terms, and not only a commitment."""
        return bool(self.digest)

    def asked(self, link: str | None, step: int, shown: tuple[int, str] | None = None) -> tuple[str, ...] | None:
        """Who is asked in a training step; None where its link is not the center's. `shown` is an earlier step and
        link that were checked."""
        if self.sampled is None or self.sampled >= len(self.s_max):
            return tuple(sorted(self.s_max))
        if self.draws is None:
            return draws.sample(self.seed, step, sorted(self.s_max), self.sampled)
        before, known = shown or (-1, self.draws)
        if link is None or not beacon.follows(known, link, step - before):
            return None
        return beacon.asked(link, self.s_max, self.sampled)

    @classmethod
    def read(cls, terms: Mapping[str, Any]) -> Terms:
        """The terms in an entry's inputs."""
        agents = terms["agents"]
        keys = {name: given["key"] for name, given in agents.items() if "key" in given}
        return cls(
            terms["rounds"],
            terms["scale"],
            {name: given["s_max"] for name, given in agents.items()},
            {name: terms.get("start", {}).get(name, given["s0"]) for name, given in agents.items()},
            terms["payments"],
            tuple(terms["oracles"]),
            keys=keys or None,
            center=terms.get("center"),
            recovery=terms.get("recovery"),
            digest=digest(terms),
            sampled=terms.get("sampled"),
            seed=int(terms["settings"].get("seed", 0)),
            draws=terms.get("draws"),
            deposits={name: given["deposit"] for name, given in agents.items() if "deposit" in given},
            **cls._audits(terms),
        )

    @staticmethod
    def _audits(terms: Mapping[str, Any]) -> dict[str, Any]:
        if "auditors" not in terms:
            return {}
        anchors = {name: given["anchor"] for name, given in terms["agents"].items()}
        rule, chance, rechecks = audits.agreed(terms)
        return {
            "auditors": terms["auditors"],
            "anchors": {**anchors, CENTER: terms["anchor"]},
            "audit_rule": rule,
            "chance": chance,
            "rechecks": rechecks,
            "lag": terms.get("lag"),
        }

    @classmethod
    def of_commitment(cls, inputs: Mapping[str, Any]) -> Terms:
        """What a run without terms committed to."""
        return cls(None, inputs["scale"], inputs.get("s_max", {}), inputs["s"], {}, beta=inputs.get("beta"))
