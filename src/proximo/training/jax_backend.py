"""The backend for JAX environments: collecting and learning are one compiled program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

from proximo.collect import JaxCollector, JaxTrainer, jax_vector
from proximo.collect.devices import check_divisible, divided, filled, make_mesh, mesh_for, on_one_device, placed, whole
from proximo.collect.program_cache import CompiledFunction, program_key, reuse
from proximo.config import Config
from proximo.envs import JaxEnvironment
from proximo.ppo import Hyperparameters, make_hyperparameters
from proximo.tracking import histograms
from proximo.tracking.histograms import Histogram
from proximo.training.backend import Backend, EvaluatedOn, copy_of
from proximo.types import Metrics, Observation, TrainState

T = TypeVar("T")
BRIEF_ENVS = 64
"""With more environments, their first reset may take longer than it saves to compile it fast."""


class JaxPrograms:
    """The compiled functions that trainings share if their settings differ only in traced numbers."""

    def __init__(self, config: Config, env: JaxEnvironment, stacked: bool, mesh: Mesh | None):
        # A reference to env: the cache key contains id(env), which Python would reuse if env were freed.
        self.collector = collector = JaxCollector(config, env, seeds_axis=stacked and jax_vector.vmaps_seeds())
        trainer, capacity = JaxTrainer(collector), config.updates_per_call
        init = collector.init_seeds if stacked else collector.init
        self._mesh, self._stacked = mesh, stacked

        def of_all(function: Callable[..., Any]) -> Callable[..., Any]:
            return jax_vector.over_seeds(function) if stacked else function

        def on_a_device(state: TrainState, num_updates: jax.Array) -> tuple[TrainState, Metrics]:
            return of_all(lambda seed: trainer.advance(seed, num_updates, capacity))(state)

        def advance(state: TrainState, num_updates: jax.Array) -> tuple[TrainState, Metrics]:
            return divided(on_a_device, self._mesh_for(state), stacked)(state, num_updates)

        def start(seeds: jax.Array, hyperparameters: Hyperparameters) -> TrainState:
            keys = jax.vmap(jax.random.key)(seeds) if stacked else jax.random.key(seeds[0])
            state = init(keys, hyperparameters)
            return placed(state, self._mesh_for(state), stacked)

        self.start = CompiledFunction(start, brief=config.env.num_envs <= BRIEF_ENVS)
        self.with_new_episodes = jax.jit(collector.with_new_episodes)
        self.advance = CompiledFunction(advance, donate=(0,))
        self.inspect_before = jax.jit(of_all(trainer.inspect_before))
        self.inspect_after = jax.jit(of_all(trainer.inspect_after))

    def placed(self, state: TrainState) -> TrainState:
        return placed(state, self._mesh_for(state), self._stacked)

    def _mesh_for(self, state: TrainState) -> Mesh | None:
        return mesh_for(self._mesh, state.healthy.size) if self._stacked else self._mesh


class JaxBackend(Backend):
    """Trains on a JAX environment."""

    donates = True

    def __init__(self, config: Config, env: JaxEnvironment, stacked: bool = False, evaluation: EvaluatedOn | None = None):
        self._mesh = mesh = make_mesh(config)
        if mesh is not None and (not stacked or config.run.seeds % mesh.size):
            check_divisible(config, mesh.size)
        key = program_key(config, env, stacked, mesh)
        self._programs: JaxPrograms = reuse(key, lambda: JaxPrograms(config, env, stacked, mesh))
        super().__init__(config, env, self._programs.collector, stacked, evaluation, mesh)

    def start(self, seeds: list[int]) -> TrainState:
        seeds = self.filled(seeds)
        return jax.block_until_ready(self._programs.start(len(seeds), np.asarray(seeds), self._hyperparameters()))

    def join(self, states: list[TrainState]) -> TrainState:
        return super().join(self.filled(states))

    def filled(self, seeds: list[T]) -> list[T]:
        return filled(seeds, self._mesh) if self.stacked else seeds

    def seeds_of_a_device(self, num_seeds: int) -> float:
        num_seeds = len(self.filled([0] * num_seeds))
        mesh = mesh_for(self._mesh, num_seeds)
        return num_seeds / mesh.size if mesh else num_seeds

    def _hyperparameters(self) -> Hyperparameters:
        return jax.tree.map(np.asarray, make_hyperparameters(self.config.ppo))

    def with_new_episodes(self, state: TrainState) -> TrainState:
        return self._programs.with_new_episodes(*on_one_device((state.learner, state.collector.key)))

    def _preparations(self, num_seeds: int) -> list[Callable[[], Any]]:
        num_seeds = len(self.filled([0] * num_seeds))
        # Compiling needs only the shapes of the state.
        state = self._programs.start.shapes(np.zeros(num_seeds, int), self._hyperparameters())
        policy = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[self.stacked :], x.dtype), state.learner.policy)
        return [
            lambda: self._programs.advance.program(num_seeds, self._programs.placed(state), np.int32(1)),
            lambda: self._compile_evaluation(policy),
        ]

    def advance(self, state: TrainState, num_updates: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        state, metrics = self._programs.advance(state.healthy.size, self._programs.placed(state), np.int32(num_updates))
        metrics = jax.block_until_ready(metrics)
        return state, {name: np.atleast_2d(np.asarray(x))[:, :num_updates] for name, x in metrics.items()}

    def observation(self, state: TrainState) -> Observation:
        return jax.tree.map(lambda x: np.asarray(x)[:1], state.collector.observation)

    def inspect_before(self, state: TrainState) -> Any:
        # Another program collects the rollout once more, so that the program that trains stays the same.
        state = self._gathered(state)
        return copy_of(state), *self._programs.inspect_before(state)

    def _gathered(self, state: TrainState) -> TrainState:
        """``state`` on one device if its seeds are inspected one after the other."""
        return on_one_device(state) if self.stacked and not jax_vector.vmaps_seeds() else state

    def inspect_after(self, state: TrainState, seen: Any) -> list[dict[str, Histogram]]:
        before, rollout, quantities = seen
        state = self._gathered(state)
        quantities = jax.device_get(whole({**quantities, "ratios": self._programs.inspect_after(before, state, rollout)}))
        return [histograms.of_rows(self.seed_state(quantities, i)) for i in range(before.healthy.size)]
