"""What a report must be before it counts. Each check raises ReportRefused with the agent, the value and the remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..aggregation import all_finite
from ..checks import nearest, shown
from ..errors import ReportRefused
from ..mechanisms import Mechanism
from ..messages import Report, Update
from ..payments import LIMIT, quantise
from ..run import Answer, Run
from . import audits

ASKED = {"contribute": ("s",), "train": ("s", "delivered", "update", "valuation"), "value": ("valuation",)}
REASON = 200  # characters of why an agent declines
SAID = ("s", "delivered", "update", "valuation")
UNASKED = {phase: tuple(what for what in SAID if what not in asked) for phase, asked in ASKED.items()}
OPTIONAL = ("nonce", "signature", "cosignature", "reveal", "declined")
KINDS: dict[str, type] = {"run": str, "round": int, "phase": str, **dict.fromkeys(OPTIONAL, str)}
NONCE = re.compile("[0-9a-f]{32}")
LARGEST = 1e9  # a valuation of this many units still fits the ledger's integers


def checked(
    report: Report, run: Run, mechanism: Mechanism, w: Update, claimed: Callable[[Report], Mapping[str, Any]] | None
) -> Answer:
    """What counts of a report: its numbers quantised, as they are recorded and broadcast.

    In a signed run `claimed` gives what its agent signed, or nothing where it did not.
    """
    known(report, run.s)
    settings, fields = run.settings, dict[str, Any]()
    if claimed is not None:
        for what in UNASKED.get(report.phase, SAID):
            if getattr(report, what) is not None:
                raise ReportRefused(
                    f"Agent {report.agent!r} signs a {what} in a {report.phase} round, which asks for none."
                )
        fields = signed(report, claimed(report))
    if report.verdicts:
        raise ReportRefused(f"Agent {report.agent!r} gives verdicts, which only auditors are asked for.")
    if settings.audited:
        audits.check_link(report, run)
    elif report.reveal is not None:
        raise ReportRefused(f"Agent {report.agent!r} shows a link of a hash chain, which only audited runs ask for.")
    counted = fields.get("claim", {})  # what was signed is counted already

    def fixed(what: str, value: float | None) -> int:
        exact = points(report, what, value, run.limits[report.agent])
        return counted[what] if counted else min(quantise(exact, settings.scale), run.s_max[report.agent])

    if report.declined is not None:
        fields["declined"] = declined(report)
    if report.phase == "contribute" or (report.phase == "train" and mechanism.moves):
        fields["s"] = fixed("s", report.s)
    if report.phase == "train":
        fields["delivered"] = fixed("delivered", report.delivered)
        fields["update"] = update(report, w)
    if report.phase == "value" or report.valuation is not None:
        # The fine covers valuations up to the cap; where no money hangs on them any number that fits will do.
        most = settings.loss_cap * settings.value_per_nat if mechanism.values else LARGEST
        value = valuation(report, min(most, LIMIT / 2 / settings.minor))
        fields["valuation"] = counted["valuation"] if counted else quantise(value, settings.minor)
    return Answer(**fields)


def well_formed(report: Report) -> None:
    """Every field has its type. Only then is anything compared, looked up or checked against a signature."""
    if not isinstance(report.agent, str):
        raise ReportRefused(f"A report comes from {shown(report.agent)}: an agent's name is a string.")
    for what, kind in KINDS.items():
        value = getattr(report, what)
        if not isinstance(value, kind) and not (what in OPTIONAL and value is None):
            raise ReportRefused(f"Agent {report.agent!r} reports {what} = {shown(value)}: a {kind.__name__} is needed.")
    if report.nonce is not None and not NONCE.fullmatch(report.nonce):
        raise ReportRefused(f"Agent {report.agent!r} reports a nonce that is not of 32 hexadecimal digits.")
    if report.cosignature is not None and len(report.cosignature) > 2000:
        raise ReportRefused(f"Agent {report.agent!r} reports a cosignature of {len(report.cosignature)} characters.")
    if not isinstance(report.verdicts, (list, tuple)) or not all(isinstance(one, dict) for one in report.verdicts):
        raise ReportRefused(f"Agent {report.agent!r} reports verdicts that are not a list of mappings.")
    for what in ("s", "delivered", "valuation"):
        if getattr(report, what) is not None:
            number(report, what, getattr(report, what))
    if report.update is not None:
        arrays(f"Agent {report.agent!r}", report.update)


def known(report: Report, agents: Mapping[str, object]) -> None:
    if report.agent not in agents:
        raise ReportRefused(
            f"Agent {report.agent!r} is not enrolled in run {report.run!r}.{nearest(report.agent, agents)}"
        )


def signed(report: Report, claim: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an answer that proves who gave it."""
    if report.signature is None:
        raise ReportRefused(f"Agent {report.agent!r} sent an unsigned report: give the agent its key.")
    if not claim:
        raise ReportRefused(
            f"A report in the name of agent {report.agent!r} is not signed with its key for this round, these terms "
            "and this model: it is someone else's, or was made for something else."
        )
    return {"claim": claim, "signature": report.signature, "cosignature": report.cosignature}


def declined(report: Report) -> str:
    """Why an agent does not take part; it can say so while the terms are proposed, not later."""
    why = report.declined or ""
    if report.phase != "accept":
        raise ReportRefused(f"Agent {report.agent!r} declines in a {report.phase} round: it has accepted the terms.")
    if not 0 < len(why) <= REASON or not why.isprintable():
        raise ReportRefused(f"Agent {report.agent!r} declines without a reason of 1 to {REASON} printable characters.")
    return why


def points(report: Report, what: str, value: float | None, s_max: float) -> float:
    """A number of points in [0, s_max]."""
    number = finite(report, what, value)
    if not 0.0 <= number <= s_max:
        raise ReportRefused(
            f"Agent {report.agent!r} reports {what} = {number!r}: it must be between 0 and its s_max = {s_max!r}."
        )
    return number


def finite(report: Report, what: str, value: float | None) -> float:
    if value is None:
        raise ReportRefused(f"Agent {report.agent!r} reports no {what} in a {report.phase} round, which asks for it.")
    exact = number(report, what, value)
    if not math.isfinite(exact):
        raise ReportRefused(f"Agent {report.agent!r} reports {what} = {value!r}: it must be finite.")
    return exact


def number(report: Report, what: str, value: object) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ReportRefused(f"Agent {report.agent!r} reports {what} = {shown(value)}: it must be a number.")
    try:
        return float(value)
    except OverflowError:
        raise ReportRefused(
            f"Agent {report.agent!r} reports {what} = {shown(value)}: it must be a number that a float holds."
        ) from None


def valuation(report: Report, limit: float) -> float:
    number = finite(report, "valuation", report.valuation)
    if abs(number) > limit:
        raise ReportRefused(
            f"Agent {report.agent!r} reports valuation = {number!r}, beyond {limit:g}, that is loss_cap * "
            "value_per_nat where money hangs on it: cut the loss there, or raise incentive.loss_cap."
        )
    return number


def update(report: Report, w: Update) -> Update:
    """An update with exactly the model's names, shapes and types, and nothing but finite numbers."""
    given = report.update
    who = f"Agent {report.agent!r}"
    if given is None:
        raise ReportRefused(f"{who} reports no update in a training round: send d_i, zeros when it has no points.")
    missing, extra = [n for n in w if n not in given], [n for n in given if n not in w]
    if missing or extra:
        wrong = f"lacks {missing[0]!r}" if missing else f"has {extra[0]!r}, which the model has not"
        raise ReportRefused(f"Agent {report.agent!r} {wrong}: it needs the same entries as the model.")
    for name, array in w.items():
        entry(who, name, given[name], array)
    return {name: given[name] for name in w}


def arrays(who: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise ReportRefused(
            f"{who} reports an update of type {type(given).__name__}: send a mapping from name to array."
        )
    for name, array in given.items():
        if not isinstance(name, str):
            raise ReportRefused(f"{who} sends an array called {shown(name)}: a name is a string.")
        if not isinstance(array, np.ndarray):
            raise ReportRefused(f"{who} sends {name!r} as {type(array).__name__}: send a NumPy array.")
        if array.dtype.hasobject or array.dtype.kind in "mM":
            raise ReportRefused(f"{who} sends {name!r} as {array.dtype}: send numbers.")


def entry(who: str, name: str, given: np.ndarray, expected: np.ndarray) -> None:
    if given.shape != expected.shape:
        raise ReportRefused(f"{who} sends {name!r} with shape {given.shape}: the model has {expected.shape}.")
    if given.dtype != expected.dtype:
        raise ReportRefused(f"{who} sends {name!r} as {given.dtype}: the model has {expected.dtype}.")
    if given.dtype.kind == "f" and not all_finite(given):
        bad = int(np.count_nonzero(~np.isfinite(given)))
        raise ReportRefused(f"{who} sends {name!r} with {bad} values that are NaN or infinite: its training diverged.")
