"""Audited runs in NVFlare: sites of the auditors' names make the agents' updates again."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import parity
import pytest
from fedincentive.plugins.nvflare import IncentiveRecipe
from fedincentive.plugins.nvflare.executor import GameExecutor, StrategicExecutor
from fedincentive.plugins.nvflare.wire import INCENTIVE
from keyring import folder_of
from nvflare.apis.event_type import EventType
from nvflare.apis.signal import Signal
from nvflare.client import api as flare
from nvflare.client.config import ExchangeFormat
from nvflare_loopback import JOB, Site

from fedincentive import draws, ledger
from fedincentive.agent import ClosedFormSite
from fedincentive.errors import SettingError
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify
from fedincentive.provenance import audits

NAMES = [agent["name"] for agent in parity.GAME["agents"]]
AUDITORS = ("ann", "bea", "cleo")
SCRIPT = Path(__file__).with_name("script.py")


class Lazy(ClosedFormSite):
    """It does half of the work that it says it does."""

    def update(self, w: Any, points: float, step: int, s: Any) -> Any:
        return {name: array / 2 for name, array in super().update(w, points, step, s).items()}


class Liar(GameExecutor):
    def _site(self, agent: str) -> Any:
        site, s0, strategy = super()._site(agent)
        return Lazy(site.game, site.i), s0, strategy


@pytest.fixture
def audited(table, tmp_path):
    def make(kind: Any = GameExecutor, auditors: tuple[str, ...] = AUDITORS, **settings: Any) -> Any:
        told = {
            "auditors": list(AUDITORS),
            "output": str(tmp_path / "kept"),
            "audit": 1.0,
            "rounds": 3,
            "round_limit": 2,
        }
        told |= settings
        told["keys"] = str(folder_of(tmp_path / "keys", [*NAMES, *AUDITORS]))
        return table("2p-upbred", beside=auditors, kinds={"clinic": kind}, **told)

    return make


def failures(folder: Path) -> dict[str, int]:
    """Who failed the audit of which step; the ledger holds for both verifiers."""
    with ledger.read(folder / "kept" / parity.RUN / "ledger.sqlite") as book:
        assert verify(book, recompute=True).clean
        assert standalone.check(list(to_jsonl(book)))[0] == []
        memos = [record.inputs for record in book.entries(parity.RUN) if record.rule == audits.RULE]
    assert len(memos) == 3
    return {agent: memo["step"] for memo in memos for agent in memo["failed"]}


def test_honest_sites_pass_every_audit(audited, tmp_path) -> None:
    assert audited().play().panics == []
    assert failures(tmp_path) == {}


def test_a_site_that_does_half_of_the_work_is_caught(audited, tmp_path) -> None:
    played = audited(Liar).play()
    assert played.panics == [] and failures(tmp_path) == {"clinic": 0}
    assert played.outcome.payments["clinic"] < 0


def test_an_auditor_without_a_site_is_named(audited) -> None:
    (reason,) = audited(auditors=("ann", "cleo")).play().panics
    assert "Auditor 'bea' has not come" in reason


def test_verdicts_that_are_none_are_refused(audited, caplog) -> None:
    """The answers of whoever is drawn first make no sense: it counts as silent, and the others are asked."""
    played = audited(rounds=1)
    nonsense = itertools.cycle(([1], [[]], [{}], [{"agent": "clinic"}], "pass", {"agent": "clinic"}, ["pass"]))

    babblers = []

    def babble(task, result):
        told = result["DXO"]["meta"].get(INCENTIVE) if "DXO" in result else None
        said = json.loads(told) if told else {}
        if said.get("verdicts") and said["agent"] in (babblers or [said["agent"]]):
            babblers.append(said["agent"])
            result["DXO"]["meta"][INCENTIVE] = json.dumps({**said, "verdicts": next(nonsense)})
        return result

    for auditor in AUDITORS:
        played.engine.sites[auditor].tamper = babble
    assert played.play().panics == []
    assert f"{babblers[0]!r} sends verdicts = [1]: a list of objects is needed" in caplog.text


@pytest.mark.parametrize("without", ["keys", "output"])
def test_a_recipe_says_what_auditors_need(tmp_path, without) -> None:
    game = Path(__file__).parents[2] / "examples" / "games" / "hospitals.yaml"
    told = {"keys": "keys", "output": str(tmp_path), "auditors": list(AUDITORS), "mechanism": "2p-upbred", "beta": "1"}
    del told[without]
    with pytest.raises(SettingError, match="give keys.*absolute path as output"):
        IncentiveRecipe(game=game, min_clients=5, **told)


def test_an_auditors_script_works_under_the_name_of_each_agent(tmp_path, monkeypatch) -> None:
    """One process, one agent after another: the script loads the data of the agent, and trains as it did there."""
    monkeypatch.setattr(flare, "context_dict", {})
    monkeypatch.setattr(flare, "default_context", None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    told = {"mechanism": "2p-upbred", "beta": "0.5", "run": "r", "rounds": 2, "agents": 2, "seed": 3}
    told |= {"auditors": list(AUDITORS), "keys": str(folder_of(tmp_path / "keys", ["site-1", "site-2", *AUDITORS]))}
    custom = tmp_path / "ann" / JOB / "app_ann" / "custom"
    custom.mkdir(parents=True)
    (custom / "script.py").write_text(SCRIPT.read_text())
    formats = {"params_exchange_format": ExchangeFormat.NUMPY, "server_expected_format": ExchangeFormat.NUMPY}
    started = {"execution_mode": "in_process", "task_script_path": "script.py", "task_script_args": "named"}
    ann = Site("ann", tmp_path, lambda: StrategicExecutor(told, **started, **formats))
    ann.executor._task = ann.engine.new_context(), Signal()
    w = {"w": np.float32([1.0, 2.0]), "n": np.array(4)}
    try:
        for agent in ("site-1", "site-2", "site-1"):
            site, _, _ = ann.executor._site(agent)
            own = np.arange(40.0) + 100 * int(agent[-1])
            assert site.records() == [point.tobytes() for point in own]
            mean = own[draws.order(3, agent, 40)[:7]].mean()
            np.testing.assert_allclose(site.update(w, 7, 0, {})["w"], mean, rtol=1e-6)
    finally:
        ann.executor.handle_event(EventType.END_RUN, ann.engine.new_context())
    assert not list(tmp_path.glob("*.records"))  # the agent has read and removed them
