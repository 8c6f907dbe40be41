"""The agent's side in Flower: an ordinary ClientApp trains and evaluates on as many points as its agent contributes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from ... import draws
from ...adversary import Misreport
from ...agent import Agent, ClosedFormSite, LossSite, Site, Strategy, read_keys, worth_alone
from ...audit import Auditor
from ...errors import RunError, SettingError
from ...game import Game
from ...messages import Broadcast, Update
from ...provenance import records as commitments
from ...provenance.records import Commitment
from . import handout, legacy
from .node import Number, agent_name, at_site, commitment_file, cost_of, keys_of, node_setting, notary, tag_key
from .records import (
    EVALUATED,
    INCENTIVE,
    MESSAGE_TYPES,
    enrol_content,
    read_broadcast,
    record_of,
    records_of,
    report_content,
    to_arrays,
    to_record,
)
from .settings import read

STATE = "fedincentive"  # our record in the node's context
SECAGG = (
    "The app has secaggplus_mod, but SecAgg+ is a workflow of Flower's own: the center would see only sums, and could "
    "neither check nor pay for one agent's update. Take the mod out, or run Flower's workflow without a mechanism."
)


class Task:
    """One message at one node: who is asked, what was said, and the ordinary app that does the work."""

    def __init__(self, app: ClientApp | None, message: Message, context: Context, arrays: str, config: str) -> None:
        self.app, self.message, self.context = app, message, context
        self.arrays, self.config = arrays, config
        self.told = message.content[INCENTIVE]
        self.settings, self.host = read(context.run_config, run=self.told["run"])
        self.agent = agent_name(context)
        self.metrics: dict[str, Any] = {}
        record = record_of(message.content, arrays, ArrayRecord)
        self.w = None if record is None else to_arrays(record)

    @property
    def broadcast(self) -> Broadcast:
        return read_broadcast(self.told, self.w)

    def train(self, w: Update, points: np.ndarray, step: int) -> Update:
        """d_i = w_local - w, w_local from the app's own train function."""
        seed = draws.local_seed(self.settings.seed, self.agent, step)
        reply = self._call("train", w, {"points": points.tolist(), "seed": seed})
        record = next(iter(records_of(reply, ArrayRecord).values()))
        local = to_arrays(record if not legacy.is_legacy(self.app) else legacy.named(record, w, self.agent))
        self.metrics = self.metrics or self._metrics(reply)  # the first training is the delivered one
        return {name: np.asarray(local[name] - array).astype(array.dtype, copy=False) for name, array in w.items()}

    def loss(self, w: Update, key: str) -> float:
        """The loss that the app's own evaluate function reports under `key`."""
        metrics = self._evaluated(w) or self._metrics(self._call("evaluate", w, {}))
        if key not in metrics:
            raise SettingError(
                f"The evaluate function of agent {self.agent!r} reports {sorted(metrics)}, but not {key!r}: say which "
                "one is the loss with strategic(app, loss=...)."
            )
        if self.message.metadata.message_type == MESSAGE_TYPES["value"]:
            self.metrics = metrics
        return float(metrics[key])

    def _evaluated(self, w: Update) -> dict[str, Any] | None:
        """What the app found of this very model when it was asked to evaluate it after the last round. An agent that
        signs its value does not rely on the center's word that it is the same model."""
        memory = memory_of(self.context)
        if w is not self.w or memory.get("evaluated") != model_name(self.told):
            return None
        signs = keys_of(self.context, self.settings) is not None
        return None if signs else cast(dict[str, Any], json.loads(str(memory["metrics"])))

    def _call(self, kind: str, w: Update, extra: Mapping[str, Any]) -> RecordDict:
        if self.app is None:
            raise SettingError(f"Agent {self.agent!r} has no ClientApp that could {kind}.")
        sent = self.message.content[self.arrays] if w is self.w else to_record(w)
        own = record_of(self.message.content, self.config, ConfigRecord) or {}
        if self.settings.audited and (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(self.settings.threads)  # with others an update is not the same, bit for bit
        points = {key: extra[key] for key in extra if key != "seed"}  # a seed of the user's own stays
        content = RecordDict({self.arrays: sent, self.config: ConfigRecord({**extra, **own, **points})})
        if legacy.is_legacy(self.app):
            content = legacy.content(kind, sent, content[self.config])
        # Client processes may not address new messages; a reply to ours, with another type, is what the app gets.
        inner = Message(content, reply_to=self.message)
        inner.metadata.message_type = kind
        try:
            reply = self.app(inner, self.context)
        except KeyError as error:
            if "secagg" in str(error):
                raise SettingError(SECAGG) from None
            raise
        if reply.has_error():  # a mod may answer so
            raise RunError(f"The app of agent {self.agent!r} cannot {kind}: {reply.error.reason}")
        return reply.content

    def _metrics(self, reply: RecordDict) -> dict[str, Any]:
        if legacy.is_legacy(self.app):
            return legacy.metrics(reply)
        return metrics_of(reply)


SiteOf = Callable[[Task], Site]


def auditor_name(message: Message, context: Context) -> str | None:
    """The auditor whom a node is for: `auditor` of its node-config; in a simulation the nodes after those of the agents
    are the auditors' in their order. None for an agent's node."""
    if name := node_setting(context, "auditor", str):
        return str(name)
    settings, host = read(context.run_config, run=message.content[INCENTIVE]["run"])
    index = node_setting(context, "partition-id", int)
    if settings.auditors is None or index is None or node_setting(context, "agent", str) or index < host.agents:
        return None
    return settings.auditors[index - host.agents] if index - host.agents < len(settings.auditors) else None


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
        if not message.has_content() or record_of(message.content, INCENTIVE, ConfigRecord) is None:
            return self._pass_on(message, context)
        if message.content[INCENTIVE]["phase"] == handout.PHASE:
            return Message(handout.keep(message, context, self._keys[0]), reply_to=message)
        if (auditor := auditor_name(message, context)) is not None:
            return self._audit(auditor, message, context)
        task = Task(self._app, message, context, *self._keys)
        agent = self._agent(task)
        if task.told["phase"] == "enrol":
            content = enrol_content(agent.enrol(), agent.enrolment(task.told["run"]))
        else:
            content = self._answer(agent, task)
        return Message(content, reply_to=message)

    def _pass_on(self, message: Message, context: Context) -> Message:
        """The ordinary app's own answer to what is not ours."""
        if self._app is None:
            raise SettingError("This app only plays: run it under fedincentive.plugins.flower.IncentiveStrategy.")
        content = message.content if message.has_content() else RecordDict()
        if legacy.is_legacy(self._app) and record_of(content, self._keys[0], ArrayRecord) is not None:
            reply = legacy.answer(self._app, message, context, *self._keys)
        else:
            reply = self._app(message, context)
        if (told := record_of(content, EVALUATED, ConfigRecord)) is not None and not reply.has_error():
            memory = memory_of(context)
            memory["evaluated"], memory["metrics"] = model_name(told), json.dumps(metrics_of(reply.content))
        return reply

    # What is registered with the wrapper is the wrapped app's

    def train(self, *arguments: Any, **named: Any) -> Any:
        return self._inner.train(*arguments, **named)

    def evaluate(self, *arguments: Any, **named: Any) -> Any:
        return self._inner.evaluate(*arguments, **named)

    def query(self, *arguments: Any, **named: Any) -> Any:
        return self._inner.query(*arguments, **named)

    def lifespan(self) -> Any:
        return self._inner.lifespan()

    @property
    def _inner(self) -> ClientApp:
        if self._app is None:
            raise SettingError("This app only plays a game: no function can be registered with it.")
        return self._app

    def _agent(self, task: Task) -> Agent:
        site = self._site(task)
        told = self._strategy or node_setting(task.context, "strategy", str)
        strategy = told or task.host.strategy_of(task.agent, site, task.settings)
        signs, committed = notary(task.context, task.settings, task.agent), self._commitment(task, site)
        asked = task.told["phase"] in ("enrol", "accept")  # training alone is measured twice, never in a round
        alone = worth_alone(site, task.settings) if asked else None
        tagged = self._tags(task, site) if asked else None
        said = {"commitment": committed, "budget": task.host.budget_of(task.agent), "alone": alone, "tags": tagged}
        return Agent(task.agent, site, strategy, s0=self._s0(task, site), lies=self._lies, notary=signs, **said)

    def _commitment(self, task: Task, site: Site) -> str | None:
        """What the agent enrols of its records in an audited run; they are read once, and kept with the node."""
        folder, memory = keys_of(task.context, task.settings), memory_of(task.context)
        if not task.settings.audited or folder is None or not hasattr(site, "records"):
            return None
        if "commitment" in memory:
            return str(memory["commitment"]) or None
        own = site.records()
        path = commitment_file(folder, task.settings, task.agent)
        text = "" if own is None else str(commitments.kept(path, own))
        memory["commitment"] = text
        return text or None

    def _tags(self, task: Task, site: Site) -> str | None:
        """The tags of the node's records, where sites look for copies at others'."""
        key = tag_key(task.context, task.settings)
        own = site.records() if key is not None and hasattr(site, "records") else None
        return None if key is None or own is None else commitments.enrolled_tags(key, own)

    def _audit(self, name: str, message: Message, context: Context) -> Message:
        """Answer as the auditor whom this node is for: it does at an agent's site what the agent's node did."""
        told = message.content[INCENTIVE]
        settings, _ = read(context.run_config, run=told["run"])
        folder = keys_of(context, settings)
        if folder is None:
            raise SettingError(f'Auditor {name!r} has no keys: name their folder in its node-config, keys="...".')

        def site(agent: str) -> Any:
            return self._site(Task(self._app, message, at_site(context, agent), *self._keys))

        def kept(agent: str) -> Commitment | None:
            path = commitment_file(str(folder), settings, agent)
            return Commitment.read(path) if path.exists() else None

        auditor = Auditor.of(read_keys(folder), name, site, commitments=kept, tag_key=tag_key(context, settings))
        if told["phase"] == "enrol":
            return Message(enrol_content(auditor.enrol(), auditor.enrolment(told["run"])), reply_to=message)
        record = record_of(message.content, self._keys[0], ArrayRecord)
        report = auditor.respond(read_broadcast(told, None if record is None else to_arrays(record)))
        return Message(report_content(report, auditor.name, None, self._keys[0], {}), reply_to=message)

    def _answer(self, agent: Agent, task: Task) -> RecordDict:
        memory = memory_of(task.context)
        if memory.get("run") == task.told["run"] and "agent" in memory:
            agent.restore(json.loads(memory["agent"]))
        report = agent.respond(task.broadcast)
        memory["run"], memory["agent"] = task.told["run"], json.dumps(agent.state())
        update = None if report is None or report.update is None else to_record(report.update)
        return report_content(report, agent.name, update, task.arrays, task.metrics)


def strategic(
    app: ClientApp,
    *,
    size: int | Callable[[Context], int],
    classes: int,
    cost: Number = None,
    loss: str = "loss",
    records: Callable[[Context], Sequence[bytes]] | None = None,
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
    `incentive.cost`. `records` gives the training points as bytes, to which the node commits in an audited run; without
    it auditors only make updates again. `model` gives the first model to slopes that train in contribute rounds (those
    of fedavg-strategic); phase 1 of 2p-upbred needs none.

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
            records=None if records is None else lambda: records(task.context),
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


def points(message: Message | Mapping[str, Any], size: int, config: str = "config") -> np.ndarray:
    """Which of the node's `size` training points to train on: those its agent delivers; all under other strategies.

    A legacy client gives the `config` of its `fit` in the place of a message.
    """
    told = message if isinstance(message, Mapping) else record_of(message.content, config, ConfigRecord)
    chosen = None if told is None else told.get("points")
    if isinstance(chosen, bytes):
        return legacy.points(chosen)
    return np.arange(size) if chosen is None else np.asarray(chosen, dtype=np.int64)


def metrics_of(reply: RecordDict) -> dict[str, Any]:
    return {name: value for record in records_of(reply, MetricRecord).values() for name, value in record.items()}


def model_name(told: Mapping[str, Any]) -> str:
    """Which model a message is about: its center has one while a phase of a round is open."""
    return json.dumps([told.get(what) for what in ("run", "round", "phase")])


def memory_of(context: Context) -> ConfigRecord:
    """What the node keeps of us from message to message."""
    if STATE not in context.state:
        context.state[STATE] = ConfigRecord()
    return cast(ConfigRecord, context.state[STATE])


def known_size(task: Task, size: int | Callable[[Context], int]) -> int:
    """The node's number of points, counted once: scalar rounds never look at the data."""
    if not callable(size):
        return size
    memory = memory_of(task.context)
    if "size" not in memory:
        memory["size"] = int(size(task.context))
    return int(memory["size"])  # type: ignore[arg-type]
