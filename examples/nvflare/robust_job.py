"""python robust_job.py [sim|poc]: NVFlare's own FedAvgRecipe with a robust rule, and its tensor offload."""

import sys

from fedincentive.plugins.nvflare import TrimmedMean
from net import Net
from nvflare.app_opt.pt.recipes import FedAvgRecipe
from nvflare.client.config import ExchangeFormat
from nvflare.recipe import PocEnv, SimEnv

recipe = FedAvgRecipe(
    name="robust",
    model=Net(),
    min_clients=3,
    num_rounds=2,
    train_script="client.py",
    aggregator=TrimmedMean(trim=1),
    enable_tensor_disk_offload=True,
    server_expected_format=ExchangeFormat.PYTORCH,
)
if sys.argv[1:] == ["poc"]:
    recipe.execute(PocEnv(num_clients=3, extra={"login_timeout": 300})).get_result(clean_up=False)
else:
    recipe.execute(SimEnv(num_clients=3, workspace_root="workspace"))
