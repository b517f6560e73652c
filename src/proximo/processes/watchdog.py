"""The watchdog of several processes: it finds one that is killed, stopped, has failed, or hangs, and ends this process with a sentence.

Each process sends a ``Beat`` every half second from a separate thread, and reads the beats of the others. JAX itself finds only
processes whose connection is lost, and then aborts the others without running Python.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Literal

from proximo.errors import printable
from proximo.processes.coordination import Store

PERIOD_SECONDS = 0.5
LOSS_SECONDS = 3.0
"""After a failed collective, a process counts as lost if it has been silent for this long."""
COLLECTIVE_FAULTS = ("gloo", "nccl", "all-reduce", "collective", "unavailable", "connection")
"""Words in the error of a computation that another process was part of."""


Phase = Literal["start", "train"]


@dataclasses.dataclass
class Beat:
    """What a process reports to the others."""

    count: int = 0
    """Number of this beat."""
    arrived: int = 0
    """Steps of the training that wait for all processes, so far."""
    doing: str = "the start"
    """The last of them, in words."""
    phase: Phase = "start"
    """``start``: environments are made and programs are compiled. ``train``: everything else."""
    cpu: float = 0.0
    """Seconds of CPU time."""
    requested: int = 0
    """Number of the signal that asked this process to stop; 0: none."""
    left: bool = False
    failure: str = ""


class Watchdog:
    """Sends the beats of process ``index`` of ``count``, and watches the others.

    A process is lost if it sends no beat for ``heartbeat`` seconds. It hangs if others wait at a later step, and it does not arrive within
    ``heartbeat`` seconds; while it makes environments and compiles, within ``start_timeout`` seconds without CPU time.
    """

    def __init__(self, store: Store, index: int, count: int, heartbeat: float, start_timeout: float, launcher: int | None):
        self._store, self.index, self.heartbeat = store, index, heartbeat
        self._start_timeout, self._launcher = start_timeout, launcher
        self.on_request: Callable[[int], None] = lambda number: None
        self.how_to_continue = ""
        self._own, self._beats = Beat(), dict[int, Beat]()
        now = time.monotonic()
        self._heard = dict.fromkeys(range(count), now)
        """When the last new beat of each process came."""
        self._behind: dict[int, tuple[int, float, float]] = {}
        """For each process that is behind another one: its step, the time since which it is there, and its CPU time at that moment."""
        self._answered = now
        """When the store last answered."""
        self._collective_failed = False
        self._stopped = threading.Event()
        self._ending = threading.Lock()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._exchange, self._watch)]

    def start(self) -> None:
        """Begin to send and to watch."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send and watch no more."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(4 * PERIOD_SECONDS)  # Python must not end while a thread is in JAX's service

    def arrive(self, doing: str) -> None:
        """This process waits for the others in ``doing``."""
        self._own.doing = doing
        self._own.arrived += 1

    def enter(self, phase: Phase) -> None:
        """This process is in ``phase`` from now on."""
        self._own.phase = phase

    def request(self, number: int) -> None:
        """This process was asked to stop."""
        self._own.requested = number

    @property
    def someone_left(self) -> bool:
        """Whether another process has left in order."""
        return any(beat.left for index, beat in self._beats.items() if index != self.index)

    def leave(self) -> None:
        """Tell the others that this process ends in order. Process 0 ends last."""
        self._own.left = True
        self._wait_for_others(lambda beat: beat.left)

    def fail(self, error: BaseException) -> None:
        """Tell the others that the training has failed here. See ``Peers.fail``."""
        text = f"{type(error).__name__}: {error}".lower()
        if any(word in text for word in COLLECTIVE_FAULTS):
            self._collective_failed = True
            time.sleep(LOSS_SECONDS + 4 * PERIOD_SECONDS)  # the watching thread ends the process
        reason = " ".join(printable(str(error)).split()) or type(error).__name__
        self._own.failure = f"{type(error).__name__}: {reason}"[:1000]
        self._wait_for_others(lambda beat: bool(beat.failure))

    def _wait_for_others(self, have_seen: Callable[[Beat], bool]) -> None:
        """Wait until a beat was sent and, in process 0, until the others answer or have ended."""
        sent, until = self._own.count, time.monotonic() + 4 * PERIOD_SECONDS
        while time.monotonic() < until:
            time.sleep(PERIOD_SECONDS / 5)
            others = [beat for index, beat in self._beats.items() if index != self.index]
            if self._own.count > sent + 1 and (self.index or all(map(have_seen, others))):
                break
        if not self.index:
            time.sleep(3 * PERIOD_SECONDS)  # JAX aborts those that have not ended yet when process 0 does

    def _exchange(self) -> None:
        """Send beats, and read those of the others."""
        while not self._stopped.is_set():
            # Only this thread sets these two fields, and only the training sets the others.
            self._own.count, self._own.cpu = self._own.count + 1, time.process_time()
            try:
                self._store.set(f"beat/{self.index}", json.dumps(dataclasses.asdict(self._own)))
                found = {int(index): Beat(**json.loads(text)) for index, text in self._store.folder("beat").items()}
            except Exception:  # the store is lost: then it no longer answers
                time.sleep(PERIOD_SECONDS)
                continue
            now = time.monotonic()
            self._answered = now
            for index, beat in found.items():
                if index not in self._beats or beat.count != self._beats[index].count:
                    self._heard[index] = now
            self._beats = found
            for beat in found.values():
                if beat.requested:
                    self.on_request(beat.requested)
            self._stopped.wait(PERIOD_SECONDS)

    def _watch(self) -> None:
        """End this process if another one is lost."""
        while not self._stopped.wait(PERIOD_SECONDS / 2):
            if self._launcher is not None and os.getppid() != self._launcher:
                self._end("`proximo launch` has ended")
            ends_itself = self._own.left or self._own.failure
            if not ends_itself and (sentence := self._fault(time.monotonic())):
                self._end(sentence)

    def _fault(self, now: float) -> str:
        """What is wrong, in words; empty: nothing."""
        silence = LOSS_SECONDS if self._collective_failed else self.heartbeat
        if now - self._answered > silence and self.index:
            return f"process 0 has not answered for {now - self._answered:.0f} s"
        if now - self._answered > 2 * PERIOD_SECONDS:
            return ""  # what is known of the others is old
        for index, beat in self._beats.items():
            if index == self.index or beat.left:
                continue
            if beat.failure:
                return f"process {index} has failed ({beat.failure})"
            if now - self._heard[index] > silence:
                return f"process {index} has not answered for {now - self._heard[index]:.0f} s: it was killed or stopped, or its machine is lost"
        return self._straggler(now)

    def _straggler(self, now: float) -> str:
        furthest = max(self._beats.values(), key=lambda beat: beat.arrived, default=self._own)
        for index, beat in self._beats.items():
            if beat.arrived >= furthest.arrived or beat.left:
                self._behind.pop(index, None)
                continue
            arrived, since, cpu = self._behind.get(index, (beat.arrived, now, beat.cpu))
            if beat.arrived != arrived or (beat.phase == "start" and beat.cpu > cpu + 0.02 * (now - since) + 0.05):
                arrived, since, cpu = beat.arrived, now, beat.cpu
            self._behind[index] = arrived, since, cpu
            limit = self._start_timeout if beat.phase == "start" else self.heartbeat
            if now - since > limit:
                return f"process {index} hangs: it has not come to {furthest.doing}, where others wait, for {now - since:.0f} s"
        return ""

    def _end(self, sentence: str) -> None:
        """Print why, and end the process without waiting for computations, which would wait for the lost process."""
        with self._ending:
            if self._stopped.is_set():
                return
            self._stopped.set()
            try:
                message = f"proximo: process {self.index} ends, because {sentence}. {self.how_to_continue}".rstrip()
                print(message, file=sys.stderr, flush=True)
                if self.index == 0:  # the others read the beats in the store of this process, and find the same
                    time.sleep(4 * PERIOD_SECONDS)
            finally:  # standard error may be closed
                os._exit(1)
