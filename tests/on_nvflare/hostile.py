"""A site that wants to speak for another: it reports in hospital's name, and asks hospital for its numbers."""

import json

from fedincentive.plugins.nvflare.executor import GameExecutor
from fedincentive.plugins.nvflare.wire import INCENTIVE
from nvflare.apis.shareable import Shareable

VICTIM = "hospital"


class HostileExecutor(GameExecutor):
    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        asked = shareable["DXO"]["meta"][INCENTIVE]
        result = super().execute(task_name, shareable, fl_ctx, abort_signal)
        if self.seat.name == "clinic" and task_name == "train":
            told = result["DXO"]["meta"]
            told[INCENTIVE] = json.dumps({**json.loads(told[INCENTIVE]), "agent": VICTIM})
            request = Shareable({INCENTIVE: asked, "secret": "0" * 32})
            answers = fl_ctx.get_engine().send_aux_request([VICTIM], INCENTIVE, request, 10.0, fl_ctx)
            self.log_info(fl_ctx, f"{VICTIM} answered {answers[VICTIM].get_return_code()}")
        return result
