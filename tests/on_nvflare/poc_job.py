"""poc_job.py start|again ROUNDS [SETTING VALUE]...: the parity game in a POC, started here or running already."""

import sys

import parity
import yaml
from fedincentive.plugins.nvflare import IncentiveRecipe
from nvflare.recipe import PocEnv
from programs import waited

how, rounds, *rest = sys.argv[1:]
settings = {key: yaml.safe_load(value) for key, value in zip(rest[::2], rest[1::2], strict=True)}
names = [agent["name"] for agent in parity.GAME["agents"]]
recipe = IncentiveRecipe(
    mechanism="2p-upbred",
    run=parity.RUN,
    game="game.yaml",
    min_clients=len(names),
    num_rounds=int(rounds),
    **parity.INCENTIVE,
    **settings,
)
env = PocEnv(clients=names, num_clients=len(names), extra={"login_timeout": 120})
if how == "start":
    job = recipe.execute(env).get_job_id()
else:
    recipe._ensure_client_apps_prepared()
    found: list[str] = []

    def submitted() -> bool:
        """A server that was killed needs a while before it takes jobs again."""
        try:
            found.append(env._get_session_manager().submit_job(recipe._job))
        except Exception as error:
            print(error)
            env._session_manager = None
        return bool(found)

    assert waited(submitted, 120)
    (job,) = found
assert env.get_job_result(job, timeout=300), "the job did not end"
assert env.get_job_status(job) == "FINISHED:COMPLETED", env.get_job_status(job)
