"""The league: every mechanism on the same games, every claim searched. `fedincentive league` prints it.

>>> from fedincentive.league import ROWS, draw, measure
>>> measure(ROWS["fedavg"], draw("data-value", 0, 3, 0.1), 0).columns["S"]
1.0
"""

from __future__ import annotations

from .base import LeagueRow, Moves, Promise, Reports
from .baselines import Everything, Planner
from .claims import Judgement, judge
from .columns import COLUMNS, Measured, measure
from .fact import FactRow
from .fedbr import SharedCosts
from .gradients import GradientRelative, GrovesD
from .groves import AGV, Clarke
from .lies import Lie
from .needs import OneForOne, PayWhatYouContribute
from .ours import AttestedTwoPhase, TruthfulRow, TwoPhaseRow, UpbredRow
from .shaping import RealFM, Shaping
from .shares import Agreement, LeaveOneOut, ShapleyShare, Shares
from .stage import Stage, draw

ROWS: dict[str, LeagueRow] = {
    row.name: row
    for row in (
        Planner(), Everything(), UpbredRow(), TruthfulRow(), TwoPhaseRow(), AttestedTwoPhase(), SharedCosts(),
        Shaping(), RealFM(), FactRow(), OneForOne(), PayWhatYouContribute(), ShapleyShare(), LeaveOneOut(), Shares(),
        Agreement(), GradientRelative(), GrovesD(), Clarke(), AGV(),
    )
}  # fmt: skip

__all__ = [
    "COLUMNS",
    "Judgement",
    "Lie",
    "Moves",
    "Measured",
    "Promise",
    "ROWS",
    "Reports",
    "LeagueRow",
    "Stage",
    "draw",
    "judge",
    "measure",
]
