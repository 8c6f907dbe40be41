"""An ordinary Client API script as an agent: one site, NVFlare's own in-process backend, the real script."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fedincentive.plugins.nvflare import wire
from fedincentive.plugins.nvflare.executor import StrategicExecutor
from fedincentive.plugins.nvflare.wire import INCENTIVE
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.client import api as flare
from nvflare.client.config import ExchangeFormat, TransferType
from nvflare_loopback import JOB, Site

from fedincentive import draws, mechanisms
from fedincentive.messages import Broadcast, Enrol, Report
from fedincentive.settings import Settings

SCRIPT = Path(__file__).with_name("script.py")
TOLD = {"mechanism": "2p-upbred", "beta": "0.5", "run": "r", "rounds": 2, "agents": 1, "seed": 3, "join_timeout": 30.0}
W = {"w": np.float32([1.0, 2.0]), "n": np.array(4)}


class One:
    """One site with the script; what the center would send is written by hand."""

    def __init__(self, folder: Path, how: str, **options) -> None:
        custom = folder / "site-1" / JOB / "app_site-1" / "custom"
        custom.mkdir(parents=True)
        (custom / "script.py").write_text(SCRIPT.read_text())
        formats = {"params_exchange_format": ExchangeFormat.NUMPY, "server_expected_format": ExchangeFormat.NUMPY}
        options = {**formats, **options}
        self.site = Site(
            "site-1",
            folder,
            lambda: StrategicExecutor(
                TOLD, execution_mode="in_process", task_script_path="script.py", task_script_args=how, **options
            ),
        )
        settings = Settings.read({k: v for k, v in TOLD.items() if k not in ("agents", "join_timeout")})
        self.public = mechanisms.get("2p-upbred", settings).public()

    def ask(self, task: str, model: FLModel):
        reply = self.site.task(task, FLModelUtils.to_shareable(model))
        return reply if reply.get_return_code() != "OK" else FLModelUtils.from_shareable(reply)

    def enrol(self):
        asked = wire.json.dumps({"run": "r", "secret": "s"})
        return self.ask(INCENTIVE, FLModel(metrics={}, meta={INCENTIVE: asked, "enrol": True}))

    def broadcast(self, phase: str, s: float, round_: int = 0, w=W):
        told = wire.write(Broadcast("r", round_, round_, phase, None, {"site-1": s, "x": 1.0}, self.public))
        return self.ask("validate" if phase == "value" else phase, FLModel(params=dict(w), meta={INCENTIVE: told}))

    def end(self) -> None:
        self.site.executor.handle_event(EventType.END_RUN, self.site.engine.new_context())


@pytest.fixture
def one(tmp_path, monkeypatch):
    monkeypatch.setattr(flare, "context_dict", {})  # a client's process has one job, this one several
    monkeypatch.setattr(flare, "default_context", None)
    made = []

    def make(how: str = "full", **options) -> One:
        made.append(One(tmp_path, how, **options))
        return made[-1]

    yield make
    for site in made:
        site.end()


def chosen(points: int) -> np.ndarray:
    return np.arange(40.0)[draws.order(3, "site-1", 40)[:points]]


@pytest.mark.parametrize("transfer", [TransferType.FULL, TransferType.DIFF])
def test_the_update_is_the_scripts_change_on_the_points_its_agent_gives(one, transfer) -> None:
    site = one(params_transfer_type=transfer)
    told = wire.fields(site.enrol().meta[INCENTIVE], "site-1")
    del told["signature"]
    assert wire.read(Enrol, wire.json.dumps(told), "site-1") == Enrol("site-1", 40.0, 20.0)
    answer = site.broadcast("train", 7.0)
    report = wire.read(Report, answer.meta[INCENTIVE], "site-1")
    assert (report.delivered, answer.params_type, answer.metrics) == (7.0, ParamsType.DIFF, {"seen": 7})
    np.testing.assert_allclose(answer.params["w"], np.full(2, chosen(7).mean()), rtol=1e-6)
    assert answer.params["w"].dtype == np.float32 and answer.params["n"] == 1 and answer.params["n"].dtype == np.int64


def test_a_message_of_another_site_does_not_touch_the_task_at_hand(one) -> None:
    site = one()
    site.enrol()
    at_hand = site.site.executor._task
    reply = site.site.message(INCENTIVE, Shareable({INCENTIVE: "{}", "secret": "a guess"}))
    assert reply.get_return_code() == "ERROR" and site.site.executor._task is at_hand


def test_torch_models_go_to_the_script_and_back(one) -> None:
    torch = pytest.importorskip("torch", reason="the script trains with torch; `make test-nvflare` installs it")
    both = {"params_exchange_format": ExchangeFormat.PYTORCH, "server_expected_format": ExchangeFormat.PYTORCH}
    site = one("torch", **both)
    site.enrol()
    answer = site.broadcast("train", 7.0, w={name: torch.tensor(value) for name, value in W.items()})
    assert isinstance(answer.params["w"], torch.Tensor)
    np.testing.assert_allclose(answer.params["w"], np.full(2, chosen(7).mean()), rtol=1e-6)


def test_its_value_is_of_the_loss_it_reports(one) -> None:
    site = one()
    site.enrol()
    report = wire.read(Report, site.broadcast("value", 7.0).meta[INCENTIVE], "site-1")
    assert report.valuation == pytest.approx(np.log(2) - 1.0)


def test_asked_twice_it_says_the_same_and_an_older_round_is_refused(one, caplog) -> None:
    site = one()
    site.enrol()
    first, again = (site.broadcast("train", 7.0, 1) for _ in range(2))
    assert np.array_equal(first.params["w"], again.params["w"]) and first.meta[INCENTIVE] == again.meta[INCENTIVE]
    assert site.broadcast("train", 7.0, 0).get_return_code() == "EXECUTION_EXCEPTION"
    assert "comes after a later one" in caplog.text


@pytest.mark.parametrize(
    "how, phase, words",
    [
        ("unnamed", "value", "reports ['loss'], but not 'error'"),
        ("partial", "train", "sends a model without ['n']"),
        ("crash", "train", "failed in task train"),
    ],
)
def test_what_a_script_does_wrong_is_one_line_that_names_it(one, caplog, how, phase, words) -> None:
    site = one(how)
    site.enrol()
    assert site.broadcast(phase, 7.0).get_return_code() == "EXECUTION_EXCEPTION"
    assert any(words in record.message and "site-1" in record.message for record in caplog.records)


def test_a_script_that_ends_before_it_joins_is_told_at_once(one, caplog) -> None:
    assert one("silent").enrol().get_return_code() == "EXECUTION_EXCEPTION"
    assert "'site-1' ended before it joined" in caplog.text


def test_filters_and_keys_do_not_go_together(one, caplog, monkeypatch) -> None:
    from nvflare.app_common.filters.exclude_vars import ExcludeVars

    site = one()
    runner = type("Runner", (), {"task_result_filters": {"train/out": [ExcludeVars()]}})()
    context = site.site.engine.new_context
    monkeypatch.setattr(site.site.engine, "new_context", lambda: _with(context(), FLContextKey.RUNNER, runner))
    assert not hasattr(site.enrol(), "get_return_code")
    object.__setattr__(site.site.executor.seat.settings, "keys", "keys")
    assert site.enrol().get_return_code() == "EXECUTION_EXCEPTION"
    assert "ExcludeVars would change them" in caplog.text


def _with(context, key, value):
    context.set_prop(key, value, private=True, sticky=False)
    return context
