"""A run in sentences, for those who pay: who paid whom and why, who gained, when it was, and what the words mean."""

from __future__ import annotations

from fractions import Fraction

from ..entry import ESCROW
from ..ledger.notes import Calendar, moment
from ..ledger.verify import Verification
from ..payments import TREASURY
from ..payments.exact import written
from .format import count, points, priced
from .run_totals import RunTotals

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
ROUNDS = {"contributed": "contribution", "trained": "training"}
BY_POINTS = {"tranche", "settlement"}  # entries that pay for points above the others' average
BALANCED = {"clawback", "deposit", "refund"}  # those that belong to them, or that an agent gets back
BESIDE = {"lump": "agreed lump sums", "forfeit": "lost deposits", "correction": "corrections"}
ROUNDING = 2  # minor units that each of two amounts may be off
WORDS = (
    ("Agent", "One of those who train a model together, such as a hospital or a bank."),
    ("Point", "One record of an agent's data. What an agent has is its own figure, unless audits checked it."),
    ("Contribution", "How many of its points an agent uses to train the shared model."),
    ("Balance", "What an agent received less what it paid."),
    ("Worth of the model", "What an agent says the shared model is worth to it."),
    ("Cost of data", "What the contributed points cost an agent, at the cost per point that the run's settings name."),
    ("Gain", "Worth of the model, less the cost of data, plus the balance."),
    (
        "Welfare",
        "The worth of the model to all agents together. Payments move money between agents and leave it as it is.",
    ),
    ("Treasury", "An account outside the agents. A mechanism whose payments sum to zero leaves it empty."),
    ("Deposit", "Money that an agent leaves at the start. It is returned, or lost to the others after a failed audit."),
    ("Audit", "An auditor does an agent's training round again from the agent's own records and compares the results."),
    ("Verified", "The ledger's entries are complete and unchanged, and each amount follows from what the entry says."),
    ("Signed", "An agent put its signature under its report. It shows who said it, not that it is true."),
)


def story(run: RunTotals, result: Verification) -> tuple[str, list[str]]:
    """The sentence that matters most, and the others."""
    return _who_paid(run), [*_given(run), *_treasury(run), *_gains(run), *_audits(run), _dates(run, result)]


def number(many: int) -> str:
    """
    >>> number(5), number(12)
    ('five', '12')
    """
    return NUMBERS[many] if many < len(NUMBERS) else str(many)


def _who_paid(run: RunTotals) -> str:
    payers = [a for a in run.agents if run.balance(a) < 0]
    paid = [a for a in run.agents if run.balance(a) > 0]
    given = run.last or run.committed
    if not payers and not paid:
        if not run.unpaid:
            return "What each agent paid it also received: every balance is zero."
        same = bool(_by_points(run)) and len({given.get(agent, 0) for agent in run.agents}) == 1
        return "No money moved: every agent gave the same number of points." if same else "No money moved."
    owed, due = -sum(map(run.balance, payers)), sum(map(run.balance, paid))
    why = _by_points(run)
    ordered = bool(payers and paid and given) and max(given.get(a, 0) for a in payers) < min(
        given.get(a, 0) for a in paid
    )
    if ordered and not run.failed:
        less, more = " that gave less data", " that gave more"
    else:
        less, more = "", " others" if payers and len(paid) > 1 else " other" if payers else ""
    if not payers:
        if run.balance(TREASURY) == -due:
            return f"The treasury paid {priced(due, run)} to {_agents(len(paid))}{why}."
        return f"{_agents(len(paid)).capitalize()} received {priced(due, run)}{why}."
    if not paid:
        if run.balance(TREASURY) == owed:
            return f"{_agents(len(payers)).capitalize()} paid {priced(owed, run)} to the treasury{why}."
        return f"{_agents(len(payers)).capitalize()} paid {priced(owed, run)}{why}."
    who = f"{_agents(len(payers)).capitalize()}{less} paid {priced(owed, run)}"
    if owed == due:
        return f"{who} to {number(len(paid))}{more}{why}."
    return f"{who}; {number(len(paid))}{more} received {priced(due, run)}{why}."


def _by_points(run: RunTotals) -> str:
    """At which price, where points are paid for, and what else is in the balances."""
    if not (run.beta and Fraction(run.beta) and any(BY_POINTS & {*at.kinds} for at in run.rounds.values())):
        return ""
    why = f", at {written(run.beta)} {run.currency} for each point above or below the others' average"
    other = [BESIDE.get(kind, "other agreed payments") for kind in run.moving - BY_POINTS - BALANCED]
    other += ["deposits that are still held"] if run.balance(ESCROW) else []
    return f"{why}, {' and '.join(sorted({*other}))} included" if other else why


def _agents(many: int) -> str:
    return f"{number(many)} {'agent' if many == 1 else 'agents'}"


def _given(run: RunTotals) -> list[str]:
    told = []
    if run.manifest.outcome:
        o = run.manifest.outcome
        parts = [count(o[key], f"{kind} round") for key, kind in ROUNDS.items() if o[key]]
        told += [f"There were {' and '.join(parts)}."] if parts else []
    agents, limit = _agents(len(run.agents)), sum(run.limits.values())
    gave = run.last or run.committed
    if not gave:
        return told
    end = sum(gave.values())
    of = f"all of their {points(end)} points" if end == limit else f"{points(end)} of {points(limit)} points"
    of = of if limit else f"{points(end)} points"
    if run.last and sum(run.first.values()) != end:
        told.append(f"At first the {agents} gave {points(sum(run.first.values()))} points, at the end {of}.")
    else:
        told.append(f"The {agents} {'gave' if run.last else 'committed'} {of}.")
    return told


def _treasury(run: RunTotals) -> list[str]:
    balance = run.balance(TREASURY)
    if not balance:
        return [] if run.unpaid else ["What some paid, others received: no treasury was needed."]
    if balance == -sum(run.balance(a) for a in run.agents if run.balance(a) * balance < 0):
        return []  # it is in the first sentence
    return [f"The treasury {'kept' if balance > 0 else 'paid'} {priced(abs(balance), run)}."]


def _gains(run: RunTotals) -> list[str]:
    if not run.gains:
        return []
    lost = sorted((gain, agent) for agent, gain in run.gains.items() if gain < 0)
    if not lost:
        more = "more" if min(run.gains.values()) else "at least as much"
        than = "than" if more == "more" else "as"
        by = f"{than} its data and its payments cost it, by the agents' own figures"
        return [f"The model is worth {more} to every agent {by}.", *_alone(run)]
    gain, agent = lost[0]
    better, everyone = len(run.gains) - len(lost), _agents(len(run.gains))
    told = f"{number(better).capitalize()} of {everyone} gained, {number(len(lost))} lost." if better else ""
    told = told or f"All {everyone} lost."
    most = ", the most" if len(lost) > 1 else ""
    balance, side = run.balance(agent), "paid" if run.balance(agent) <= 0 else "received"
    money = priced(abs(balance), run) if balance else "nothing"
    return [
        f"{told} {agent} lost {priced(-gain, run)}{most}: the model is worth {priced(run.valuations[agent], run)} to "
        f"it, its data cost {priced(run.costs.get(agent, 0), run)}, and it {side} {money}.",
        *_alone(run),
    ]


def _alone(run: RunTotals) -> list[str]:
    """Who would have done better without the others."""
    alone = run.manifest.alone
    if not set(alone) >= set(run.agents):
        return []
    missed = sorted((run.gains[a] - alone[a], a) for a in run.agents if alone[a] - run.gains[a] > ROUNDING)
    if not missed:
        return ["None would have been better off training alone."]
    short, agent = missed[0]
    if len(missed) == 1:
        return [f"{agent} would have been {priced(-short, run)} better off training alone."]
    many = f"{number(len(missed)).capitalize()} of" if len(missed) < len(run.agents) else "All"
    return [f"{many} {_agents(len(run.agents))} would have been better off training alone, {agent} by the most, "
            f"{priced(-short, run)}."]  # fmt: skip


def _audits(run: RunTotals) -> list[str]:
    """What auditors found, and what followed."""
    if not run.deposits:
        return []
    made = count(run.audited, "delivery was", "deliveries were")
    by = f" by {', '.join(sorted(run.auditors))}" if run.auditors else ""
    told = [
        f"Every agent made a deposit. {made} made again{by}: " + ("not all passed." if run.failed else "all passed.")
    ]
    for agent, step in run.failed.items():
        told.append(
            f"{agent} failed in training round {step + 1}: what it said it gave from then on is not paid, and its "
            f"deposit of {priced(run.deposits.get(agent, 0), run)} went to the others."
        )
    return told


def _dates(run: RunTotals, result: Verification) -> str:
    """When it was, as far as cosigned checkpoints tell."""
    calendar = Calendar.of(result.notes)
    began, ended = calendar.between(run.entries[0]), calendar.between(run.entries[1])
    start, end = began[0] if began[0] is not None else began[1], ended[1]
    if start is None:
        return "The date of the run is not proven: nobody cosigned a checkpoint of it."
    until = f" and {moment(end)}" if end is not None else ""
    words = f"between {moment(start)}{until}" if until else f"after {moment(start)}"
    return f"The entries were made {words}, by the clocks of the agents that cosigned them."
