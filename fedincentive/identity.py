"""Signed words: what an agent or the center puts its name to, and how anybody checks it.

    fedincentive/enrol/1      run, agent, s_max, s0, data, key, anchor, budget, alone, seen, tags (their sha256)
    fedincentive/broadcast/1  run, terms, round, step, phase, s, settings, model, seen, log, reveal, audits
    fedincentive/report/1     run, terms, round, phase, agent, seen, model, s, delivered, update, valuation, nonce,
                              reveal, declined, verdicts

each followed by a newline and canonical JSON; what is not said is left out. Points and money are the integers that
count, so that a ledger's entry can be held against the signature. A signature says who said it, not that it is true.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .compiled import compiled
from .entry import canonical
from .errors import PaymentError, ProvenanceError, SettingError
from .messages import Broadcast, Enrol, Report, Update
from .payments import quantise
from .provenance.keys import KeyRing, PrivateKey, PublicKey, from_base64, words
from .provenance.records import tags_digest
from .terms import CENTER as CENTER


def digest(update: Update | None) -> str:
    """sha256 of an update: names, types, shapes and bytes, in order.

    >>> digest(None)
    ''
    """
    if update is None:
        return ""
    total = hashlib.sha256()
    for name, array in update.items():
        array = np.ascontiguousarray(array)
        total.update(_title(name, array.dtype.str, array.shape))
        total.update(array.data if array.size else b"")
    return total.hexdigest()


@cache
def _title(name: str, kind: str, shape: tuple[int, ...]) -> bytes:
    """What a digest says of an array beside its bytes; a round has the same ones of every agent."""
    return json.dumps([name, kind, list(shape)]).encode()


def read_keys(path: str | Path) -> KeyRing:
    """The folder of keys that `incentive.keys` names."""
    try:
        return KeyRing.read(path)
    except ProvenanceError as error:
        raise SettingError(f"incentive.keys: {error}") from error


def signed(key: PrivateKey, said: bytes) -> str:
    return base64.b64encode(key.sign(said)).decode()


def is_signed(key: PublicKey, said: bytes, signature: str | None) -> bool:
    """Whether the key's owner signed these words; the signature may be any text a sender likes."""
    try:
        return key.verify(from_base64(signature or ""), said)
    except (ValueError, TypeError):
        return False


def enrolment(run: str, enrol: Enrol) -> bytes:
    """What an agent signs when it joins, or comes back."""
    said = {"run": run, "agent": enrol.agent, "s_max": float(enrol.s_max).hex(), "s0": float(enrol.s0).hex()}
    own: dict[str, Any] = {"data": enrol.commitment, "key": enrol.key, "anchor": enrol.anchor, "seen": enrol.seen}
    own["tags"] = None if enrol.tags is None else tags_digest(enrol.tags)
    for name in ("budget", "alone"):
        own[name] = None if (value := getattr(enrol, name)) is None else float(value).hex()
    return words("enrol", _said({**said, **own}))


def answers(told: Broadcast, terms: str) -> dict[str, Any]:
    """What a report answers to: the terms (their digest), the model and the checkpoint SIZE:ROOT of a broadcast. Where
    each agent is sent a model of its own, all answer to the list of their digests."""
    note = None if told.log is None else str(told.log["note"]).split("\n")
    seen = None if note is None else f"{note[1]}:{note[2]}"
    model = (digest(told.w) or None) if told.models is None else _sha256(told.models)
    return _said({"terms": terms, "model": model, "seen": seen})


def carries_model_of(told: Broadcast, agent: str) -> bool:
    """Whether the model of a broadcast is this agent's, by the center's own list where each has another."""
    return told.models is None or told.models.get(agent) == digest(told.w)


def broadcast(told: Broadcast, answered: Mapping[str, Any]) -> bytes:
    """What the center signs with every broadcast; `answered` is what reports answer to."""
    said = {"run": told.run, "round": told.round, "step": told.step, "phase": told.phase}
    said["s"] = {agent: float(points).hex() for agent, points in told.s.items()}
    log = None if told.log is None else hashlib.sha256(canonical(told.log).encode()).hexdigest()
    said |= {"reveal": told.reveal, "audits": _sha256(list(told.audits) or None)}
    return words("broadcast", _said({**answered, **said, "settings": _sha256(told.settings), "log": log}))


def own_words(report: Report, scale: int, minor: int, s_max: int) -> dict[str, Any]:
    """What a report says of its agent, in the integers that count and in the order of canonical JSON; PaymentError
    where a number does not fit."""
    said: dict[str, Any] = {"agent": report.agent}
    if report.declined is not None:
        said["declined"] = report.declined
    if report.delivered is not None:
        said["delivered"] = min(quantise(float(report.delivered), scale), s_max)
    if report.nonce is not None:
        said["nonce"] = report.nonce
    if report.reveal is not None:
        said["reveal"] = report.reveal
    if report.s is not None:
        said["s"] = min(quantise(float(report.s), scale), s_max)
    if report.update is not None:
        said["update"] = digest(report.update)
    if report.valuation is not None:
        said["valuation"] = quantise(float(report.valuation), minor)
    if report.verdicts:
        said["verdicts"] = [dict(one) for one in report.verdicts]
    return said


def claim(report: Report, told: Mapping[str, Any], scale: int, minor: int, s_max: int) -> dict[str, Any]:
    """What a report says; `told` are the terms, model and checkpoint it answers to."""
    place = {"run": report.run, "round": report.round, "phase": report.phase}
    return {**told, **place, **own_words(report, scale, minor, s_max)}


class Answers:
    """What all reports of one round share: a report's words are made from it without writing that part again."""

    def __init__(self, shared: Mapping[str, Any]) -> None:
        self.shared = dict(shared)
        self._parts: dict[tuple[str, ...], tuple[bytes, ...]] = {}

    def words(self, own: Mapping[str, Any]) -> bytes:
        """The bytes of `words("report", {**shared, **own})`; `own` is in the order of canonical JSON."""
        names = tuple(own)
        parts = self._parts.get(names) or self._make_parts(names)
        if (write := compiled("interleaved")) is not None and (said := write(parts, own)) is not None:
            return bytes(said)
        return words("report", {**self.shared, **own})

    def _make_parts(self, names: tuple[str, ...]) -> tuple[bytes, ...]:
        """What stands before, between and after what each agent says itself."""
        assert list(names) == sorted(names) and not set(names) & set(self.shared)
        parts = ["fedincentive/report/1\n{"]
        for name in sorted({*names, *self.shared}):
            parts[-1] += f"{canonical(name)}:"
            if name in names:
                parts.append(",")
            else:
                parts[-1] += f"{canonical(self.shared[name])},"
        parts[-1] = f"{parts[-1].removesuffix(',')}}}"
        self._parts[names] = tuple(part.encode("ascii") for part in parts)
        return self._parts[names]

    def claimed(self, report: Report, key: PublicKey, scale: int, minor: int, s_max: int) -> dict[str, Any]:
        """What the agent says of itself in a report; nothing where it did not sign that, or a number does not count."""
        try:
            own = own_words(report, scale, minor, s_max)
        except (PaymentError, TypeError, ValueError, OverflowError):
            return {}
        return own if is_signed(key, self.words(own), report.signature) else {}


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _sha256(value: Any) -> str | None:
    return None if value is None else hashlib.sha256(canonical(value).encode()).hexdigest()
