"""An ordinary environment as the rest of proximo sees it: its spaces, and how ``N`` of it are made."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from proximo.envs.host.block import Block, Rules
from proximo.envs.host.observations import allowed_actions, leaves
from proximo.envs.host.pool import InProcess, Pool
from proximo.envs.host.slab import Layout, Slab
from proximo.envs.host.vector import VectorPool
from proximo.envs.host.waiting import reports_waiting
from proximo.envs.host.workers import Workers
from proximo.errors import ConfigError
from proximo.spaces import ACTION_MASK, Space

AUTO = -1
HAND_OVER_SECONDS = 30e-6 if hasattr(os, "sched_yield") else 60e-6
"""What a step of a worker costs beside the environments: a command, a reply, two changes of process; more where it
cannot stay awake."""
WORTHWHILE = 0.8
TRIAL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class PoolOptions:
    """How environments are stepped. As long as no worker is lost, ``plain`` and ``stagger_steps`` alone change what they give."""

    num_workers: int = AUTO
    plain: bool = False
    """Single environments are stepped by us also where the environment could vectorise itself."""
    num_groups: int = 1
    stagger_steps: int = 0
    step_timeout: float = 60.0
    reset_timeout: float = 600.0
    max_restarts: int = 100
    cores: int = 1
    """Most workers that are chosen where ``num_workers`` leaves the choice."""
    notify: Callable[[str], None] = lambda message: None


@dataclass(frozen=True)
class HostEnvironment:
    """``make`` gives one plain environment, with its preprocessing; ``make_vector(num_envs)``, where there is one, ``num_envs``
    of them vectorised, which are then used as they are."""

    id: str
    observation_space: Space
    action_space: Space
    rules: Rules
    make: Callable[..., Any] | None = None
    make_vector: Callable[[int], Any] | None = None
    render_modes: tuple[str, ...] = ()
    """What the plain environment declares that it can draw for: ``make(render_mode=...)``."""
    render_fps: float = 0.0
    """Frames per second that it declares; 0: none."""

    def hold(self, num_envs: int, options: PoolOptions) -> None:
        """Raise ``ConfigError`` for options that these environments cannot serve."""
        if self._used_as_it_is(options):
            given = {
                "num_workers": options.num_workers > 0,
                "overlap": options.num_groups > 1,
                "stagger_steps": options.stagger_steps > 0,
            }
            for name in [name for name, value in given.items() if value]:
                raise ConfigError(
                    f"{name}: {self.id} steps all its environments by itself, which leaves nothing to set; give its own parameters "
                    "with --env-settings."
                )
        if num_envs < options.num_groups:
            raise ConfigError(f"overlap = true needs at least {options.num_groups} environments, num_envs is {num_envs}.")
        workers, groups = options.num_workers, options.num_groups
        if workers > num_envs or (workers > 0 and workers % groups):
            multiple = f", and a multiple of {groups} with overlap" if groups > 1 else ""
            raise ConfigError(f"num_workers = {workers}: expected at most num_envs = {num_envs}{multiple}.")

    def _used_as_it_is(self, options: PoolOptions) -> bool:
        """Whether the environments that vectorise themselves step, and not single ones of ours."""
        return self.make_vector is not None and (self.make is None or not options.plain)

    def open(self, num_envs: int, num_steps: int, options: PoolOptions, num_slabs: int = 2) -> Pool:
        """Environments that step into slabs of ``num_steps`` rows. Raises ``ConfigError`` for options that they cannot serve."""
        self.hold(num_envs, options)
        layout = Layout(num_steps, num_envs, self.observation_space, self.action_space, num_slabs)
        if self.make_vector is not None and self._used_as_it_is(options):
            with reports_waiting(options.notify, num_envs, self.id):
                return VectorPool(self.make_vector, layout, self.rules, self.action_space)
        assert self.make is not None
        workers = options.num_workers
        if workers == AUTO:
            with reports_waiting(options.notify, 1, self.id):
                workers = self.choose_workers(num_envs, options.num_groups, options.cores)
        with reports_waiting(options.notify, num_envs, self.id, options.reset_timeout if workers else 0.0):
            if workers == 0:
                return InProcess(self.make, layout, self.rules, options.num_groups, options.stagger_steps)
            return Workers(
                self.make,
                layout,
                self.rules,
                workers,
                options.num_groups,
                options.stagger_steps,
                options.step_timeout,
                options.max_restarts,
                options.notify,
                options.reset_timeout,
            )

    def choose_workers(self, num_envs: int, num_groups: int, cores: int) -> int:
        """A worker for each core where that saves a fifth of the time, the hand-over included; else 0."""
        workers = min(cores, num_envs) // num_groups * num_groups
        if workers < 2:
            return 0
        alone = num_envs * self.step_seconds()
        return workers if alone / workers + HAND_OVER_SECONDS < WORTHWHILE * alone else 0

    def step_seconds(self) -> float:
        """Seconds of one environment's step with random actions, resets included: the mean of a short trial."""
        assert self.make is not None
        layout = Layout(1, 1, self.observation_space, self.action_space, 1)
        block = Block(self.make, range(1), self.rules)
        slab = layout.slabs(mmap.mmap(-1, layout.size))[0]
        rng = np.random.default_rng(0)
        try:
            block.reset(slab, 0, [0])
            slab.action[0] = allowed_actions(self.action_space, rng, _mask(slab, self.observation_space), 1)
            block.step(slab, 0)
            started, steps = time.perf_counter(), 0
            while time.perf_counter() - started < TRIAL_SECONDS:
                slab.begin_after(slab)
                slab.action[0] = allowed_actions(self.action_space, rng, _mask(slab, self.observation_space), 1)
                block.step(slab, 0)
                steps += 1
            return (time.perf_counter() - started) / steps
        finally:
            block.close()


def _mask(slab: Slab, space: Space) -> np.ndarray | None:
    """The masks of row 0, where the observation has one."""
    places = [k for k, leaf in enumerate(leaves(space)) if leaf.path == (ACTION_MASK,)]
    return slab.observation[places[0]][0] if places else None
