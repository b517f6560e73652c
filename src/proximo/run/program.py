"""The program of a training: for environments in JAX one compiled whole, of one seed or several stacked along a leading axis;
for those of the host a driver that steps them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from proximo.config import Config
from proximo.drivers import DeviceDriver, HostDriver
from proximo.drivers.host_programs import HostPrograms
from proximo.drivers.vector import SEEDS_AXIS
from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.errors import ProximoError, TrainingError
from proximo.ppo import make_hyperparameters
from proximo.run import histograms
from proximo.run.evaluation import make_evaluator
from proximo.run.histograms import Histogram
from proximo.run.host_evaluation import HostEvaluator
from proximo.run.reuse import host_key, program_key, reuse
from proximo.runtime import compile_lowered, return_freed_memory
from proximo.types import Metrics, TrainState


class _Compiled:
    """The functions of all programs that differ in traced numbers only. ``advance`` has one for each number of seeds."""

    def __init__(self, config: Config, env: JaxEnvironment, stacked: bool):
        self.env = env  # the key holds its id, which must not go to another object
        self.driver = DeviceDriver(config, env, seeds_axis=stacked)
        self.start = jax.jit(self.driver.init_seeds if stacked else self.driver.init)
        self.with_new_episodes = jax.jit(self.driver.with_new_episodes)
        self.advance: dict[int, Any] = {}
        before, behind = self.driver.look_before, self.driver.look_behind
        axis: dict[str, Any] = {"axis_name": SEEDS_AXIS}
        self.look_before = jax.jit(jax.vmap(before, **axis) if stacked else before)
        self.look_behind = jax.jit(jax.vmap(behind, **axis) if stacked else behind)


class Program:
    """``start`` makes states, ``advance`` trains them, ``evaluator`` (None where no evaluation is wanted) plays their
    policies; each is compiled once, and found again by a later program of this process that it fits.

    With ``stacked`` every leaf of the state has a leading axis of seeds; ``member`` takes one out and ``stack`` joins.
    """

    donates = True
    """A state that was given to ``advance`` is used up."""

    def __init__(self, config: Config, env: JaxEnvironment, stacked: bool):
        self.config, self.env, self.stacked = config, env, stacked
        self.driver = DeviceDriver(config, env, seeds_axis=stacked)
        self.capacity = config.updates_per_call
        self.compile_seconds = 0.0
        self._advance: Any = None
        self._compiled: _Compiled = reuse(program_key(config, env, stacked), lambda: _Compiled(config, env, stacked))
        episodes = config.run.eval_episodes
        self.evaluator = make_evaluator(env, config, episodes, stochastic=False) if episodes else None

    def template(self) -> TrainState:
        """Shapes and types of the state of one seed."""
        return jax.eval_shape(self.driver.init, jax.random.key(0))

    def start(self, seeds: list[int]) -> TrainState:
        """The state before the first step, of each seed."""
        started = time.monotonic()
        keys = jax.vmap(jax.random.key)(np.asarray(seeds)) if self.stacked else jax.random.key(seeds[0])
        state = self._compiled.start(keys)
        # Those in the compiled function are of the settings that it was compiled for.
        hyperparameters = jax.tree.map(
            lambda x, like: jnp.full(like.shape, x, like.dtype),
            make_hyperparameters(self.config.ppo),
            state.learner.hyperparameters,
        )
        state = jax.block_until_ready(eqx.tree_at(lambda s: s.learner.hyperparameters, state, hyperparameters))
        return_freed_memory()
        self.compile_seconds += time.monotonic() - started
        return state

    def with_new_episodes(self, state: TrainState) -> TrainState:
        """The training state with new episodes of this program's environment, drawn with the next keys of ``state``."""
        return self._compiled.with_new_episodes(state.learner, state.collector.key)

    def compile(self, state: TrainState) -> None:
        """Compile ``advance``, unless it was already."""
        started = time.monotonic()
        seeds = state.healthy.size
        if seeds not in self._compiled.advance:
            self._compiled.advance[seeds] = self._compile(state)
            return_freed_memory()
        self._advance = self._compiled.advance[seeds]
        self.compile_seconds += time.monotonic() - started

    def _compile(self, state: TrainState) -> Any:
        driver, capacity = self._compiled.driver, self.capacity

        def advance(state: TrainState, num_updates: jax.Array) -> tuple[TrainState, Metrics]:
            return driver.advance(state, num_updates, capacity)

        function = jax.vmap(advance, in_axes=(0, None), axis_name=SEEDS_AXIS) if self.stacked else advance
        return compile_lowered(jax.jit(function, donate_argnums=0).lower(state, jnp.int32(1)))

    def advance(self, state: TrainState, num_updates: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        """``num_updates <= capacity`` updates; metrics of shape (seeds, num_updates). ``state`` is used up."""
        state, metrics = self._advance(state, jnp.int32(num_updates))
        rows = {name: np.atleast_2d(np.asarray(x))[:, :num_updates] for name, x in jax.block_until_ready(metrics).items()}
        return state, rows

    def look_before(self, state: TrainState) -> Any:
        """What ``look_behind`` needs of the ``state`` that the next update uses up: the update's rollout, collected once more by a
        program of its own, so that looking changes no bit of the training."""
        return copy_of(state), *self._compiled.look_before(state)

    def look_behind(self, state: TrainState, seen: Any) -> list[dict[str, Histogram]]:
        """The histograms of the update behind ``look_before``, for each seed."""
        before, rollout, rows = seen
        rows = jax.device_get({**rows, "ratios": self._compiled.look_behind(before, state, rollout)})
        seeds = [jax.tree.map(lambda x, i=i: x[i], rows) for i in range(before.healthy.size)] if self.stacked else [rows]
        return [histograms.of_rows(rows) for rows in seeds]

    def member(self, state: TrainState, index: int) -> TrainState:
        """The state of one seed, as an ordinary run has it."""
        return jax.tree.map(lambda x: x[index], state) if self.stacked else state

    def stack(self, states: list[TrainState]) -> TrainState:
        """The states of all seeds as this program takes them."""
        return jax.tree.map(lambda *x: jnp.stack(x), *states) if self.stacked else states[0]

    def computes(self) -> bool:
        """Whether the CPU is all that a call waits for."""
        return True

    def how(self) -> str:
        """How environments are stepped, in words; nothing, where there is only one way."""
        return ""

    def blame(self) -> str:
        """Whose fault NaN or infinity was, as far as it is known."""
        return ""

    def close(self) -> None:
        """Nothing runs beside the program."""


class HostProgram:
    """The same for environments of the host, one seed at a time: what is compiled is the driver's, which keeps no state."""

    stacked = False
    donates = False

    def __init__(self, config: Config, env: HostEnvironment):
        self.config, self.env = config, env
        self.driver = HostDriver(config, env, reuse(host_key(config, env), lambda: HostPrograms(config, env)))
        self.capacity = config.updates_per_call
        self.compile_seconds = 0.0
        episodes = config.run.eval_episodes
        self.evaluator = make_evaluator(env, config, episodes, stochastic=False) if episodes else None
        self._fault: Exception | None = None

    def template(self) -> TrainState:
        """Shapes and types of the state."""
        return jax.eval_shape(self.driver.init, jax.random.key(0))

    def start(self, seeds: list[int]) -> TrainState:
        """The state before the first step."""
        started = time.monotonic()
        self.driver.begin()
        state = jax.block_until_ready(self.driver.init(jax.random.key(seeds[0])))
        return_freed_memory()
        self.compile_seconds += time.monotonic() - started
        return state

    def with_new_episodes(self, state: TrainState) -> TrainState:
        """The training state with new episodes of this program's environment, seeded with the next keys of ``state``."""
        return self.driver.with_new_episodes(state.learner, state.collector.key)

    def compile(self, state: TrainState) -> None:
        """Start the environments, and compile what acts and learns."""
        started = time.monotonic()
        self.driver.prepare(state)
        return_freed_memory()
        self.compile_seconds += time.monotonic() - started

    def advance(self, state: TrainState, num_updates: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        """``num_updates`` updates, or fewer where the environment fails: the failure is raised when nothing stands before it.
        Metrics of shape (1, updates)."""
        if self._fault is not None:
            raise self._fault
        rows: list[dict[str, float]] = []
        for _ in range(num_updates):
            try:
                state, metrics = self.driver.update(state)
            except (ProximoError, TrainingError) as fault:
                if not rows:
                    raise
                self._fault = fault
                break
            rows.append(metrics)
        names = dict.fromkeys(name for row in rows for name in row)
        return state, {name: np.array([[row.get(name, np.nan) for row in rows]]) for name in names}

    def look_before(self, state: TrainState) -> Any:
        """Have the rollout of the next update kept."""
        self.driver.keeps_rollout = True
        return ()

    def look_behind(self, state: TrainState, seen: Any) -> list[dict[str, Histogram]]:
        """The histograms of the update behind ``look_before``; none where it was cut short."""
        self.driver.keeps_rollout = False
        rows = self.driver.look(state.learner.policy)
        return [] if rows is None else [histograms.of_rows(rows)]

    def member(self, state: TrainState, index: int) -> TrainState:
        """The state, which is that of the only seed."""
        return state

    def stack(self, states: list[TrainState]) -> TrainState:
        """A state that was saved: environments begin anew with it."""
        self.driver.begin()
        return states[0]

    def computes(self) -> bool:
        """Whether the learner computes just now: else environments may be waited for, which need no CPU of this process."""
        return self.driver.learning

    def how(self) -> str:
        """How environments are stepped, in words."""
        pool = self.driver.open()
        overlap = ", the policy acting for one half while the other steps" if len(pool.groups) > 1 else ""
        lag = ", the learner one update behind" if self.config.ppo.learner_lag else ""
        return f"environments {pool.how}{overlap}{lag}"

    def blame(self) -> str:
        """Which environment gave NaN or infinity, if one did."""
        return self.driver.bad_environment

    def notify(self, warned: Callable[[str], None]) -> None:
        """Whom to tell of workers that were lost."""
        self.driver.notify = warned
        if isinstance(self.evaluator, HostEvaluator):
            self.evaluator.notify = warned

    def close(self) -> None:
        """End the environments."""
        try:
            self.driver.close()
        finally:
            if self.evaluator is not None:
                self.evaluator.close()


def make_program(config: Config, env: JaxEnvironment | HostEnvironment, stacked: bool) -> Program | HostProgram:
    """The program that trains on ``env``."""
    return HostProgram(config, env) if isinstance(env, HostEnvironment) else Program(config, env, stacked)


def copy_of(state: TrainState) -> TrainState:
    """A copy that survives the donation of ``state``."""
    return jax.tree.map(jnp.copy, state)


def with_total_steps(state: TrainState, config: Config) -> TrainState:
    """``state`` with the end of ``config``, which schedules run to."""
    total = make_hyperparameters(config.ppo).total_steps
    hyperparameters = dataclasses.replace(state.learner.hyperparameters, total_steps=total)
    return dataclasses.replace(state, learner=dataclasses.replace(state.learner, hyperparameters=hyperparameters))
