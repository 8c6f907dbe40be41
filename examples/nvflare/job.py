"""python job.py [sim|poc]: three sites share digits and are paid for them."""

import sys

from fedincentive.plugins.nvflare import IncentiveRecipe
from net import Net
from nvflare.recipe import PocEnv, SimEnv


def main(where: str = "sim") -> None:
    recipe = IncentiveRecipe(
        mechanism="2p-upbred",
        beta="0.01",
        cost=0.005,
        value_per_nat=10.0,
        classes=10,
        name="digits",
        model=Net(),
        min_clients=3,
        num_rounds=3,
        train_script="client.py",
    )
    sim, patience = SimEnv(num_clients=3, workspace_root="workspace"), {"login_timeout": 300}
    run = recipe.execute(sim if where == "sim" else PocEnv(num_clients=3, extra=patience))
    print(f"Results: {run.get_result(clean_up=False)}")  # NVFlare removes a POC's results otherwise


if __name__ == "__main__":
    main(*sys.argv[1:])
