"""A receiver of NVFlare's analytics, as those for TensorBoard, MLflow and W&B are: it writes a line for each number."""

import json
from pathlib import Path

from nvflare.apis.dxo import from_shareable
from nvflare.app_common.widgets.streaming import AnalyticsReceiver


class LinesReceiver(AnalyticsReceiver):
    def initialize(self, fl_ctx) -> None:
        workspace = fl_ctx.get_engine().get_workspace()
        self.path = Path(workspace.get_run_dir(fl_ctx.get_job_id())) / "metrics.jsonl"

    def save(self, fl_ctx, shareable, record_origin) -> None:
        data = from_shareable(shareable).data
        with open(self.path, "a") as file:
            file.write(json.dumps([data["track_key"], data["global_step"], data["track_value"]]) + "\n")

    def finalize(self, fl_ctx) -> None:
        pass
