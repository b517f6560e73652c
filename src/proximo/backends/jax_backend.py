"""The backend for JAX environments: collecting and learning are one compiled program, of one seed or of several along a leading
axis."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from proximo.backends.states import copy_of
from proximo.collect import JaxCollector
from proximo.collect.compiled_function import CompiledFunction
from proximo.collect.jax_vector import SEEDS_AXIS
from proximo.collect.program_cache import program_key, reuse
from proximo.config import Config
from proximo.envs import JaxEnvironment
from proximo.evaluation.episodes import Episodes
from proximo.evaluation.evaluators import make_evaluator
from proximo.jax_setup import return_freed_memory
from proximo.networks import ActorCritic
from proximo.ppo import make_hyperparameters
from proximo.rendering.jax_player import JaxPlayer
from proximo.tracking import histograms
from proximo.tracking.histograms import Histogram
from proximo.types import Metrics, TrainState


class JaxPrograms:
    """The compiled functions of all trainings that differ in traced numbers only. ``advance`` has a program for each number of
    seeds."""

    def __init__(self, config: Config, env: JaxEnvironment, stacked: bool):
        self.env = env  # the key of the cache holds its id, which must not go to another object
        collector, capacity = JaxCollector(config, env, seeds_axis=stacked), config.updates_per_call

        def advance(state: TrainState, num_updates: jax.Array) -> tuple[TrainState, Metrics]:
            return collector.advance(state, num_updates, capacity)

        def over_seeds(function: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
            return jax.vmap(function, in_axes=in_axes, axis_name=SEEDS_AXIS) if stacked else function

        self.start = jax.jit(collector.init_seeds if stacked else collector.init)
        self.with_new_episodes = jax.jit(collector.with_new_episodes)
        self.advance = CompiledFunction(over_seeds(advance, (0, None)), config.run.matmul_precision, donate=(0,))
        self.inspect_before = jax.jit(over_seeds(collector.inspect_before))
        self.inspect_after = jax.jit(over_seeds(collector.inspect_after))


class JaxBackend:
    """Trains on a JAX environment (``Backend`` documents its methods). What it compiles is found again by later backends of this
    process."""

    donates = True

    def __init__(self, config: Config, env: JaxEnvironment, stacked: bool = False):
        self.config, self.env, self.stacked = config, env, stacked
        self.collector = JaxCollector(config, env, seeds_axis=stacked)
        self.capacity = config.updates_per_call
        self.compile_seconds = 0.0
        self.warn: Callable[[str], None] = lambda message: None
        self._programs: JaxPrograms = reuse(program_key(config, env, stacked), lambda: JaxPrograms(config, env, stacked))
        self._evaluator = make_evaluator(env, config, config.run.eval_episodes) if config.run.eval_episodes else None

    def template(self) -> TrainState:
        return jax.eval_shape(self.collector.init, jax.random.key(0))

    def start(self, seeds: list[int]) -> TrainState:
        started = time.monotonic()
        keys = jax.vmap(jax.random.key)(np.asarray(seeds)) if self.stacked else jax.random.key(seeds[0])
        state = self._programs.start(keys)
        # The compiled function has the hyperparameters of the settings that it was compiled for.
        hyperparameters = jax.tree.map(
            lambda x, like: jnp.full(like.shape, x, like.dtype),
            make_hyperparameters(self.config.ppo),
            state.learner.hyperparameters,
        )
        state = jax.block_until_ready(eqx.tree_at(lambda s: s.learner.hyperparameters, state, hyperparameters))
        return_freed_memory()
        self.compile_seconds += time.monotonic() - started
        return state

    def join(self, states: list[TrainState]) -> TrainState:
        return jax.tree.map(lambda *x: jnp.stack(x), *states) if self.stacked else states[0]

    def seed_state(self, state: TrainState, index: int) -> TrainState:
        return jax.tree.map(lambda x: x[index], state) if self.stacked else state

    def with_new_episodes(self, state: TrainState) -> TrainState:
        return self._programs.with_new_episodes(state.learner, state.collector.key)

    def compile(self, state: TrainState) -> None:
        started = time.monotonic()
        self._programs.advance.program(state.healthy.size, state, jnp.int32(1))
        return_freed_memory()
        self.compile_seconds += time.monotonic() - started

    def advance(self, state: TrainState, num_updates: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        state, metrics = self._programs.advance(state.healthy.size, state, jnp.int32(num_updates))
        metrics = jax.block_until_ready(metrics)
        return state, {name: np.atleast_2d(np.asarray(x))[:, :num_updates] for name, x in metrics.items()}

    def inspect_before(self, state: TrainState) -> Any:
        # The rollout of the update is collected once more, by another program, so that the program that trains stays the same.
        return copy_of(state), *self._programs.inspect_before(state)

    def inspect_after(self, state: TrainState, seen: Any) -> list[dict[str, Histogram]]:
        before, rollout, quantities = seen
        quantities = jax.device_get({**quantities, "ratios": self._programs.inspect_after(before, state, rollout)})
        if not self.stacked:
            return [histograms.of_rows(quantities)]
        return [histograms.of_rows(jax.tree.map(lambda x, i=i: x[i], quantities)) for i in range(before.healthy.size)]

    def evaluate(self, policy: ActorCritic, seed: int, stream: int) -> Episodes:
        assert self._evaluator is not None, "eval_episodes = 0"
        return self._evaluator(policy, seed, stream)

    def player(self, seed: int, stream: int) -> JaxPlayer:
        return JaxPlayer(self.env, self.config, seed, stream)

    def is_computing(self) -> bool:
        return True

    def describe(self) -> str:
        return ""

    def fault(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing has to end."""
