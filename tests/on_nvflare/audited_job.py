"""audited_job.py KEYS OUTPUT SCRIPT: two agents and three auditors in a POC, the scripts in processes of their own."""

import sys

from fedincentive.plugins.nvflare import IncentiveRecipe
from nvflare.app_common.np.np_model_persistor import NPModelPersistor
from nvflare.fuel.utils.constants import FrameworkType
from nvflare.recipe import PocEnv
from sending import ended, sent

keys, output, script = sys.argv[1:]
auditors = ["ann", "bea", "cleo"]
recipe = IncentiveRecipe(
    mechanism="2p-upbred",
    beta="3",
    steering="1",
    gamma=400.0,
    start=1.0,
    name="liar",
    keys=keys,
    output=output,
    auditors=auditors,
    min_clients=2,
    num_rounds=1,
    model_persistor=NPModelPersistor(model=[0.0, 0.0]),
    framework=FrameworkType.NUMPY,
    train_script=script,
    launch_external_process=True,
    command=f"{sys.executable} -u",
)
env = PocEnv(clients=["north", "south", *auditors], num_clients=5, extra={"login_timeout": 900})
ended(env, sent(recipe, env))
