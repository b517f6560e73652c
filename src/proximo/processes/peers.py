"""The processes of a training: what they agree on, and how they find one that is lost, has failed or hangs.

Each process sends a ``Beat`` every half second from a separate thread, and reads the beats of the others. JAX
itself finds only processes whose connection is lost, and then aborts the others without running Python.
"""

import atexit
import contextlib
import ctypes
import dataclasses
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from proximo.errors import ConfigError, TrainingError, command, printable
from proximo.jax_setup import LAUNCHER
from proximo.threads import IdleWatch

HEARTBEAT_SECONDS = 100.0
WAIT_MILLISECONDS = 200
"""How long one request to the service waits, so that Python's signal handlers run in between."""
PERIOD_SECONDS = 0.5
COLLECTIVE_FAULTS = ("Gloo", "NCCL", "UNAVAILABLE")
"""Words in the error of a computation that all processes share."""
LOSS_SECONDS = 3.0
"""After such an error, a process counts as lost if it has been silent for this long."""


@dataclasses.dataclass
class Beat:
    """What a process reports: how often it has ``arrived`` where all wait, what it was ``doing`` there, for
    how many seconds it has been ``idle`` without waiting, and the signal that ``requested`` a stop (0: none)."""

    number: int = 0
    arrived: int = 0
    doing: str = "the start"
    idle: float = 0.0
    requested: int = 0
    failure: str = ""


class Peers:
    """The processes of a training. Without ``join`` this process is alone, and every method answers at once.

    All processes must call ``agree``, ``from_first`` and ``check_equal`` equally often and in the same order.
    Two threads watch them through JAX's ``client``: a process is lost if it sends no beat for ``heartbeat``
    seconds. It hangs if others wait for it, and it uses no CPU time for as long.
    """

    def __init__(self, index: int = 0, count: int = 1, client: Any = None, heartbeat: float = HEARTBEAT_SECONDS):
        self.index, self.count, self._client = index, count, client
        self._heartbeat = self._max_silence = heartbeat
        self._own, self._beats, self._waits = Beat(), dict[int, Beat](), False
        self._heard = dict.fromkeys(range(count), time.monotonic())
        """When the last new beat of each process was read; of this one: when the service last answered."""
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._exchange, self._watch) if client]
        self.prepare(lambda number: None, "")
        for thread in self._threads:
            thread.start()

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run directory and prints."""
        return self.index == 0

    @property
    def can_rescue(self) -> bool:
        """Whether this process can save what was learned after a failure. Each of several has a part of the state."""
        return self.count == 1

    def grace(self, seconds: float) -> float:
        """How long a call that all processes share may outlast a request to stop: none of several may leave it alone."""
        return seconds if self.count == 1 else math.inf

    def part(self, number: int) -> range:
        """The part of ``number`` things that belongs to this process: an equal part for each."""
        return range(number * self.index // self.count, number * (self.index + 1) // self.count)

    def agree(self, value: Any, doing: str) -> list[Any]:
        """Give ``value``, which JSON can store, to all processes, and return the values of all, in their order. ``doing`` is what follows, in
        words, for the message if a process does not arrive here. Raises ``TrainingError`` if one is at another place of the training."""
        if self.count == 1:
            return [value]
        if not self._is_watching:
            raise ConfigError("The processes have separated after a failure: start them again.")
        number = self._own.arrived + 1
        self._own.doing, self._own.arrived, self._waits = doing, number, True
        own, all_of_them = f"value/{number}", f"values/{number}"
        self._client.key_value_set(f"{own}/{self.index}", json.dumps([doing, value]))
        if self.is_first:
            given = ", ".join(self._wait_for(f"{own}/{index}") for index in range(self.count))
            self._client.key_value_set(all_of_them, f"[{given}]")
            # A process that is at this number has read the numbers before.
            self._client.key_value_delete(f"values/{number - 1}")
            self._client.key_value_delete(f"{own}/")
        every = json.loads(self._wait_for(all_of_them))
        self._waits = False
        if len(places := {place for place, _ in every}) > 1:
            raise TrainingError(f"Processes have run different code: they are at {', '.join(sorted(places))}.")
        return [found for _, found in every]

    def _wait_for(self, key: str) -> str:
        while True:  # the watching thread ends this process if no answer comes
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                return self._client.blocking_key_value_get(key, WAIT_MILLISECONDS)

    def from_first(self, make: Callable[[], Any], doing: str) -> Any:
        """The value of ``make()``, which process 0 calls, in all processes. ``doing`` as in ``agree``."""
        return self.agree(make() if self.is_first else None, doing)[0]

    def check_equal(self, make: Callable[[], Mapping[str, Any]]) -> None:
        """Raise ``ConfigError`` if the values of ``make()``, by name, differ between processes."""
        if self.count == 1:
            return
        first, *others = self.agree({**make(), "the number of processes": self.count}, "the comparison of settings")
        for index, found in enumerate(others, 1):
            for name in (name for name in first if found.get(name) != first[name]):
                raise ConfigError(
                    f"{name} is {found.get(name)} in process {index} and {first[name]} in process 0: start all processes with the same "
                    "settings and the same versions."
                )

    def require_one(self, what: str) -> None:
        """Raise ``ConfigError`` if several processes train together, which ``what`` does not support."""
        if self.count > 1:
            raise ConfigError(f"{what} uses one process, but {self.count} have joined: use proximo.train.")

    def how_to_resume(self, path: Any) -> str:
        """The command that resumes the run at ``path`` with all processes."""
        resume = ("train", "--resume", path)
        if self.count == 1:
            return command("proximo", *resume)
        if LAUNCHER in os.environ:
            return command("proximo", "launch", "-n", self.count, "--", *resume)
        return f"{command('proximo', *resume, '--distributed')}   (in each of the {self.count} processes, with its other flags)"

    def prepare(self, on_request: Callable[[int], None], how_to_continue: str) -> None:
        """Call ``on_request`` with the number of a signal that another process receives. If a process is
        lost, end with ``how_to_continue``."""
        self._on_request, self._how_to_continue = on_request, how_to_continue
        if self._is_watching:
            set_last_words(f"process {self.index} ends, because process 0 has ended. {how_to_continue}".rstrip())

    def request(self, number: int) -> None:
        """Report to the others that this process was asked to stop by signal ``number``."""
        self._own.requested = number

    @contextlib.contextmanager
    def failing_together(self) -> Iterator[None]:
        """Context manager: an exception in the block ends the training in all processes."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Report to the others that this process has failed; they then end. If ``error`` may come from the loss
        of another process, first wait for the watching thread, which names that process and ends this one."""
        if not self._is_watching:
            return
        if any(word in str(error) for word in COLLECTIVE_FAULTS):
            self._max_silence = min(self._heartbeat, LOSS_SECONDS)
            time.sleep(LOSS_SECONDS + 4 * PERIOD_SECONDS)
        reason = " ".join(printable(str(error)).split())
        self._own.failure = f"{type(error).__name__}{': ' if reason else ''}{reason}"[:1000]
        self.linger()
        self._stop()
        from jax._src import distributed

        # Never disconnect: Python's exit would wait for processes that have ended, and JAX would abort.
        state = distributed.global_state
        for left in (state.client, state.service):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(left))  # freeing them disconnects, too
        state.client = state.service = None

    def linger(self) -> None:
        """Give the others time to read the last beat. Process 0 has the service, and ends last."""
        if self._is_watching:
            time.sleep((2 if self.index else 4) * PERIOD_SECONDS)

    def finish(self) -> None:
        """Disconnect the processes, which are all complete. Otherwise Python's exit would wait for some that are gone."""
        if self._is_watching:
            self.agree(None, "the end")
            self._stop()
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                jax.distributed.shutdown()

    @property
    def _is_watching(self) -> bool:
        return bool(self._threads) and not self._stopped.is_set()

    def _stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(4 * PERIOD_SECONDS)  # Python must not end while a thread is in JAX's service

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
            if beat.arrived < furthest.arrived and beat.idle > self._heartbeat:
                place = f"{furthest.doing}, where others wait"
                return f"process {index} hangs: it has not come to {place}, and has used no CPU time for {beat.idle:.0f} s"
        return ""


ALONE = Peers()
_current = ALONE


def current() -> Peers:
    """The processes that train with this one. A training asks once, and passes the object on."""
    return _current


def use(peers: Peers) -> Peers:
    """Let ``current`` return ``peers`` until Python ends; then finish, or report the error that ended it."""
    global _current
    _current = peers

    @atexit.register
    def end() -> None:
        if (error := getattr(sys, "last_value", None)) is not None:
            peers.fail(error)
        peers.finish()

    return peers


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
