"""The studies by name, in the order of the paper."""

from __future__ import annotations

from .base import Bench, Case, Record, Study, label
from .closed_form import Example1, StepSizesStudy
from .liars import Adversarial, Misreporting
from .money import MoralHazard, Payments
from .points import OnePoint
from .trimming import Trimming
from .welfare import NonIid, WelfareVsAgents, WelfareVsBeta, WelfareVsTime

STUDIES: dict[str, type[Study]] = {
    study.name: study
    for study in (
        Example1,
        StepSizesStudy,
        WelfareVsAgents,
        WelfareVsBeta,
        WelfareVsTime,
        Payments,
        NonIid,
        Adversarial,
        Trimming,
        Misreporting,
        MoralHazard,
        OnePoint,
    )
}

__all__ = ["STUDIES", "Bench", "Case", "Record", "Study", "label"]
