"""FedAvg-strategic: FedAvg on what agents give when nobody pays them.

    until the dynamics rest:                                                phase 1, w stays at w0
        center broadcasts s
        each agent sends s_i <- clip(s_i + gamma g_i(w0, s), 0, s_max_i)
    for t = 0 .. T-1:                                                       phase 2, at the resting s*
        each agent sends d_i = grad_w v_i(w, s*);  w <- w + eta/n sum_i d_i

The paper's condition "some g_i > 0" leaves at once when all are negative; here phase 1 ends when ||g|| <= tol.
"""

from __future__ import annotations

from ..errors import SettingError
from ..messages import Phase
from ..payments import Promises
from ..run import Run
from ..settings import Settings
from .base import Mechanism


class FedAvgStrategic(Mechanism):
    """The incentive gap: what is lost when strategic agents are not paid."""

    name = "fedavg-strategic"
    two_phases = True
    slope = "counterfactual"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if self.payments:
            raise SettingError(
                f"incentive.payment is {settings.payment!r}, but fedavg-strategic is the mechanism without payments: "
                "leave it out, or choose 2p-upbred."
            )

    def start(self, run: Run) -> Phase:
        return "contribute"

    def after_contribute(self, run: Run) -> Phase:
        if run.resting:
            return "train"
        if not run.at_limit:
            return "contribute"
        run.status = "round limit"
        return "train" if self.settings.when_short == "train" else "done"

    def claims(self) -> Promises:
        return Promises(disclaimed={"equilibrium": "s rests at the first model; the model moves on after that"})
