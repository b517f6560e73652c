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
from proximo.envs.gymnasium.rollout_buffer import UNREPORTED, BufferLayout
from proximo.envs.gymnasium.shared_memory import Handle, allocate
from proximo.envs.gymnasium.stepper import EnvironmentSpec
from proximo.envs.gymnasium.vector_environment import RESETS, VectorOptions, environment_seeds, seeds_and_limits, split
from proximo.envs.gymnasium.waiting_messages import reports_waiting
from proximo.envs.gymnasium.worker import Setup
from proximo.envs.gymnasium.worker_process import POSIX, WorkerProcess, search_path
from proximo.errors import EnvError, EnvironmentFault

CLOSE_SECONDS = 1.0
MAX_ATTEMPTS = 3
"""Workers that may end in succession before one of them has taken a step."""


class WorkerVectorEnvironment:
    """``options.num_workers`` processes, equally many for each group, each with a contiguous part of the group's columns.

    A worker that ends or exceeds a time limit is restarted, and its environments get new seeds. The lost step is marked as invalid
    and ``lost``, and ``options.warn`` receives a message. ``EnvironmentFault`` is raised after ``max_restarts`` restarts, and if
    ``MAX_ATTEMPTS`` workers end in succession.

    Raises ``EnvError`` if ``make`` cannot be pickled, or a worker ends or takes too long when it first makes its environments.
    """

    def __init__(self, make: Callable[[], Any], layout: BufferLayout, spec: EnvironmentSpec, options: VectorOptions):
        self.options, self.num_workers, self.restarts, self.spec = options, options.num_workers, 0, spec
        self.description = f"in {self.num_workers} worker processes" if self.num_workers > 1 else "in one worker process"
        self.groups = split(range(layout.num_envs), options.num_groups)
        self.total = spec.first_env + layout.num_envs
        """Environments of the training up to the last one here."""
        self._seed = 0
        factory, path, memory = pickled(make, spec.env_id), search_path(), allocate(layout.size)
        self.buffer = layout.buffer(memory.attach())
        self.workers: list[list[WorkerProcess]] = []
        """The workers of each group."""
        self._lock = threading.Lock()
        """Held while a process is started or all are ended."""
        self._end = weakref.finalize(self, _end_all, self.workers, memory, self._lock)
        threading.Thread(target=_watch, args=(weakref.ref(self),), daemon=True).start()
        try:
            for columns in self.groups:
                self.workers.append([])
                for part in split(columns, self.num_workers // options.num_groups):
                    # one by one: those that have started are ended if the next cannot start
                    self.workers[-1].append(WorkerProcess(Setup(factory, part, spec, layout, memory, path), memory.descriptor))
            for worker in self.all_workers():
                worker.begin()
            for worker in self.all_workers():
                if worker.reply() == worker_messages.LOST:
                    raise EnvError(f"{self._name(worker)} {worker.why_lost()}, before its environments were made.")
        except BaseException:
            self.close()
            raise

    def all_workers(self) -> list[WorkerProcess]:
        """The workers of all groups."""
        return [worker for group in self.workers for worker in group]

    def reset(self, seed: int) -> None:
        self._seed = seed
        seeds, limits = seeds_and_limits(self.total, self.options.stagger_steps, seed)
        for worker in self.all_workers():
            part = self._numbers(worker)
            worker.command(worker_messages.RESET, 0, seeds[part], limits and limits[part])
        for worker in self.all_workers():
            if worker.reply() == worker_messages.LOST:
                self._restart(worker, 0)

    def send(self, t: int, group: int) -> None:
        for worker in self.workers[group]:
            worker.command(worker_messages.STEP, t)

    def ready(self, groups: list[int]) -> int:
        if len(groups) == 1 or not POSIX:
            return groups[0]
        poll = select.poll()
        owners = {worker.replies: group for group in groups for worker in self.workers[group]}
        for replies in owners:
            poll.register(replies, select.POLLIN)
        return owners[poll.poll()[0][0]]

    def receive(self, t: int, group: int) -> bool:
        any_truncated = False
        for worker in self.workers[group]:
            reply = worker.reply()
            if reply == worker_messages.LOST:
                self._discard(worker, t)
                with reports_waiting(self.options.warn, len(worker.setup.columns), self.spec.env_id, self.options.reset_timeout):
                    self._restart(worker, t + 1)
            any_truncated |= reply == worker_messages.TRUNCATED
        return any_truncated

    def _discard(self, worker: WorkerProcess, t: int) -> None:
        """Discard what a lost worker may have written in step ``t``, and mark the step as lost."""
        rows = self.buffer.columns(worker.setup.columns)
        for flags in (rows.terminated, rows.truncated, rows.life_lost, rows.valid):
            flags[t] = False
        rows.reward[t], rows.success[t], rows.lost[t] = 0.0, UNREPORTED, True

    def _restart(self, worker: WorkerProcess, row: int) -> None:
        """Restart a lost worker, and write the first observations of its environments into ``row``."""
        name, most = self._name(worker), self.options.max_restarts
        for _ in range(MAX_ATTEMPTS):
            why = worker.why_lost()
            with self._lock:
                if not self._end.alive:  # another thread has ended the workers
                    raise EnvError("The environments were closed during a step.")
                if self.restarts == most:
                    raise EnvironmentFault(
                        f"{name} {why}, and workers were restarted {most} times already: training stops. Find out why they end, or increase "
                        "max_restarts."
                    )
                self.restarts += 1
                worker.release()
                try:
                    worker.start()
                except OSError as error:  # no memory, or too many processes or files
                    raise EnvironmentFault(f"{name} {why}, and no process could be started ({error}).") from error
            self.options.warn(f"{name} {why}: it is restarted with new seeds (restart {self.restarts} of at most {most}).")
            worker.begin()
            seeds = environment_seeds(self.total, self._seed, self.restarts)[self._numbers(worker)]
            try:
                if worker.reply() != worker_messages.LOST:
                    worker.command(worker_messages.RESET, row, seeds, None)
                    if worker.reply() != worker_messages.LOST:
                        return
            except (Exception, SystemExit) as error:
                raise EnvironmentFault(
                    f"{name} {why}, and its environments could not be made again ({type(error).__name__}: {error})."
                ) from error
        raise EnvironmentFault(f"{name} {worker.why_lost()}, as {MAX_ATTEMPTS} workers in succession: training stops.")

    def _name(self, worker: WorkerProcess) -> str:
        numbers = self._numbers(worker)
        return f"The worker of environments {numbers.start} … {numbers.stop - 1} of {self.spec.env_id}"

    def _numbers(self, worker: WorkerProcess) -> slice:
        """The numbers of a worker's environments among all of the training."""
        first, columns = self.spec.first_env, worker.setup.columns
        return slice(first + columns.start, first + columns.stop)

    def overdue(self, worker: WorkerProcess) -> str:
        """Return why ``worker`` has exceeded its time limit; empty if it has not."""
        since, (what, row), limit = worker.waited_since, worker.task, self.options.reset_timeout
        if since is None:
            return ""
        if what == worker_messages.STEP:  # a step also resets the environments whose episode ended
            rows = self.buffer.columns(worker.setup.columns)
            limit *= np.count_nonzero(rows.terminated[row] | rows.truncated[row])
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


def _end_all(workers: list[list[WorkerProcess]], memory: Handle, lock: threading.Lock) -> None:
    with lock:
        everyone = [worker for group in workers for worker in group]
        for worker in everyone:
            worker.command(worker_messages.CLOSE, 0)
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in everyone:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.popen.wait(max(0.0, deadline - time.monotonic()))
            worker.release()
        memory.close()


def _watch(reference: weakref.ref[WorkerVectorEnvironment]) -> None:
    """Kill workers that exceed their time limit. This is a thread, so that reading a reply needs no timeout."""
    while (vector_env := reference()) is not None and vector_env._end.alive:
        for worker in vector_env.all_workers():
            why = vector_env.overdue(worker)
            if why and not worker.has_replied():
                worker.why_killed = why
                worker.kill()
        pause = min(1.0, vector_env.options.step_timeout / 4)
        del vector_env
        time.sleep(pause)
