"""Work in other threads."""

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

BUSY_SHARE, WAITING_SHARE = 0.02, 0.5
"""A process is busy if it uses this share of a core, or if a thread waits for a core this share of the time."""
MEASURE_SECONDS = 0.5
"""Time between two measurements. A measurement takes up to a millisecond."""


def in_thread(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call ``function`` in a thread that, unlike an executor's, does not delay the end of the process."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def together(*functions: Callable[[], Any]) -> list[Any]:
    """Call all functions at the same time. When all have ended, return their results or raise the first error."""
    calls = [in_thread(function) for function in functions]
    wait(calls)
    return [call.result() for call in calls]


class IdleWatch:
    """Measures for how long this process has used less than 2 % of a core and, on Linux, has not waited for one most of
    the time."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin to measure anew."""
        self._busy = math.inf
        self._since = self._seen = time.monotonic()

    def seconds(self) -> float:
        """Seconds since the process was busy, or since ``restart``."""
        now = time.monotonic()
        if now - self._seen > MEASURE_SECONDS:
            was_stopped = now - self._seen > 10 * MEASURE_SECONDS  # Ctrl-Z, or a sleeping machine
            busy, self._seen = _busy_seconds(), now
            # Threads that end take their waiting time with them.
            if was_stopped or not 0 <= busy - self._busy < BUSY_SHARE * (now - self._since) + 0.05:
                self._busy, self._since = busy, now
        return now - self._since


def _busy_seconds() -> float:
    """CPU time of this process, and the weighted time in which its threads have waited for a core."""
    waited = 0
    with contextlib.suppress(OSError):  # no Linux
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/schedstat", "rb") as file:  # it may have ended
                waited += int(file.read().split()[1])
    return time.process_time() + BUSY_SHARE / WAITING_SHARE * waited / 1e9
