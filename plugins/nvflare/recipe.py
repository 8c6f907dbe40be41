"""A recipe: NVFlare's FedAvgRecipe with a mechanism in place of FedAvg. It runs in SimEnv, PocEnv and ProdEnv alike."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from typing import Any

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe as TorchRecipe
from nvflare.client.config import ExchangeFormat
from nvflare.fuel.utils.constants import FrameworkType
from nvflare.job_config.script_runner import ScriptRunner
from nvflare.recipe.fedavg import FedAvgRecipe

from ...contribution import METHODS
from ...errors import SettingError
from ...game import Game, load
from ...hosting import knowing
from ...mechanisms import get, prepared
from ...payments import Oracles
from ...settings import Settings
from .controller import VALIDATOR, IncentiveController
from .executor import GameExecutor, StrategicExecutor
from .settings import read

# NVFlare's own arguments; all others are settings of fedincentive
OWN = (
    "initial_ckpt", "train_args", "launch_external_process", "command", "framework", "server_expected_format",
    "params_transfer_type", "model_persistor", "launch_timeout", "shutdown_timeout", "server_memory_gc_rounds",
    "client_memory_gc_rounds", "cuda_empty_cache",
)  # fmt: skip


class IncentiveRecipe(FedAvgRecipe):
    """A job in which every site is a strategic agent, by its own name.

        recipe = IncentiveRecipe(mechanism="2p-upbred", beta="0.5", model=Net(), min_clients=3, num_rounds=5,
                                 train_script="client.py")
        recipe.execute(SimEnv(num_clients=3))

    `model`, `train_script` and the like are FedAvgRecipe's; the script calls `join` and asks for its `points`. A file
    with a closed-form game, as `game`, is played instead of training. `validator` says at the server what a model is
    worth, for `contribution: exact | gtg | loo` and degraded models: an object of a class of yours, which NVFlare makes
    there from its constructor's arguments, called with a mapping from names to NumPy arrays; the larger its number, the
    better. All other arguments are fedincentive's settings; money is exact: a quoted decimal.
    """

    def __init__(
        self,
        *,
        min_clients: int,
        num_rounds: int = 2,
        name: str = "fedincentive",
        model: Any = None,
        train_script: str = "",
        game: str | Path | None = None,
        validator: Any = None,
        **settings: Any,
    ) -> None:
        own = {key: settings.pop(key) for key in OWN if key in settings}
        self._game = None if game is None else str(game)
        if (game is None) == (not train_script):
            raise SettingError("IncentiveRecipe needs a train_script, or a game to play instead: give one of them.")
        fixed = {"run": settings.pop("run", name), "rounds": num_rounds, "agents": min_clients}
        core, host = read(settings, **fixed)
        played = (
            None if game is None else load(game).game
        )  # one that cannot be played is refused here, not at the sites
        _check(core, min_clients, played, validator)
        if core.audited and (core.keys is None or not Path(host.output).is_absolute()):
            raise SettingError(
                "incentive.auditors are named: give keys, as verdicts are signed, and an absolute path as output, "
                "where auditors find what the sites keep of their records."
            )
        self._incentive = {**settings, **fixed}
        self._pt_model_locator = None
        super().__init__(
            name=name,
            model=[] if game is not None else model,
            min_clients=min_clients + len(core.auditors or ()),
            num_rounds=num_rounds,
            train_script=train_script,
            key_metric="",
            **own,
        )
        self._job.set_app_packages(["fedincentive"])  # sites have it installed; it is not part of the job
        if self._game is not None:
            self._job.to_server(self._game)
        if validator is not None:
            self._job.to_server(validator, id=VALIDATOR)

    def _setup_model_and_persistor(self, job: Any) -> str:
        if self._game is not None:
            return ""
        if self.framework == FrameworkType.PYTORCH:
            return TorchRecipe._setup_model_and_persistor(self, job)
        return super()._setup_model_and_persistor(job)

    def _get_model_params(self) -> Any:
        return {} if self._game is not None else super()._get_model_params()

    def _create_controller(self, persistor_id: str, model_params: Any, model_aggregator: Any) -> IncentiveController:
        tensors = self.server_expected_format == ExchangeFormat.PYTORCH
        return IncentiveController(self._incentive, persistor_id, self._game and Path(self._game).name, tensors)

    def _prepare_client_apps(self) -> None:
        if self._game is None:
            super()._prepare_client_apps()
        else:
            self._job.to_clients(GameExecutor(self._incentive, Path(self._game).name), tasks=["*"])
            self._job.to_clients(self._game)

    def _create_client_runner(self, site_config: dict[str, Any]) -> StrategicRunner:
        return StrategicRunner(super()._create_client_runner(site_config), self._incentive)


def _check(settings: Settings, agents: int, game: Game | None, validator: Any) -> None:
    """Refuse what the center would refuse, before a job is sent."""
    if validator is not None and (not callable(validator) or isinstance(validator, (type, FunctionType))):
        raise SettingError(
            f"validator is {validator!r}: NVFlare makes server components from their class and arguments, so give an "
            "object of a class with __call__(self, model) -> float, not a function or the class itself."
        )
    mechanism = get(settings.mechanism, prepared(settings, game))
    if mechanism.degrades and game is None and validator is None:
        raise SettingError(
            f"incentive.mechanism is {settings.mechanism!r}, which evaluates models at the server: give "
            "IncentiveRecipe a validator, or choose a mechanism that pays money."
        )
    if settings.contribution in METHODS and game is None and validator is None:
        raise SettingError(
            f"incentive.contribution is {settings.contribution!r}, which evaluates models at the server: give "
            "IncentiveRecipe a validator, or set contribution to 'cgsv', which needs none."
        )
    values = Oracles(utility=lambda w: 0.0) if game is not None or validator is not None else Oracles()
    mechanism.check(agents, knowing(values, mechanism, game))


class StrategicRunner:
    """NVFlare's ScriptRunner with our executor in the place of its own."""

    def __init__(self, runner: ScriptRunner, incentive: dict[str, Any]) -> None:
        if runner._launch_external_process and not runner._launch_once:
            raise SettingError("launch_once=False ends the script after every task, but an agent joins once: leave it.")
        self.runner, self.incentive = runner, incentive

    def add_to_fed_job(self, job: Any, ctx: Any, **kwargs: Any) -> dict[str, Any]:
        r = self.runner
        options: dict[str, Any] = {"task_script_path": r._script, "task_script_args": r._script_args}
        if r._launch_external_process:
            options = {
                "command": r._external_process_argv(),
                "launch_timeout": r._launch_timeout,
                "shutdown_timeout": r._shutdown_timeout,
            }
        executor = StrategicExecutor(
            self.incentive,
            execution_mode=r._execution_mode,
            params_exchange_format=r._params_exchange_format,
            server_expected_format=r._server_expected_format,
            params_transfer_type=r._params_transfer_type,
            memory_gc_rounds=r._memory_gc_rounds,
            cuda_empty_cache=r._cuda_empty_cache,
            **options,
        )
        job.add_executor(executor, tasks=kwargs.get("tasks", ["*"]), ctx=ctx)
        job.add_resources(resources=[r._script], ctx=ctx)
        return {}
