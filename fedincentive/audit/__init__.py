"""The auditor's side: at the site, with its records, it does again what an agent says it did."""

from __future__ import annotations

from .auditor import Auditor
from .examination import Delivery, Examination, examine

__all__ = ["Auditor", "Delivery", "Examination", "examine"]
