"""prod_job.py KIT ROUNDS: the parity game in a provisioned project, sent with an admin's startup kit."""

import sys

import parity
from fedincentive.plugins.nvflare import IncentiveRecipe
from nvflare.recipe import ProdEnv
from sending import ended, sent

kit, rounds = sys.argv[1:]
recipe = IncentiveRecipe(
    mechanism="2p-upbred",
    run=parity.RUN,
    game="game.yaml",
    min_clients=len(parity.GAME["agents"]),
    num_rounds=int(rounds),
    **parity.INCENTIVE,
)
env = ProdEnv(startup_kit_location=kit, username="admin@north.example", login_timeout=900)
print(f"Results: {ended(env, sent(recipe, env))}")
