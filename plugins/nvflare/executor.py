"""The agent's side in NVFlare: an ordinary Client API script trains and evaluates, its agent answers everything else.

A scalar round never reaches the script. A training round gives it the model and the points its agent delivers; a
valuation gives it the model to evaluate, as NVFlare's task `validate`.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.analytix import TrackConst
from nvflare.apis.dxo import DXO, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.apis.utils.task_utils import contains_lazy_download_ref, get_filters, materialize_lazy_download_refs
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.executors.client_api import in_process_backend
from nvflare.app_common.executors.client_api_executor import ClientAPIExecutor
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.client import api as flare
from nvflare.client.config import ExchangeFormat
from nvflare.fuel.data_event.utils import get_scope_property
from nvflare.private.privacy_manager import Scope

from ... import draws
from ...agent import ClosedFormSite, LossSite, Site
from ...errors import FedIncentiveError, RunError, SettingError
from ...game import read as read_game
from ...messages import Update
from . import script, wire
from .arrays import fitted, to_arrays, to_params
from .seat import Seat
from .wire import INCENTIVE

TRAIN, VALIDATE = AppConstants.TASK_TRAIN, AppConstants.TASK_VALIDATION
POLL = 0.02  # seconds between looks for the script's answer; NVFlare's own half second is most of a small round


class Seated:
    """What both executors share: the seat of the agent, tasks and auxiliary messages for it."""

    incentive: dict[str, Any]
    seat: Seat
    tensors = False  # whether the server's models are torch tensors
    metrics: Mapping[str, Any] = {}  # the script's own numbers of the last task

    def sit_down(self, fl_ctx: FLContext) -> None:
        """The agent of this site takes its seat, and scalar rounds find it."""
        engine, job = fl_ctx.get_engine(), fl_ctx.get_job_id()
        workspace = engine.get_workspace()
        run, local = Path(workspace.get_run_dir(job)), Path(workspace.get_site_config_dir())
        self.seat = Seat(fl_ctx.get_identity_name(), self.incentive, run, local, self._site)
        os.environ[script.AUDITED] = "1" if self.seat.settings.audited else ""
        engine.register_aux_message_handler(INCENTIVE, self._hear)

    def _hear(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """A scalar round as an auxiliary message."""
        if not self.seat.admits(request.get("secret")):
            return make_reply(ReturnCode.ERROR)
        return self._guarded(fl_ctx, lambda: self._said(self.seat.answer(request.get(INCENTIVE))[0]))

    @staticmethod
    def _said(text: str | None) -> Shareable:
        reply = Shareable()
        reply[INCENTIVE] = text
        return reply

    def play(self, task: str, model: FLModel, fl_ctx: FLContext) -> Shareable:
        """Answer a task of the center's."""
        asked = model.meta.get(INCENTIVE)
        w = to_arrays(model.params) if model.params else None
        if model.meta.get("enrol"):
            self._check_filters(fl_ctx)
            return FLModelUtils.to_shareable(FLModel(metrics={}, meta={INCENTIVE: self.seat.enrol(asked, w)}))
        text, update = self.seat.answer(asked, w)
        params = {} if update is None else {"params": to_params(update, self.tensors), "params_type": ParamsType.DIFF}
        return FLModelUtils.to_shareable(FLModel(metrics=dict(self.metrics), meta={INCENTIVE: text}, **params))

    def _check_filters(self, fl_ctx: FLContext) -> None:
        """An agent signs its update before filters see it: with keys, none may change it afterwards."""
        configured = getattr(fl_ctx.get_prop(FLContextKey.RUNNER), "task_result_filters", None) or {}
        found = get_filters(Scope.TASK_RESULT_FILTERS_NAME, fl_ctx, configured, TRAIN, FilterKey.OUT)
        if found and self.seat.settings.keys is not None and not self.seat.audits:
            names = ", ".join(type(one).__name__ for one in found)
            raise SettingError(
                f"Agent {self.seat.name!r} signs its updates, and {names} would change them afterwards: take the "
                "filters of task train away, or play without incentive.keys."
            )

    def _guarded(self, fl_ctx: FLContext, answer: Callable[[], Shareable]) -> Shareable:
        """Errors of ours are one line of the site's log, without a traceback; the agent is absent then."""
        try:
            return answer()
        except FedIncentiveError as error:
            self.log_error(fl_ctx, str(error), fire_event=False)  # type: ignore[attr-defined]
            reply = make_reply(ReturnCode.EXECUTION_EXCEPTION)
            reply["reason"] = str(error)
            return reply


class GameExecutor(Seated, Executor):
    """An agent of a closed-form game, by its site's name; its model is the one array "w". The job brings the file."""

    def __init__(self, incentive: dict[str, Any], game: str) -> None:
        super().__init__()
        self.incentive, self.game = incentive, game

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            self._folder = fl_ctx.get_engine().get_workspace().get_app_custom_dir(fl_ctx.get_job_id())
            self.sit_down(fl_ctx)
        super().handle_event(event_type, fl_ctx)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        model = FLModelUtils.from_shareable(shareable)
        return self._guarded(fl_ctx, lambda: self.play(task_name, model, fl_ctx))

    def _site(self, agent: str) -> tuple[Site, float, str | None]:
        game = read_game(Path(self._folder) / self.game)
        if agent not in game.agents:
            raise SettingError(f"The game has no agent {agent!r}; it has {', '.join(game.agents)}: name the sites so.")
        index = game.agents.index(agent)
        return ClosedFormSite(game, index), float(game.s0[index]), None


class StrategicExecutor(Seated, ClientAPIExecutor):
    """NVFlare's Client API executor with an agent before the script.

    At an auditor's site the script runs only where an agent is audited, and under the agent's name: it then loads that
    agent's data, to which the auditor must have access.
    """

    def __init__(self, incentive: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.incentive = incentive
        self._joined: dict[str, Any] | None = None
        self._records: list[bytes] | None = None
        self._visited: StrategicExecutor | None = None  # at an auditor's site: where it was last
        self._task: tuple[FLContext, Signal]

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            self.sit_down(fl_ctx)
            if self.seat.audits:
                return
        if event_type == EventType.END_RUN:
            self._leave()
        super().handle_event(event_type, fl_ctx)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Our tasks go to the agent, all others straight to the script."""
        meta = from_shareable(shareable).meta
        if INCENTIVE not in meta:
            return super().execute(task_name, shareable, fl_ctx, abort_signal)
        if contains_lazy_download_ref(shareable):  # as it is for a trainer in a process of its own
            shareable = materialize_lazy_download_refs(shareable, fl_ctx.get_engine().get_cell(), abort_signal)
        model = FLModelUtils.from_shareable(shareable)
        self._task, self.metrics = (fl_ctx, abort_signal), {}
        return self._guarded(fl_ctx, lambda: self.play(task_name, model, fl_ctx))

    def _hear(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        if self.seat.admits(request.get("secret")):  # no other site's message touches the task at hand
            self._task = fl_ctx, Signal()  # some slopes train in scalar rounds too
        return super()._hear(topic, request, fl_ctx)

    @property
    def tensors(self) -> bool:  # type: ignore[override]
        return ExchangeFormat(self._server_expected_format) == ExchangeFormat.PYTORCH

    def fire_log_analytics(self, fl_ctx: FLContext, dxo: DXO) -> None:
        """What the script logs; that it joins is for us, all else goes where NVFlare sends it."""
        if dxo.data.get(TrackConst.TRACK_KEY) == script.JOIN:
            self._joined = wire.fields(dxo.data.get(TrackConst.TRACK_VALUE), "the script")
        else:
            super().fire_log_analytics(fl_ctx, dxo)

    @staticmethod
    def _requires_materialized_result(task_name: str, fl_ctx: FLContext) -> bool:
        return True  # the agent needs the values, not a reference to a trainer's process

    # What the script does for its agent

    def _site(self, agent: str) -> tuple[Site, float, str | None]:
        if agent != self.seat.name:
            return self._visit(agent)._site(agent)
        told = self._wait_for_script()
        seat = self.seat
        size = told["size"]
        if told["records"] is not None and self._records is None:
            self._records = script.read_records(told["records"])
        site = LossSite.of(
            seat.settings,
            seat.name,
            size,
            self._train,
            lambda w: self._loss(w, told["loss"]),
            classes=told["classes"],
            cost=told["cost"],
            w0=lambda: seat.first_model,
            records=None if self._records is None else lambda: self._records,
        )
        return site, seat.host.first(size), told["strategy"]

    def _visit(self, agent: str) -> StrategicExecutor:
        """The script at the site of an agent who is audited, begun anew: nothing is left of what it did before."""
        self._leave()
        fl_ctx, signal = self._task
        at_agent = copy.copy(fl_ctx)
        at_agent.get_identity_name = lambda *args, **kwargs: agent  # type: ignore[method-assign]
        there = copy.copy(self)
        there.seat, there._task = self.seat.of(agent, there._site), (at_agent, signal)
        there._joined = there._records = None
        there._backend = backend = there._create_backend()
        # a process of its own connects with the credentials of the auditor's site, whatever name the script has
        backend._get_site_auth_value = lambda key: get_scope_property(self.seat.name, key)
        backend.initialize(there._build_backend_context(), at_agent)
        self._visited = there
        return there

    def _leave(self) -> None:
        """End the script of the agent that was audited last."""
        if self._visited is not None:
            self._visited._backend.finalize(self._visited._task[0])
            flare.context_dict.clear()  # the next script in this process calls flare.init() too
            flare.default_context = None
            self._visited = None

    def _wait_for_script(self) -> dict[str, Any]:
        end = time.monotonic() + self.seat.host.join_timeout
        while self._joined is None:
            alive = getattr(self._backend, "_trainer_thread_is_alive", lambda: self._backend is not None)
            if not alive():
                raise RunError(
                    f"The training script of agent {self.seat.name!r} ended before it joined: its log says why."
                )
            if time.monotonic() > end:
                raise RunError(
                    f"The training script of agent {self.seat.name!r} has not joined in "
                    f"{self.seat.host.join_timeout:g} seconds: call fedincentive.plugins.nvflare.join(size=..., "
                    "classes=...) after flare.init()."
                )
            time.sleep(POLL)
        return self._joined

    def _train(self, w: Update, points: np.ndarray, step: int) -> Update:
        """d_i: the script's DIFF as it is, or its FULL model less w."""
        told = {
            "points": np.asarray(points, "<i8").tobytes(),
            "seed": draws.local_seed(self.seat.settings.seed, self.seat.name, step),
            "step": step,
        }
        if self.seat.settings.audited:
            told["threads"] = self.seat.settings.threads
        result = self._call(TRAIN, w, told)
        if not result.params:
            raise SettingError(f"The script of agent {self.seat.name!r} sends no params from task train: send them.")
        local = fitted(result.params, w, self.seat.name)
        self.metrics = self.metrics or dict(result.metrics or {})  # the first training is the delivered one
        if result.params_type == ParamsType.DIFF:
            return local
        return {name: np.asarray(local[name] - array).astype(array.dtype, copy=False) for name, array in w.items()}

    def _loss(self, w: Update, key: str) -> float:
        metrics = dict(self._call(VALIDATE, w, {}).metrics or {})
        if key not in metrics:
            raise SettingError(
                f"The script of agent {self.seat.name!r} reports {sorted(metrics)}, but not {key!r}: answer "
                f"flare.is_evaluate() with FLModel(metrics={{{key!r}: ...}}), or name the loss with join(loss=...)."
            )
        self.metrics = self.metrics or metrics
        return float(metrics[key])

    def _call(self, task: str, w: Update, told: Mapping[str, Any]) -> FLModel:
        """Give the script a task of its own, inside the one that came from the center."""
        fl_ctx, signal = self._task
        model = FLModel(params=to_params(w, self.tensors), current_round=told.get("step", 0), meta=dict(told))
        self._wait_for_rest()
        reply = ClientAPIExecutor.execute(self, task, FLModelUtils.to_shareable(model), fl_ctx, signal)
        if reply.get_return_code(ReturnCode.OK) != ReturnCode.OK:
            raise RunError(f"The script of agent {self.seat.name!r} failed in task {task}: its log says why.")
        return FLModelUtils.from_shareable(reply)

    def _create_in_process_backend(self) -> Any:
        in_process_backend._RESULT_POLL_INTERVAL = POLL
        return super()._create_in_process_backend()

    def _wait_for_rest(self) -> None:
        """NVFlare's in-process send() drops a task that comes before it has returned: let it return."""
        api = getattr(self._backend, "_client_api", None)
        end = time.monotonic() + 100 * POLL
        while getattr(api, "receive_called", False) and time.monotonic() < end:
            time.sleep(POLL / 10)
