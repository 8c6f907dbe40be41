"""The training of data_parity in NVFlare's simulator: scripts in processes of their own, torch tensors, differences."""

import sys

import data_parity as task
from fedincentive.plugins.nvflare import IncentiveRecipe
from nvflare.client.config import ExchangeFormat, TransferType
from nvflare.recipe import SimEnv
from prototypes import Prototypes, Validator

measured = {"contribution": sys.argv[2]} if len(sys.argv) > 2 else {}
if measured.get("contribution") in ("exact", "gtg", "loo"):
    measured["validator"] = Validator(agents=task.AGENTS)
recipe = IncentiveRecipe(
    mechanism="t-upbred",
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
    **task.INCENTIVE,
    **measured,
)
recipe.execute(SimEnv(clients=["agent-1", "agent-2", "agent-3"], workspace_root="workspace"))
