"""A message now and then while environments start."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

FIRST_SECONDS = 10.0


@contextlib.contextmanager
def reports_waiting(notify: Callable[[str], None], num_envs: int, env_id: str, limit: float = 0.0) -> Iterator[None]:
    """Calls ``notify``, from a thread, when the environments have not started after 10, 20, 40, … seconds. ``limit``: seconds that
    they may take; 0: any number."""
    started = threading.Event()

    def report() -> None:
        elapsed = pause = FIRST_SECONDS
        while not started.wait(pause):
            environments = "1 environment" if num_envs == 1 else f"{num_envs} environments"
            until = f"; limit {limit:g} s (reset_timeout)" if limit else ""
            with contextlib.suppress(Warning):  # where the user has made errors of them
                notify(f"Still waiting for {environments} of {env_id} to start ({elapsed:g} s{until}).")
            pause, elapsed = elapsed, 2 * elapsed

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        started.set()
        thread.join()
