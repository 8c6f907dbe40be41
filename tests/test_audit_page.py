"""The commands of docs/audit.md, typed one after the other: they say what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commands import command

CHECKOUT = Path(__file__).parents[1]
PAGE = CHECKOUT / "docs" / "audit.md"
DIFFERS = [  # from day to day
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME"),
    (r"FI-(\d+)-[0-9a-f]{16}", r"FI-\1-ID"),
    (r"\b[0-9a-f]{12,64}\b", "HASH"),
    (r"\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{44}", "+KEY"),
    (r"\d+\.\d s\b", "N s"),
    (r"cosigned by '\w+' at", "cosigned by WHO at"),  # in the order of their clocks
    (r" +", " "),
]


def steps() -> list[tuple[str, str]]:
    """(command, what it prints) of every console block."""
    blocks = "".join(re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL))
    parts = re.split(r"^\$ ", blocks, flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


def typed(line: str) -> str:
    if line.startswith("fedincentive "):
        return command(*shlex.split(line)[1:]).output
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def alike(text: str) -> str:
    for pattern, name in DIFFERS:
        text = re.sub(pattern, name, text)
    return text


def test_the_audit_page_says_what_its_commands_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    game = yaml.safe_load((CHECKOUT / "examples" / "games" / "hospitals.yaml").read_text())
    changes = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])
    game["incentive"] |= changes["incentive"]
    Path("game.yaml").write_text(yaml.safe_dump(game))
    ids: dict[str, str] = {}  # of payouts: on the page, here
    for line, expected in steps():
        for told, real in ids.items():
            line = line.replace(told, real)
        said = typed(line)
        ids.update(zip(re.findall(r"FI-\d+-\w+", expected), re.findall(r"FI-\d+-\w+", said), strict=False))
        wanted = ".*".join(map(re.escape, re.split(r"^\.\.\.$", alike(expected), flags=re.MULTILINE)))
        assert re.fullmatch(wanted, alike(said), re.DOTALL), f"$ {line}\n{said}"
