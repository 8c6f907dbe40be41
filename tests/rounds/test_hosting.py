"""What a session of any host does before anyone joins."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from fedincentive.hosting import HostSettings, Session
from fedincentive.settings import Settings

WARNING = "whoever reaches this server can speak for any agent"


@pytest.mark.parametrize(
    ("settings", "options", "warned"),
    [({}, {}, 1), ({}, {"network": False}, 0), ({"keys": "keys.json"}, {}, 0)],
    ids=["no keys", "one process", "keys"],
)
def test_a_run_without_keys_says_loudly_who_can_speak(
    settings: dict[str, Any], options: dict[str, Any], warned: int, tmp_path: Path, caplog: Any
) -> None:
    session = Session(
        Settings.read({"mechanism": "upbred", "run": "r", **settings}),
        HostSettings(output=str(tmp_path)),
        logging.getLogger("a host"),
    )
    if settings:
        session.keys = {"a": b"what a key is made of is not asked here"}
    session.preflight(**options)
    session.close()
    found = [record for record in caplog.records if WARNING in record.getMessage()]
    assert len(found) == warned and all(record.levelno == logging.WARNING for record in found)
