"""Environments in worker processes: several in each, over shared memory, watched, and started anew when one is lost."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np

from proximo.envs.host import wire
from proximo.envs.host.block import Rules
from proximo.envs.host.pool import environment_seeds, split, staggered_limits
from proximo.envs.host.sharing import SharedBytes
from proximo.envs.host.slab import UNTOLD, Layout, Slab
from proximo.envs.host.waiting import reports_waiting
from proximo.envs.host.worker import Setup
from proximo.errors import EnvError, EnvironmentFault

POSIX = os.name == "posix"
CLOSE_SECONDS = 1.0
MOST_FAILURES = 3
"""A constructor that fails so often, one time after the other, will not succeed."""
# A fresh interpreter, not a fork: safe beside JAX's threads, and the user's script is not run once more in it.
# -P, and the working folder last in the path: a json.py in it is not imported.
_BOOT = (
    "import sys; sys.path[:] = sys.argv[2:]; import cloudpickle; from proximo.envs.host import gymnasium, worker; "
    "worker.main(int(sys.argv[1]))"
)
# One thread for each worker's libraries: there are as many workers as cores.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


class Process:
    """One worker process and the parent's ends of its pipes."""

    def __init__(self, setup: Setup):
        lifeline, self._held = os.pipe() if POSIX else (-1, -1)
        inherited = [d for d in (lifeline, setup.memory.descriptor) if d >= 0]
        environment = {**dict.fromkeys(_ONE_THREAD, "1"), **os.environ}
        self.popen = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, str(lifeline), *sorted(setup.path, key=_is_working_folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
            # Away from the terminal's Ctrl-C, and with all that an environment starts in one group.
            **({"pass_fds": inherited, "start_new_session": True} if POSIX else {}),
        )
        if lifeline >= 0:
            os.close(lifeline)
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.commands, self.replies = self.popen.stdin.fileno(), self.popen.stdout.fileno()
        self.waited_since: float | None = None
        """When the command was sent whose reply has not come yet."""
        self.task = (wire.RESET, 0, 0)
        """The last command."""
        self.progress: tuple[Any, ...] = ()
        """Its progress in that command, as observed at ``progress_at``."""
        self.progress_at = 0.0
        self.hung = ""
        """Why proximo killed it; empty if it did not."""

    def begin(self, setup: Setup) -> None:
        """Send what it needs to make its environments; it replies when they are made."""
        self.waited_since = time.monotonic()
        with contextlib.suppress(OSError):
            wire.write_object(self.commands, setup)

    def command(self, what: int, slab: int, row: int, *payload: Any) -> None:
        """Send a command; a worker that is not there any more is noticed by the reply that it does not give."""
        if self.commands < 0:
            return
        self.task, self.waited_since = (what, slab, row), time.monotonic()
        with contextlib.suppress(OSError):
            wire.write_all(self.commands, wire.COMMAND.pack(what, slab, row))
            if payload:
                wire.write_object(self.commands, payload)

    def reply(self) -> bytes:
        """Wait for one; ``LOST`` when the process has ended. Raises what the worker has sent."""
        try:
            reply = os.read(self.replies, 1)
            if reply == wire.FAULT:
                raise wire.read_object(self.replies)
        except EOFError:
            return wire.LOST
        finally:
            self.waited_since = None
        return reply

    def has_replied(self) -> bool:
        """Whether a reply lies unread, because another worker's is waited for. Windows cannot tell: there it counts as none."""
        replies = self.replies  # another thread may release the process meanwhile
        if not POSIX or replies < 0:
            return False
        poll = select.poll()
        poll.register(replies, select.POLLIN)
        return bool(poll.poll(0))

    def why_lost(self) -> str:
        """How it has ended, in words; what it has started ends too."""
        if self.hung:
            return self.hung
        self._end_started()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(1.0)
        code = self.popen.returncode
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def _end_started(self) -> None:
        """End what a process that has ended by itself has left: before it is waited for, while its number is still its own."""
        until = time.monotonic() + 1.0
        while hasattr(os, "waitid") and self.popen.returncode is None and time.monotonic() < until:
            if os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                self.kill()
                return
            time.sleep(0.001)

    def kill(self) -> None:
        """End it now, and all that it has started."""
        if self.popen.returncode is not None:
            return  # its number may be another process's by now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if POSIX:
                os.killpg(self.popen.pid, signal.SIGKILL)
            else:
                self.popen.kill()

    def release(self) -> None:
        """End the process, close its pipes and forget it."""
        self.kill()
        self.popen.wait()
        self.commands = self.replies = -1  # other files may get these numbers
        for pipe in (self.popen.stdin, self.popen.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


class Workers:
    """``num_workers`` processes, as many for each group, each with a contiguous block of the group's columns.

    A worker is restarted with new seeds if it ends, takes longer than ``step_timeout`` seconds for a step, or takes longer than
    ``reset_timeout`` seconds to make or reset its environments. The lost row is then marked ``filler`` and ``cut``, and ``notify``
    receives a message. After ``max_restarts`` restarts, the next one raises ``EnvironmentFault``.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        layout: Layout,
        rules: Rules,
        num_workers: int,
        num_groups: int = 1,
        stagger_steps: int = 0,
        step_timeout: float = 60.0,
        max_restarts: int = 100,
        notify: Callable[[str], None] = lambda message: None,
        reset_timeout: float = 600.0,
    ):
        self.num_workers, self.restarts, self.env_id = num_workers, 0, rules.env_id
        self.how = f"in {num_workers} processes" if num_workers > 1 else "in a process of their own"
        self.stagger_steps, self.step_timeout, self.max_restarts = stagger_steps, step_timeout, max_restarts
        self.notify, self.reset_timeout = notify, reset_timeout
        self.groups = split(range(layout.num_envs), num_groups)
        self._seed = 0
        self._shared = SharedBytes(layout.size)
        self.slabs = layout.slabs(self._shared.memory)
        factory = _pickled(make, rules.env_id)
        path = _search_path()
        blocks = [split(columns, num_workers // num_groups) for columns in self.groups]
        self._setups = [[Setup(factory, b, rules, layout, self._shared.handle, path) for b in group] for group in blocks]
        self._processes: list[list[Process]] = []
        self._end = weakref.finalize(self, _end_all, self._processes, self._shared)
        threading.Thread(target=_watch, args=(weakref.ref(self),), daemon=True).start()
        try:
            for setups in self._setups:
                self._processes.append([Process(setup) for setup in setups])
            for process, setup in self._each():
                process.begin(setup)
            for g, group in enumerate(self._processes):
                for w, process in enumerate(group):
                    while process.reply() == wire.LOST:
                        if process.hung:
                            raise EnvError(
                                f"{self._name(g, w)} of {rules.env_id} {process.hung}: give a larger reset_timeout, or find the call that hangs."
                            )
                        process = self._renew(g, w, process.why_lost())
        except BaseException:
            self._end()
            raise

    def reset(self, slab: int, seed: int) -> None:
        self._seed = seed
        self.slabs[slab].filler[0] = False
        seeds = environment_seeds(self.groups[-1].stop, seed)
        limits = staggered_limits(len(seeds), self.stagger_steps, seed)
        for process, setup in self._each():
            part = slice(setup.columns.start, setup.columns.stop)
            process.command(wire.RESET, slab, 0, seeds[part], limits and limits[part])
        for g, group in enumerate(self._processes):
            for w, process in enumerate(group):
                if process.reply() == wire.LOST:
                    self._restart(g, w, slab, 0)

    def _each(self) -> list[tuple[Process, Setup]]:
        return [
            (process, setup)
            for processes, setups in zip(self._processes, self._setups, strict=True)
            for process, setup in zip(processes, setups, strict=True)
        ]

    def send(self, slab: int, t: int, group: int) -> None:
        for process in self._processes[group]:
            process.command(wire.STEP, slab, t)

    def ready(self, groups: list[int]) -> int:
        if len(groups) == 1 or not POSIX:
            return groups[0]
        poll = select.poll()
        owners = {}
        for group in groups:
            for process in self._processes[group]:
                poll.register(process.replies, select.POLLIN)
                owners[process.replies] = group
        return owners[poll.poll()[0][0]]

    def receive(self, slab: int, t: int, group: int) -> bool:
        cut = False
        for w, process in enumerate(self._processes[group]):
            reply = process.reply()
            if reply == wire.LOST:
                columns = self._setups[group][w].columns
                self._forget(self.slabs[slab], t, columns)
                with reports_waiting(self.notify, len(columns), self.env_id, self.reset_timeout):
                    self._restart(group, w, slab, t + 1)
            cut |= reply == wire.CUT
        return cut

    def _forget(self, slab: Slab, t: int, columns: range) -> None:
        """Take back what a lost worker may have written of row ``t``."""
        here = (t, slice(columns.start, columns.stop))
        for flags in (slab.terminated, slab.truncated, slab.life_lost):
            flags[here] = False
        slab.reward[here], slab.success[here] = 0.0, UNTOLD
        slab.filler[here] = slab.cut[here] = True

    def _restart(self, group: int, w: int, slab: int, row: int) -> None:
        """A new process for the environments of a lost one, whose first observations lie in ``row``."""
        columns = self._setups[group][w].columns
        why = lost = self._processes[group][w].why_lost()
        failures = 0
        while True:
            process = self._renew(group, w, why)
            seeds = environment_seeds(self.groups[-1].stop, self._seed, self.restarts)
            error = None
            try:
                if process.reply() != wire.LOST:
                    process.command(wire.RESET, slab, row, seeds[columns.start : columns.stop], None)
                    if process.reply() != wire.LOST:
                        return
                why = process.why_lost()
            except Exception as raised:
                error, why = raised, f"failed when its environments were made again ({type(raised).__name__}: {raised})"
            failures += bool(error or process.hung)
            if failures == MOST_FAILURES:
                reason = f"{type(error).__name__}: {error}" if error else f"their worker {why}"
                raise EnvironmentFault(
                    f"The environments {columns.start} … {columns.stop - 1} of {self._setups[group][w].rules.env_id} were lost "
                    f"(their worker {lost}), and creating them again failed {MOST_FAILURES} times: {reason}"
                ) from error

    def _name(self, group: int, w: int) -> str:
        columns = self._setups[group][w].columns
        return f"The worker of environments {columns.start} … {columns.stop - 1}"

    def _renew(self, group: int, w: int, why: str) -> Process:
        """Put a new process, which is starting, in the place of a lost one. Raises ``EnvironmentFault`` when it is one too many."""
        setup, what = self._setups[group][w], self._name(group, w)
        self._processes[group][w].release()
        self.restarts += 1
        if self.restarts > self.max_restarts:
            raise EnvironmentFault(
                f"{what} of {setup.rules.env_id} {why}, and workers were started anew {_times(self.max_restarts)} already: training "
                "stops. Look for what ends them, or raise max_restarts."
            )
        self.notify(f"{what} {why}: it is started anew with new seeds ({self.restarts} of at most {_times(self.max_restarts)}).")
        try:
            process = self._processes[group][w] = Process(setup)
        except OSError as error:  # no memory, or too many processes or files
            raise EnvironmentFault(f"{what} {why}, and no process could be started in its place ({error}).") from error
        process.begin(setup)
        return process

    def _overdue(self, process: Process, setup: Setup) -> str:
        """Why ``process`` has exceeded its time limit; empty if it has not. Within a step, the time starts again at each reset, and
        after it."""
        since, (what, slab, row), now = process.waited_since, process.task, time.monotonic()
        if since is None:
            return ""
        ended = begun = 0
        if what == wire.STEP:
            rows, part = self.slabs[slab], slice(setup.columns.start, setup.columns.stop)
            ended = int(np.count_nonzero(rows.terminated[row, part] | rows.truncated[row, part]))
            begun = int(np.count_nonzero(rows.first[row + 1, part]))
        if process.progress != (since, ended, begun):
            process.progress, process.progress_at = (since, ended, begun), now
        elapsed = now - process.progress_at
        if what == wire.STEP and ended <= begun:
            return f"hung for more than {self.step_timeout:g} s (step_timeout)" if elapsed > self.step_timeout else ""
        return (
            f"took more than {self.reset_timeout:g} s to make or reset its environments (reset_timeout)"
            if elapsed > self.reset_timeout
            else ""
        )

    def close(self) -> None:
        """Ask every worker to end, and end those that do not within a second."""
        self._end()


def _pickled(make: Callable[[], Any], env_id: str) -> bytes:
    """``make`` for a process. Raises ``EnvError`` where it holds what cannot travel."""
    try:
        return cloudpickle.dumps(make)
    except Exception as error:
        raise EnvError(
            f"{env_id} cannot be sent to a worker process ({type(error).__name__}: {error}): make what cannot be pickled in its "
            "constructor, or set num_workers = 0."
        ) from error


def _search_path() -> tuple[str, ...]:
    """``sys.path`` with the standard library first, so that a user's ``types.py`` cannot replace Python's module."""
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_config_var("DESTSHARED")}
    return tuple(sorted((entry for entry in sys.path if isinstance(entry, str)), key=lambda entry: entry not in standard))


def _is_working_folder(entry: str) -> bool:
    with contextlib.suppress(OSError):  # there is no such folder
        return os.path.samefile(entry or os.curdir, os.curdir)
    return False


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _end_all(processes: list[list[Process]], shared: SharedBytes) -> None:
    everyone = [process for group in processes for process in group]
    for process in everyone:
        process.command(wire.CLOSE, 0, 0)
    deadline = time.monotonic() + CLOSE_SECONDS
    for process in everyone:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.popen.wait(max(0.0, deadline - time.monotonic()))
        process.release()
    processes.clear()
    shared.close()


def _watch(of: weakref.ref[Workers]) -> None:
    """Kill what is waited for longer than its time; a thread of its own, so that reading a reply needs no clock."""
    while True:
        pool = of()
        if pool is None or not pool._end.alive:
            return
        for group, setups in zip(list(pool._processes), pool._setups, strict=False):  # empty before the start and after the end
            for process, setup in zip(list(group), setups, strict=True):
                why = pool._overdue(process, setup)
                if why and not process.has_replied():
                    process.hung = why
                    process.kill()
        pause = min(1.0, pool.step_timeout / 4, pool.reset_timeout / 4)
        del pool
        time.sleep(pause)
