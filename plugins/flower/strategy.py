"""The center's side in Flower: a Strategy whose rounds are the mechanism's."""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from ... import mechanisms
from ...center import Center, Outcome
from ...contribution import METHODS
from ...errors import ReportRefused, RunError, SettingError
from ...game import Game
from ...hosting import Session
from ...ledger import Ledger
from ...messages import SCALARS, RoundResult, Update
from ...payments import Oracles
from ...payments.exact import written
from ...settings import Settings
from . import handout, reporting
from .node_keys import NodeKeys
from .nodes import LOGGED, Nodes
from .overridden import Overridden
from .records import (
    EVALUATED,
    INCENTIVE,
    MESSAGE_TYPES,
    broadcast_record,
    read_report,
    records_of,
    to_arrays,
    to_record,
)
from .settings import FlowerSettings, read

log = logging.getLogger("flwr.fedincentive")  # shown where Flower shows its own
FEWEST_EVALUATE = 2  # nodes, as FedAvg's min_evaluate_nodes
LAST_WORDS = 60.0  # seconds for the agents to take in how a signed run ended


class IncentiveStrategy(FedAvg):
    """Plays a mechanism in place of FedAvg: scalar rounds are queries without arrays, training and valuations are
    Flower's train and evaluate messages. `fraction_train` of `incentive.agents` is another way to say
    `incentive.sampled`. After each training round `fraction_evaluate` of the nodes evaluate the new model, as
    under FedAvg. A subclass may override `aggregate_train`: it is called with the nodes' models while the
    round is closed, and the arrays it returns are the model.

    `ledger` is an open ledger or where it is; what is not given is read from the settings. `buffers` names the arrays
    that are not parameters (BatchNorm statistics). With `incentive.contribution`, `evaluate_fn` is also asked about the
    models of coalitions; `utility_by_key` names the metric, after a minus where less is better. `game` is the
    closed-form game that the nodes play, where a mechanism has to know costs, needs or values of it. After `start`,
    `outcome` says how the run ended and `rounds` how each round did, scalar rounds included.
    """

    def __init__(
        self,
        settings: Settings,
        host: FlowerSettings = FlowerSettings(),  # noqa: B008
        *,
        ledger: Ledger | str | Path | None = None,
        buffers: Collection[str] = (),
        oracles: Oracles = Oracles(),  # noqa: B008
        weighted_by_key: str = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        fraction_train: float = 1.0,
        fraction_evaluate: float = 1.0,
        train_metrics_aggr_fn: reporting.MetricsOf | None = None,
        evaluate_metrics_aggr_fn: reporting.MetricsOf | None = None,
        utility_by_key: str = "-loss",
        game: Game | None = None,
    ) -> None:
        if not fraction_train > 0.0:
            raise SettingError(f"fraction_train must be greater than 0, not {fraction_train}: somebody has to train.")
        if fraction_train < 1.0:
            if settings.sampled is not None:
                raise SettingError(
                    f"fraction_train = {fraction_train:g} and incentive.sampled = {settings.sampled} both say how many "
                    "agents train in a round: give one of them."
                )
            settings = dataclasses.replace(settings, sampled=max(1, int(fraction_train * host.agents)))
        super().__init__(
            fraction_train=fraction_train,
            fraction_evaluate=fraction_evaluate,
            min_train_nodes=host.agents,
            min_evaluate_nodes=host.agents,
            min_available_nodes=host.agents,
            weighted_by_key=weighted_by_key,
            arrayrecord_key=arrayrecord_key,
            configrecord_key=configrecord_key,
            train_metrics_aggr_fn=train_metrics_aggr_fn,
            evaluate_metrics_aggr_fn=evaluate_metrics_aggr_fn,
        )
        self.settings, self.host, self.game = settings, host, game
        self.buffers, self.oracles, self.utility_by_key = buffers, oracles, utility_by_key
        self.outcome: Outcome | None = None
        self.rounds: list[RoundResult] = []
        self._ledger = ledger
        self._center: Center | None = None
        self._session: Session | None = None
        self._nodes: Nodes | None = None
        self._encoded: tuple[Update, ArrayRecord] | None = None
        self._told: dict[int, ConfigRecord] = {}  # the config of each step in an audited run: audits need the same
        self._asking: dict[int, str] = {}  # node -> agent of the round that is open
        self._heard: dict[str, RecordDict] = {}  # agent -> the metrics beside its accepted report
        self._closing: tuple[ArrayRecord, MetricRecord] | None = None

    @classmethod
    def from_context(cls, context: Context, **options: Any) -> IncentiveStrategy:
        """The strategy that the run config describes. Flower's run id names the run unless `incentive.run` does."""
        settings, host = read(context.run_config, run=f"flower-{context.run_id}")
        return cls(settings, host, **options)

    @property
    def center(self) -> Center:
        if self._center is None:
            raise RunError(
                f"{type(self).__name__} has no center yet: it is made when its own start() has enrolled the agents. A "
                "strategy that wraps another, such as Flower's DifferentialPrivacy... ones, calls a start() without "
                "contribute rounds and payments: use a mod at the clients for privacy (docs/flower.md)."
            )
        return self._center

    @property
    def session(self) -> Session:
        if self._session is None:
            raise RunError(f"{type(self).__name__} has no session yet: it begins with start().")
        return self._session

    @property
    def nodes(self) -> Nodes:
        if self._nodes is None:
            raise RunError(f"{type(self).__name__} knows no nodes yet: it meets them in start().")
        return self._nodes

    def summary(self) -> None:
        """Log the settings of the run."""
        s = self.settings
        log.info(
            "Mechanism %s: run %s, %d training rounds, beta %s%s",
            s.mechanism,
            s.run,
            s.rounds,
            written(str(s.beta)),
            "" if s.gamma is None else f", gamma {s.gamma:g}",
        )
        log.info("At least %d agents; a round waits %g seconds for them", self.host.agents, self.host.round_timeout)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Enrol the agents and play the run to its end; `num_rounds` and `timeout`, if given, replace the settings'."""
        begun = time.monotonic()
        if num_rounds is not None:
            if num_rounds < 1:
                raise SettingError(f"num_rounds must be at least 1, not {num_rounds}: a run has training rounds.")
            self.settings = dataclasses.replace(self.settings, rounds=num_rounds)
        wait = self.host.round_timeout if timeout is None else timeout
        self.summary()
        known = {"game": self.game, "oracles": self._oracles(evaluate_fn)}
        self._session = session = Session(self.settings, self.host, log, ledger=self._ledger, **known)
        try:
            session.preflight(network=self.host.node_keys is None)
            self._begin(grid, initial_arrays, session)
            result = Result(arrays=initial_arrays)
            configs = train_config or ConfigRecord(), evaluate_config or ConfigRecord()
            self._evaluate_centrally(evaluate_fn, self.center.run.trained, result)  # a resumed run is not at 0
            while not self.center.done:
                self._play_round(grid, wait, configs, evaluate_fn, result)
            if self.center.run.signed:  # everyone sees the last entries with the others' cosignatures
                list(self._exchange(self._messages(RecordDict(), "done"), min(wait, LAST_WORDS)))
            self.outcome = session.conclude(self.center)
            if self.host.handout:
                self._hand_out(self.outcome, min(wait, LAST_WORDS))
        finally:
            session.close()
        result.arrays = self._model()
        log.info("The run took %.1f seconds", time.monotonic() - begun)
        log.info("Final results:")
        for line in str(result).splitlines():
            log.info("\t%s", line)
        log.info("Ledger: %s; state, model and manifest: %s", session.ledger.address, session.state_path)
        return result

    def _play_round(self, grid: Grid, wait: float, configs: Any, evaluate_fn: Any, result: Result) -> None:
        broadcast = self.center.broadcast()
        step = broadcast.step + 1  # Flower counts from 1
        if broadcast.phase in SCALARS:
            replies = self._exchange(self._messages(RecordDict(), broadcast.phase), wait)
            self._close(replies)
        elif broadcast.phase == "audit":
            audited = broadcast.audits[0]["step"]
            content = self._content(audited + 1, to_record(broadcast.w or {}), configs[0])
            content[self.configrecord_key] = self._told.get(audited, content[self.configrecord_key])
            self._close(self._exchange(self._messages(content, "audit"), wait))
        elif broadcast.phase == "train":
            messages = list(self.configure_train(step, self._model(), configs[0], grid))
            if self.settings.audited:
                told = messages[0].content.config_records.get(self.configrecord_key)
                self._told |= {} if told is None else {broadcast.step: told}
            replies = self._exchange(messages, wait)
            overridden = type(self).aggregate_train is not IncentiveStrategy.aggregate_train
            found = Overridden(self, step).train(replies) if overridden else self.aggregate_train(step, replies)
            if found[0] is not None and found[1] is not None:
                result.train_metrics_clientapp[step] = found[1]
                if self.center.broadcast().phase != "value":  # that one is the evaluation
                    self._evaluate_at_nodes(step, configs[1], grid, wait, result)
                self._evaluate_centrally(evaluate_fn, step, result)
        else:
            self._evaluate_at_nodes(step, configs[1], grid, wait, result)

    # Flower's four methods: what is sent, and what is made of the replies

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The model to the agents that are asked in this training round."""
        return self._messages(self._content(server_round, arrays, config), "train")

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Close the training round: the next model, the agents' own metrics, and the round's."""
        if self._closing is not None:  # a subclass asks what the center made of the round that it is closing
            return self._closing
        found, contents = self._close(replies)
        if found.repeated:
            return None, None
        own = reporting.averages(contents, self.weighted_by_key, self.train_metrics_aggr_fn)
        return self._model(), MetricRecord({**own, **reporting.numbers(found, self.settings.minor)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The model to the agents for their valuations; where the mechanism asks for none now, to `fraction_evaluate`
        of those who are there, at least two, as under FedAvg."""
        content = self._content(server_round, arrays, config)
        if self.center.broadcast().phase == "value":
            return self._messages(content, "value")
        agents, make = sorted(self.nodes.present), self._making(content, "value")
        wanted = max(FEWEST_EVALUATE, int(self.fraction_evaluate * len(agents))) if self.fraction_evaluate > 0 else 0
        chosen = random.sample(agents, wanted) if wanted < len(agents) else agents
        return [make(self.nodes.present[agent]) for agent in chosen]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The nodes' own metrics; and where they give valuations, the end of the value round and its numbers."""
        valued = self.center.broadcast().phase == "value"
        numbers: dict[str, Any] = {}
        if valued:
            found, contents = self._close(replies)
            if found.repeated:
                return None
            numbers = reporting.numbers(found, self.settings.minor)
        else:
            contents = [reply.content for reply in replies if not reply.has_error()]
        own = reporting.averages(contents, self.weighted_by_key, self.evaluate_metrics_aggr_fn)
        return MetricRecord({**own, **numbers}) if own or valued else None

    # One round

    def _model(self) -> ArrayRecord:
        """The center's model, encoded once for all messages and callers."""
        w = self.center.w
        if self._encoded is None or self._encoded[0] is not w:
            self._encoded = w, to_record(w)
        return self._encoded[1]

    def _content(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        told = ConfigRecord({**config, "server-round": server_round})
        return RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: told})

    def _messages(self, content: RecordDict, phase: str) -> list[Message]:
        content[INCENTIVE] = broadcast_record(self.center.broadcast())
        kind, nodes = MESSAGE_TYPES[phase], self.nodes.by_agent
        self._asking = {nodes[agent]: agent for agent in self.center.missing}
        return [
            Message(self._own(content, agent), dst_node_id=node, message_type=kind)
            for node, agent in self._asking.items()
        ]

    def _own(self, content: RecordDict, agent: str) -> RecordDict:
        """The content with the agent's own model in the place of the center's, where models are degraded."""
        if self.arrayrecord_key not in content or (w := self.center.model_of(agent)) is self.center.w:
            return content
        return RecordDict({**content, self.arrayrecord_key: to_record(w)})

    def _exchange(self, messages: Iterable[Message], wait: float) -> Iterator[Message]:
        """Replies as they come; an agent that comes back at another node is asked there."""
        first = {message.metadata.dst_node_id: message for message in messages}
        agents = {self._asking[node]: message for node, message in first.items()}
        any_message = next(iter(first.values()))

        def make(node: int) -> Message:
            known, by_agent = first.pop(node, None), self.nodes.by_agent
            kind = any_message.metadata.message_type
            return known or Message(
                next(sent.content for agent, sent in agents.items() if by_agent[agent] == node),
                dst_node_id=node,
                message_type=kind,
            )

        for agent, reply in self.nodes.ask(list(agents), make, wait):
            self._asking[reply.metadata.src_node_id] = agent
            yield reply

    def _close(self, replies: Iterable[Message]) -> tuple[RoundResult, list[RecordDict]]:
        """Submit every reply as its agent's report and end the round."""
        self._heard = contents = dict[str, RecordDict]()
        for reply in replies:
            agent = self._asking.get(reply.metadata.src_node_id)
            if agent is None or reply.has_error():
                continue
            try:
                report = read_report(reply.content, agent, self.arrayrecord_key)
                if report is not None and self.center.submit(report):
                    contents[agent] = RecordDict({**records_of(reply.content, MetricRecord)})  # the arrays are used
            except ReportRefused as refusal:
                log.warning("%s", str(refusal)[:LOGGED])
                self.nodes.refuse()
        found = self.center.close()
        self.rounds.append(found)
        self.session.note(found)
        return found, [contents[agent] for agent in sorted(contents)]

    def _evaluate_at_nodes(self, step: int, config: ConfigRecord, grid: Grid, wait: float, result: Result) -> None:
        """The model at the nodes, as FedAvg has it after each round: by a value round, or by the nodes' apps alone."""
        phase, closed = self.center.broadcast().phase, len(self.rounds)
        messages = list(self.configure_evaluate(step, self._model(), config, grid))
        if phase != "value":
            messages = self._only_evaluated(messages)
        metrics = None
        if messages:
            replies = self._exchange(messages, wait)
            own = type(self).aggregate_evaluate is not IncentiveStrategy.aggregate_evaluate  # it may look twice
            metrics = self.aggregate_evaluate(step, list(replies) if own else replies)
        if phase == "value" and len(self.rounds) == closed:
            raise SettingError(
                f"{self.settings.mechanism} needs the agents' valuations of this model, but {type(self).__name__} "
                "does not ask for them, or does not take them: its configure_evaluate and aggregate_evaluate should "
                "call super()'s."
            )
        if metrics is not None:
            result.evaluate_metrics_clientapp[step] = metrics

    def _only_evaluated(self, messages: list[Message]) -> list[Message]:
        """Those to agents' nodes. Who gets the center's model learns which one it is, and need not evaluate it again
        when it is asked for its value."""
        told, model = self.center.broadcast(), self._model()
        agents = {node: agent for agent, node in self.nodes.by_agent.items()}
        self._asking = {}
        for message in messages:
            node = message.metadata.dst_node_id
            if node not in agents:
                log.warning("Node %d is asked to evaluate, but it is no agent's: it is left out.", node)
                continue
            self._asking[node] = agents[node]
            if message.content.get(self.arrayrecord_key) is not model:
                continue
            if (own := self._own(message.content, agents[node])) is not message.content:
                message.content = own  # a model of its own, whoever made the message
            elif EVALUATED not in own:
                own[EVALUATED] = ConfigRecord({"run": told.run, "round": told.round, "phase": told.phase})
        return [message for message in messages if message.metadata.dst_node_id in self._asking]

    def _making(self, content: RecordDict, phase: str) -> Callable[[int], Message]:
        """What a node is sent outside of the center's rounds."""

        def make(node: int) -> Message:
            agent = next(name for name, place in self.nodes.by_agent.items() if place == node)
            return Message(self._own(content, agent), dst_node_id=node, message_type=MESSAGE_TYPES[phase])

        return make

    def _evaluate_centrally(self, evaluate_fn: Any, step: int, result: Result) -> None:
        found = None if evaluate_fn is None else evaluate_fn(step, self._model())
        if found is not None:
            log.info("Evaluation of the model after %d rounds at the server: %s", step, dict(found))
            result.evaluate_metrics_serverapp[step] = found

    def _hand_out(self, ended: Outcome, wait: float) -> None:
        """The nodes' own copies of what is in the server's folder."""
        nodes, key = self.nodes.present, self.arrayrecord_key
        content = handout.content(ended.run, ended, self.session.ledger, self._model(), key)
        make = self._making(content, handout.PHASE)
        replies = self.nodes.ask(sorted(nodes), make, wait) if nodes else ()
        kept = [agent for agent, reply in replies if reply.content.config_records.get(INCENTIVE, {}).get("kept")]
        log.info("Ledger, outcome and model are kept at the nodes of: %s", ", ".join(sorted(kept)) or "nobody")

    # The start

    def _oracles(self, evaluate_fn: Any) -> Oracles:
        """What the center can check; where contribution values or degraded models need one, a utility from the user's
        evaluate_fn."""
        how, mechanism = self.settings.contribution, mechanisms.get(self.settings.mechanism, self.settings)
        if (how not in METHODS and not mechanism.degrades) or self.oracles.utility is not None or self.game is not None:
            return self.oracles
        if evaluate_fn is None:
            named, instead = ("contribution", "set contribution to 'cgsv', which needs none")
            if mechanism.degrades:
                named, instead = ("mechanism", "choose a mechanism that pays money")
            raise SettingError(
                f"incentive.{named} is {getattr(self.settings, named)!r}, which evaluates models at the server: give "
                f"start() an evaluate_fn that returns {self.utility_by_key.lstrip('-')!r}, or {instead}."
            )

        def utility(w: Update) -> float:
            step = 0 if self._center is None else self._center.broadcast().step
            found = evaluate_fn(step + 1, to_record(w))
            return reporting.utility(found, self.utility_by_key, self.settings.loss_cap)

        return dataclasses.replace(self.oracles, utility=utility)

    def _begin(self, grid: Grid, initial_arrays: ArrayRecord, session: Session) -> None:
        bound = self.host.node_keys
        if bound is not None:
            log.info("Names are bound to Flower's node keys: that a node is an agent's is the SuperLink's word.")
        self._nodes = Nodes(grid, session, None if bound is None else NodeKeys(grid, bound))
        enrolled = self.nodes.enrol(self.host.agents, self.host.join_timeout)
        log.info("%d agents enrolled: %s", len(enrolled), ", ".join(enrol.agent for enrol in enrolled))
        self._center = session.center(enrolled, to_arrays(initial_arrays), tuple(self.buffers))
