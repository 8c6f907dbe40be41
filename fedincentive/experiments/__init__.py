"""The paper's experiments on real data: readers, partitions, models, fast training, figures and reports.

Everything that needs torch or matplotlib imports it where it is used, so that `fedincentive reproduce --help` is quick.
"""

from __future__ import annotations

from .data import Dataset, read
from .partition import by_user, dirichlet, grouped_users, iid, pathological

__all__ = ["Dataset", "by_user", "dirichlet", "grouped_users", "iid", "pathological", "read"]
