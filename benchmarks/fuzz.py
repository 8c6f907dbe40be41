"""Hostile input by the million: `python benchmarks/fuzz.py [--frames N] [--reports N] [--settings N] [--seed N] ...`.

Frames go through the wire's decoder and on to the center, reports to the center, settings to every reader of them:
the core's, the hosts', games, strategies and lies, keys, manifests, entries and exported ledgers. Each may be taken or
refused by the one error its reader promises; anything else, more than a second of work or a leap in memory is a failure,
and is printed with the command that repeats it. An input depends on (seed, campaign, number) alone.
"""  # noqa: E501

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import datetime
import faulthandler
import io
import json
import logging
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from fedincentive.plugins.fedml import settings as fedml
from fedincentive.plugins.fedml import wire
from fedincentive.plugins.flower import settings as flower

from fedincentive import Settings, engine, identity, ledger, manifest, mechanisms
from fedincentive.center import Center
from fedincentive.center.enrolment import enrol, wrong_with
from fedincentive.errors import FedIncentiveError, LedgerError, ProvenanceError, ReportRefused, RunError, SettingError
from fedincentive.game import load, reading
from fedincentive.ledger import Checkpoint, Entry, standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.messages import Broadcast, Enrol, Report
from fedincentive.provenance import receipts
from fedincentive.provenance.keys import KeyRing, PrivateKey, PublicKey, words
from fedincentive.provenance.notes import Head, Note, SignatureLine

GAMES = Path(__file__).parents[1] / "examples" / "games"
AGENTS = ("agent-1", "agent-2", "agent-3")
PRIVATE = [PrivateKey(name) for name in (identity.CENTER, *AGENTS)]
KEYS = KeyRing([key.public for key in PRIVATE], PRIVATE)
HELLO = {
    key.name: identity.signed(key, identity.enrolment("run", Enrol(key.name, 10.0, 5.0, None, key.public.vkey)))
    for key in PRIVATE
}
LONGEST = 1.0  # seconds of work on one input
ALARM = 5  # seconds after which an input is given up
STUCK = 600  # seconds for a thousand inputs, after which compiled code that never ends is shown and the program ends
LEAP = 256 * 2**20  # bytes that one input may add to the most the process has ever used
ROOM = 4 * 2**30  # bytes of addresses beyond those at the start, after which an allocation fails


class Hang(BaseException):
    """An input that would not end; nothing below may catch it."""


# Odd values

INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    255,
    -(2**31),
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**18,
    10**19,
    10**400,
    -(10**400),
)
FLOATS = (
    0.0,
    -0.0,
    0.1,
    0.5,
    1.0,
    -1.0,
    5e-324,
    1e-308,
    1e15,
    1e18,
    1e300,
    -1e308,
    float("inf"),
    -float("inf"),
    float("nan"),
)
TEXTS = (
    "", " ", "a", "agent-1", "agent-2", "treasury", "\0", "a\0b", "\n", "\ud800", "\u00e9", "e\u0301", "\u202e", "\U0001d7d9",  # noqa: E501
    "1", "-1", "0.5", "1e400", "1e-400", "1e99999999", "1_0", "1/3", "1/0", "nan", "inf", "0x10", "9" * 5000, "x" * 300,
    "x" * 100_000, "=1+1", "../../x", "/dev/null", "/", "~", "true", "null", "run", "train", "contribute", "2024-99-99",
)  # fmt: skip
PLAIN = (*INTEGERS, *FLOATS, *TEXTS, True, False, None)
BEYOND_JSON = (
    16**5000, -(16**5000), Fraction(1, 3), Fraction(10**400), b"", b"\xff", (), (1, 2), {1, 2}, 1j,
    datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1), np.float64("nan"), np.float32(0.5), np.int64(-1),
    np.longdouble("1e4000"), np.bool_(True),
)  # fmt: skip


def laughs() -> list[Any]:
    """What a few lines of YAML aliases make: small in memory, endless when written out."""
    value: list[Any] = ["lol"]
    for _ in range(40):
        value = [value] * 9
    return value


def endless() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["a"] = [value]
    return value


def odd(rng: random.Random, depth: int = 2, beyond: tuple[Any, ...] = ()) -> Any:
    """A value nobody expects, of JSON's types and those in `beyond`."""
    draw = rng.random()
    if depth and draw < 0.08:
        return [odd(rng, depth - 1, beyond) for _ in range(rng.randrange(4))]
    if depth and draw < 0.16:
        return {rng.choice(TEXTS): odd(rng, depth - 1, beyond) for _ in range(rng.randrange(4))}
    if beyond and draw < 0.30:
        return rng.choice(beyond)
    if beyond and draw < 0.32:
        return rng.choice((laughs, endless))()
    return rng.choice(PLAIN)


def some(rng: random.Random) -> Any:
    """Anything YAML, TOML or a caller in Python may hand over."""
    return odd(rng, beyond=BEYOND_JSON)


def array(rng: random.Random) -> Any:
    """An array of any type, shape and layout."""
    shape = tuple(rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randrange(4)))
    kind = rng.choice(
        ("f2", "f4", "f8", "f8", "f8", "i8", "u1", "?", "O", "M8[s]", "m8[s]", "S3", "U2", "c16", "g", "V4", ">f8")
    )
    made = np.zeros(shape, kind)
    if made.dtype.kind == "f" and made.size and rng.random() < 0.5:
        made.flat[rng.randrange(made.size)] = rng.choice(FLOATS)
    turn = rng.randrange(5)
    if turn == 1:
        return made.T
    if turn == 2 and made.ndim:
        return made[::-1]
    if turn == 3:
        return np.broadcast_to(made, (3, *shape))
    return np.ma.masked_array(made) if turn == 4 and made.dtype.kind == "f" else made


# Mutations


def mutated(rng: random.Random, tree: Any, draw: Callable[[random.Random], Any]) -> Any:
    """A copy of a tree of mappings and lists with one to three places changed."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(list(_places(tree)) or [(None, None)])
        if holder is None:
            return draw(rng)
        how = rng.randrange(8)
        if how == 0 and isinstance(holder, dict):
            holder[rng.choice(TEXTS)] = holder.pop(key)
        elif how == 1:
            del holder[key]
        elif how == 2 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        else:
            holder[key] = draw(rng)
    return tree


def _places(tree: Any, depth: int = 8) -> Iterable[tuple[Any, Any]]:
    keys: Iterable[Any] = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys if depth else ():
        yield tree, key
        yield from _places(tree[key], depth - 1)


WEDGES = (
    b"[" * 3000,
    b'{"a":' * 3000,
    b"9" * 5000,
    b"1e400",
    b"NaN",
    b"-Infinity",
    b"\xff\xfe",
    b"\0",
    b'"',
    b"\\ud800",
    b"null",
    b",",
    b"\n",
)


def scrambled(rng: random.Random, data: bytes) -> bytes:
    """Bytes with some flipped, cut, repeated or wedged in."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, how = rng.randrange(len(made) + 1), rng.randrange(6)
        end = min(len(made), at + rng.choice((1, 2, 4, 16, 64)))
        if how <= 1 and at < len(made):
            made[at] = rng.choice((made[at] ^ (1 << rng.randrange(8)), rng.randrange(256)))
        elif how == 2:
            del made[at:end]
        elif how == 3:
            made[at:at] = made[at:end] * rng.choice((1, 2, 50))
        elif how == 4:
            made[at:at] = rng.choice(WEDGES)
        else:
            made = made[:at] if rng.random() < 0.3 else made
    return bytes(made)


def written(rng: random.Random, tree: Any) -> bytes:
    """JSON as a stranger writes it: sometimes a key twice, a number too long, or not JSON at all."""
    text = json.dumps(tree).encode()
    return scrambled(rng, text) if rng.random() < 0.25 else text


# The campaigns: each makes an input from a generator, and says whether it was taken


@dataclasses.dataclass(frozen=True)
class Campaign:
    """`take(input)` is true where it was taken; `refusal` is the one error it may raise."""

    part: str  # which of --frames, --reports and --settings counts it
    make: Callable[[random.Random], Any]
    take: Callable[[Any], object]
    refusal: type[Exception] | tuple[type[Exception], ...]
    share: float = 1.0  # of its part


class Centers:
    """Centers in every phase, with and without keys; one that took a report is made anew."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, bool], Center] = {}
        self.answered: dict[tuple[str, bool, str], Report] = {}

    def answer(self, phase: str, keyed: bool, agent: str) -> Report:
        """What an honest agent says, signed where there are keys; made once."""
        if (phase, keyed, agent) not in self.answered:
            center = self.get(phase, keyed)
            plain = answer(center, agent)
            self.answered[phase, keyed, agent] = signed(plain, center) if keyed else plain
        return self.answered[phase, keyed, agent]

    def get(self, phase: str, keyed: bool) -> Center:
        if (phase, keyed) not in self.made:
            self.made[phase, keyed] = self._new(phase, keyed)
        return self.made[phase, keyed]

    def submit(self, report: Report, phase: str, keyed: bool) -> bool:
        taken = self.get(phase, keyed).submit(report)
        if taken:
            del self.made[phase, keyed]
            self.answered = {key: report for key, report in self.answered.items() if key[:2] != (phase, keyed)}
        return taken

    @staticmethod
    def _new(phase: str, keyed: bool) -> Center:
        name = "2p-upbred" if phase == "contribute" else "fedavg"
        settings = Settings.read({"mechanism": name, "rounds": 1})
        agents = [Enrol(agent, 10.0, 5.0, key=KEYS.public[agent].vkey) for agent in AGENTS]
        w = {"w": np.zeros((2, 3)), "count": np.zeros(2, np.int64)}
        center = Center(settings, mechanisms.get(name, settings), agents, w, keys=KEYS if keyed else None)
        while center.broadcast().phase != phase:
            for agent in AGENTS:
                center.submit(signed(answer(center, agent), center))
            center.close()
        return center


CENTERS = Centers()
PHASES = ("contribute", "train", "value")


def answer(center: Center, agent: str) -> Report:
    """What an honest agent says."""
    b = center.broadcast()
    s, delivered = (5.0 if b.phase == "contribute" else None), (5.0 if b.phase == "train" else None)
    update = {name: np.zeros_like(value) for name, value in b.w.items()} if b.phase == "train" and b.w else None
    return Report(b.run, b.round, b.phase, agent, s, delivered, update, 0.5 if b.phase == "value" else None)


def signed(report: Report, center: Center) -> Report:
    """With the right key where that can be done at all: behind a signature there are more checks."""
    parts = report.update.values() if isinstance(report.update, dict) else [report.update]
    if not all(part is None or isinstance(part, np.ndarray) for part in parts):
        return report
    if any(isinstance(getattr(report, field), (list, dict)) for field in ("run", "round", "phase", "agent")):
        return report
    with contextlib.suppress(Exception):
        settings, most = center.settings, center.run.s_max[report.agent]
        said = identity.claim(report, center._answers.shared, settings.scale, settings.minor, most)
        signature = identity.signed(KEYS.private[report.agent], words("report", said))
        return dataclasses.replace(report, signature=signature)
    return report


def make_frame(rng: random.Random) -> tuple[bytes, str, bool]:
    phase, keyed = rng.choice(PHASES), rng.random() < 0.5
    center, agent = CENTERS.get(phase, keyed), rng.choice(AGENTS)
    enrolment = Enrol(agent, 10.0, 5.0, rng.choice((None, "ab" * 32)), KEYS.public[agent].vkey)
    signature = HELLO[agent]
    message = rng.choice(
        (
            wire.Hello("run", enrolment, signature),
            CENTERS.answer(phase, keyed, agent),
            CENTERS.answer(phase, keyed, agent),
            center.broadcast(),
        )
    )
    frame = wire.encode(message)
    how = rng.random()
    if how < 0.35:
        return scrambled(rng, frame), phase, keyed
    if how < 0.38:
        return rng.randbytes(rng.randrange(200)), phase, keyed
    magic, version, length = wire.PREFIX.unpack_from(frame)
    start = wire.PREFIX.size + length
    head = written(rng, mutated(rng, json.loads(frame[wire.PREFIX.size : start]), odd))
    claimed = len(head) if rng.random() < 0.95 else rng.choice((0, 1, len(head) + 1, 2**32 - 1))
    return wire.PREFIX.pack(magic, version, claimed) + head + frame[start:], phase, keyed


def take_frame(case: tuple[bytes, str, bool]) -> bool:
    """As a server does: decode, and hand enrolments and reports on."""
    frame, phase, keyed = case
    message = wire.decode(frame)
    if isinstance(message, Report):
        return CENTERS.submit(message, phase, keyed)
    if isinstance(message, Broadcast):
        return True
    mechanism = CENTERS.get(phase, keyed).mechanism
    identity.is_signed(KEYS.public[AGENTS[0]], identity.enrolment("run", message.enrol), message.signature)
    if wrong := wrong_with(message.enrol, mechanism, len(AGENTS)):
        assert 0 < len(wrong) < 1000, f"a refusal of {len(wrong)} characters"
        return False
    if message.enrol.agent != "treasury":
        enrol(mechanism, [message.enrol])
    return True


def make_report(rng: random.Random) -> tuple[Report, str, bool]:
    phase, keyed = rng.choice(PHASES), rng.random() < 0.5
    report = answer(CENTERS.get(phase, keyed), rng.choice(AGENTS))
    fields: dict[str, Any] = {}
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(
            ("run", "round", "phase", "agent", "s", "delivered", "update", "update", "update", "valuation")
        )
        fields[name] = make_update(rng, report.update) if name == "update" else some(rng)
    report = dataclasses.replace(report, **fields)
    how = rng.random()
    return (
        (signed(report, CENTERS.get(phase, keyed)) if how < 0.7 else dataclasses.replace(report, signature=some(rng))),
        phase,
        keyed,
    )


def make_update(rng: random.Random, honest: Mapping[str, Any] | None) -> Any:
    if rng.random() < 0.2:
        return some(rng)
    update: dict[Any, Any] = dict(honest or {})
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(("w", "w", "count", *TEXTS, 1, None, b"w", ("w",)))
        update[name] = array(rng) if rng.random() < 0.7 else some(rng)
    return update


def values_of(cls: type, rng: random.Random) -> dict[Any, Any]:
    """A mapping for a settings class: plausible values, odd ones, and keys that it has not."""
    fields = dataclasses.fields(cls)
    values: dict[Any, Any] = {}
    for field in rng.sample(fields, min(len(fields), rng.randrange(6))):
        usual = PLAUSIBLE.get(field.name, ())
        values[field.name] = rng.choice(usual) if usual and rng.random() < 0.5 else some(rng)
    if rng.random() < 0.05:
        values[rng.choice((*TEXTS, *INTEGERS, 16**5000, None, 0.5, ("a",)))] = some(rng)
    return values


PLAUSIBLE: dict[str, tuple[Any, ...]] = {
    "mechanism": tuple(mechanisms.names()),
    "federated_optimizer": tuple(mechanisms.names()),
    "payment": ("contribution", "truthful", "both", "none", ["contribution", "truthful"]),
    "settlement": ("tranches", "end", "commitment"),
    "aggregation": ("mean", "trimmed-mean", "median", "krum", "multi-krum", "geometric-median", "centered-clipping"),
    "options": ({"contribution": {}}, {"truthful": {"a": 1}}),
    "cost": (0.1, {"agent-1": 1.0, "agent-2": 2.0, "agent-3": 0.0}),
    "kind": tuple(reading.KINDS),
    "curve": tuple(reading.CURVES),
    "phi": ("audited", "paper"),
    "h": ("previous", "zero", "clarke"),
    **dict.fromkeys(("rounds", "scale", "minor", "sampled", "comm_round"), (1, 2, 3, 10**6)),
    **dict.fromkeys(("agents", "parameters"), (1, 2, 3)),  # a million agents are allowed, and take their time
    **dict.fromkeys(("gamma", "eta", "tau", "tol", "loss_cap", "value_per_nat", "audit", "quorum", "clip"), (0.5, 1e-300, 1e300, "1e5")),  # noqa: E501
    **dict.fromkeys(("beta", "fine"), ("2", "0.05", "1e17", "1e-17", 3)),
    **dict.fromkeys(("w0", "target", "s0"), ([0.0], [1.0, 2.0], [1e300, 1e300])),
}  # fmt: skip


def take_settings(values: dict[Any, Any]) -> bool:
    """Read, and played for a round where the mechanism takes them."""
    settings = Settings.read(values)
    settings.plain()
    mechanism = mechanisms.get(settings.mechanism, settings)
    center = Center(settings, mechanism, [Enrol(agent, 10.0, 5.0) for agent in AGENTS], {"w": np.ones(3)})
    json.dumps(dict(center.broadcast().settings))
    for agent in center.missing:
        with contextlib.suppress(ReportRefused):
            center.submit(answer(center, agent))
    center.close()
    return True


def make_fedml(rng: random.Random) -> SimpleNamespace:
    usual: dict[str, Any] = {
        "federated_optimizer": "upbred",
        "comm_round": 3,
        "client_num_per_round": 2,
        "client_num_in_total": 3,
    }
    args = {**usual, "random_seed": 0, "run_id": "0", "yaml_config_file": ""}
    for name in rng.sample(list(args), rng.randrange(3)):
        args[name] = some(rng)
    args["incentive"] = values_of(rng.choice((Settings, fedml.FedmlSettings)), rng) if rng.random() < 0.9 else some(rng)
    return SimpleNamespace(**args)


def take_fedml(args: SimpleNamespace) -> bool:
    _, host = fedml.read(args)
    fedml.agent_names(host, 3)
    return True


def make_flower(rng: random.Random) -> dict[str, Any]:
    values = values_of(rng.choice((Settings, flower.FlowerSettings)), rng)
    config = {
        f"incentive.{key if isinstance(key, str) else 0}".replace("_", rng.choice("-_")): value
        for key, value in values.items()
    }
    for _ in range(rng.randrange(3)):
        path = ".".join(
            rng.choice(("incentive", "options", "cost", "strategy", "contribution", "a", "")) for _ in range(3)
        )
        config[rng.choice((path, f"incentive.{path}"))] = some(rng)
    return config


def make_game(rng: random.Random) -> tuple[Any, Any, Any]:
    """A game with its incentive mapping, strategies and lies."""
    kind = rng.choice(tuple(reading.KINDS))
    section = {**(values_of(reading.KINDS[kind], rng) if rng.random() < 0.5 else {}), "kind": kind}
    columns = [*reading.COMMON, "a", "b", "k", "ideal", "power", "prior", "scale", "fit", "spill", "name"]
    if rng.random() < 0.7 and kind not in ("example", "repaired", "random-quadratic"):
        section["each"] = {"s_max": 10, **{rng.choice(columns): rng.choice((1, 0.5, {"low": 0, "high": 1}, some(rng)))}}
        section["agents"] = rng.choice((2, 3, [{"name": "a"}, {"name": "b", rng.choice(columns): some(rng)}]))
    incentive = values_of(Settings, rng) if rng.random() < 0.3 else {}
    tree: Any = {"game": section, "incentive": {"rounds": 2, "round_limit": 5, **incentive}}
    if rng.random() < 0.2:
        tree = mutated(rng, {"game": dict(section), "incentive": {}}, some)
    who = [{rng.choice(("agent-1", "a", *TEXTS)): rng.choice((known, *TEXTS))} for known in ("free-rider", "inflate-d")]
    return tree, *(one if rng.random() < 0.2 else {} for one in who)


def take_game(case: tuple[Any, Any, Any]) -> bool:
    tree, strategies, lies = case
    game = load(tree).game
    incentive = tree.get("incentive") or {}
    small = len(game.agents) < 10 and all(
        type(incentive.get(key, 1)) is not int or incentive.get(key, 1) < 20 for key in ("rounds", "round_limit")
    )
    if small and not set(incentive) & {"ledger", "state", "keys", "spill"}:
        engine.play(tree, strategies=strategies, lies=lies, rounds=2, round_limit=5)
    return True


def through_file(read: Callable[[Path], object]) -> Callable[[bytes], bool]:
    def take(data: bytes) -> bool:
        SCRATCH.write_bytes(data)
        read(SCRATCH)
        return True

    return take


SCRATCH = Path(tempfile.mkdtemp(prefix="fedincentive-fuzz-")) / "input"

YAMLS = [path.read_bytes() for path in sorted(GAMES.glob("*.yaml"))]
TAGS = (b"!!int x", b"!!float x", b"!!timestamp x", b"2024-99-99", b"0b_", b"0x_", b"!!binary x", b"!!set {a, b}", b"!!python/object:os.x {}",  # noqa: E501
        b"&a [*a]", b"<<: 3", b"? [a]\n: b", b"1:60:99", b"0x" + b"f" * 5000, b"9" * 5000, b"!!omap 3", b"\t", b"--- a\n--- b", b"{" * 2000, b"- " * 2000)  # fmt: skip  # noqa: E501


def make_yaml(rng: random.Random) -> bytes:
    text = rng.choice(YAMLS)
    if rng.random() < 0.5:
        lines = text.split(b"\n")
        at = rng.randrange(len(lines))
        key, colon, _ = lines[at].partition(b":")
        lines[at] = key + colon + b" " + rng.choice(TAGS)
        return b"\n".join(lines)
    return scrambled(rng, text)


def make_keys(rng: random.Random) -> str:
    """A public key's line, a checkpoint or a cosignature, changed somewhere."""
    note = Note(Head("log", 3, bytes(32)).text).signed(PRIVATE[0]).cosigned(PRIVATE[1], 7)
    text = rng.choice((KEYS.public[AGENTS[0]].vkey, str(note), str(note.signatures[-1])))
    return scrambled(rng, text.encode()).decode("utf-8", "replace")


def take_keys(text: str) -> bool:
    for read in (PublicKey.parse, Note.parse, receipts.read):
        with contextlib.suppress(ProvenanceError):
            read(text)
    with contextlib.suppress(ValueError):
        SignatureLine.parse(text)
    return True


def run_on_disk() -> tuple[list[Any], dict[str, Any]]:
    """The exported ledger of a short run that makes every payment, line by line, and its manifest."""
    place = SCRATCH.with_name("ledger")
    game = {"game": {"kind": "repaired"}}
    engine.play(game, mechanism="2p-upbred", payment="both", beta="0.5", rounds=2, ledger=place)
    with ledger.read(place) as opened:
        lines = [json.loads(line) for line in to_jsonl(opened)]
    return lines, json.loads((Path(f"{place}.runs") / "run" / manifest.FILE).read_bytes())


LINES, MANIFEST = run_on_disk()


def make_entry(rng: random.Random) -> str:
    body = mutated(rng, rng.choice(LINES[1:-1])["body"], odd)
    text = canonical(body) if rng.random() < 0.7 else json.dumps(body)
    return text if rng.random() < 0.7 else scrambled(rng, text.encode()).decode("utf-8", "replace")


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def make_export(rng: random.Random) -> bytes:
    """A ledger for the stand-alone verifier: changed anywhere, and chained anew so that all of it is read."""
    lines = mutated(rng, LINES, odd)
    if rng.random() < 0.7 and isinstance(lines, list):
        with contextlib.suppress(Exception):
            head = standalone.digest("ledger", canonical(lines[0]))
            for seq, line in enumerate(lines[1:-1], 1):
                body = standalone.digest("body", canonical(line["body"]))
                head = line["hash"] = standalone.digest("entry", f"{seq}\n{head}\n{body}")
                line["seq"] = seq
    text = "".join(canonical(line) + "\n" for line in (lines if isinstance(lines, list) else [lines])).encode()
    return scrambled(rng, text) if rng.random() < 0.2 else text


def take_export(path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = standalone.main([str(path)])
        except SystemExit as end:
            code = end.code  # type: ignore[assignment]
    assert code in (0, 1, 2), f"it exits with {code!r}"


def make_checkpoint(rng: random.Random) -> str:
    seen = f"{rng.choice(INTEGERS)}:{rng.choice(('ab' * 32, 'AB' * 32, 'ab'))}"
    return (
        scrambled(rng, seen.encode()).decode("utf-8", "replace")
        if rng.random() < 0.7
        else rng.choice((seen, "9" * 5000 + ":" + "ab" * 32))
    )


def take_checkpoint(text: str) -> bool:
    Checkpoint.find(text + f'{{"count": {text}, "hash": "{"ab" * 32}"}}')
    return bool(Checkpoint.parse(text))


CAMPAIGNS = {
    "frames": Campaign("frames", make_frame, take_frame, (wire.WireError, ReportRefused)),
    "reports": Campaign("reports", make_report, lambda case: CENTERS.submit(*case), ReportRefused),
    "settings": Campaign("settings", lambda rng: values_of(Settings, rng), take_settings, FedIncentiveError, 0.4),
    "fedml": Campaign("settings", make_fedml, take_fedml, SettingError, 0.1),
    "flower": Campaign("settings", make_flower, lambda config: flower.read(config), SettingError, 0.1),
    "games": Campaign("settings", make_game, take_game, FedIncentiveError, 0.1),
    "yaml": Campaign("settings", make_yaml, through_file(load), FedIncentiveError, 0.05),
    "keys": Campaign("settings", make_keys, take_keys, SettingError, 0.05),
    "entries": Campaign("settings", make_entry, Entry.from_json, LedgerError, 0.1),
    "exports": Campaign("settings", make_export, through_file(take_export), (), 0.04),
    "manifests": Campaign(
        "settings",
        lambda rng: written(rng, mutated(rng, MANIFEST, odd)),
        through_file(manifest.SavedRun.read),
        RunError,
        0.03,
    ),
    "checkpoints": Campaign("settings", make_checkpoint, take_checkpoint, LedgerError, 0.03),
}


# The run of them


@dataclasses.dataclass
class Findings:
    """What became of the inputs of one campaign."""

    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, 0)
    failures: dict[str, int] = dataclasses.field(default_factory=dict)  # a failure's place -> its first input


def one(name: str, campaign: Campaign, seed: int, number: int, found: Findings, show: bool = False) -> None:
    """One input; where it fails, what and how to see it again."""
    rng = random.Random(f"{seed}/{name}/{number}")
    case = campaign.make(rng)
    memory, start, failure = peak(), time.process_time(), ""
    signal.setitimer(signal.ITIMER_REAL, ALARM)
    try:
        outcome = "taken" if campaign.take(case) else "refused"
    except campaign.refusal as error:
        outcome = "refused"
        if len(str(error)) > 10_000:
            failure = f"{type(error).__name__} of {len(str(error))} characters"
    except (Exception, Hang) as error:
        outcome = "failed"
        frame = next(
            (f for f in reversed(traceback.extract_tb(error.__traceback__)) if "fedincentive" in f.filename), None
        )
        place = f"{Path(frame.filename).name}:{frame.lineno}" if frame else "?"
        failure = f"{type(error).__name__} in {place}: {str(error)[:200]}"
        if show:
            traceback.print_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    spent = time.process_time() - start
    if not failure and spent > LONGEST:
        failure = f"{spent:.2f} s of work"
    if not failure and peak() - memory > LEAP:
        failure = f"{(peak() - memory) / 2**20:.0f} MiB more memory than ever before"
    found.counts[outcome] += 1
    found.slowest = max(found.slowest, (spent, number))
    kind = failure.split(": ")[0]
    if failure and kind not in found.failures:
        found.failures[kind] = number
        again = f"python benchmarks/fuzz.py --seed {seed} --only {name} --at {number}"
        print(f"FAILURE in {name}: {failure}\n  again: {again}", flush=True)


def peak() -> int:
    """The most memory this process has used, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def give_up(*_: object) -> None:
    raise Hang(f"no end after {ALARM} s")


def limit_memory() -> None:
    """An allocation without bounds fails here, and does not bring the machine down."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for part, count in (("frames", 10**6), ("reports", 10**5), ("settings", 10**5)):
        parser.add_argument(
            f"--{part}", type=int, default=count, metavar="N", help=f"how many; {count:,} when not given"
        )
    parser.add_argument("--seconds", type=float, help="stop after this long, each campaign after its share")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=CAMPAIGNS, action="append", help="only this campaign; may be repeated")
    parser.add_argument("--at", type=int, metavar="NUMBER", help="only this input, with its traceback")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, give_up)
    logging.disable()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    limit_memory()
    chosen = {name: CAMPAIGNS[name] for name in options.only or CAMPAIGNS}
    print(f"seed {options.seed}")
    failed = 0
    for name, campaign in chosen.items():
        found, start = Findings(), time.monotonic()
        many = round(getattr(options, campaign.part) * campaign.share)
        if options.at is not None:
            print(repr(campaign.make(random.Random(f"{options.seed}/{name}/{options.at}")))[:2000])
        for number in range(many) if options.at is None else [options.at]:
            if options.seconds and time.monotonic() - start > options.seconds * campaign.share / 3:
                break
            if number % 1000 == 0:
                faulthandler.dump_traceback_later(STUCK, exit=True)
            one(name, campaign, options.seed, number, found, show=options.at is not None)
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(found.counts.items()))
        slowest = f"slowest {1000 * found.slowest[0]:.0f} ms (number {found.slowest[1]})"
        print(
            f"{name:12s}{sum(found.counts.values()):>10,} inputs: {counts}; {slowest}; {time.monotonic() - start:.0f} s",  # noqa: E501
            flush=True,
        )
        failed += len(found.failures)
    print(f"{failed} kinds of failure; peak memory {peak() / 2**20:.0f} MiB")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
