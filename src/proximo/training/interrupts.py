"""Ctrl-C and SIGTERM while a compiled program runs, and programs that never return."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jax

from proximo.errors import TrainingError
from proximo.processes.peers import Peers
from proximo.threads import IdleWatch, in_thread

GRACE_SECONDS = 7.0
EXIT_SECONDS = 60.0
"""The longest that Python waits at its exit for a call that was abandoned."""
STILL_SECONDS = 90.0
"""The runtime is considered hung if it computes and uses no CPU time for this long."""
# A closed terminal sends SIGHUP, which Windows does not have.
STOPS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
SHOW_CURSOR = "\x1b[?25h"


class AbandonedError(Exception):
    """An interrupted call has outlasted its grace period. Its result is lost."""


class HungError(TrainingError):
    """The CPU runtime hangs. An ordinary exit would wait for it for ever."""

    ends_process = True


class Interrupts:
    """Context manager that turns signals into requests to stop.

    The first SIGINT, SIGTERM or SIGHUP sets ``requested``. A second one ends the process at once or, if this process does other work too,
    such as a notebook (not ``owns_process``), raises ``KeyboardInterrupt``. Outside the main thread, signals are left unchanged.

    ``on_signal`` is called with the number of the first signal that this process receives, ``on_request``
    when a call first notices a request to stop, and ``on_exit`` before a second signal ends the process.
    """

    def __init__(
        self,
        on_request: Callable[[], None] = lambda: None,
        owns_process: bool = True,
        on_exit: Callable[[], None] = lambda: None,
        on_signal: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.owns_process, self._on_request, self._on_exit, self._on_signal = owns_process, on_request, on_exit, on_signal
        self.requested: int | None = None
        """Number of the signal that asked to stop, here or in another process."""
        self._requested_at, self._has_received = 0.0, False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                if number != signal.SIGINT and signal.getsignal(number) is signal.SIG_IGN:
                    continue  # nohup: the training outlives its terminal
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: C code had installed it

    def request(self, number: int) -> None:
        if self.requested is None:
            self.requested, self._requested_at = number, time.monotonic()

    def _handle(self, number: int, _frame: object) -> None:
        if self._has_received:
            if not self.owns_process:
                raise KeyboardInterrupt
            if sys.stderr is not None and sys.stderr.isatty():
                os.write(sys.stderr.fileno(), SHOW_CURSOR.encode())  # a live table hides it
            self._on_exit()
            os._exit(128 + number)
        self._has_received = True
        self.request(number)
        self._on_signal(number)

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        grace: float | None = None,
        is_computing: Callable[[], bool] = lambda: True,
    ) -> Any:
        """Return ``function(*arguments)``, which runs in another thread: a compiled program blocks its
        thread, and Python's signal handlers wait for the main thread.

        Raises ``AbandonedError`` if the call outlasts a request to stop by ``grace`` seconds (None: ``GRACE_SECONDS``); it still
        runs. Raises ``HungError`` if ``is_computing()``, but this process has used no CPU time for ``STILL_SECONDS``.
        """
        grace = GRACE_SECONDS if grace is None else grace
        call, idle, ended = in_thread(function, *arguments), IdleWatch(), threading.Event()
        on_cpu = jax.default_backend() == "cpu"
        call.add_done_callback(lambda _: ended.set())
        while not ended.wait(0.05 if self.requested is None else 0.01):
            if self.requested is not None:
                on_request, self._on_request = self._on_request, lambda: None
                on_request()
                if time.monotonic() - self._requested_at > grace:
                    # Python's exit would end the thread inside the compiler, which aborts the process.
                    atexit.register(ended.wait, EXIT_SECONDS)
                    raise AbandonedError
            if not (on_cpu and is_computing()):
                idle.restart()
            elif idle.seconds() > STILL_SECONDS:
                raise HungError(
                    f"JAX's CPU runtime has hung: no CPU time was used for {STILL_SECONDS:.0f} s. The last checkpoint is intact: "
                    "continue with --resume. `proximo doctor` reports whether the remedy against this deadlock is active."
                )
        return call.result()


def together(peers: Peers, doing: str, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """``function(*arguments)`` of all processes. If one abandons it, all raise ``AbandonedError``."""
    try:
        own = {"result": function(*arguments)}
    except AbandonedError:
        own = None
    every = peers.agree(own, doing)
    if None in every:
        raise AbandonedError
    return [one["result"] for one in every]
