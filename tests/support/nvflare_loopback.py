"""NVFlare's controller and executors in one process: tasks and messages pass through NVFlare's own serialiser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedincentive.plugins.nvflare.controller import IncentiveController
from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE
from nvflare.apis.client import Client
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContextManager
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace
from nvflare.app_common.decomposers import common_decomposers
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.fuel.utils import fobs

JOB = "job"
common_decomposers.register()


def carried(message: Shareable) -> Shareable:
    """As it arrives at the other side."""
    return fobs.loads(fobs.dumps(message))


class Engine:
    """One side's engine: its workspace, its contexts, the events its components fire."""

    def __init__(self, name: str, folder: Path) -> None:
        for part in ("startup", "local", JOB):
            (folder / name / part).mkdir(parents=True, exist_ok=True)
        self.name, self.workspace = name, Workspace(str(folder / name), name)
        self.handlers: dict[str, Callable[..., Shareable]] = {}
        self.analytics: list[dict[str, Any]] = []
        self.sites: dict[str, Site] = {}
        self.unreachable: set[str] = set()
        self.messages = 0
        self.components: dict[str, Any] = {}
        known = {FLContextKey.WORKSPACE_OBJECT: self.workspace, FLContextKey.CURRENT_JOB_ID: JOB}
        self._contexts = FLContextManager(self, name, JOB, private_stickers=known)

    @property
    def run_dir(self) -> Path:
        return Path(self.workspace.get_run_dir(JOB))

    def new_context(self) -> Any:
        return self._contexts.new_context()

    def get_workspace(self) -> Workspace:
        return self.workspace

    def get_component(self, name: str) -> Any:
        return self.components.get(name)

    def get_all_components(self) -> dict[str, Any]:
        return {}

    def get_clients(self) -> list[Client]:
        return [Client(name, "") for name in self.sites]

    def fire_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type == ANALYTIC_EVENT_TYPE:
            self.analytics.append(from_shareable(fl_ctx.get_prop(FLContextKey.EVENT_DATA)).data)

    def register_aux_message_handler(self, topic: str, handler: Callable[..., Shareable]) -> None:
        self.handlers[topic] = handler

    def send_aux_request(
        self, targets: list[str], topic: str, request: Shareable, timeout: float, fl_ctx: Any, optional: bool = False
    ) -> dict[str, Shareable]:
        self.messages += 1
        replies = {}
        for name in targets:
            if name in self.unreachable or self.sites[name].down:
                replies[name] = make_reply(ReturnCode.COMMUNICATION_ERROR)
            else:
                replies[name] = carried(self.sites[name].message(topic, carried(request)))
        return replies


class Site:
    """One client job: an executor in an engine of its own. `tamper` may change what leaves it; `filters` of a task are
    applied to its results as NVFlare's client runner does."""

    def __init__(self, name: str, folder: Path, make: Callable[[], Any]) -> None:
        self.name, self.folder, self._make = name, folder, make
        self.down = False
        self.tamper: Callable[[str, Shareable], Shareable] = lambda task, result: result
        self.filters: dict[str, list[Any]] = {}
        self.tasks: list[str] = []
        self.start()

    def start(self) -> None:
        """The client's process begins, or begins again: what it has in memory is new."""
        self.engine, self.executor = Engine(self.name, self.folder), self._make()
        self.executor.handle_event(EventType.START_RUN, self.engine.new_context())

    def message(self, topic: str, request: Shareable) -> Shareable:
        handler = self.engine.handlers[topic]
        return self.tamper("aux", handler(topic=topic, request=request, fl_ctx=self.engine.new_context()))

    def task(self, name: str, data: Shareable) -> Shareable:
        self.tasks.append(name)
        context = self.engine.new_context()
        context.set_prop(FLContextKey.TASK_DATA, data, private=True, sticky=False)
        result = self.executor.execute(name, data, context, Signal())
        try:
            for one in self.filters.get(name, ()):
                result = one.process(result, context)
        except Exception:
            return make_reply(ReturnCode.TASK_RESULT_FILTER_ERROR)
        return self.tamper(name, result)


class LoopbackController(IncentiveController):
    """The real controller; only the way of its tasks is short. `before(task, site)` may take a site down or up."""

    def sit(self, folder: Path, sites: list[Site]) -> LoopbackController:
        self.before: Callable[[str, Site], None] = lambda task, site: None
        self.late: list[tuple[Client, str, Shareable]] = []
        engine = Engine("server", folder)
        engine.sites = {site.name: site for site in sites}
        self.start_controller(engine.new_context())
        self.abort_signal = Signal()
        self.panics: list[str] = []
        return self

    def play(self) -> LoopbackController:
        self.control_flow(self.abort_signal, self.engine.new_context())
        return self

    def panic(self, reason: str) -> None:
        self.panics.append(reason)

    def send_model(self, task: str, model: Any, targets: Any, *, timeout: int, callback: Any) -> None:
        data = FLModelUtils.to_shareable(model)
        for name in reversed(targets):  # the order of arrival must not matter
            site = self.engine.sites[name]
            self.before(task, site)
            if site.down:
                continue
            result = carried(site.task(task, carried(data)))
            if result.get_return_code(ReturnCode.OK) == ReturnCode.OK:
                found = FLModelUtils.from_shareable(result)
                found.meta["client_name"] = name
                callback(found)

    def get_num_standing_tasks(self) -> int:
        return 0
