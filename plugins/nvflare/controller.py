"""The center's side in NVFlare: a controller whose rounds are the mechanism's.

Scalar rounds are auxiliary messages; training and valuations are NVFlare's own tasks `train` and `validate`, so that a
site's filters for them apply. An agent is the site of its name, which NVFlare authenticates in a provisioned project.
"""

from __future__ import annotations

import logging
import math
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from nvflare.apis.analytix import AnalyticsDataType
from nvflare.apis.client import Client
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.analytix_utils import create_analytic_dxo, send_analytic_dxo
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.model_controller import ModelController

from ...center import Center, Outcome
from ...errors import FedIncentiveError, ReportRefused, RunError, SettingError
from ...game import read as read_game
from ...hosting import Session
from ...ledger.export import to_jsonl
from ...manifest import FILE, RUNS
from ...messages import SCALARS, Enrol, Report, RoundResult, Update
from ...payments import Oracles
from ...reports import ledgers
from . import wire
from .arrays import buffers, fitted, to_arrays, to_params
from .settings import here, read
from .wire import INCENTIVE

log = logging.getLogger("fedincentive")
TASKS = {"train": AppConstants.TASK_TRAIN, "value": AppConstants.TASK_VALIDATION}  # all other phases are scalars
CHECKS = 0.05  # seconds between looks at a task's state
AUX_WAIT = 10.0  # seconds for auxiliary messages; whoever has not answered is asked by a task
LAST_WORDS = 60.0  # seconds for the agents to take in how a signed run ended
LOGGED = 500  # characters of what a site caused that go into the log
VALIDATOR = "validator"  # the id of the server component that says what a model is worth
REPORT, EXPORT = "report.html", "ledger.jsonl"


class IncentiveController(ModelController):
    """Plays a mechanism. `incentive` are the settings, `game` names the job's file with a closed-form game, played
    instead of training; `tensors` says whether sites are sent torch tensors.
    """

    def __init__(
        self,
        incentive: dict[str, Any],
        persistor_id: str = "",
        game: str | None = None,
        tensors: bool = False,
    ) -> None:
        super().__init__(persistor_id=persistor_id, ignore_result_error=True, task_check_period=CHECKS)
        self.incentive, self.game, self.tensors = incentive, game, tensors
        self._secret = secrets.token_hex(16)
        self.outcome: Outcome | None = None
        self._center: Center | None = None
        self._lock = Lock()  # results come in threads of their own

    @property
    def center(self) -> Center:
        if self._center is None:
            raise RunError("There is no center yet: it is made when the agents have enrolled.")
        return self._center

    def run(self) -> None:
        """Enrol the agents and play the run to its end."""
        told = dict(self.incentive)
        fixed = {key: told.pop(key) for key in ("run", "rounds", "agents")}
        local = Path(self.engine.get_workspace().get_site_config_dir())
        settings, host = here(*read(told, **fixed), Path(self.get_run_dir()), local)
        custom = Path(self.engine.get_workspace().get_app_custom_dir(self.fl_ctx.get_job_id()))
        game = None if self.game is None else read_game(custom / self.game)
        session = Session(settings, host, log, game=game, oracles=Oracles(utility=self._utility()))
        try:
            self._play(session, {"w": game.w0} if game is not None else to_arrays(self.load_model().params))
        except FedIncentiveError as error:
            log.error("%s", error)
            self.panic(str(error))
        finally:
            session.close()

    def _utility(self) -> Callable[[Update], float] | None:
        """What the job's validator says of a model; None where the job has none."""
        validator = self.engine.get_component(VALIDATOR)

        def worth(w: Update) -> float:
            value = validator(w)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.floating)):
                raise SettingError(f"The job's validator said {value!r} of a model: it must return one number.")
            return float(value)

        return None if validator is None else worth

    def _play(self, session: Session, w0: dict[str, Any]) -> None:
        session.preflight()
        enrolled = self._enrol(session, w0)
        self._tolerate_absence()
        model = getattr(self.persistor, "model", None)
        self._center = center = session.center(enrolled, w0, buffers(model, w0))
        wait = session.host.round_timeout
        while not center.done:
            self._ask(wait)
            if self.abort_signal.triggered:
                raise RunError(f"Run {session.settings.run} was aborted in round {center.run.round}; resume goes on.")
            found = center.close()
            session.note(found)
            self._log_metrics(found, session.settings.minor)
            if found.phase == "train" and not found.repeated and self.persistor is not None:
                self.save_model(FLModel(params=to_params(center.w, self.tensors), current_round=found.step))
        if center.run.signed:  # everyone sees the last entries with the others' cosignatures
            self._ask_by_message(list(center.run.s), min(wait, LAST_WORDS))
        self.outcome = session.conclude(center)
        self._leave_results(session)

    # One round

    def _ask(self, wait: float) -> None:
        """Take the broadcast to those who have not answered, and their reports to the center. Whoever's answer was
        refused or failed is asked once more."""
        end = time.monotonic() + wait
        phase = self.center.broadcast().phase
        if phase in SCALARS:
            self._ask_by_message(self.center.missing, min(wait, AUX_WAIT))
        for _ in range(2):
            left = end - time.monotonic()
            if self.center.missing and left > 0 and not self.abort_signal.triggered:
                self._ask_by_task(TASKS.get(phase, INCENTIVE), left)

    def _ask_by_message(self, agents: Sequence[str], wait: float) -> None:
        request = Shareable()
        request[INCENTIVE], request["secret"] = wire.write(self.center.broadcast()), self._secret
        replies = self.engine.send_aux_request(list(agents), INCENTIVE, request, wait, self.fl_ctx, optional=True) or {}
        for agent in sorted(replies):
            if replies[agent].get_return_code(ReturnCode.OK) == ReturnCode.OK:
                self._submit(agent, replies[agent].get(INCENTIVE), None)

    def _ask_by_task(self, task: str, wait: float) -> None:
        sites = list(self.center.missing)
        groups = [[site] for site in sites] if self.center.own_models else [sites]
        self._send_and_wait(task, [(self._told(group[0]), group) for group in groups], wait, self._hear)

    def _told(self, agent: str) -> FLModel:
        """What an agent is told; it is told the same as the others unless agents have models of their own."""
        broadcast = self.center.broadcast(agent)
        return FLModel(
            params=None if broadcast.w is None else to_params(broadcast.w, self.tensors),
            metrics={} if broadcast.w is None else None,
            current_round=broadcast.round,
            meta={INCENTIVE: wire.write(broadcast)},
        )

    def _send_and_wait(self, task: str, told: list[tuple[FLModel, list[str]]], wait: float, callback: Any) -> None:
        for model, sites in told:
            self.send_model(task, model, sites, timeout=max(1, math.ceil(wait)), callback=callback)
        while self.get_num_standing_tasks() and not self.abort_signal.triggered:
            time.sleep(CHECKS)

    def _hear(self, result: FLModel) -> bool:
        return self._submit(result.meta["client_name"], result.meta.get(INCENTIVE), result.params, result.params_type)

    def _submit(self, agent: str, text: Any, params: Any, kind: Any = ParamsType.DIFF) -> bool:
        """One site's report; it may only speak for itself."""
        if text is None:
            return False  # it stays away
        with self._lock:
            try:
                if params and kind != ParamsType.DIFF:
                    raise ReportRefused(
                        f"Agent {agent!r} sends a whole model where its update is needed: no filter of its site may "
                        "turn differences into weights for task train (ConvertWeights)."
                    )
                update = None if not params else fitted(params, self.center.w, agent)
                report = wire.read(Report, text, agent, update)
                if report.agent != agent:
                    raise ReportRefused(f"Site {agent!r} sends a report in the name of {wire.short(report.agent)}.")
                return self.center.submit(report)
            except ReportRefused as refusal:
                log.warning("%s", str(refusal)[:LOGGED])
                return False

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """A result that comes after its round: the center counts it, and does no more."""
        if self._center is None or result.get_return_code(ReturnCode.OK) != ReturnCode.OK:
            return
        try:
            model = FLModelUtils.from_shareable(result)
        except Exception as error:  # whatever a site sent
            log.warning("A late result of %s cannot be read: %s", client.name, str(error)[:LOGGED])
            return
        self._submit(client.name, model.meta.get(INCENTIVE), model.params, model.params_type)

    # Before the first round

    def _enrol(self, session: Session, w0: dict[str, Any]) -> list[Enrol]:
        """Ask every site of the job who it is, and give it the secret; a task waits for those still starting."""
        wanted, wait = session.host.agents, session.host.join_timeout
        enrolled: dict[str, Enrol] = {}
        absent = set(session.settings.auditors or ())

        def hear(result: FLModel) -> bool:
            site = result.meta["client_name"]
            try:
                told = wire.fields(result.meta.get(INCENTIVE), site)
                signature = told.pop("signature", None)
                enrol = wire.read(Enrol, wire.json.dumps(told), site)
                if enrol.agent != site:
                    raise ReportRefused(f"Site {site!r} enrols as {wire.short(enrol.agent)}: sites are agents by name.")
                if site in (session.settings.auditors or ()):
                    wrong = session.wrong_with_auditor(enrol, signature)
                else:
                    wrong = session.wrong_with(enrol, signature, max(wanted, len(enrolled)), enrolled)
                if wrong:
                    raise ReportRefused(wrong)
            except ReportRefused as refusal:
                log.warning("Site %s did not enrol: %s", site, str(refusal)[:LOGGED])
                return False
            if site in absent:
                absent.discard(site)
            else:
                enrolled[site] = enrol
            return True

        looks = session.mechanism.public()["slope"] != "bounded"  # then agents look at the model in scalar rounds
        model = FLModel(
            params=to_params(w0, self.tensors) if looks else None,
            metrics=None if looks else {},
            meta={INCENTIVE: wire.json.dumps({"run": session.settings.run, "secret": self._secret}), "enrol": True},
        )
        sites = [client.name for client in self.engine.get_clients()]
        self._send_and_wait(INCENTIVE, [(model, sites)], wait, hear)
        if len(enrolled) < wanted:
            who = f" ({', '.join(sorted(enrolled))})" if enrolled else ""
            raise RunError(
                f"{len(enrolled)} of {wanted} agents enrolled{who}; {wait:g} seconds were given. The logs of the other "
                f"sites ({', '.join(sorted({*sites, *absent} - set(enrolled)))}) say why; or lower min_clients."
            )
        if absent:
            raise RunError(
                f"Auditor {min(absent)!r} has not come after {wait:g} seconds: a site of that name must take part in "
                "the job; its log says what is wrong."
            )
        log.info("%d agents enrolled: %s", len(enrolled), ", ".join(sorted(enrolled)))
        return [enrolled[name] for name in sorted(enrolled)]

    def _tolerate_absence(self) -> None:
        """NVFlare ends a job when fewer sites are alive than it needs to begin; from here on the quorum decides."""
        meta = self.fl_ctx.get_prop(FLContextKey.JOB_META)
        if isinstance(meta, dict):
            meta[JobMetaKey.MIN_CLIENTS.value] = 1

    # What NVFlare's users see

    def _log_metrics(self, found: RoundResult, minor: int) -> None:
        """The round's numbers, to whatever receives the job's analytics."""
        numbers = {f"incentive/{name}": float(value) for name, value in found.metrics.items()}
        numbers |= {f"incentive/s/{agent}": float(points) for agent, points in found.s.items()}
        numbers |= {f"incentive/payment/{agent}": amount / minor for agent, amount in found.payments.items()}
        for agent, (value, half) in found.worth.items():
            numbers |= {f"incentive/worth/{agent}": value, f"incentive/worth_interval/{agent}": half}
        for name, value in numbers.items():
            dxo = create_analytic_dxo(name, value, AnalyticsDataType.SCALAR, global_step=found.round)
            send_analytic_dxo(self, dxo, self.fl_ctx)

    def _leave_results(self, session: Session) -> None:
        """A page about the ledger in the job's folder, where NVFlare's users look for results. A ledger that is kept
        elsewhere leaves an export of itself there, and the run its manifest."""
        folder = Path(self.get_run_dir()) / RUNS / session.settings.run
        folder.mkdir(parents=True, exist_ok=True)
        if folder != session.directory:
            (folder / EXPORT).write_text("".join(to_jsonl(session.ledger)))
            shutil.copyfile(session.state_path / FILE, folder / FILE)
        ledgers.write([session.ledger.address], folder / REPORT)
