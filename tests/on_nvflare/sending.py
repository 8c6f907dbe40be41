"""Sends a recipe's job; a server that begins, or was killed, needs a while before it takes one."""

import time
from typing import Any


def sent(recipe: Any, env: Any, running: bool = False, patience: float = 1200.0) -> str:
    """The job's id. A POC is started first, unless it is `running`."""
    recipe._ensure_client_apps_prepared()
    end = time.monotonic() + patience
    while True:
        try:
            return env._get_session_manager().submit_job(recipe._job) if running else env.deploy(recipe._job)
        except Exception as error:
            if time.monotonic() > end:
                raise
            print(error)
            env._session_manager, running = None, True
            time.sleep(1.0)


def ended(env: Any, job: str) -> str:
    """Where its results are; it must have ended well."""
    found = env.get_job_result(job, timeout=1200)
    assert found, "the job did not end"
    assert env.get_job_status(job) == "FINISHED:COMPLETED", env.get_job_status(job)
    return found
