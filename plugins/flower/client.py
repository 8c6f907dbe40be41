"""The agent's side in Flower: an ordinary ClientApp trains and evaluates on as many points as its agent contributes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from ... import draws
from ...adversary import Misreport
from ...agent import Agent, ClosedFormSite, LossSite, Site, Strategy, worth_alone
from ...errors import SettingError
from ...game import Game
from ...messages import Broadcast, Update
from .node import Number, agent_name, cost_of, node_setting, notary
from .records import INCENTIVE, MESSAGE_TYPES, enrol_content, read_broadcast, report_content, to_arrays, to_record
from .settings import read

STATE = "fedincentive"  # our record in the node's context


class Task:
    """One message at one node: who is asked, what was said, and the ordinary app that does the work."""

    def __init__(self, app: ClientApp | None, message: Message, context: Context, arrays: str, config: str) -> None:
        self.app, self.message, self.context = app, message, context
        self.arrays, self.config = arrays, config
        self.told = message.content[INCENTIVE]
        self.settings, self.host = read(context.run_config, run=self.told["run"])
        self.agent = agent_name(context)
        self.metrics: dict[str, Any] = {}
        record = message.content.array_records.get(arrays)
        self.w = None if record is None else to_arrays(record)

    @property
    def broadcast(self) -> Broadcast:
        return read_broadcast(self.told, self.w)

    def train(self, w: Update, points: np.ndarray, step: int) -> Update:
        """d_i = w_local - w, w_local from the app's own train function."""
        seed = draws.local_seed(self.settings.seed, self.agent, step)
        reply = self._call("train", w, {"points": [int(i) for i in points], "seed": seed})
        local = to_arrays(next(iter(reply.array_records.values())))
        self.metrics = self.metrics or self._metrics(reply)  # the first training is the delivered one
        return {name: np.asarray(local[name] - array).astype(array.dtype, copy=False) for name, array in w.items()}

    def loss(self, w: Update, key: str) -> float:
        """The loss that the app's own evaluate function reports under `key`."""
        metrics = self._metrics(self._call("evaluate", w, {}))
        if key not in metrics:
            raise SettingError(
                f"The evaluate function of agent {self.agent!r} reports {sorted(metrics)}, but not {key!r}: say which "
                "one is the loss with strategic(app, loss=...)."
            )
        if self.message.metadata.message_type == MESSAGE_TYPES["value"]:
            self.metrics = metrics
        return float(metrics[key])

    def _call(self, kind: str, w: Update, extra: Mapping[str, Any]) -> RecordDict:
        if self.app is None:
            raise SettingError(f"Agent {self.agent!r} has no ClientApp that could {kind}.")
        sent = self.message.content[self.arrays] if w is self.w else to_record(w)
        own = self.message.content.config_records.get(self.config, ConfigRecord())
        content = RecordDict({self.arrays: sent, self.config: ConfigRecord({**own, **extra})})
        # Client processes may not address new messages; a reply to ours, with another type, is what the app gets.
        inner = Message(content, reply_to=self.message)
        inner.metadata.message_type = kind
        return self.app(inner, self.context).content

    @staticmethod
    def _metrics(reply: RecordDict) -> dict[str, Any]:
        return {name: value for record in reply.metric_records.values() for name, value in record.items()}


SiteOf = Callable[[Task], Site]


class StrategicApp(ClientApp):
    """A ClientApp that plays: our messages are answered by an Agent, every other one by the app it wraps.

    `site` makes the agent's site for a message; `s0` is what it contributes at first, in points. `strategic` and `play`
    build one for the two common cases.
    """

    def __init__(
        self,
        app: ClientApp | None,
        site: SiteOf,
        *,
        s0: Callable[[Task, Site], float],
        strategy: Strategy | str | None = None,
        lies: Misreport | str | None = None,
        arrays: str = "arrays",
        config: str = "config",
    ) -> None:
        super().__init__()
        self._app, self._site, self._s0 = app, site, s0
        self._strategy, self._lies = strategy, lies
        self._keys = arrays, config

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer one message."""
        if not message.has_content() or INCENTIVE not in message.content.config_records:
            if self._app is None:
                raise SettingError("This app only plays: run it under fedincentive.plugins.flower.IncentiveStrategy.")
            return self._app(message, context)
        task = Task(self._app, message, context, *self._keys)
        agent = self._agent(task)
        if task.told["phase"] == "enrol":
            content = enrol_content(agent.enrol(), agent.enrolment(task.told["run"]))
        else:
            content = self._answer(agent, task)
        return Message(content, reply_to=message)

    def _agent(self, task: Task) -> Agent:
        site = self._site(task)
        told = self._strategy or node_setting(task.context, "strategy", str)
        strategy = told or task.host.strategy_of(task.agent)
        signs = notary(task.context, task.settings, task.agent)
        asked = task.told["phase"] in ("enrol", "accept")  # training alone is measured twice, never in a round
        money = {"budget": task.host.budget_of(task.agent), "alone": worth_alone(site, task.settings) if asked else None}
        return Agent(task.agent, site, strategy, s0=self._s0(task, site), lies=self._lies, notary=signs, **money)

    def _answer(self, agent: Agent, task: Task) -> RecordDict:
        memory = task.context.state.config_records.get(STATE, ConfigRecord())
        if memory.get("run") == task.told["run"] and "agent" in memory:
            agent.restore(json.loads(memory["agent"]))
        report = agent.respond(task.broadcast)
        task.context.state[STATE] = ConfigRecord(
            {**memory, "run": task.told["run"], "agent": json.dumps(agent.state())}
        )
        update = None if report is None or report.update is None else to_record(report.update)
        return report_content(report, agent.name, update, task.arrays, task.metrics)


def strategic(
    app: ClientApp,
    *,
    size: int | Callable[[Context], int],
    classes: int,
    cost: Number = None,
    loss: str = "loss",
    model: Callable[[Context], ArrayRecord] | None = None,
    strategy: Strategy | str | None = None,
    lies: Misreport | str | None = None,
    arrays: str = "arrays",
    config: str = "config",
) -> StrategicApp:
    """Make an ordinary ClientApp a strategic agent: s_max = size, v_i = value_per_nat (ln classes - L_i), a cost.

    The app's train function trains on `points(message, size)` and returns the whole model, as for FedAvg; its evaluate
    function reports the mean loss on the node's own test data under `loss`. `size` counts the node's training points.
    `cost` is a number, a mapping by agent or a function of the context; else `cost` of the node-config, else
    `incentive.cost`. `model` gives the first model to slopes that train in contribute rounds (those of
    fedavg-strategic); phase 1 of 2p-upbred needs none.

        app = strategic(ordinary, size=count, classes=10)
    """

    def site(task: Task) -> LossSite:
        return LossSite.of(
            task.settings,
            task.agent,
            known_size(task, size),
            task.train,
            lambda w: task.loss(w, loss),
            classes=classes,
            cost=cost_of(cost, task.context, task.settings, task.agent),
            w0=None if model is None else lambda: to_arrays(model(task.context)),
        )

    def s0(task: Task, site: Site) -> float:
        return task.host.first(site.s_max)

    return StrategicApp(app, site, s0=s0, strategy=strategy, lies=lies, arrays=arrays, config=config)


def play(game: Game, *, strategy: Strategy | str | None = None) -> StrategicApp:
    """An app whose nodes are the agents of a closed-form game, by name; its model is the one array "w"."""
    sites = {site.name: site for site in ClosedFormSite.of(game)}

    def site(task: Task) -> ClosedFormSite:
        if task.agent not in sites:
            raise SettingError(
                f"The game has no agent {task.agent!r}; it has {', '.join(sites)}: set agent in the node-config."
            )
        return sites[task.agent]

    return StrategicApp(None, site, s0=lambda task, _: float(game.s0[game.agents.index(task.agent)]), strategy=strategy)


def points(message: Message, size: int, config: str = "config") -> np.ndarray:
    """Which of the node's `size` training points to train on: those its agent delivers; all under other strategies."""
    chosen = message.content.config_records.get(config, {}).get("points")
    return np.arange(size) if chosen is None else np.asarray(chosen, dtype=np.int64)


def known_size(task: Task, size: int | Callable[[Context], int]) -> int:
    """The node's number of points, counted once: scalar rounds never look at the data."""
    if not callable(size):
        return size
    memory = task.context.state.config_records.get(STATE)
    if memory is None or "size" not in memory:
        memory = ConfigRecord({**(memory or {}), "size": int(size(task.context))})
        task.context.state[STATE] = memory
    return int(memory["size"])  # type: ignore[arg-type]
