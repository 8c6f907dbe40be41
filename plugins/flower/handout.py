"""At the end of a run: its model, ledger and outcome for the nodes, whose owners cannot look into the server's folder.

The server sends them where `incentive.handout` is set, and a node keeps them where its node-config names a folder:

    flower-supernode ... --node-config 'agent="hospital-a" keep="/data/runs" ...'
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from ... import checks
from ...center import Outcome
from ...files import replace
from ...ledger import Ledger
from ...ledger.export import to_jsonl
from .node import node_setting
from .records import INCENTIVE, to_arrays

PHASE = "handout"
LEDGER, OUTCOME, MODEL = "ledger.jsonl", "outcome.json", "model.npz"
log = logging.getLogger("flwr.fedincentive")  # shown where Flower shows its own


def content(run: str, ended: Outcome, ledger: Ledger, model: ArrayRecord, arrays_key: str) -> RecordDict:
    """What is sent to every node."""
    certificate = None if ended.certificate is None else ended.certificate.to_json()
    said = json.dumps({"outcome": ended.to_json(), "certificate": certificate}, indent=1)
    files = {LEDGER: "".join(to_jsonl(ledger)).encode(), OUTCOME: said.encode()}
    told = ConfigRecord({"run": run, "phase": PHASE})
    return RecordDict({INCENTIVE: told, PHASE: ConfigRecord(dict(files)), arrays_key: model})


def keep(message: Message, context: Context, arrays_key: str) -> RecordDict:
    """What a node does with it: files in the folder of its node-config's `keep`, in one of the run's own."""
    folder, told = node_setting(context, "keep", str), message.content[INCENTIVE]
    if folder is not None:
        place = Path(folder).expanduser() / checks.folder_name("run", told["run"])
        place.mkdir(parents=True, exist_ok=True)
        _write(place, message.content[PHASE], to_arrays(message.content[arrays_key]))
        log.info("Ledger, outcome and model of run %s: %s", told["run"], place)
    return RecordDict({INCENTIVE: ConfigRecord({"kept": folder is not None})})


def _write(place: Path, files: Mapping[str, Any], model: Mapping[str, np.ndarray]) -> None:
    for name in (LEDGER, OUTCOME):
        replace(place / name, lambda file, name=name: file.write(bytes(files[name])))
    replace(place / MODEL, lambda file: np.savez(file, **model))
