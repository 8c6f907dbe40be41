"""Who wrote a report: an HMAC with the agent's own key over everything that moves money or the model."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .errors import SettingError
from .messages import Enrol, Report, Update


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
        total.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        total.update(array.data if array.size else b"")
    return total.hexdigest()


def signature(report: Report, key: bytes) -> str:
    """HMAC-SHA256 over (run, round, phase, agent, s, delivered, valuation, digest of the update)."""

    def exact(value: float | None) -> str:
        return "" if value is None else float(value).hex()

    fields = [report.run, report.round, report.phase, report.agent]
    fields += [exact(report.s), exact(report.delivered), exact(report.valuation), digest(report.update)]
    return hmac.new(key, json.dumps(fields).encode(), hashlib.sha256).hexdigest()


def sign(report: Report, key: bytes) -> Report:
    """The report with its author's signature."""
    return replace(report, signature=signature(report, key))


def authentic(report: Report, key: bytes) -> bool:
    return same(report.signature, signature(report, key))


def same(given: str | None, expected: str) -> bool:
    """Whether a signature is the expected one, in a time that tells nothing; it may be any text a sender likes."""
    return given is not None and hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def read_keys(path: str | Path) -> dict[str, bytes]:
    """Keys from a JSON file {agent: secret}; a secret needs at least 16 characters."""
    try:
        values = json.loads(Path(path).read_text(), object_pairs_hook=_once)
    except (OSError, ValueError, RecursionError) as error:
        raise SettingError(f"incentive.keys: {path} cannot be read as JSON ({error}).") from error
    if not isinstance(values, Mapping):
        raise SettingError(f"incentive.keys: {path} must hold one mapping from agent to secret.")
    for agent, secret in values.items():
        if not isinstance(secret, str) or len(secret.strip()) < 16:
            raise SettingError(
                f"incentive.keys: the secret of agent {agent!r} must be a string of 16 or more characters."
            )
    if len(set(values.values())) < len(values):
        raise SettingError(f"incentive.keys: two agents in {path} have the same secret; each needs its own.")
    return {agent: secret.encode() for agent, secret in values.items()}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys differ; readers otherwise keep the last of two without a word."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name is written twice")
    return values


def sign_enrolment(run: str, enrol: Enrol, key: bytes) -> str:
    """HMAC-SHA256 over (run, agent, s_max, s0, commitment): proves who joins, or comes back."""
    fields = ["enrol", run, enrol.agent, float(enrol.s_max).hex(), float(enrol.s0).hex(), enrol.commitment]
    return hmac.new(key, json.dumps(fields).encode(), hashlib.sha256).hexdigest()


def enrolment_is_authentic(run: str, enrol: Enrol, signature: str | None, key: bytes) -> bool:
    return same(signature, sign_enrolment(run, enrol, key))
