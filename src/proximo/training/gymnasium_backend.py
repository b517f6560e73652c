"""The backend for Gymnasium environments, one seed at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from proximo.collect import GymnasiumCollector, GymnasiumTrainer
from proximo.collect.devices import check_divisible, make_mesh, on_one_device
from proximo.collect.gymnasium_programs import GymnasiumPrograms
from proximo.collect.learning import without_running_return
from proximo.collect.program_cache import program_key, reuse
from proximo.collect.ray_collector import RayCollector, check_installed
from proximo.config import Config
from proximo.envs import GymnasiumEnvironment
from proximo.errors import ConfigError, ProximoError, TrainingError
from proximo.ppo import LearnerState, make_hyperparameters
from proximo.tracking import histograms
from proximo.tracking.histograms import Histogram
from proximo.training.backend import Backend, EvaluatedOn
from proximo.types import GymnasiumCollectorState, Observation, TrainState


class GymnasiumBackend(Backend):
    """Trains on a Gymnasium environment."""

    donates = False
    collector: GymnasiumCollector

    def __init__(self, config: Config, env: GymnasiumEnvironment, evaluation: EvaluatedOn | None = None):
        mesh = make_mesh(config)
        if mesh is not None:
            check_divisible(config, mesh.size)
        programs = reuse(program_key(config, env, False, mesh), lambda: GymnasiumPrograms(config, env, mesh))
        if config.env.actors:
            if self.peers.count > 1:
                raise ConfigError(
                    f"actors = {config.env.actors}: Ray actors serve one process. Omit them, or omit --distributed."
                )
            check_installed()
            collector = RayCollector(config, env, programs)
        else:
            collector = GymnasiumCollector(config, env, programs, self.peers.part(config.env.num_envs), self.peers)
        super().__init__(config, env, collector, False, evaluation, mesh)
        self.trainer = GymnasiumTrainer(self.collector)

    def start(self, seeds: list[int]) -> TrainState:
        state = self.collector.programs.start(0, np.uint32(seeds[0]), make_hyperparameters(self.config.ppo))
        return jax.block_until_ready(self.trainer.begin(state))

    def join(self, states: list[TrainState]) -> TrainState:
        return self.trainer.begin(super().join(states))

    def with_new_episodes(self, state: TrainState) -> TrainState:
        # The state may be that of a JAX environment.
        learner, key = on_one_device((state.learner, state.collector.key))
        return TrainState(without_running_return(learner), GymnasiumCollectorState(key), jnp.array(True))

    def _preparations(self, num_seeds: int) -> list[Callable[[], Any]]:
        # Ray's actors make their environments when the collector is prepared.
        opening = [] if self.config.env.actors else [self.collector.environments.open]
        return [*opening, functools.partial(self._compile_evaluation, self.template().learner.policy)]

    def _finish_preparing(self, state: TrainState) -> None:
        self.collector.prepare(state)

    def advance(self, state: TrainState, num_updates: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        updates: list[dict[str, float]] = []
        for _ in range(num_updates):
            try:
                state, metrics = self.trainer.update(state)
            except (ProximoError, TrainingError):
                if not (updates and self.peers.can_rescue):
                    raise
                break  # the next call raises it
            updates.append(metrics)
        names = dict.fromkeys(name for metrics in updates for name in metrics)
        return state, {name: np.array([[metrics.get(name, np.nan) for metrics in updates]]) for name in names}

    def observation(self, state: TrainState) -> Observation | None:
        rollout = self.trainer.last_rollout
        return None if rollout is None else jax.tree.map(lambda x: np.asarray(x[:1]), rollout.last_observation)

    def inspect_before(self, state: TrainState) -> LearnerState:
        return state.learner

    def inspect_after(self, state: TrainState, seen: LearnerState) -> list[dict[str, Histogram]]:
        quantities = self.trainer.inspect(seen, state.learner)
        return [] if quantities is None else [histograms.of_rows(quantities)]

    def send_warnings_to(self, warn: Callable[[str], None]) -> None:
        super().send_warnings_to(warn)
        self.collector.environments.warn = warn

    def is_computing(self) -> bool:
        return super().is_computing() and self.trainer.is_learning

    def describe(self) -> str:
        lag = ", the learner one update behind" if self.config.ppo.learner_lag else ""
        return f"environments {self.collector.environments.describe()}{lag}"

    def fault(self) -> str:
        return next(filter(None, self.peers.agree(self.trainer.bad_environment, "the error for NaN or infinity")), "")

    def close(self) -> None:
        try:
            self.trainer.close()
        finally:
            super().close()
