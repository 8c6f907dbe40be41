"""A center that forges, forks, replays and tells everyone something else: who notices, and what is kept of it.

    python benchmarks/hostile_center.py --count 1000 --honest 50

plays signed runs whose center (or whoever sits between it and the agents) does what its private key allows, so many
times for each kind, and prints how often it was noticed, by whom, and with which evidence. `verify` is what `ledger
verify --recompute` asks of every entry, `standalone` the verifier that shares no code with it; both must find each
forgery. At the end honest centers play, of whom nobody may complain. Exits 1 where anything went unnoticed or an honest
center was accused.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fedincentive import engine, ledger, terms
from fedincentive.agent import Agent
from fedincentive.center.log import texts, with_cosignatures
from fedincentive.errors import BroadcastRefused, FedIncentiveError, LogForked, ReportRefused
from fedincentive.game import random_data_value
from fedincentive.identity import CENTER, answers, broadcast, enrolment, is_signed, read_keys, signed
from fedincentive.ledger import standalone
from fedincentive.ledger.replay import Replay
from fedincentive.ledger.verify import verify
from fedincentive.messages import Broadcast
from fedincentive.provenance import receipts
from fedincentive.provenance.keys import PublicKey, make
from fedincentive.provenance.merkle import Tree
from fedincentive.provenance.notes import Head, Note
from fedincentive.provenance.witness import convicts
from fedincentive.settings import Settings

Body = dict[str, Any]
Noticed = Iterator[tuple[str, str, str]]  # what was done, by whom it was noticed ("" for nobody), the evidence
AGENTS = 5
GAME = random_data_value(3, AGENTS)
VALUES = {"mechanism": "2p-upbred", "rounds": 4, "beta": "7", "gamma": 9.0, "quorum": 0.2}


class Table:
    """A signed run in a folder of its own, with all its keys."""

    def __init__(self, folder: Path, keys: Path, **values: Any) -> None:
        folder.mkdir(parents=True)
        self.folder, self.ring = folder, read_keys(keys)
        self.book = ledger.open(folder / "ledger.db")
        given = {"keys": str(keys), **VALUES, **values}
        settings = Settings.read({key: value for key, value in given.items() if value is not None})
        self.center, self.agents = engine.table(GAME, settings, ledger=self.book, state=folder / "state")

    def close(self) -> None:
        """One round, all of it honest."""
        for report in engine.answers(self.center.broadcast(), self.agents):
            self.center.submit(report)
        self.center.close()

    def until(self, trained: int) -> Table:
        while self.center.run.phase != "train" or self.center.run.trained < trained:
            self.close()
        return self

    def bodies(self) -> list[Body]:
        return [json.loads(row.body) for row in self.book.rows()]

    def signed(self, told: Broadcast) -> Broadcast:
        """Whatever it says, signed by the real center."""
        said = broadcast(told, answers(told, terms.digest(self.center.run.terms)))
        return replace(told, signature=signed(self.ring.private[CENTER], said))

    def shown(self, bodies: Sequence[Body], seen: int) -> dict[str, Any]:
        """What a broadcast would show of a ledger with these entries to who has seen so many, under the true name."""
        tree = Tree(hashes(self.book.genesis, bodies))
        first = self.book.row(1)
        assert first is not None
        head = Head(f"fedincentive-ledger/{first.hash[:32]}", len(bodies), tree.root(len(bodies)))
        proof = {str(seen): texts(tree.consistency(seen, len(bodies)))} if seen <= len(bodies) else {}
        return {
            "note": str(Note(head.text).signed(self.ring.private[CENTER])),
            "cosigned": "",
            "proofs": proof,
            "entries": [],
        }

    def evidence(self, agent: Agent, kind: str) -> list[Path]:
        assert agent.notary is not None and agent.notary.folder is not None
        return sorted(agent.notary.folder.glob(f"{kind}-*.json"))

    def agents_keys(self) -> list[PublicKey]:
        return [self.ring.public[agent.name] for agent in self.agents]


def hashes(genesis: str, bodies: Sequence[Body]) -> list[str]:
    found = [genesis]
    for seq, body in enumerate(bodies, 1):
        found.append(receipts.chained(seq, found[-1], standalone.canonical(body)))
    return found[1:]


def found_in(genesis: str, minor: int, bodies: Sequence[Body]) -> tuple[list[str], list[str]]:
    """What verify and the stand-alone verifier find in a ledger with these entries, whose hashes all fit."""
    replay = Replay(minor, lambda seq: None)
    ours = [name for body in bodies for name, _ in replay.problems(body)]
    chain = hashes(genesis, bodies)
    lines = [{"ledger": "fedincentive", "version": 1, "minor": minor}]
    lines += [{"seq": seq, "hash": chain[seq - 1], "body": body} for seq, body in enumerate(bodies, 1)]
    lines.append({"checkpoint": f"{len(chain)}:{chain[-1]}"})
    theirs = standalone.check([standalone.canonical(line) + "\n" for line in lines])[0]
    return ours, [name for name, _, _ in theirs]


# What a center writes into its ledger


def forgery(bodies: list[Body], others: list[Body], draw: random.Random) -> str:
    """Forge one thing in the entries of a run; what was done. `others` are of another run with the same keys."""
    reports = [body for body in bodies if body["kind"] == "reports-train"]
    entry = draw.choice(reports)
    said, number = entry["inputs"]["said"], reports.index(entry)
    agent, other = draw.sample(sorted(said), 2)
    first, accepted = bodies[0]["inputs"]["terms"], bodies[0]["inputs"]["accepted"]

    def content() -> None:
        name = draw.choice(["delivered", "update", "valuation"])
        said[agent][name] = draw.randrange(10**6) if name != "update" else draw.randbytes(32).hex()

    def contribution() -> None:
        words = next(body for body in bodies if body["kind"] == "reports-contribute")["inputs"]["said"]
        words[draw.choice(sorted(words))]["s"] += draw.choice([-1, 1])

    def everywhere() -> None:
        for body in bodies:
            body["run"] = "another run"

    def payment() -> None:
        inputs = draw.choice([body for body in bodies if body["kind"] == "tranche"])["inputs"]
        inputs[draw.choice(["delivered", "total"])][agent] += draw.choice([-1, 1])

    def bit() -> None:
        blob = bytearray(base64.b64decode(said[agent]["signature"]))
        blob[draw.randrange(64)] ^= 1 << draw.randrange(8)
        said[agent]["signature"] = base64.b64encode(blob).decode()

    ways: dict[str, Callable[[], Any]] = {
        "report: content": content,
        "report: contribution": contribution,
        "report: of another round": lambda: said.update({agent: reports[number - 1]["inputs"]["said"][agent]}),
        "report: of another phase": lambda: said.update({agent: accepted[agent]}),
        "report: of another agent": lambda: said.update({agent: said[other]}),
        "report: of another run": lambda: said.update({agent: others[bodies.index(entry)]["inputs"]["said"][agent]}),
        "report: run renamed": everywhere,
        "report: for other terms": lambda: first.update(owed=str(draw.randrange(10**9))),
        "report: nonce": lambda: said[agent].update(nonce=draw.randbytes(16).hex()),
        "report: signature": bit,
        "report: model": lambda: entry["inputs"].update(model=draw.randbytes(32).hex()),
        "report: checkpoint": lambda: entry["inputs"].update(seen=f"3:{base64.b64encode(draw.randbytes(32)).decode()}"),
        "report: left out": lambda: said.pop(agent),
        "report: of a stranger": lambda: said.update(mallory=said[agent]),
        "report: absent, paid as before": lambda: entry["inputs"].update(absent=[agent]) or said.pop(agent),
        "payment on what nobody said": payment,
        "enrolment of another run": lambda: accepted.update({agent: others[0]["inputs"]["accepted"][agent]}),
        "enrolment left out": lambda: accepted.pop(agent),
    }
    name = draw.choice(sorted(ways))
    ways[name]()
    return name


def written(one: Table, two: Table, count: int, draw: random.Random) -> Noticed:
    honest, others = one.bodies(), two.bodies()
    assert found_in(one.book.genesis, one.book.minor, honest) == ([], [])
    for _ in range(count):
        bodies = json.loads(json.dumps(honest))
        name = forgery(bodies, json.loads(json.dumps(others)), draw)
        ours, theirs = found_in(one.book.genesis, one.book.minor, bodies)
        both = {"signature", "claims"} & set(ours) and {"signature", "claims"} & set(theirs)
        yield name, "verify, standalone" if both else "", "the ledger"


# What a center shows to agents


def forks(table: Table, count: int, draw: random.Random) -> Noticed:
    """The history that an agent has seen, rewritten."""
    true = table.bodies()
    told = table.center.broadcast()
    for agent in table.agents:
        agent.respond(told)
    kept_by = {agent.name: json.dumps(agent.state()["notary"]) for agent in table.agents}

    def as_before(agent: Agent) -> None:
        """After a fork it would say nothing more, for ever."""
        assert agent.notary is not None
        agent.notary._state = json.loads(kept_by[agent.name])

    for k in range(count):
        agent, bodies = draw.choice(table.agents), json.loads(json.dumps(true))
        longer = k % 2
        draw.choice(bodies)["inputs"]["fork"] = k
        bodies += [bodies[-1]] * (draw.randrange(1, 5) if longer else 0)
        name = "fork: a longer history that is another" if longer else "fork: a history rewritten"
        for file in table.evidence(agent, "fork"):
            file.unlink()
        as_before(agent)
        try:
            agent.respond(table.signed(replace(told, log=table.shown(bodies, len(true)))))
            yield name, "", ""
        except LogForked:
            kept = json.loads(table.evidence(agent, "fork")[0].read_text())
            convicted = convicts(kept, table.ring.public[CENTER])
            good = convicted if not longer else kept["reason"].startswith("not shown")
            yield name, "agent" if good else "", f"fork-N.json ({'convicts' if convicted else 'accuses'})"
    for _ in range(count // 10 + 1):
        as_before(agent)
        try:
            agent.respond(table.signed(replace(told, log=table.shown(true[: draw.randrange(1, len(true))], 1))))
            yield "fork: the end cut off", "", ""
        except BroadcastRefused:
            yield "fork: the end cut off", "agent", "refused"


def split(table: Table, count: int, draw: random.Random) -> Noticed:
    """Two histories that both extend what was seen, one for each side: a fork is a partition."""
    seen = len(table.bodies())
    kept = {agent.name: json.dumps(agent.state()) for agent in table.agents}
    table.close()
    true, told = table.bodies(), table.center.broadcast()
    key, public, half = table.ring.public[CENTER], table.ring.public, AGENTS / 2
    for k in range(count):
        bodies = json.loads(json.dumps(true))
        bodies[-1]["inputs"]["fork"] = k
        sides = [table.signed(replace(told, log=table.shown(history, seen))) for history in (true, bodies)]
        side_of = {agent.name: draw.randrange(2) for agent in table.agents}
        given: dict[str, str | None] = {}
        for agent in table.agents:
            assert agent.notary is not None
            state = json.loads(kept[agent.name])
            agent.restore(state)
            agent.notary._state = state["notary"]  # it has seen what it had seen before the split
            report = agent.respond(sides[side_of[agent.name]])
            given[agent.name] = report.cosignature if report is not None else None
        notes = [Note.parse(side.log["note"]) for side in sides if side.log]
        signers = [
            {a for a in given if with_cosignatures(note, given, public).cosigned_at(public[a])} for note in notes
        ]
        apart = not signers[0] & signers[1] and not all(len(side) > half for side in signers)
        apart = apart and len(signers[0] | signers[1]) == AGENTS
        yield "split view: more than half under both sides", "witness" if apart else "", "one side lacks cosignatures"
        two = {"seen": str(notes[0]), "shown": str(notes[1])}
        yield "split view: two agents compare notes", "witness" if convicts(two, key) else "", "both notes (convict)"
        agent = draw.choice(table.agents)
        try:
            agent.respond(sides[1 - side_of[agent.name]])
            yield "split view: shown the other side later", "", ""
        except LogForked as fork:
            good = convicts(fork.evidence, key) and table.evidence(agent, "fork")
            yield "split view: shown the other side later", "agent" if good else "", "fork-N.json (convicts)"


def replays(one: Table, two: Table, past: list[Broadcast], count: int, draw: random.Random) -> Noticed:
    """Broadcasts, reports and enrolments where they do not belong; both tables are at the same place of their runs."""
    told, other = one.center.broadcast(), two.center.broadcast()
    mine = {agent.name: agent.respond(told) for agent in one.agents}
    theirs = {agent.name: agent.respond(other) for agent in two.agents}
    for _ in range(count):
        agent = draw.choice(one.agents)
        for name, again in (("of another run", other), ("of an earlier round", draw.choice(past)),
                            ("with another round", replace(told, round=told.round + draw.randrange(1, 9))),
                            ("with other points", replace(told, s={**told.s, agent.name: draw.random()}))):  # fmt: skip
            try:
                agent.respond(again)
                yield f"broadcast: {name}", "", ""
            except BroadcastRefused:
                yield f"broadcast: {name}", "agent", "refused"
        report, stolen = mine[agent.name], theirs[agent.name]
        another = draw.choice([name for name in mine if name != agent.name])
        assert report is not None and stolen is not None and report.delivered is not None
        for name, sent in (("of another run", stolen), ("in another's name", replace(report, agent=another)),
                           ("with other points", replace(report, delivered=report.delivered / (2 + draw.random()))),
                           ("without a signature", replace(report, signature=None))):  # fmt: skip
            try:
                taken = one.center.submit(sent)
                yield f"report sent: {name}", "" if taken else "center", "dropped"
            except ReportRefused:
                yield f"report sent: {name}", "center", "refused"
        own, run = agent.enrol(), f"run-{draw.randrange(10**6)}"
        assert own.key is not None
        words, signature = enrolment("another", own), agent.enrolment(run)
        good = is_signed(PublicKey.parse(own.key), words, signature)
        yield "enrolment sent: of another run", "" if good else "center", "refused"


def disputes(folder: Path, keys: Path, count: int, draw: random.Random) -> Noticed:
    """An agent answers, and is called absent."""
    table = Table(folder, keys, rounds=count + 1, run="disputes").until(0)
    for _ in range(count):
        agent = draw.choice(table.agents)
        for report in engine.answers(table.center.broadcast(), table.agents):
            if report.agent != agent.name:
                table.center.submit(report)
        number = table.center.run.round
        table.center.close()
        agent.respond(table.center.broadcast())
        files = [file for file in table.evidence(agent, "dispute") if f"{number:06d}" in file.name]
        kept = json.loads(files[0].read_text()) if files else {}
        good = (
            kept
            and agent.name in json.loads(kept["entry"])["inputs"]["absent"]
            and kept["claim"]["agent"] == agent.name
        )
        yield "called absent, having answered", "agent" if good else "", "dispute-N.json (undecidable)"
    table.center.release()


def spoiled(held: Body, draw: random.Random) -> tuple[str, str]:
    """What was done to a receipt, and its text then."""
    lines = held["note"].split("\n")
    mark = draw.randrange(5, len(lines) - 1)  # of a cosignature
    who, blob = lines[mark].split(" ")[1:]
    changed = bytearray(base64.b64decode(blob))
    changed[draw.randrange(4, len(changed))] ^= 1 << draw.randrange(8)
    path = held["path"]
    ways: dict[str, Callable[[], Any]] = {
        "receipt: contents": lambda: held["body"]["inputs"].update(beta=str(draw.random())),
        "receipt: number": lambda: held.update(seq=held["seq"] + draw.choice([-1, 1])),
        "receipt: hash before it": lambda: held.update(previous=draw.randbytes(32).hex()),
        "receipt: path": lambda: path.__setitem__(
            draw.randrange(len(path)), base64.b64encode(draw.randbytes(32)).decode()
        ),
        "receipt: path cut": lambda: path.pop(draw.randrange(len(path))),
        "receipt: log's signature": lambda: lines.pop(4),
        "receipt: size of the log": lambda: lines.__setitem__(1, str(int(lines[1]) + draw.randrange(1, 9))),
        "receipt: cosignature or its time": lambda: lines.__setitem__(
            mark, f"— {who} {base64.b64encode(changed).decode()}"
        ),
        "receipt: cosignature taken away": lambda: lines.pop(mark),
    }
    name = draw.choice(sorted(ways))
    ways[name]()
    return name, standalone.canonical({**held, "note": "\n".join(lines)}) + "\n"


def shown_receipts(table: Table, count: int, draw: random.Random) -> Noticed:
    """Receipts, proofs and cosignatures, changed or taken away."""
    files = [file for agent in table.agents for file in table.evidence(agent, "receipt")[1:]]  # the first has no path
    log, witnesses = table.ring.public[CENTER], table.agents_keys()
    alone = [standalone.verifier_key(key.vkey) for key in (log, *witnesses)]
    for _ in range(count):
        name, text = spoiled(json.loads(draw.choice(files).read_text()), draw)
        verdicts = []
        for check, keys in ((receipts.verify, (log, witnesses)), (standalone.check_receipt, (alone[:1], alone[1:]))):
            try:
                verdicts.append(len(check(text, *keys)[1]) < AGENTS)  # fewer than all: --need says so
            except (FedIncentiveError, ValueError):
                verdicts.append(True)
        yield name, "verify, standalone" if all(verdicts) else "", "the receipt"


def honest(folder: Path, keys: Path, count: int, draw: random.Random) -> Noticed:
    """Centers that do as they should, with agents that stay away, samples, and every way to pay."""
    for k in range(count):
        kind = draw.choice([{}, {"settlement": "end"}, {"settlement": "commitment"}, {"sampled": 3},
                            {"mechanism": "t-upbred", "unchecked": True}, {"mechanism": "fedavg", "beta": None}])  # fmt: skip
        table = Table(folder / str(k), keys, **{**kind, "run": f"run-{k}", "seed": draw.randrange(99)})
        accused = []
        try:
            while not table.center.done:
                away = (
                    draw.choice(table.agents).name if table.center.run.phase == "train" and draw.random() < 0.3 else ""
                )
                present = [a for a in table.agents if a.name in table.center.missing and a.name != away]
                for report in engine.answers(table.center.broadcast(), present):
                    assert table.center.submit(report)
                table.center.close()
            for agent in table.agents:
                agent.respond(table.center.broadcast())
                accused += [*table.evidence(agent, "fork"), *table.evidence(agent, "dispute")]
                for file in table.evidence(agent, "receipt"):
                    receipts.verify(file.read_text(), table.ring.public[CENTER], table.agents_keys())
            accused += verify(table.book, recompute=True).findings
            accused += found_in(table.book.genesis, table.book.minor, table.bodies())[1]
        except FedIncentiveError as error:
            accused.append(error)
        for complaint in accused:
            tqdm.write(f"an honest center was accused: {complaint}")
        yield "an honest run", "nobody" if not accused else "", ""
        table.book.close()


def campaign(folder: Path, count: int, runs: int, seed: int) -> Noticed:
    draw, keys = random.Random(seed), folder / "keys"
    for name in (CENTER, *GAME.agents):
        make(name, keys)
    one, two = Table(folder / "one", keys).until(1), Table(folder / "two", keys).until(1)  # one name, the same keys
    past = [one.center.broadcast()]
    one.close()
    two.close()
    yield from replays(one, two, past, -(-count // 8), draw)
    yield from forks(one, count, draw)
    yield from split(two, count, draw)
    for table in (one := Table(folder / "three", keys), two := Table(folder / "four", keys)):
        engine.run(table.center, table.agents)
    yield from written(one, two, count, draw)
    yield from shown_receipts(one, count, draw)
    yield from disputes(folder / "five", keys, -(-count // 10), draw)
    yield from honest(folder / "honest", keys, runs, draw)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--count", type=int, default=1000, help="forgeries, forks, split views, changed receipts: so many each"
    )
    parser.add_argument("--honest", type=int, default=50, help="runs of honest centers")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    logging.getLogger("fedincentive").setLevel(logging.ERROR)
    tried: Counter[str] = Counter()
    noticed: dict[str, Counter[tuple[str, str]]] = {}
    with tempfile.TemporaryDirectory(prefix="fedincentive-hostile-") as folder:
        for what, whom, evidence in tqdm(
            campaign(Path(folder), options.count, options.honest, options.seed), disable=None
        ):
            tried[what] += 1
            noticed.setdefault(what, Counter())[whom, evidence] += bool(whom)
    for what in tried:
        for (whom, evidence), times in noticed[what].items():
            print(f"{what:<46} {times:>6} of {tried[what]:<6} {whom or 'UNNOTICED':<20} {evidence}")
    total = sum(tried.values()) - tried["an honest run"]
    seen = sum(count for what, found in noticed.items() if what != "an honest run" for count in found.values())
    accused = tried["an honest run"] - sum(noticed.get("an honest run", Counter()).values())
    print(f"{seen} of {total} attacks noticed; {accused} of {tried['an honest run']} honest centers accused")
    return int(seen != total or accused > 0)


if __name__ == "__main__":
    sys.exit(main())
