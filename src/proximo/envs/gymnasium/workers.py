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
from proximo.envs.gymnasium.shared_memory import Handle, allocate
from proximo.envs.gymnasium.stepper import EnvironmentSpec
from proximo.envs.gymnasium.vector_environment import RESETS, VectorOptions, environment_seeds, split, staggered_limits
from proximo.envs.gymnasium.waiting_messages import reports_waiting
from proximo.envs.gymnasium.worker import Setup
from proximo.envs.gymnasium.worker_process import POSIX, WorkerProcess, search_path
from proximo.errors import EnvError, EnvironmentFault

CLOSE_SECONDS = 1.0
MAX_ATTEMPTS = 3
"""Workers that may end in succession before one of them has taken a step."""


class WorkerVectorEnvironment:
    """``options.num_workers`` processes, equally many for each group, each with a contiguous part of the group's columns.

    A worker that ends or exceeds a time limit is replaced by a new one, whose environments get new seeds. The lost step is marked as invalid
    and ``lost``, and ``options.warn`` receives a message. ``EnvironmentFault`` is raised after ``max_restarts`` restarts, and if
    ``MAX_ATTEMPTS`` workers end in succession.

    Raises ``EnvError`` if ``make`` cannot be pickled, or a worker ends or takes too long when it first makes its environments.
    """

    def __init__(self, make: Callable[[], Any], layout: BufferLayout, spec: EnvironmentSpec, options: VectorOptions):
        self.options, self.num_workers, self.restarts, self.env_id = options, options.num_workers, 0, spec.env_id
        self.description = f"in {self.num_workers} worker processes" if self.num_workers > 1 else "in one worker process"
        self.groups = split(range(layout.num_envs), options.num_groups)
        self._numbers = range(spec.first_env, spec.first_env + layout.num_envs)
        """Numbers of the environments among all of the training."""
        self._seed = 0
        factory, path, memory = pickled(make, spec.env_id), search_path(), allocate(layout.size)
        self.buffers = layout.buffers(memory.attach())
        parts = [split(columns, self.num_workers // options.num_groups) for columns in self.groups]
        self._setups = [[Setup(factory, part, spec, layout, memory, path) for part in group] for group in parts]
        self._processes: list[list[WorkerProcess]] = []
        self._lock = threading.Lock()
        """Held while a process is started or all are ended."""
        self._end = weakref.finalize(self, _end_all, self._processes, memory, self._lock)
        threading.Thread(target=_watch, args=(weakref.ref(self),), daemon=True).start()
        try:
            for setups in self._setups:
                self._processes.append([])
                for setup in setups:  # one by one: those that have started are ended if the next cannot start
                    self._processes[-1].append(WorkerProcess(setup, memory.descriptor))
            for _, _, process, setup in self._workers():
                process.begin(setup)
            for _, _, process, setup in self._workers():
                if process.reply() == worker_messages.LOST:
                    raise EnvError(f"{self._name(setup)} {process.why_lost()}, before its environments were made.")
        except BaseException:
            self.close()
            raise

    def _workers(self) -> list[tuple[int, int, WorkerProcess, Setup]]:
        """For each worker: its group, its index in the group, its process and its setup."""
        return [(g, w, self._processes[g][w], setup) for g, setups in enumerate(self._setups) for w, setup in enumerate(setups)]

    def reset(self, buffer: int, seed: int) -> None:
        self._seed = seed
        seeds = environment_seeds(self._numbers.stop, seed)
        limits = staggered_limits(self._numbers.stop, self.options.stagger_steps, seed)
        for _, _, process, setup in self._workers():
            part = self._numbered(setup)
            process.command(worker_messages.RESET, buffer, 0, seeds[part], limits and limits[part])
        for g, w, process, _ in self._workers():
            if process.reply() == worker_messages.LOST:
                self._restart(g, w, buffer, 0)

    def send(self, buffer: int, t: int, group: int) -> None:
        for process in self._processes[group]:
            process.command(worker_messages.STEP, buffer, t)

    def ready(self, groups: list[int]) -> int:
        if len(groups) == 1 or not POSIX:
            return groups[0]
        poll = select.poll()
        owners = {process.replies: group for group in groups for process in self._processes[group]}
        for replies in owners:
            poll.register(replies, select.POLLIN)
        return owners[poll.poll()[0][0]]

    def receive(self, buffer: int, t: int, group: int) -> bool:
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
        """Replace a lost worker, and write the first observations of its environments into ``row``."""
        setup = self._setups[group][w]
        for _ in range(MAX_ATTEMPTS):
            why = self._processes[group][w].why_lost()
            process = self._replace(group, w, why)
            seeds = environment_seeds(self._numbers.stop, self._seed, self.restarts)
            try:
                if process.reply() != worker_messages.LOST:
                    process.command(worker_messages.RESET, buffer, row, seeds[self._numbered(setup)], None)
                    if process.reply() != worker_messages.LOST:
                        return
            except (Exception, SystemExit) as error:
                raise EnvironmentFault(
                    f"{self._name(setup)} {why}, and its environments could not be made again ({type(error).__name__}: {error})."
                ) from error
        why = self._processes[group][w].why_lost()
        raise EnvironmentFault(f"{self._name(setup)} {why}, as {MAX_ATTEMPTS} workers in succession: training stops.")

    def _replace(self, group: int, w: int, why: str) -> WorkerProcess:
        """Replace a lost process by a new one, which begins to start. Raises ``EnvironmentFault`` after too many restarts, and ``EnvError`` if
        another thread has closed the environments, which ended the workers."""
        setup, most = self._setups[group][w], self.options.max_restarts
        what = self._name(setup)
        with self._lock:
            if not self._end.alive:
                raise EnvError("The environments were closed during a step.")
            if self.restarts == most:
                raise EnvironmentFault(
                    f"{what} {why}, and workers were restarted {most} times already: training stops. Find out why they end, or increase max_restarts in worker_settings."
                )
            self.restarts += 1
            self._processes[group][w].release()
            try:
                process = self._processes[group][w] = WorkerProcess(setup, setup.memory.descriptor)
            except OSError as error:  # no memory, or too many processes or files
                raise EnvironmentFault(f"{what} {why}, and no process could be started ({error}).") from error
        self.options.warn(f"{what} {why}: it is restarted with new seeds (restart {self.restarts} of at most {most}).")
        process.begin(setup)
        return process

    def _name(self, setup: Setup) -> str:
        numbered = self._numbered(setup)
        return f"The worker of environments {numbered.start} … {numbered.stop - 1} of {self.env_id}"

    def _numbered(self, setup: Setup) -> slice:
        """The numbers of a worker's environments."""
        return slice(self._numbers[setup.columns.start], self._numbers[setup.columns.stop - 1] + 1)

    def overdue(self, process: WorkerProcess, setup: Setup) -> str:
        """Return why ``process`` has exceeded its time limit; empty if it has not."""
        since, (what, buffer, row), limit = process.waited_since, process.task, self.options.reset_timeout
        if since is None:
            return ""
        if what == worker_messages.STEP:  # a step also resets the environments whose episode ended
            rows, part = self.buffers[buffer], slice(setup.columns.start, setup.columns.stop)
            limit *= np.count_nonzero(rows.terminated[row, part] | rows.truncated[row, part])
            limit += self.options.step_timeout
        if time.monotonic() - since <= limit:
            return ""
        return f"took more than {limit:g} s (step_timeout = {self.options.step_timeout:g}; {RESETS} times as much to make or reset environments)"

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


def _end_all(processes: list[list[WorkerProcess]], memory: Handle, lock: threading.Lock) -> None:
    with lock:
        everyone = [process for group in processes for process in group]
        for process in everyone:
            process.command(worker_messages.CLOSE, 0, 0)
        deadline = time.monotonic() + CLOSE_SECONDS
        for process in everyone:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(max(0.0, deadline - time.monotonic()))
            process.release()
        memory.close()


def _watch(reference: weakref.ref[WorkerVectorEnvironment]) -> None:
    """Kill workers that exceed their time limit. This is a thread, so that reading a reply needs no timeout."""
    while (vector_env := reference()) is not None and vector_env._end.alive:
        # _processes is shorter than _setups during the start.
        for group, setups in zip(list(vector_env._processes), vector_env._setups, strict=False):
            for process, setup in zip(list(group), setups, strict=False):
                why = vector_env.overdue(process, setup)
                if why and not process.has_replied():
                    process.why_killed = why
                    process.kill()
        pause = min(1.0, vector_env.options.step_timeout / 4)
        del vector_env
        time.sleep(pause)
