"""Steps Gymnasium environments in worker processes over shared memory, and restarts workers that are lost."""

from __future__ import annotations

import contextlib
import select
import subprocess
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np

from proximo.envs.gymnasium import worker_messages
from proximo.envs.gymnasium.rollout_buffer import UNREPORTED, BufferLayout, RolloutBuffer
from proximo.envs.gymnasium.shared_memory import SharedBytes
from proximo.envs.gymnasium.stepper import EnvironmentSpec
from proximo.envs.gymnasium.vector_environment import VectorOptions, environment_seeds, split, staggered_limits
from proximo.envs.gymnasium.waiting_messages import reports_waiting
from proximo.envs.gymnasium.worker import Setup
from proximo.envs.gymnasium.worker_process import POSIX, WorkerProcess, search_path
from proximo.errors import EnvError, EnvironmentFault

CLOSE_SECONDS = 1.0
MAX_FAILURES = 3
"""How often, in one restart, making the environments may raise or hang. A worker that dies counts towards ``max_restarts`` only."""


class WorkerVectorEnvironment:
    """``options.num_workers`` processes, equally many for each group, each with a contiguous part of the group's columns.

    A worker is restarted with new seeds if it ends or exceeds a time limit. The lost step is then marked as invalid and ``lost``,
    and ``options.warn`` receives a message. After ``max_restarts`` restarts, the next one raises ``EnvironmentFault``.

    Raises ``EnvError`` if ``make`` cannot be pickled, or the environments cannot be made.
    """

    def __init__(self, make: Callable[[], Any], layout: BufferLayout, spec: EnvironmentSpec, options: VectorOptions):
        self.options, self.num_workers, self.restarts, self.env_id = options, options.num_workers, 0, spec.env_id
        self.description = f"in {self.num_workers} worker processes" if self.num_workers > 1 else "in one worker process"
        self.groups = split(range(layout.num_envs), options.num_groups)
        self._numbers = range(spec.first_env, spec.first_env + layout.num_envs)
        """Numbers of the environments among all of the training."""
        self._seed = 0
        factory = pickled(make, spec.env_id)
        self._shared = SharedBytes(layout.size)
        self.buffers = layout.buffers(self._shared.memory)
        path = search_path()
        parts = [split(columns, self.num_workers // options.num_groups) for columns in self.groups]
        self._setups = [[Setup(factory, part, spec, layout, self._shared.handle, path) for part in group] for group in parts]
        self._processes: list[list[WorkerProcess]] = []
        self._end = weakref.finalize(self, _end_all, self._processes, self._shared)
        threading.Thread(target=_watch, args=(weakref.ref(self),), daemon=True).start()
        try:
            for setups in self._setups:
                self._processes.append([])
                for setup in setups:  # one by one: those that have started are ended if the next cannot start
                    self._processes[-1].append(WorkerProcess(setup, setup.memory.descriptor))
            self._start()
        except BaseException:
            self._end()
            raise

    def _start(self) -> None:
        """Make the environments in all workers. A worker that ends meanwhile is restarted."""
        for _, _, process, setup in self._workers():
            process.begin(setup)
        for g, w, process, _ in self._workers():
            while process.reply() == worker_messages.LOST:
                if process.why_killed:
                    raise EnvError(
                        f"{self._name(g, w)} of {self.env_id} {process.why_killed}: increase reset_timeout, or find the call that hangs."
                    )
                process = self._replace(g, w, process.why_lost())

    def reset(self, buffer: int, seed: int) -> None:
        self._seed = seed
        seeds = environment_seeds(self._numbers.stop, seed)
        limits = staggered_limits(self._numbers.stop, self.options.stagger_steps, seed)
        for _, _, process, setup in self._workers():
            part = self._numbered(setup.columns)
            process.command(worker_messages.RESET, buffer, 0, seeds[part], limits and limits[part])
        for g, w, process, _ in self._workers():
            if process.reply() == worker_messages.LOST:
                self._restart(g, w, buffer, 0)

    def _workers(self) -> list[tuple[int, int, WorkerProcess, Setup]]:
        """For each worker: its group, its index in the group, its process and its setup."""
        return [(g, w, self._processes[g][w], setup) for g, setups in enumerate(self._setups) for w, setup in enumerate(setups)]

    def send(self, buffer: int, t: int, group: int) -> None:
        for process in self._processes[group]:
            process.command(worker_messages.STEP, buffer, t)

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

    def receive(self, buffer: int, t: int, group: int) -> bool:
        try:
            return self._receive(buffer, t, group)
        except IndexError:  # the list of processes is empty after the end
            self._check_open()
            raise

    def _receive(self, buffer: int, t: int, group: int) -> bool:
        any_truncated = False
        for w, process in enumerate(self._processes[group]):
            reply = process.reply()
            if reply == worker_messages.LOST:
                columns = self._setups[group][w].columns
                self._discard(self.buffers[buffer], t, columns)
                with reports_waiting(self.options.warn, len(columns), self.env_id, self.options.reset_timeout):
                    self._restart(group, w, buffer, t + 1)
            any_truncated |= reply == worker_messages.TRUNCATED
        return any_truncated

    def _discard(self, buffer: RolloutBuffer, t: int, columns: range) -> None:
        """Discard what a lost worker may have written in step ``t``, and mark the step as lost."""
        here = (t, slice(columns.start, columns.stop))
        for flags in (buffer.terminated, buffer.truncated, buffer.life_lost):
            flags[here] = False
        buffer.reward[here], buffer.success[here] = 0.0, UNREPORTED
        buffer.valid[here], buffer.lost[here] = False, True

    def _restart(self, group: int, w: int, buffer: int, row: int) -> None:
        """Start a new process for the environments of a lost one, and write their first observations into ``row``."""
        columns = self._setups[group][w].columns
        why = lost = self._processes[group][w].why_lost()
        failures = 0
        while True:
            process = self._replace(group, w, why)
            seeds = environment_seeds(self._numbers.stop, self._seed, self.restarts)
            error: BaseException | None = None
            try:
                if process.reply() != worker_messages.LOST:
                    process.command(worker_messages.RESET, buffer, row, seeds[self._numbered(columns)], None)
                    if process.reply() != worker_messages.LOST:
                        return
                why = process.why_lost()
            except (Exception, SystemExit) as raised:
                error, why = raised, f"failed to make its environments again ({type(raised).__name__}: {raised})"
            failures += bool(error or process.why_killed)
            if failures == MAX_FAILURES:
                reason = f"{type(error).__name__}: {error}" if error else f"their worker {why}"
                raise EnvironmentFault(
                    f"The {self._environments(columns)} of {self.env_id} were lost "
                    f"(their worker {lost}), and creating them again failed {MAX_FAILURES} times: {reason}"
                ) from error

    def _name(self, group: int, w: int) -> str:
        return f"The worker of {self._environments(self._setups[group][w].columns)}"

    def _environments(self, columns: range) -> str:
        numbered = self._numbered(columns)
        return f"environments {numbered.start} … {numbered.stop - 1}"

    def _numbered(self, columns: range) -> slice:
        """The numbers of the environments in ``columns``."""
        return slice(self._numbers[columns.start], self._numbers[columns.stop - 1] + 1)

    def _replace(self, group: int, w: int, why: str) -> WorkerProcess:
        """Replace a lost process by a new one, which begins to start. Raises ``EnvironmentFault`` after too many restarts."""
        setup, what = self._setups[group][w], self._name(group, w)
        self._check_open()
        self._processes[group][w].release()
        self.restarts += 1
        if self.restarts > self.options.max_restarts:
            raise EnvironmentFault(
                f"{what} of {setup.spec.env_id} {why}, and workers were restarted {_times(self.options.max_restarts)} already: training stops. "
                "Find out why they end, or increase max_restarts."
            )
        self.options.warn(
            f"{what} {why}: it is restarted with new seeds (restart {self.restarts} of at most {self.options.max_restarts})."
        )
        try:
            process = WorkerProcess(setup, setup.memory.descriptor)
        except OSError as error:  # no memory, or too many processes or files
            raise EnvironmentFault(f"{what} {why}, and no process could be started in its place ({error}).") from error
        with contextlib.suppress(IndexError):  # after the end, the list is empty
            self._processes[group][w] = process
        try:
            self._check_open()  # after the assignment: an end that begins later finds the process
        except EnvError:
            process.release()
            raise
        process.begin(setup)
        return process

    def _check_open(self) -> None:
        """Raise ``EnvError`` if another thread has closed the environments, which ended the workers."""
        if not self._end.alive:
            raise EnvError("The environments were closed during a step.")

    def _overdue(self, process: WorkerProcess, setup: Setup) -> str:
        """Return why ``process`` has exceeded its time limit; empty if it has not.

        Within a step, the time starts again before and after each reset.
        """
        since, (what, buffer, row), now = process.waited_since, process.task, time.monotonic()
        if since is None:
            return ""
        ended = begun = 0
        if what == worker_messages.STEP:
            rows, part = self.buffers[buffer], slice(setup.columns.start, setup.columns.stop)
            ended = int(np.count_nonzero(rows.terminated[row, part] | rows.truncated[row, part]))
            begun = int(np.count_nonzero(rows.episode_start[row + 1, part]))
        if process.progress != (since, ended, begun):
            process.progress, process.progress_at = (since, ended, begun), now
        elapsed = now - process.progress_at
        if what == worker_messages.STEP and ended <= begun:
            return (
                f"hung for more than {self.options.step_timeout:g} s (step_timeout)"
                if elapsed > self.options.step_timeout
                else ""
            )
        return (
            f"took more than {self.options.reset_timeout:g} s to make or reset its environments (reset_timeout)"
            if elapsed > self.options.reset_timeout
            else ""
        )

    def close(self) -> None:
        """Ask all workers to end, and kill those that do not end within a second."""
        self._end()


def pickled(make: Callable[[], Any], env_id: str) -> bytes:
    """Pickle ``make`` for a worker. Raises ``EnvError`` if this fails."""
    try:
        return cloudpickle.dumps(make)
    except Exception as error:
        raise EnvError(
            f"{env_id} cannot be sent to a worker process ({type(error).__name__}: {error}): create objects that cannot be pickled in its "
            "constructor, or set num_workers = 0."
        ) from error


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _end_all(processes: list[list[WorkerProcess]], shared: SharedBytes) -> None:
    everyone = [process for group in processes for process in group]
    for process in everyone:
        process.command(worker_messages.CLOSE, 0, 0)
    deadline = time.monotonic() + CLOSE_SECONDS
    for process in everyone:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.popen.wait(max(0.0, deadline - time.monotonic()))
        process.release()
    processes.clear()
    shared.close()


def _watch(reference: weakref.ref[WorkerVectorEnvironment]) -> None:
    """Kill workers that exceed their time limit. This is a thread, so that reading a reply needs no timeout."""
    while True:
        vector_env = reference()
        if vector_env is None or not vector_env._end.alive:
            return
        # _processes is shorter than _setups during the start, and empty after the end.
        for group, setups in zip(list(vector_env._processes), vector_env._setups, strict=False):
            for process, setup in zip(list(group), setups, strict=False):
                why = vector_env._overdue(process, setup)
                if why and not process.has_replied():
                    process.why_killed = why
                    process.kill()
        pause = min(1.0, vector_env.options.step_timeout / 4, vector_env.options.reset_timeout / 4)
        del vector_env
        time.sleep(pause)
