"""No command shows a traceback, whatever it is given: every option of every command, found by walking the commands.

A command that is added is swept too; `USUAL` says what its arguments should be where their names do not tell.
"""

from __future__ import annotations

import logging
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
import torch  # noqa: F401  (commands that read its files must not be cut off while they import it)
from click.testing import CliRunner, Result

from fedincentive import engine, ledger
from fedincentive.aggregation import store
from fedincentive.cli import main

LAUGHS = "a0: &a0 [lol]\n" + "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 30))
TEXTS = (
    "", " ", "x", "-", "--", "-1", "0", "1e400", "-1e400", "1" + "0" * 400, "nan", "inf", "1/0", "1_0", "0x10", "9" * 5000,  # noqa: E501
    "x" * 5000, "a\0b", "a\nb", "\ud800", "\u00e9", "\u202e", "=", "agent-1=", "=x", "agent-1=x", "nobody=gradient", "a=b=c",  # noqa: E501
    "postgresql://127.0.0.1:1/none", "postgresql://[", "sqlite://x", "1:" + "ab" * 32, "9" * 5000 + ":" + "ab" * 32,
)  # fmt: skip
GAMES = {
    "empty": "", "number": "3", "list": "[1]", "text": "x", "nothing": "game:", "kind": "game: {kind: x}", "tab": "\tgame: 1",  # noqa: E501
    "twice": "game: {kind: example, kind: repaired}", "deep": "[" * 20_000, "steps": "- " * 5000, "laughs": LAUGHS,
    "in game": LAUGHS + "game: *a29", "in w0": LAUGHS + "game: {kind: example, w0: *a29}", "itself": "game: &g {kind: example, w0: *g}",  # noqa: E501
    "date": "game: {kind: 2024-99-99}", "digits": f"game: {{kind: {'9' * 5000}}}", "hexadecimal": f"game: {{kind: 0x{'f' * 5000}}}",  # noqa: E501
    "object": "game: !!python/object/apply:os.system [true]", "key": "? [a]\n: b", "documents": "game: {kind: example}\n---\na: b",  # noqa: E501
    "names": "game: {kind: data-value, agents: [{name: a, s_max: 1}, {name: a, s_max: 1}]}",
    "treasury": "game: {kind: data-value, agents: [{name: treasury, s_max: 1}, {name: a, s_max: 1}]}",
    "unprintable": 'game: {kind: data-value, agents: [{name: "a\\nb", s_max: 1}, {name: "\\0", s_max: 1}]}',
    "long": f"game: {{kind: data-value, agents: [{{name: {'x' * 5000}, s_max: 1}}, {{name: a, s_max: 1}}]}}",
    "huge": "game: {kind: data-value, agents: [{name: b, s_max: 1.0e+300}, {name: a, s_max: 1}]}",
    "zero": "game: {kind: data-value, agents: [{name: b, s_max: 0}, {name: a, s_max: 0}]}",
    "one": "game: {kind: data-value, agents: [{name: b, s_max: 3}]}",
    "steep": "game: {kind: quadratic, each: {s_max: 5, a: 1.0e+308, b: 1.0e+308, k: 1.0e+308}, agents: 2}",
    "far": "game: {kind: example, w0: [1.0e+308, 1.0e+308]}",
}  # fmt: skip
VALUES = (
    '"1e400"', "1.0e+400", "1" + "0" * 400, "9" * 5000, "-1", "0", "1.0e+300", "1.0e-300", '"1e17"', '"1e-17"', ".nan", ".inf", '""', '" "',  # noqa: E501
    "null", "true", "[]", "{}", "[1, 2]", "{a: b}", "2024-01-01", '"\\0"', '"a/b"', '"\\ud83d"', "x" * 5000, "9223372036854775807",  # noqa: E501
    "!!binary aGk=", "!!set {a}", "x", '"game.yaml"', '"."', '"game.yaml/x"', "1.0e+15",
)  # fmt: skip
SLOW = {"rounds", "round_limit", "repeats"}  # a number that is only large is a long run, and right


ROOM = 2 * 2**30  # bytes; a command that wants more for a file of a few lines fails


class Endless(BaseException):
    pass


def give_up(*_: object) -> None:
    raise Endless("no end after 10 s")


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy for one test: what is swept is also written to."""
    return shutil.copytree(made, tmp_path / "place", symlinks=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a game, a ledger, a run, updates, and files that are none of these."""
    place = tmp_path_factory.mktemp("sweep")
    (place / "game.yaml").write_text('game: {kind: repaired}\nincentive: {beta: "0.5", rounds: 2, gamma: 10.0}\n')
    engine.play(place / "game.yaml", ledger=place / "book.sqlite")
    for k in range(3):
        store(place / f"{k}.safetensors", {"w": np.full(4, float(k))})
    with ledger.read(place / "book.sqlite") as book:
        (place / "seen.txt").write_text(str(book.head()))
    bad = place / "bad"
    bad.mkdir()
    (bad / "folder").mkdir()
    (bad / "empty").write_bytes(b"")
    (bad / "garbage").write_bytes(random.Random(0).randbytes(5000))
    (bad / "latin-1").write_bytes("g\u00e4me: \u00fc".encode("latin-1"))
    (bad / "json").write_text('{"a": [1, 2]}')
    (bad / "deep.json").write_text("[" * 100_000)
    (bad / "numbers.json").write_text('{"run": 1, "settings": {"scale": 0, "minor": "x"}, "outcome": [], "agents": 3}')
    (bad / "loop").symlink_to(bad / "loop")
    with sqlite3.connect(bad / "other.sqlite") as other:
        other.execute("CREATE TABLE meta (key, value)")
    (bad / "cut.sqlite").write_bytes((place / "book.sqlite").read_bytes()[:5000])
    (bad / "cut.safetensors").write_bytes((place / "0.safetensors").read_bytes()[:-3])
    (bad / "head.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    (bad / "list.safetensors").write_bytes((2).to_bytes(8, "little") + b"[]")
    for name, text in GAMES.items():
        (bad / f"{name}.yaml").write_text(text)
    return place


def commands(group: click.Group = main, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


# Parameter -> what a person would give; where a command needs it, the words that keep it short
USUAL = {
    "game": "game.yaml", "target": "book.sqlite", "targets": "book.sqlite", "agent": "agent-1", "run": "book.sqlite.runs/run",  # noqa: E501
    "updates": "0.safetensors 1.safetensors 2.safetensors", "names": "example1", "out": "out.x", "trim": "1",
}  # fmt: skip
WRITTEN = {"out", "output", "plot", "state"}
SLOWLY = {"plot", "state"}  # a run with pictures, or one that is saved, for every value
# Outside the test's own folder: only for what is surely read, or written as one whole file to a device
OUTSIDE = {
    **dict.fromkeys(("game", "updates", "center", "run"), ("/dev/null", "/proc/self/none", "/")),
    **dict.fromkeys(("out", "output"), ("/dev/null", "/dev/full")),
}
KEPT_SHORT = {
    ("reproduce",): ("--redraw",),
    ("watch",): ("--json",),
    ("league",): ("--games", "1", "--n", "3", "--row", "fedavg", "--jobs", "1"),
}


def usual(command: click.Command, without: str, words: tuple[str, ...]) -> list[str]:
    """A call of the command that lacks one parameter."""
    given: list[str] = list(KEPT_SHORT.get(words, ()))
    for parameter in command.params:
        if parameter.name == without or not (parameter.required or parameter.name == "trim"):
            continue
        value = USUAL.get(str(parameter.name), "x").split()
        given += value if isinstance(parameter, click.Argument) else [parameter.opts[0], *value]
    return given


def calls(place: Path) -> Iterator[tuple[bool, list[str]]]:
    """Each parameter of each command with everything that it should not be, and whether it may be written to."""
    bad = [str(path.relative_to(place)) for path in sorted((place / "bad").iterdir())]
    bad += ["bad/none/x", "game.yaml/x", ".", "book.sqlite", "game.yaml"]
    for words, command in commands():
        yield False, [*words, *KEPT_SHORT.get(words, ())]
        for parameter in command.params:
            if getattr(parameter, "is_flag", False):
                yield False, [*words, *usual(command, "", words), parameter.opts[0]]
                continue
            start = [*words, *usual(command, str(parameter.name), words)]
            values = (*TEXTS, *bad, *OUTSIDE.get(str(parameter.name), ()))
            for value in values[:: 12 if parameter.name in SLOWLY else 1]:
                option = [] if isinstance(parameter, click.Argument) else [parameter.opts[0]]
                yield parameter.name in WRITTEN, [*start, *option, value]


def settings_files(place: Path) -> Iterator[tuple[bool, list[str]]]:
    """Each setting of a game file with every odd value, in all commands that read one."""
    from fedincentive.settings import Settings

    rng = random.Random(0)
    names = [row[0] for row in Settings.documentation()]
    for name in names:
        for k, value in enumerate(VALUES):
            if name in SLOW and value in ("9223372036854775807", "1.0e+15"):
                continue
            path = place / f"{name}-{k}.yaml"
            short = "".join(f"  {key}: {n}\n" for key, n in (("rounds", 2), ("round_limit", 20)) if key != name)
            path.write_text(f"game: {{kind: repaired}}\nincentive:\n{short}  {name}: {value}\n")
            yield False, [rng.choice(("play", "play", "play", "quote")), path.name]


def problem(done: Result) -> str:
    """What is wrong with how a command ended; nothing when all is well."""
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return "".join(traceback.format_exception(*done.exc_info))[-1500:]
    if done.exit_code not in (0, 1, 2):
        return f"exit code {done.exit_code}"
    if "Traceback" in done.output:
        return done.output[-1500:]
    if done.exit_code and len(done.output.strip()) < 10:
        return f"exit code {done.exit_code} and no word about it: {done.output!r}"
    return "" if len(done.output) < 100_000 else f"{len(done.output)} characters"


def swept(place: Path, what: list[tuple[bool, list[str]]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(place)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # thousands of runs; nobody pulls the plug here
    found = []
    before, limits = signal.signal(signal.SIGALRM, give_up), resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, limits[1]))
    for _, words in what:
        signal.alarm(10)
        try:
            done = CliRunner().invoke(main, words, prog_name="fedincentive")
        except Endless:
            found.append(f"{words}: no end")
            continue
        finally:
            signal.alarm(0)
        if wrong := problem(done):
            found.append(f"{[word[:60] for word in words]}: {wrong}")
    signal.signal(signal.SIGALRM, before)
    resource.setrlimit(resource.RLIMIT_AS, limits)
    return found


def test_no_option_of_any_command_shows_a_traceback(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = sorted(calls(place), key=lambda call: call[0])
    assert len(what) > 2000
    found = swept(place, what, monkeypatch)
    assert not found, f"{len(found)} of {len(what)}:\n" + "\n\n".join(found[:40])


def test_no_setting_shows_a_traceback(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logging.disable()
    what = list(settings_files(place))
    found = swept(place, what, monkeypatch)
    logging.disable(logging.NOTSET)
    assert not found, f"{len(found)} of {len(what)}:\n" + "\n\n".join(found[:40])


def process(place: Path, *words: str | bytes, **options: object) -> subprocess.CompletedProcess[bytes]:
    """The command as a program of its own."""
    program = [sys.executable, "-m", "fedincentive.cli", *words]
    return subprocess.run(program, cwd=place, timeout=60, **{"capture_output": True, **options})  # type: ignore[call-overload]


LOUD = (("play", "game.yaml"), ("ledger", "show", "book.sqlite"), ("settings",), ("ledger", "export", "book.sqlite"))


@pytest.mark.parametrize("words", LOUD)
def test_nobody_reads_what_is_written(place: Path, words: tuple[str, ...]) -> None:
    """A reader that left, a full disk and no screen at all: no traceback, and no code that means something else."""
    reader, writer = os.pipe()
    os.close(reader)
    done = process(place, *words, capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.returncode in (0, 1) and b"Traceback" not in done.stderr, done.stderr
    with open("/dev/full", "wb") as full:
        done = process(place, *words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"No space left on device" in done.stderr, done.stderr
    assert b"Traceback" not in done.stderr, done.stderr
    closed = subprocess.run(
        ["bash", "-c", '"$@" >&-', "bash", sys.executable, "-m", "fedincentive.cli", *words],
        cwd=place, stderr=subprocess.PIPE, timeout=60,
    )  # fmt: skip
    assert closed.returncode in (0, 1) and b"Traceback" not in closed.stderr, closed.stderr


def test_names_of_any_language_on_a_screen_that_knows_ascii(place: Path) -> None:
    (place / "names.yaml").write_text(
        'game: {kind: data-value, agents: [{name: "\u5317", s_max: 3}, {name: "\u00e9", s_max: 4}]}\n'
        'incentive: {beta: "0.5", rounds: 2, round_limit: 5, run: "\u00fc"}\n',
        encoding="utf-8",
    )
    ascii_only = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    for words in (
        ("play", "names.yaml", "--ledger", "names.sqlite"),
        ("quote", "names.yaml"),
        ("ledger", "show", "names.sqlite"),
        ("ledger", "statement", "names.sqlite", "x"),
        ("ledger", "export", "names.sqlite"),
        ("certify", "names.sqlite.runs/\u00fc"),
    ):
        done = process(place, *(word.encode() for word in words), env=ascii_only)
        assert done.returncode in (0, 1, 2) and b"Traceback" not in done.stderr, (words, done.stderr[-3000:])


@pytest.mark.parametrize(
    "words",
    [
        (b"play", b"\xff.yaml"), (b"ledger", b"head", b"\xff"), (b"certify", b"\xfe\xff"), (b"play", b"game.yaml", b"--beta", b"\xff"),  # noqa: E501
        (b"play", b"game.yaml", b"--beta", b"1e400"), (b"play", b"bad/digits.yaml"), (b"quote", b"bad/laughs.yaml"), (b"\xff",),  # noqa: E501
        (b"aggregate", b"bad/garbage", b"--trim", b"0", b"--out", b"x"), (b"report", b"bad/other.sqlite"),
    ],
)  # fmt: skip
def test_as_a_program(place: Path, words: tuple[bytes, ...]) -> None:
    done = process(place, *words)
    assert done.returncode in (1, 2) and len(done.stderr) > 10 and b"Traceback" not in done.stderr, done.stderr
