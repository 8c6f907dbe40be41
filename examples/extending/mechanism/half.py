"""Half of it: everyone gives half of what it has, then the model is trained."""

from __future__ import annotations

from fedincentive.mechanisms import Mechanism, Promises


class Half(Mechanism):
    name = "half"
    pays = ("contribution",)  # payments or their names; `incentive.payment` may say otherwise

    def start(self, run):
        run.s = {agent: points // 2 for agent, points in run.s_max.items()}
        return "train"  # or "contribute", and then `after_contribute(run)` says when training begins

    def claims(self):
        return Promises(disclaimed={"equilibrium": "nobody is asked what it wants to give"})
