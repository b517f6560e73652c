"""Messages while environments take long to start."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

FIRST_SECONDS = 10.0
"""Seconds until the first message. The time doubles with each further message."""


@contextlib.contextmanager
def reports_waiting(warn: Callable[[str], None], num_envs: int, env_id: str, limit: float = 0.0) -> Iterator[None]:
    """Call ``warn`` from a thread if the environments have not started after 10, 20, 40, … seconds. The message names the ``limit``
    (seconds) after which the start is aborted; 0: there is none."""
    started = threading.Event()

    def report() -> None:
        elapsed = pause = FIRST_SECONDS
        while not started.wait(pause):
            environments = "1 environment" if num_envs == 1 else f"{num_envs} environments"
            until = f"; limit {limit:g} s (ten times step_timeout)" if limit else ""
            with contextlib.suppress(Warning):  # if the user turns warnings into errors
                warn(f"Still waiting for {environments} of {env_id} to start ({elapsed:g} s{until}).")
            pause, elapsed = elapsed, 2 * elapsed

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        started.set()
        thread.join()
