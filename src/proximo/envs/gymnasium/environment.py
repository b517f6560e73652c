"""``GymnasiumEnvironment``: the spaces of a Gymnasium environment, and how copies of it are made and stepped."""

from __future__ import annotations

import dataclasses
import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from proximo.envs.described import Described
from proximo.envs.gymnasium.actions import allowed_actions
from proximo.envs.gymnasium.observations import leaves
from proximo.envs.gymnasium.rollout_buffer import BufferLayout, RolloutBuffer
from proximo.envs.gymnasium.stepper import EnvironmentSpec, Stepper
from proximo.envs.gymnasium.vector_env_adapter import VectorEnvAdapter
from proximo.envs.gymnasium.vector_environment import AUTO, SerialVectorEnvironment, VectorEnvironment, VectorOptions
from proximo.envs.gymnasium.waiting_messages import reports_waiting
from proximo.envs.gymnasium.workers import WorkerVectorEnvironment, pickled
from proximo.errors import ConfigError, EnvError
from proximo.spaces import ACTION_MASK, Space

MESSAGE_SECONDS = 30e-6 if hasattr(os, "sched_yield") else 60e-6
"""Overhead of a worker's step: a command, a reply and two context switches. It is larger if the worker cannot poll."""
MIN_SPEEDUP = 0.8
"""Workers are used if a step then takes less than this share of the time."""
TRIAL_SECONDS = 0.2
"""Duration of the measurement of one environment's step."""
INTERRUPTED = 0.02
"""Share of the steps, the longest ones, that the measurement leaves out: other programs, or this one's compiler, had the core or the lock."""


@dataclass(frozen=True, repr=False)
class GymnasiumEnvironment(Described):
    """A Gymnasium environment of which any number can be made.

    ``make_env`` returns it for ids of Gymnasium; ``registered_ids.py`` and ``construction.py`` make it. At least one of ``make`` and ``make_vector`` is given.
    """

    id: str
    observation_space: Space
    action_space: Space
    spec: EnvironmentSpec
    make: Callable[..., Any] | None = None
    """``make()`` makes one environment with its preprocessing; ``make(render_mode="rgb_array")`` makes one that can draw."""
    make_vector: Callable[[int], Any] | None = None
    """``make_vector(num_envs)`` makes a Gymnasium ``VectorEnv``."""
    make_threaded: Callable[[int, int], Any] | None = None
    """``make_threaded(num_threads, num_envs)`` makes a ``VectorEnv`` with this many threads: ``send(actions)`` begins a step, and ``recv()`` returns its
    result. None if not supported."""
    render_modes: tuple[str, ...] = ()
    """Values of ``render_mode`` that a single environment declares."""
    render_fps: float = 0.0
    """Frames per second that it declares; 0: none."""
    warnings: tuple[str, ...] = ()
    """What a user should know before a training, one sentence each."""

    def without_render_mode(self, one: Any) -> str:
        """What to do if ``one`` of these environments declares that it can draw, but was made without a ``render_mode``; else ""."""
        may_draw = getattr(self.make, "takes_render_mode", True) or getattr(one, "render_mode", None) is not None
        if may_draw or "rgb_array" not in self.render_modes:
            return ""
        return (
            f"{self.id} cannot be watched: it was made without a render_mode. Give its class or function an argument render_mode, as "
            "lambda render_mode=None: MyEnv(render_mode=render_mode)."
        )

    def check(self, num_envs: int, options: VectorOptions) -> None:
        """Raise ``ConfigError`` if ``num_envs`` of these environments cannot be stepped with ``options``."""
        if self.uses_vector_env(options):
            given = {
                "num_workers": options.num_workers > 0,
                "overlap": options.num_groups > 1 and self.make_threaded is None,
                "stagger_steps": options.stagger_steps > 0,
            }
            for name in [name for name, value in given.items() if value]:
                raise ConfigError(
                    f"{name}: {self.id} is a vector environment that steps its environments itself: leave out {name}, and set its own "
                    "parameters with --env-settings."
                )
        if num_envs < options.num_groups:
            raise ConfigError(f"overlap = true needs at least {options.num_groups} environments, num_envs is {num_envs}.")
        workers, groups = options.num_workers, options.num_groups
        if workers > num_envs or (workers > 0 and workers % groups):
            multiple = f", and a multiple of {groups} with overlap" if groups > 1 else ""
            raise ConfigError(
                f"num_workers = {workers}: expected at most num_envs = {num_envs}{multiple}. num_workers is a number of processes; the number "
                "of environments is num_envs."
            )

    def uses_vector_env(self, options: VectorOptions) -> bool:
        """Whether the environment's own vector environment is used instead of single environments."""
        return self.make_vector is not None and (self.make is None or not options.single_environments)

    def open(self, num_envs: int, num_steps: int, options: VectorOptions, num_buffers: int = 2) -> VectorEnvironment:
        """Make ``num_envs`` environments N, with ``num_buffers`` rollout buffers of ``num_steps`` steps T.

        Raises ``ConfigError`` if they cannot be stepped with these options, and ``EnvError`` if one cannot be made.
        """
        self.check(num_envs, options)
        layout = BufferLayout(num_steps, num_envs, self.observation_space, self.action_space, num_buffers)
        if self.make_vector is not None and self.uses_vector_env(options):
            make_vector = self.make_vector
            if options.num_groups > 1 and self.make_threaded is not None:
                make_vector = partial(self.make_threaded, max(1, min(options.cores, num_envs) // options.num_groups))
            with reports_waiting(options.warn, num_envs, self.id):
                return VectorEnvAdapter(make_vector, layout, self.spec, options.num_groups)
        assert self.make is not None
        workers = options.num_workers
        if measured := workers == AUTO:
            with reports_waiting(options.warn, 1, self.id):
                workers = self.choose_workers(num_envs, options.num_groups, options.cores)
            workers = workers if workers and self._can_be_sent(options.warn) else 0
        if workers > options.cores:
            options.warn(
                f"num_workers = {workers} is more than the number of cores, {options.cores}: processes wait for each other. num_workers = -1 chooses "
                "the number by a measurement; the number of environments is num_envs."
            )
        with reports_waiting(options.warn, num_envs, self.id, options.reset_timeout if workers else 0.0):
            if workers == 0:
                return SerialVectorEnvironment(self.make, layout, self.spec, options)
            vector_env = WorkerVectorEnvironment(self.make, layout, self.spec, dataclasses.replace(options, num_workers=workers))
            if measured:
                vector_env.description += " (chosen by a measurement; num_workers sets their number)"
            return vector_env

    def _can_be_sent(self, warn: Callable[[str], None]) -> bool:
        """Whether worker processes can make the environment. Warns if they cannot."""
        assert self.make is not None
        try:
            pickled(self.make, self.id)
        except EnvError as error:
            warn(f"{error} Until then, the training process steps the environments.")
            return False
        return True

    def choose_workers(self, num_envs: int, num_groups: int, cores: int, step_seconds: float | None = None) -> int:
        """The number of workers: one for each core if this saves a fifth of the time, else 0.

        ``step_seconds`` are the seconds of one environment's step; by default they are measured.
        """
        workers = min(cores, num_envs) // num_groups * num_groups
        if workers < 2:
            return 0
        alone = num_envs * (self.step_seconds() if step_seconds is None else step_seconds)
        return workers if alone / workers + MESSAGE_SECONDS < MIN_SPEEDUP * alone else 0

    def step_seconds(self) -> float:
        """Measure the mean seconds of a step of one environment with random actions, resets included, on a machine that may be busy.

        It is the mean duration without the longest steps (``INTERRUPTED``), or the mean processor time if this is larger: rare resets may be
        long. Resets that are rare and wait are missed.
        """
        assert self.make is not None
        layout = BufferLayout(1, 1, self.observation_space, self.action_space, 1)
        stepper = Stepper(self.make, range(1), self.spec)
        buffer = layout.buffers(mmap.mmap(-1, layout.size))[0]
        rng = np.random.default_rng(0)
        try:
            stepper.reset(buffer, 0, [0])
            buffer.action[0] = allowed_actions(self.action_space, rng, _mask(buffer, self.observation_space), 1)
            started = time.perf_counter()
            stepper.step(buffer, 0)
            if (first := time.perf_counter() - started) > TRIAL_SECONDS:
                return first
            durations, started, busy = [], time.perf_counter(), time.thread_time()
            while (now := time.perf_counter()) - started < TRIAL_SECONDS or not durations:
                buffer.begin_after(buffer)
                buffer.action[0] = allowed_actions(self.action_space, rng, _mask(buffer, self.observation_space), 1)
                stepper.step(buffer, 0)
                durations.append(time.perf_counter() - now)
            processor_time = (time.thread_time() - busy) / len(durations)
            uninterrupted = sorted(durations)[: len(durations) - int(INTERRUPTED * len(durations))]
            return max(processor_time, float(np.mean(uninterrupted)))
        finally:
            stepper.close()


def _mask(buffer: RolloutBuffer, space: Space) -> np.ndarray | None:
    """Return the action masks in row 0; None if observations have none."""
    indices = [k for k, leaf in enumerate(leaves(space)) if leaf.path == (ACTION_MASK,)]
    return buffer.observation[indices[0]][0] if indices else None
