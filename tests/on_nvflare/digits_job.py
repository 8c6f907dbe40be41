"""The training of data_parity in NVFlare's simulator: scripts in processes of their own, torch tensors, differences."""

import sys

import data_parity as task
from fedincentive.plugins.nvflare import IncentiveRecipe
from nvflare.client.config import ExchangeFormat, TransferType
from nvflare.recipe import SimEnv
from prototypes import Prototypes, Validator

how = sys.argv[2] if len(sys.argv) > 2 else ""
incentive = {"mechanism": "t-upbred", **task.INCENTIVE}
if how.startswith("own:"):
    mechanism = how.removeprefix("own:")
    incentive |= {"mechanism": mechanism, "options": task.OWN_MODELS[mechanism]}
elif how:
    incentive["contribution"] = how
if how in ("exact", "own:accuracy-shaping"):
    incentive = {**incentive, "validator": Validator()}
recipe = IncentiveRecipe(
    run=task.RUN,
    seed=task.SEED,
    model=Prototypes(),
    min_clients=task.AGENTS,
    num_rounds=task.ROUNDS,
    train_script=sys.argv[1],
    launch_external_process=True,
    command=f"{sys.executable} -u",
    server_expected_format=ExchangeFormat.PYTORCH,
    params_transfer_type=TransferType.DIFF,
    **incentive,
)
recipe.execute(SimEnv(clients=["agent-1", "agent-2", "agent-3"], workspace_root="workspace"))
