"""Steps Gymnasium environments in worker processes over shared memory, and restarts workers that are lost."""

import contextlib
import mmap
import os
import pickle
import select
import subprocess
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import cloudpickle
import numpy as np

from proximo.custom_code import exception_text
from proximo.envs.gymnasium.agents import make_stepper
from proximo.envs.gymnasium.rollout_buffer import UNREPORTED, BufferLayout, shared_memory
from proximo.envs.gymnasium.stepper import EnvironmentSpec
from proximo.envs.gymnasium.vector_environment import RESETS, VectorEnvironment, VectorOptions, reports_waiting, split
from proximo.envs.gymnasium.worker_process import (
    COMMAND,
    DONE,
    FAULT,
    LOST,
    RESET,
    STEP,
    TRUNCATED,
    Pipe,
    WorkerProcess,
    next_command,
    send,
)
from proximo.errors import EnvError, EnvironmentFault

CLOSE_SECONDS = 1.0
MAX_ATTEMPTS = 3
"""Workers that may end in succession before one of them has taken a step."""


class WorkerVectorEnvironment(VectorEnvironment):
    """``options.num_workers`` processes, equally many for each group, each with a contiguous part of the group's columns.

    A worker that ends or exceeds a time limit is restarted, and its environments get new seeds. The lost step is marked as invalid
    and ``lost``, and ``options.warn`` receives a message. ``EnvironmentFault`` is raised after ``max_restarts`` restarts, and if
    ``MAX_ATTEMPTS`` workers end in succession.

    Raises ``EnvError`` if ``make`` cannot be pickled, or a worker ends or takes too long when it first makes its environments.
    """

    def __init__(self, make: Callable[[], Any], layout: BufferLayout, spec: EnvironmentSpec, options: VectorOptions):
        self.options, self.num_workers, self.restarts, self.spec, self._seed = options, options.num_workers, 0, spec, 0
        self.description = f"in {self.num_workers} worker processes" if self.num_workers > 1 else "in one worker process"
        self.groups = split(range(layout.num_columns), options.num_groups, spec.num_agents)
        factory, memory = pickled(make, spec.env_id), shared_memory(layout.size)
        self.buffer = layout.buffer(mmap.mmap(memory, layout.size))
        self.workers: list[WorkerProcess] = []
        each = self.num_workers // options.num_groups
        self._of_group = [slice(first, first + each) for first in range(0, self.num_workers, each)]
        """Where ``workers`` has those of each group."""
        self._lock = threading.Lock()
        """Held while a process is started or all are ended."""
        self._end = weakref.finalize(self, _end_all, self.workers, memory, self._lock)
        try:
            for part in [part for columns in self.groups for part in split(columns, each, spec.num_agents)]:
                # one by one: those that have started are ended if the next cannot start
                self.workers.append(WorkerProcess(partial(serve, factory, part, spec, layout, memory), part, memory))
            for worker in self.workers:
                worker.begin()
            for worker in self.workers:
                if self._reply(worker) == LOST:
                    raise EnvError(f"{self._name(worker)} {worker.why_lost()}, before its environments were made.")
        except BaseException:
            self.close()
            raise

    def reset(self, seed):
        self._seed = seed
        for worker in self.workers:
            worker.send(COMMAND.pack(RESET, 0), ((seed,), self.options.stagger_steps))
        for worker in self.workers:
            if self._reply(worker) == LOST:
                self._restart(worker, 0)

    def send(self, t, group):
        for worker in self.workers[self._of_group[group]]:
            worker.send(COMMAND.pack(STEP, t))

    def ready(self, groups):
        poll = select.poll()
        owners = {worker.replies.fileno(): group for group in groups for worker in self.workers[self._of_group[group]]}
        for replies in owners:
            poll.register(replies, select.POLLIN)
        replied = poll.poll(1000 * self.options.step_timeout) if len(groups) > 1 else []
        return owners[replied[0][0]] if replied else groups[0]

    def receive(self, t, group):
        any_truncated = False
        for worker in self.workers[self._of_group[group]]:
            reply = self._reply(worker, t)
            if reply == LOST:
                rows = self.buffer.columns(worker.columns)  # discard what it may have written
                for flags in (rows.terminated, rows.truncated, rows.life_lost, rows.valid):
                    flags[t] = False
                rows.reward[t], rows.success[t], rows.lost[t] = 0.0, UNREPORTED, True
                with reports_waiting(
                    self.options.warn, len(worker.columns) // self.spec.num_agents, self.spec.env_id, self.options.reset_timeout
                ):
                    self._restart(worker, t + 1)
            any_truncated |= reply == TRUNCATED
        return any_truncated

    def _reply(self, worker: WorkerProcess, t: int | None = None) -> bytes:
        """Wait for the reply to a command, step ``t`` if given. A worker that exceeds its time limit is killed."""
        pause, limit = min(1.0, self.options.step_timeout / 4), self.options.reset_timeout
        while not worker.has_replied(pause):
            if t is not None:  # a step also resets the environments whose episode ended
                rows = self.buffer.columns(worker.columns)
                ended = rows.terminated[t] | rows.truncated[t]
                resets = int(np.count_nonzero(ended.reshape(-1, self.spec.num_agents).any(axis=1)))
                limit = self.options.step_timeout + resets * self.options.reset_timeout
            if time.monotonic() - worker.sent > limit:
                seconds = f"step_timeout = {self.options.step_timeout:g}"
                worker.kill(f"took more than {limit:g} s ({seconds}; {RESETS} times as much to make or reset environments)")
        return worker.reply()

    def _restart(self, worker: WorkerProcess, row: int) -> None:
        """Restart a lost worker, and write the first observations of its environments into ``row``."""
        name, most = self._name(worker), self.options.max_restarts
        for _ in range(MAX_ATTEMPTS):
            why = f"{name} {worker.why_lost()}"
            with self._lock:
                if not self._end.alive:  # another thread has ended the workers
                    raise EnvError("The environments were closed during a step.")
                if self.restarts == most:
                    raise EnvironmentFault(
                        f"{why}, and workers were restarted {most} times already: training stops. Find out why they end, or increase "
                        "max_restarts."
                    )
                self.restarts += 1
                worker.release()
                try:
                    worker.start()
                except OSError as error:  # no memory, or too many processes or files
                    raise EnvironmentFault(f"{why}, and no process could be started ({error}).") from error
            self.options.warn(f"{why}: it is restarted with new seeds (restart {self.restarts} of at most {most}).")
            try:
                worker.begin()
                if self._reply(worker) != LOST:
                    worker.send(COMMAND.pack(RESET, row), ((self._seed, self.restarts),))
                    if self._reply(worker) != LOST:
                        return
            except (Exception, SystemExit) as error:
                raise EnvironmentFault(
                    f"{why}, and its environments could not be made again ({type(error).__name__}: {error})."
                ) from error
        raise EnvironmentFault(f"{name} {worker.why_lost()}, as {MAX_ATTEMPTS} workers in succession: training stops.")

    def _name(self, worker: WorkerProcess) -> str:
        # The number of an environment is unique in a training.
        first, last = (self.spec.first_env + worker.columns[i] // self.spec.num_agents for i in (0, -1))
        return f"The worker of environments {first} … {last} of {self.spec.env_id}"

    def close(self):
        """Ask all workers to end, and kill those that do not end within a second."""
        self._end()


def serve(
    factory: bytes, columns: range, spec: EnvironmentSpec, layout: BufferLayout, memory: int, commands: Pipe, replies: Pipe
) -> None:
    """Make the environments of ``columns`` with a pickled function, and step them in the file ``memory`` until ``commands`` ends."""
    try:
        stepper = make_stepper(pickle.loads(factory), spec, layout.buffer(mmap.mmap(memory, layout.size)), columns)
    except BaseException as error:
        _send_fault(replies, error)
        return
    send(replies, DONE)
    while command := next_command(commands):
        what, row = COMMAND.unpack(command)
        reply = DONE
        try:
            if what == RESET:
                stepper.reset(row, *pickle.load(commands))
            elif stepper.step(row):
                reply = TRUNCATED
        except BaseException as error:
            _send_fault(replies, error)
        else:
            send(replies, reply)
    stepper.close()


def _send_fault(replies: Pipe, error: BaseException) -> None:
    """Send the exception, or its message if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(exception_text(error))
    send(replies, FAULT, error)


def pickled(sent: Any, env_id: str, to: str = "a worker process", otherwise: str = ", or set num_workers = 0") -> bytes:
    """Pickle what makes an environment. Raises ``EnvError`` if this fails."""
    try:
        return cloudpickle.dumps(sent)
    except Exception as error:
        raise EnvError(
            f"{env_id} cannot be sent to {to} ({type(error).__name__}: {error}): create objects that cannot be pickled in its "
            f"constructor{otherwise}."
        ) from error


def _end_all(workers: list[WorkerProcess], memory: int, lock: threading.Lock) -> None:
    with lock:
        for worker in workers:
            with contextlib.suppress(OSError):
                worker.commands.close()
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.popen.wait(max(0.0, deadline - time.monotonic()))
            worker.release()
        os.close(memory)
