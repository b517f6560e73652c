"""Ctrl-C and SIGTERM while compiled programs run, and programs that never return."""

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

GRACE_SECONDS = 7.0
EXIT_SECONDS = 60.0
"""The longest that Python's end waits for a call that was left behind."""
STILL_SECONDS = 90.0
# A terminal that is closed sends SIGHUP, which Windows does not have.
STOPS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
SHOW_CURSOR = "\x1b[?25h"


class AbandonedError(Exception):
    """A call was still running when the time that an interrupted run has was over; its result is lost."""


class HungError(TrainingError):
    """The CPU runtime hangs. A process that exits in the ordinary way would wait for it for ever."""

    ends_process = True


class Interrupts:
    """Context manager: the first SIGINT, SIGTERM or SIGHUP asks to stop (``requested``), a second one ends the process at once; where
    the process is not ours alone (``owns_process`` false: a notebook, a program that trains among other things) it raises
    ``KeyboardInterrupt`` instead.

    A compiled program holds the thread that called it and Python's signal handlers wait for it. So ``call`` runs it in
    a thread of its own and the main thread keeps watch. Outside the main thread signals are left as they are.
    ``notify`` is called once, when a request to stop is first seen; ``left`` by the signal that ends the process at once.
    """

    def __init__(
        self, notify: Callable[[], None] = lambda: None, owns_process: bool = True, left: Callable[[], None] = lambda: None
    ) -> None:
        self.owns_process, self._left = owns_process, left
        self.requested: int | None = None
        self._notify: Callable[[], None] | None = notify
        self._asked_at = 0.0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                if number != signal.SIGINT and signal.getsignal(number) is signal.SIG_IGN:
                    continue  # nohup: the training is to outlive its terminal
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: object) -> None:
        if self.requested is not None:
            if not self.owns_process:
                raise KeyboardInterrupt
            if sys.stderr is not None and sys.stderr.isatty():
                os.write(sys.stderr.fileno(), SHOW_CURSOR.encode())  # a live table has hidden it
            self._left()
            os._exit(128 + number)
        self.requested, self._asked_at = number, time.monotonic()

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        grace: float | None = None,
        computes: Callable[[], bool] = lambda: True,
    ) -> Any:
        """``function(*arguments)``; raises ``AbandonedError`` when it outlasts a request to stop by ``grace`` seconds (None:
        ``GRACE_SECONDS``), and ``HungError`` when this process has used no CPU time for ``STILL_SECONDS`` while it ``computes()``
        (and does not wait for environments, which have a limit of their own)."""
        outcome: dict[str, Any] = {}
        grace = GRACE_SECONDS if grace is None else grace

        def work() -> None:
            try:
                outcome["result"] = function(*arguments)
            except BaseException as error:
                outcome["error"] = error

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        watch = _CpuWatch()
        while thread.is_alive():
            thread.join(0.05 if self.requested is None else 0.01)
            if self.requested is not None and thread.is_alive():
                self._notify_once()
                if time.monotonic() - self._asked_at > grace:
                    # Python's end would tear the thread out of the compiler, which aborts the process.
                    atexit.register(thread.join, EXIT_SECONDS)
                    raise AbandonedError
            watch.check(computes())
        if "error" in outcome:
            raise outcome["error"]
        return outcome["result"]

    def _notify_once(self) -> None:
        notify, self._notify = self._notify, None
        if notify is not None:
            notify()


class _CpuWatch:
    """Notices that the CPU time of this process stands still although the CPU is all that computes."""

    def __init__(self) -> None:
        self._used, self._since = time.process_time(), time.monotonic()
        self._seen = self._since
        self._on_cpu = jax.default_backend() == "cpu"

    def check(self, computes: bool) -> None:
        used, now = time.process_time(), time.monotonic()
        stopped = now - self._seen > 5.0  # this thread stood still too: Ctrl-Z, or a machine that slept
        self._seen = now
        # The watching itself costs about 1 ms a second.
        if not (self._on_cpu and computes) or stopped or used - self._used > 0.02 * (now - self._since) + 0.05:
            self._used, self._since = used, now
        elif now - self._since > STILL_SECONDS:
            raise HungError(
                f"JAX's CPU runtime has hung: no CPU time was used for {STILL_SECONDS:.0f} s. The last checkpoint stands; go on "
                "with --resume. `proximo doctor` says whether the remedy against this deadlock is active."
            )
