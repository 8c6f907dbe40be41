"""A run while it goes on: what its files and its ledger say at this moment, as plain values for a page.

Nothing but the run's folder, or the ledger alone, is needed, and nothing is written. Of the state only what the page
shows leaves this module: it holds secrets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from .. import ledger, manifest
from ..errors import FedIncentiveError
from ..ledger.address import is_address, shown
from ..ledger.chain import Checkpoint
from ..ledger.payout import DECIMALS
from ..ledger.verify import Verification, verify
from ..sealed import read_json
from . import run_totals
from .format import count, rounded
from .run_totals import RunTotals

STATE = "state.json"
PAUSE = 0.5  # seconds between two looks
PATIENCE = 9  # a ledger is checked again after this many times as long as the last check took
KEPT = 2000  # rounds that are drawn
FINDINGS = 5
SOON = "This page shows the run as soon as its first round has closed."
PHASES = {
    "accept": "Agents accept the terms",
    "contribute": "Agents settle how much they give",
    "train": "Training",
    "audit": "Auditors do again what was drawn",
    "confirm": "Agents confirm the end",
    "done": "Done",
}


class Follower:
    """Looks again and again until it is closed; `now` is what it saw last.

    `target` is a run's folder, a folder of runs (the newest is followed), a ledger file or a postgresql:// address.
    """

    def __init__(self, target: str, run: str | None = None) -> None:
        self.target, self.run = target, run
        self.now: dict[str, Any] = {"waiting": f"There is nothing at {shown(target)} yet. {SOON}"}
        self._result: Verification | None = None
        self._totals: dict[str, RunTotals] = {}
        self._seen: dict[int, dict[str, Any]] = {}  # round -> share and welfare, from states
        self._took, self._checked_at, self._head = 0.0, 0.0, Checkpoint(-1, "")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_again, daemon=True)

    def __enter__(self) -> Follower:
        self.look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look_again(self) -> None:
        while not self._stop.wait(PAUSE):
            self.look()

    def look(self) -> None:
        """One look; whatever is wrong with the run's files is said on the page and does not end it."""
        try:
            self.now = self._look()
        except (FedIncentiveError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            words = str(error) if isinstance(error, FedIncentiveError) else f"{type(error).__name__}: {error}"
            self.now = {**self.now, "trouble": words}

    def _look(self) -> dict[str, Any]:
        address = _ledger_of(self.target)
        if is_address(address) or Path(address).exists():
            self._check(address)
        state = self._state(address)
        name = self.run or (state["run"]["terms"].get("run") if state else None) or next(reversed(self._totals), None)
        totals = self._totals.get(name or "")
        if state is None and totals is None:
            missing = f" of a run {self.run!r}" if self.run else ""
            return {"waiting": f"There is nothing{missing} at {shown(self.target)} yet. {SOON}"}
        return {**(_of_state(state, totals) if state else _of_ledger(totals)), **self._shared(state, totals)}

    def _check(self, address: str) -> None:
        """Check the ledger and add it up, if it has grown and the last check is long enough ago."""
        if time.monotonic() - self._checked_at < PATIENCE * self._took:
            return
        began = time.monotonic()
        with ledger.read(address) as book:
            if (head := book.head()) == self._head:
                return
            runs = {row.run for row in book.rows()}
            self._result = verify(book, recompute=True)
            known = {} if is_address(address) else manifest.beside(address, runs)
            self._totals = {one.run: one for one in run_totals.read(book, self._result.head.count, known)}
            self._head = head
        self._checked_at = time.monotonic()
        self._took = self._checked_at - began

    def _state(self, address: str) -> dict[str, Any] | None:
        """The newest state beside the ledger, or that of the run that was asked for."""
        found = [values for path in _states(self.target, address) if (values := read_json(path))]
        if self.run is not None:
            found = [one for one in found if one["manifest"]["run"] == self.run]
        return found[0] if found else None

    def _shared(self, state: Mapping[str, Any] | None, totals: RunTotals | None) -> dict[str, Any]:
        warnings = _warnings(state, totals)
        if self._result is not None and not self._result.clean:
            warnings.insert(0, "The ledger does not verify: pay nobody by it before this is explained.")
        return {
            "ledger": _verdict(self._result),
            "history": self._history(state, totals),
            "warnings": warnings,
            "read": time.strftime("%H:%M:%S"),
        }

    def _history(self, state: Mapping[str, Any] | None, totals: RunTotals | None) -> list[dict[str, Any]]:
        """Share of all points and welfare by round: what the ledger has, and in phase 1 what was seen here."""
        found: dict[int, dict[str, Any]] = {}
        if totals is not None:
            limit = sum(totals.limits.values())
            if limit and totals.manifest.first:
                found[0] = {"share": float(sum(totals.manifest.first.values()) / limit)}
            if limit and totals.committed:
                found[totals.committed_at] = {"share": float(sum(totals.committed.values()) / limit)}
            for at, given in totals.deliveries if limit else ():
                found[at + 1] = {"share": float(sum(given.values()) / limit)}
            for at, said in totals.values:
                found.setdefault(at + 1, {})["welfare"] = sum(said.values()) / totals.minor
        if state is not None:
            run, settings = state["run"], state["settings"]
            seen = self._seen.setdefault(run["round"], {})
            if run["phase"] in ("contribute", "accept") and sum(run["s_max"].values()):
                seen["share"] = sum(run["s"].values()) / sum(run["s_max"].values())
            if set(run["valuations"]) >= set(run["agents"]):
                seen["welfare"] = sum(run["valuations"].values()) / settings["minor"]
        merged = {at: {"round": at, **self._seen.get(at, {}), **found.get(at, {})} for at in {*found, *self._seen}}
        rows = [merged[at] for at in sorted(merged)]
        return rows[:: 1 + len(rows) // KEPT]


def _ledger_of(target: str) -> str:
    """The ledger of a run that is named by its folder, a folder of runs, or the ledger itself."""
    folder = Path(target)
    if is_address(target) or not folder.is_dir():
        return target
    folder = folder.parent if folder.name == "state" else folder
    if not (folder / manifest.DEFAULT).exists() and not (folder / "state").is_dir():
        begun = [path.parent.parent for path in folder.glob(f"*/state/{STATE}")]
        begun = begun or [path.parent for path in folder.glob(f"*/{manifest.DEFAULT}")]  # or they were refused
        folder = max(begun, key=lambda one: one.stat().st_mtime, default=folder)
    return str(folder / manifest.DEFAULT)


def _states(target: str, address: str) -> Iterator[Path]:
    """Where the states of a ledger's runs are, the newest first."""
    if is_address(address):
        return
    places = [Path(address).parent / "state" / STATE, *Path(f"{address}.runs").glob(f"*/{STATE}")]
    if Path(target).is_dir():
        places.append(Path(target) / STATE)
    yield from sorted((one for one in places if one.exists()), key=lambda one: one.stat().st_mtime, reverse=True)


def _of_state(state: Mapping[str, Any], totals: RunTotals | None) -> dict[str, Any]:
    """A run that keeps its state here: where it stands, to the last round that closed."""
    delivered = totals.deliveries[-1][1] if totals is not None and totals.deliveries else {}
    run, settings = state["run"], state["settings"]
    scale, minor = settings["scale"], settings["minor"]
    phase = run["phase"]
    agents = []
    for name in run["agents"]:
        notes = [f"absent in {count(run['misses'][name], 'round')} in a row"] if run["misses"].get(name) else []
        notes += [f"failed the audit of training round {run['failed'][name] + 1}"] if name in run["failed"] else []
        notes += _away(name, totals) if totals is not None and name not in run["failed"] else []
        notes += ["not asked in this round"] if phase == "train" and name not in run["asked"] else []
        agents.append(
            _agent(
                name,
                0 if name in run["failed"] else delivered.get(name, Fraction(run["s"][name], scale)),
                Fraction(run["s_max"][name], scale),
                run["balances"].get(name, 0),
                minor,
                settings.get("currency") or "",
                notes,
            )
        )
    return {
        "run": state["manifest"]["run"],
        "mechanism": state["manifest"]["mechanism"],
        "status": run["status"],
        "phase": PHASES.get(phase, phase),
        "currency": settings.get("currency") or "",
        "contributed": run["contributed"],
        "round_limit": settings["round_limit"],
        "settling": phase in ("contribute", "accept"),
        "trained": run["trained"],
        "rounds": settings["rounds"],
        "agents": agents,
        "welfare": _welfare(run["valuations"], run["agents"], minor, settings.get("currency") or ""),
    }


def _of_ledger(totals: RunTotals | None) -> dict[str, Any]:
    """A run of which only the ledger is here: phase 1 leaves nothing there before it ends."""
    assert totals is not None
    terms = totals.terms
    trained = len({at for at, kinds in totals.rounds.items() if {"reports-train", "tranche"} & {*kinds.kinds}})
    ended = bool(totals.manifest.outcome) or (bool(terms) and trained >= terms["rounds"])
    agents = []
    for name in totals.agents:
        notes = [f"failed the audit of training round {totals.failed[name] + 1}"] if name in totals.failed else []
        notes += _away(name, totals)
        given, has = totals.last or totals.committed, totals.limits
        agents.append(
            _agent(
                name, given.get(name, 0), has.get(name, 0), totals.balance(name), totals.minor, totals.currency, notes
            )
        )
    return {
        "run": totals.run,
        "mechanism": totals.manifest.mechanism or terms.get("mechanism", ""),
        "status": totals.manifest.outcome.get("status", "complete" if ended else "running"),
        "phase": "Done" if ended else ("Training" if totals.committed else PHASES["contribute"]),
        "currency": terms.get("currency", ""),
        "contributed": totals.committed_at,
        "round_limit": None,
        "settling": not totals.committed and not ended,
        "trained": trained,
        "rounds": terms.get("rounds"),
        "agents": agents,
        "welfare": _welfare(
            totals.values[-1][1] if totals.values else {}, totals.agents, totals.minor, totals.currency
        ),
    }


def _away(name: str, totals: RunTotals) -> list[str]:
    """Whether an agent said nothing in the last round, or gave nothing of what it committed."""
    nothing = 0
    for _, given in reversed(totals.deliveries if totals.committed.get(name) else []):
        if given.get(name):
            break
        nothing += 1
    if nothing:
        return [f"gave nothing in the last {count(nothing, 'training round') if nothing > 1 else 'training round'}"]
    return ["absent in the last round"] if name in totals.absent else []


def _agent(
    name: str, gives: int | Fraction, has: int | Fraction, balance: int, minor: int, currency: str, notes: list[str]
) -> dict[str, Any]:
    return {
        "name": name,
        "gives": float(gives),
        "has": float(has),
        "balance": balance / minor,
        "money": rounded(balance, minor, DECIMALS.get(currency, 2)),
        "notes": notes,
    }


def _welfare(values: Mapping[str, int], agents: Any, minor: int, currency: str) -> str:
    if not values or not set(values) >= set(agents):
        return ""
    return rounded(sum(values.values()), minor, DECIMALS.get(currency, 2))


def _warnings(state: Mapping[str, Any] | None, totals: RunTotals | None) -> list[str]:
    said = []
    if state is not None:
        run = state["run"]
        if run["phase"] in ("contribute", "accept") and run["contributed"] >= 0.8 * state["settings"]["round_limit"]:
            limit = state["settings"]["round_limit"]
            said.append(f"Phase 1 is near its limit: {run['contributed']} of {count(limit, 'round')}.")
        counts = ", ".join(f"{many} {why}" for why, many in sorted(state["counts"].items()) if many)
        said += [f"Reports not counted: {counts}."] if counts else []
    if totals is not None and (advice := totals.manifest.outcome.get("advice")):
        said.append(advice)
    return said


def _verdict(result: Verification | None) -> dict[str, Any]:
    if result is None:
        return {"entries": 0, "clean": True, "words": "The ledger is not there yet.", "findings": []}
    entries = count(result.head.count, "entry", "entries")
    if not result.clean:
        words = f"{entries} checked, {count(len(result.findings), 'finding')}."
    else:
        signed = f", {count(result.signatures, 'signature')} checked" if result.signatures else ", nothing is signed"
        words = f"{entries} verified: the chain is whole, every amount derived again{signed}."
    findings = [str(one) for one in result.findings[:FINDINGS]]
    return {"entries": result.head.count, "clean": result.clean, "words": words, "findings": findings}
