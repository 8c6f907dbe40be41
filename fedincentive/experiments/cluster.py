"""The jobs of a study on a Ray cluster: `reproduce ... --on ray://HEAD:10001`.

Ray decides where a job runs and runs it again on another machine where one is lost; the worker code is the same as in
local processes. Its files are, too: the folder of results must be on storage that every machine of the cluster sees.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..errors import FedIncentiveError, SettingError

SCHEME = "ray://"


class Cluster:
    """Takes jobs as a pool of processes does. A job is a core's work."""

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError as error:
            raise SettingError(
                f"--on {address} needs Ray, here and on every machine of the cluster: pip install "
                "'fedincentive[cluster]'."
            ) from error
        self._ray = ray
        try:
            ray.init(address, logging_level=logging.ERROR, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise SettingError(
                f"--on {address}: no Ray cluster answers there ({reason}). Start one with `ray start --head` and give "
                f"{SCHEME}HOST:10001."
            ) from error

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self._ray.shutdown()

    def submit(self, work: Callable[..., None], *given: Any, **named: Any) -> Future:
        task = self._ray.remote(num_cpus=1, max_retries=3)(_attempt)
        return task.remote(work, given, named).future()


def _attempt(work: Callable[..., None], given: tuple[Any, ...], named: dict[str, Any]) -> FedIncentiveError | None:
    try:
        work(*given, **named)
    except FedIncentiveError as error:  # Ray raises a result that is an error, without a traceback in its text
        return error
    return None
