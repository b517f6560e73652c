"""The watchdog of several processes: it finds one that is lost, has failed or hangs, and ends this one.

Each process sends a ``Beat`` every half second from a separate thread, and reads the beats of the others. JAX
itself finds only processes whose connection is lost, and then aborts the others without running Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

from proximo.errors import printable
from proximo.processes import LAUNCHER
from proximo.threads import IdleWatch

PERIOD_SECONDS = 0.5
COLLECTIVE_FAULTS = ("Gloo", "NCCL", "UNAVAILABLE")
"""Words in the error of a computation that all processes share."""
LOSS_SECONDS = 3.0
"""After such an error, a process counts as lost if it has been silent for this long."""


@dataclasses.dataclass
class Beat:
    """What a process reports: how often it has ``arrived`` where all wait, what it was ``doing`` there, for how many
    seconds it has been ``idle`` without waiting, and the signal that ``requested`` a stop (0: none)."""

    number: int = 0
    arrived: int = 0
    doing: str = "the start"
    idle: float = 0.0
    requested: int = 0
    failure: str = ""


class Watchdog:
    """Sends the beats of process ``index`` of ``count`` through JAX's ``client``, and watches the others;
    without a client, it does nothing. A process is lost if it sends no beat for ``heartbeat`` seconds. It
    hangs if others wait for it, and it uses no CPU time for as long."""

    def __init__(self, client: Any, index: int, count: int, heartbeat: float):
        self._client, self.index, self.heartbeat, self._max_silence = client, index, heartbeat, heartbeat
        self._own, self._beats, self._waits = Beat(), dict[int, Beat](), False
        self._heard = dict.fromkeys(range(count), time.monotonic())
        """When the last new beat of each process was read; of this one: when the service last answered."""
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._exchange, self._watch) if client]
        self.prepare(lambda number: None, "")
        for thread in self._threads:
            thread.start()

    @property
    def is_watching(self) -> bool:
        return bool(self._threads) and not self._stopped.is_set()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(4 * PERIOD_SECONDS)  # Python must not end while a thread is in JAX's service

    def prepare(self, on_request: Callable[[int], None], how_to_continue: str) -> None:
        """Call ``on_request`` with the number of a signal that another process receives. If a process is
        lost, end with ``how_to_continue``."""
        self._on_request, self._how_to_continue = on_request, how_to_continue
        if self.is_watching:
            set_last_words(f"process {self.index} ends, because process 0 has ended. {how_to_continue}".rstrip())

    @contextlib.contextmanager
    def waiting(self, doing: str) -> Iterator[None]:
        """Context manager: this process waits for the others in ``doing``."""
        self._own.doing, self._own.arrived, self._waits = doing, self._own.arrived + 1, True
        yield
        self._waits = False

    def request(self, number: int) -> None:
        """Report to the others that this process was asked to stop by signal ``number``."""
        self._own.requested = number

    def fail(self, error: BaseException) -> None:
        """Report to the others that this process has failed; they then end. If ``error`` may come from the loss of another
        process, first wait for the watching thread, which names that process and ends this one."""
        if not self.is_watching:
            return
        if any(word in str(error) for word in COLLECTIVE_FAULTS):
            self._max_silence = min(self.heartbeat, LOSS_SECONDS)
            time.sleep(LOSS_SECONDS + 4 * PERIOD_SECONDS)
        reason = " ".join(printable(str(error)).split())
        self._own.failure = f"{type(error).__name__}{': ' if reason else ''}{reason}"[:1000]
        self.linger()
        self.stop()
        from jax._src import distributed

        # Never disconnect: Python's exit would wait for processes that have ended, and JAX would abort.
        state = distributed.global_state
        for left in (state.client, state.service):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(left))  # freeing them disconnects, too
        state.client = state.service = None

    def linger(self) -> None:
        """Give the others time to read the last beat. Process 0 has the service, and ends last."""
        if self.is_watching:
            time.sleep((2 if self.index else 4) * PERIOD_SECONDS)

    def _exchange(self) -> None:
        idle = IdleWatch()
        while not self._stopped.wait(PERIOD_SECONDS):
            if self._waits:
                idle.restart()
            self._own.number, self._own.idle = self._own.number + 1, idle.seconds()
            try:
                self._client.key_value_set(f"beat/{self.index}", json.dumps(dataclasses.asdict(self._own)), allow_overwrite=True)
                beats = [(int(key.split("/")[-1]), json.loads(text)) for key, text in self._client.key_value_dir_get("beat/")]
            except jax.errors.JaxRuntimeError:  # process 0 is lost
                continue
            for index, fields in beats:
                if index not in self._beats or fields["number"] != self._beats[index].number:
                    self._heard[index], self._beats[index] = time.monotonic(), Beat(**fields)
                if fields["requested"]:
                    self._on_request(fields["requested"])

    def _watch(self) -> None:
        """End this process at once if another one is lost: computations would wait for that one."""
        launcher = os.environ.get(LAUNCHER)
        while not self._stopped.wait(PERIOD_SECONDS / 2):
            is_alone = launcher is not None and os.getppid() != int(launcher)
            sentence = "`proximo launch` has ended" if is_alone else self._fault(time.monotonic())
            if not sentence or (self._own.failure and not is_alone):
                continue
            try:
                message = f"proximo: process {self.index} ends, because {sentence}. {self._how_to_continue}".rstrip()
                print(message, file=sys.stderr, flush=True)
                self.linger()  # the others read the beats through process 0, and find the same
            finally:  # standard error may be closed
                os._exit(1)

    def _fault(self, now: float) -> str:
        """What is wrong, in words; empty: nothing."""
        beats, silence = self._beats, {index: now - heard for index, heard in self._heard.items()}
        if silence[self.index] > 2 * PERIOD_SECONDS:  # what is known of the others is old
            is_lost = self.index and silence[self.index] > self._max_silence
            return f"process 0 has not answered for {silence[self.index]:.0f} s" if is_lost else ""
        furthest = max([self._own, *beats.values()], key=lambda beat: beat.arrived)
        for index in self._heard.keys() - {self.index}:
            beat = beats.get(index, Beat())
            if beat.failure:
                return f"process {index} has failed ({beat.failure})"
            if silence[index] > self._max_silence:
                return f"process {index} has not answered for {silence[index]:.0f} s: it was killed or stopped, or its machine is lost"
            if beat.arrived < furthest.arrived and beat.idle > self.heartbeat:
                place = f"{furthest.doing}, where others wait"
                return f"process {index} hangs: it has not come to {place}, and has used no CPU time for {beat.idle:.0f} s"
        return ""


_last_words: Any = None


def set_last_words(message: str, code: int = 1, descriptor: int = 2) -> None:
    """If JAX aborts the process from now on, write ``message`` to the file ``descriptor`` and exit with
    ``code``. JAX aborts from C++ if a process cannot join, or if process 0 is lost."""
    global _last_words

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def speak(_number: int) -> None:  # Python's own handlers do not run during an abort
        try:
            os.write(descriptor, f"proximo: {message}\n".encode())
        finally:
            os._exit(code)

    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    set_handler(signal.SIGABRT, ctypes.cast(speak, ctypes.c_void_p))
    _last_words = speak  # C has only its address
