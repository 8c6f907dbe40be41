"""Audits of delivery, the center's side: what can be audited, who is drawn, what auditors are asked, what follows.

A training round leaves a record in `run.audits`. The links that are shown with the next one draw who of it is audited.
Records are settled in the order of their steps, each by auditors who re-execute at the site and sign what they found.
Nothing here is the center's choice: `provenance.beacon` and `provenance.audits` say who is asked, and the ledger's
readers derive it again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import terms
from ..entry import Entry
from ..errors import QuorumError, ReportRefused, SettingError
from ..game import Audits
from ..identity import CENTER
from ..ledger import Ledger
from ..mechanisms import Mechanism
from ..messages import Enrol, Report, Update
from ..provenance import audits, beacon, records
from ..provenance.keys import KeyRing
from ..run import Answer, Run
from .names import twins

log = logging.getLogger("fedincentive")
MOST_AGENTS = 4000  # the links of more do not fit the messages that show them
LONGEST = 200  # characters of an auditor's reason
SAME = 1e-12  # how far from 1 the cosine of two updates in one direction may be


def refuse(mechanism: Mechanism, agents: Sequence[str], keys: KeyRing | None, ledger: Ledger | None) -> None:
    """SettingError where an audited run cannot be played."""
    settings = mechanism.settings
    auditors = settings.auditors or ()
    if len(auditors) < audits.LEAST:
        raise SettingError(
            f"incentive.auditors names {', '.join(auditors)}: at least {audits.LEAST} are needed, as two may disagree."
        )
    if both := sorted({*auditors} & {*agents, CENTER}):
        raise SettingError(f"incentive.auditors names {both[0]!r}, who is a party to the run: name somebody else.")
    if alike := twins(sorted({*auditors, *agents})):
        raise SettingError(f"incentive.auditors: {alike}")
    if keys is None:
        raise SettingError("incentive.auditors are named, but incentive.keys is not: verdicts need signatures.")
    if missing := sorted({*auditors} - {*keys.public}):
        raise SettingError(f"incentive.keys has no public key of auditor {missing[0]!r}: ask for it.")
    if settings.settlement == "commitment":
        raise SettingError("incentive.settlement is 'commitment': it pays before anything is delivered or audited.")
    for payment in mechanism.payments:
        if not payment.fixed and "audit" not in payment.schedule().values():
            raise SettingError(
                f"incentive.payment {payment.name!r} is made in a run with auditors, but is not taken back "
                "where an audit fails: pay 'contribution', or leave auditors out."
            )
    if ledger is None:
        raise SettingError("incentive.auditors are named, but there is no ledger that keeps what they find: name one.")
    if len(agents) > MOST_AGENTS:
        raise SettingError(f"{len(agents)} agents enrol, an audited run has at most {MOST_AGENTS}: leave auditors out.")


def wrong_with(e: Enrol, tags: str | None) -> str:
    """Why an enrolment cannot be taken in an audited run, or nothing."""
    if e.anchor is None or not re.fullmatch("[0-9a-f]{64}", e.anchor):
        return f"Agent {e.agent!r} enrols without the anchor of a hash chain: its settings name no incentive.auditors."
    if e.commitment is not None and e.commitment.startswith(records.NAME):
        count = records.read(e.commitment)
        if count is None or count[0] != e.s_max:
            return (
                f"Agent {e.agent!r} enrols with s_max = {e.s_max!r} and commits to {e.commitment[:80]!r}: it must "
                "commit to as many records as it has, with `fedincentive attest commit`."
            )
    if (tags is not None or e.tags is not None) and e.commitment is not None:
        listed = None if tags is None or e.tags is None else records.read_tags(e.tags)
        if listed is None or len(listed) != e.s_max:
            shows = "no" if listed is None else str(len(listed))
            return (
                f"Agent {e.agent!r} enrols with {shows} tags for {e.s_max!r} records: "
                "incentive.tags must name the common key at every site, or nowhere."
            )
    return ""


# Links


def links(run: Run, agreed: Mapping[str, Any]) -> list[str]:
    """The center's hash chain, a link for each step, one for the end, and in runs with second looks at passes one that
    draws the last of these: the draws of a run, fixed before it begins."""
    return beacon.chain(str(run.audit_seed).encode(), run.settings.rounds + 1 + ("rechecks" in agreed["settings"]))


def shown(run: Run, name: str) -> tuple[int, str]:
    """Which link the center or an agent showed last, and the link; -1 and the anchor before the first."""
    number, _, link = run.links.get(name, "").partition(":")
    if link:
        return int(number), link
    return -1, str(run.terms["anchor"] if name == CENTER else run.terms["agents"][name]["anchor"])


def show(run: Run, links: Mapping[str, str | None]) -> None:
    """Take in the links of the step that is closed."""
    run.links.update({name: f"{run.step}:{link}" for name, link in links.items() if link})


def link_at(run: Run, name: str, step: int) -> str | None:
    """A link that was shown, or follows from a later one; None where neither is the case yet."""
    number, link = shown(run, name)
    return None if number < step else beacon.back(link, number - step)


def check_link(report: Report, run: Run) -> None:
    """A report shows the next link of its agent's chain where one is asked for, and none elsewhere."""
    wanted = report.phase in ("accept", "confirm") or (report.phase == "train" and run.step > 0)
    if not wanted and report.reveal is None:
        return
    number, link = shown(run, report.agent)
    if not wanted or report.reveal is None or not beacon.follows(link, report.reveal, run.step - number):
        raise ReportRefused(
            f"Agent {report.agent!r} shows {'no link' if report.reveal is None else 'a link'} of its hash chain in "
            f"round {run.round} ({report.phase}), or not the right one: its key or the run's name differ from those "
            "it enrolled with."
        )


# What may be audited


def record(
    run: Run,
    s: Mapping[str, int],
    said: Mapping[str, Mapping[str, Any]],
    shared: Mapping[str, Any],
    suspected: Sequence[str],
) -> None:
    """What auditors need of a training round that is closed: what was said in it, to which model and to which s."""
    run.checked["steps"] = run.checked.get("steps", 0) + len(said)
    run.audits.append(
        {
            "step": run.step,
            "round": run.round,
            "asked": list(run.asked),
            "s": dict(s),
            "delivered": dict(run.delivered),
            "said": {name: dict(words) for name, words in said.items()},
            "shared": dict(shared),
            "suspected": list(suspected),
            "tasks": None,
            "heard": [],
        }
    )


def replays(w: Update, before: Update | None, reports: Mapping[str, Answer]) -> list[str]:
    """The agents whose updates point exactly where the last global step went, or exactly back.

    With a single parameter all updates do, so that nothing follows from it.
    """
    if before is None:
        return []
    moved = {name: w[name].astype(np.float64) - before[name] for name in w if w[name].dtype.kind == "f"}
    length = sum(float(np.vdot(array, array)) for array in moved.values())
    if not length or sum(array.size for array in moved.values()) < 2:
        return []
    found = []
    for agent, answer in sorted(reports.items()):
        d = {name: np.asarray(answer.update[name], np.float64) for name in moved}
        own = sum(float(np.vdot(array, array)) for array in d.values())
        both = sum(float(np.vdot(moved[name], d[name])) for name in moved)
        if own and both * both >= (1.0 - SAME) * own * length:
            found.append(agent)
    return found


# Who is drawn, and what auditors are asked


def proceed(run: Run, *, ended: bool) -> list[Entry]:
    """Settle every step that can be, in order: the entries. What is left first in `run.audits` waits for auditors, or
    for links that have not been shown; when the run has ended, nobody waits for links any more."""
    entries = []
    while run.audits and _draw(run, ended):
        if asks(run):
            break
        entries += _settle(run, run.audits.pop(0), ended)
    return entries


def _draw(run: Run, ended: bool) -> bool:
    """Draw who is audited in the first step that is not settled; False while links are missing."""
    first = run.audits[0]
    if first["tasks"] is not None:
        return True
    asked = run.audits[1]["asked"] if len(run.audits) > 1 else run.agents if ended else None
    if asked is None:
        return False
    step = first["step"] + 1
    known = {name: link_at(run, name, step) for name in (CENTER, *asked)}
    hidden = [name for name in asked if known[name] is None and name not in run.failed]
    late = "lag" in run.terms and run.trained - step >= run.terms["lag"]  # nobody waits longer: all coins are heads
    if hidden and not (ended or late):
        return False
    withheld = hidden if ended else []
    value = beacon.mixed(terms.digest(run.terms), step, {name: link for name, link in known.items() if link})
    said = {name: words for name, words in first["said"].items() if name not in run.failed}
    rule, chance, rechecks = audits.agreed(run.terms)
    drawn = set(said) if hidden else audits.coins(value, said, chance)
    drawn |= audits.copies({name: words["update"] for name, words in said.items()})
    drawn |= set(first["suspected"]) & set(said)
    tasks: dict[str, list[Any]] = {name: [] for name in sorted(drawn - set(withheld))}
    first.update(value=value, withheld=withheld, late=[] if ended else hidden, tasks=tasks)
    if rule == audits.RULE:  # no auditor has seen this link, so that none knows whose pass is checked again
        first["next"] = links(run, run.terms)[step + 1]
        value = beacon.mixed(value, step + 1, {CENTER: first["next"]})
    first["again"] = [name for name in tasks if audits.repeated(value, name, rechecks)]
    return True


def _decision(run: Run, step: Mapping[str, Any], agent: str) -> str | None:
    """What was found of an agent in a step; None while another auditor is needed."""
    again = step["again"] if "again" in step else [agent] * audits.repeated(step["value"], agent)  # an older state
    return audits.decision(step["tasks"][agent], audits.agreed(run.terms)[0], repeat=agent in again)


def asks(run: Run) -> dict[str, list[str]]:
    """Whom each auditor is to look at now, in the first step that is not settled; nothing when all is decided."""
    asked: dict[str, list[str]] = {}
    first: dict[str, Any] = run.audits[0] if run.audits else {"tasks": None}
    for agent, heard in (first["tasks"] or {}).items():
        if _decision(run, first, agent) is None:
            order = audits.order(first["value"], agent, run.settings.auditors or ())
            asked.setdefault(audits.next_auditor(order, heard), []).append(agent)
    return dict(sorted(asked.items()))


def told(run: Run) -> list[dict[str, Any]]:
    """What the auditors are told: for each agent who looks at it, what the agent signed, and what was found so far."""
    first = run.audits[0]
    return [
        {
            "agent": agent,
            "auditor": auditor,
            "step": first["step"],
            "round": first["round"],
            "said": {**first["shared"], **first["said"][agent]},
            "found": [list(one) for one in first["tasks"][agent]],
        }
        for auditor, agents in asks(run).items()
        for agent in agents
    ]


def links_told(run: Run) -> dict[str, dict[str, str]]:
    """The links that draw the order of points and the records that are opened; auditors hold them to the terms."""
    step = run.audits[0]["step"] + 1
    everybody = {name: (link_at(run, name, 0), link_at(run, name, step)) for name in (CENTER, *run.agents)}
    asked = run.audits[1]["asked"] if len(run.audits) > 1 else run.agents
    return {
        "order": {name: link for name, (link, _) in everybody.items() if link},
        "draw": {name: link for name, (_, link) in everybody.items() if link and name in {CENTER, *asked}},
    }


def checked(report: Report, run: Run, claim: Mapping[str, Any]) -> Answer:
    """An auditor's report, which must have a verdict on each of those it was asked about."""
    who = f"Auditor {report.agent!r}"
    if not claim:
        raise ReportRefused(f"{who} did not sign its report for this run, these terms and this model with its key.")
    if set(claim) - {"run", "terms", "model", "seen", "round", "phase", "agent", "nonce", "verdicts"}:
        raise ReportRefused(f"{who} signs more than its verdicts.")
    asked, step = asks(run)[report.agent], run.audits[0]["step"]
    if [(one.get("agent"), one.get("step")) for one in report.verdicts] != [(agent, step) for agent in asked]:
        raise ReportRefused(f"{who} was asked about {', '.join(asked)} in step {step}, and answers about others.")
    for one in report.verdicts:
        fine = set(one) == {"agent", "step", "found", "why", "opened"} and one["found"] in (audits.PASS, audits.FAIL)
        fine = fine and type(one["step"]) is type(one["opened"]) is int
        if not fine or not 0 <= one["opened"] <= run.settings.openings:
            raise ReportRefused(f"{who} gives a verdict on {one['agent']!r} that is none: {str(one)[:80]}")
        if type(one["why"]) is not str or not one["why"].isprintable() or len(one["why"]) > LONGEST:
            raise ReportRefused(f"{who} gives a reason that is not {LONGEST} printable characters at most.")
    return Answer(claim=claim, signature=report.signature or "")


def hear(run: Run, reports: Mapping[str, Answer], told: Mapping[str, Any]) -> None:
    """Take in what auditors found; those who were silent are asked again after the others."""
    first = run.audits[0]
    for auditor, agents in asks(run).items():
        answer = reports.get(auditor)
        if answer is None:
            silent = [sum(name == auditor for name, _ in first["tasks"][agent]) for agent in agents]
            if max(silent) >= run.settings.repeats + 1:
                raise QuorumError(
                    f"Auditor {auditor!r} of run {run.settings.run!r} was asked {max(silent) + 1} times about "
                    f"{', '.join(agents)} in step {first['step']} and is silent, and no other one is left. That is "
                    "undecided, and costs nobody anything: bring it back and resume."
                )
            first["heard"].append({"auditor": auditor, "silent": agents})
            found = dict.fromkeys(agents, audits.SILENT)
        else:
            said: dict[str, Any] = {**told, **answer.claim}
            own: dict[str, Any] = {key: said[key] for key in ("nonce", "seen", "verdicts") if key in said}
            first["heard"].append({"auditor": auditor, **own, "signature": answer.signature})
            found = {one["agent"]: one["found"] for one in answer.claim["verdicts"]}
        for agent, what in found.items():
            first["tasks"][agent].append([auditor, what])


def _settle(run: Run, settled: Mapping[str, Any], ended: bool) -> list[Entry]:
    """The memo of a step; whoever failed counts nothing from that step on. Where nobody was drawn there is no memo,
    except at the end, where it keeps the last links."""
    tasks, step = settled["tasks"], settled["step"]
    verdicts = [one for item in settled["heard"] for one in item.get("verdicts", ())]
    failed = [agent for agent in tasks if _decision(run, settled, agent) == audits.FAIL]
    for agent in (*failed, *settled["withheld"]):
        against = [one["why"] for one in verdicts if (one["agent"], one["found"]) == (agent, audits.FAIL)]
        why = against[0] if against else "it never showed its link"
        log.warning("Agent %s failed the audit of step %d: %s", agent, step, why)
        run.failed[agent] = step
        run.delivered_total[agent] -= sum(step["delivered"][agent] for step in (settled, *run.audits))
        run.delivered[agent] = 0
    opened = sum(max((one["opened"] for one in verdicts if one["agent"] == agent), default=0) for agent in tasks)
    for what, count in (("audited", len(tasks)), ("opened", opened)):
        run.checked[what] = run.checked.get(what, 0) + count
    if not (tasks or settled["withheld"] or ended):
        return []
    inputs: dict[str, Any] = {
        "terms": terms.digest(run.terms),
        "step": step,
        "withheld": settled["withheld"],
        "suspected": [agent for agent in settled["suspected"] if agent in tasks],
        "heard": settled["heard"],
        "failed": failed,
        **({"late": settled["late"]} if settled.get("late") else {}),
        **({"next": settled["next"]} if "next" in settled else {}),
    }
    if ended:
        known = {name: link_at(run, name, run.trained) for name in (CENTER, *run.agents)}
        inputs["links"] = {name: link for name, link in known.items() if link}
    return [Entry(run.settings.run, run.round, f"{audits.PREFIX}{step}", audits.agreed(run.terms)[0], inputs, {})]


def extent(run: Run) -> Audits | None:
    """How far audits reached, as the certificate says it; None where nothing was audited."""
    if "audited" not in run.checked:
        return None
    committed = all(records.read(run.commitments.get(name, "")) is not None for name in run.agents)
    return Audits(**run.checked, auditors=tuple(run.terms["auditors"]), committed=committed)
