"""poc_job.py start|again|hostile ROUNDS [SETTING VALUE]...: the parity game in a POC, started here or running already;
clinic may be hostile."""

import sys

import parity
import yaml
from fedincentive.plugins.nvflare import IncentiveRecipe
from hostile import HostileExecutor
from nvflare.recipe import PocEnv
from receiver import LinesReceiver
from sending import ended, sent

how, rounds, *rest = sys.argv[1:]
settings = {key: yaml.safe_load(value) for key, value in zip(rest[::2], rest[1::2], strict=True)}
names = [agent["name"] for agent in parity.GAME["agents"]]


class HostileRecipe(IncentiveRecipe):
    def _prepare_client_apps(self) -> None:
        self._job.to_clients(HostileExecutor(self._incentive, "game.yaml"), tasks=["*"])
        self._job.to_clients("game.yaml")


recipe = (HostileRecipe if how == "hostile" else IncentiveRecipe)(
    mechanism="2p-upbred",
    run=parity.RUN,
    game="game.yaml",
    min_clients=len(names),
    num_rounds=int(rounds),
    **{**parity.INCENTIVE, **settings},
)
recipe._job.to_server(LinesReceiver(), id="receiver")
env = PocEnv(clients=names, num_clients=len(names), extra={"login_timeout": 900})
ended(env, sent(recipe, env, running=how == "again"))
