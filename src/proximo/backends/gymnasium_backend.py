"""The backend for Gymnasium environments, one seed at a time."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import numpy as np

from proximo.collect import GymnasiumCollector, GymnasiumTrainer
from proximo.collect.gymnasium_programs import GymnasiumPrograms
from proximo.collect.program_cache import gymnasium_key, reuse
from proximo.config import Config
from proximo.envs import GymnasiumEnvironment
from proximo.errors import ProximoError, TrainingError
from proximo.evaluation.episodes import Episodes
from proximo.evaluation.gymnasium_evaluator import GymnasiumEvaluator
from proximo.jax_setup import return_freed_memory
from proximo.networks import ActorCritic
from proximo.ppo import LearnerState
from proximo.rendering.gymnasium_player import GymnasiumPlayer
from proximo.tracking import histograms
from proximo.tracking.histograms import Histogram
from proximo.types import TrainState


class GymnasiumBackend:
    """Trains on a Gymnasium environment (``Backend`` documents its methods). What it compiles is found again by later backends of
    this process."""

    stacked = False
    donates = False

    def __init__(self, config: Config, env: GymnasiumEnvironment):
        self.config, self.env = config, env
        programs = reuse(gymnasium_key(config, env), lambda: GymnasiumPrograms(config, env))
        self.collector = GymnasiumCollector(config, env, programs)
        self.capacity = config.updates_per_call
        self.compile_seconds = 0.0
        self.trainer = GymnasiumTrainer(self.collector)
        self._evaluator = GymnasiumEvaluator(env, config, config.run.eval_episodes) if config.run.eval_episodes else None
        self._failure: Exception | None = None
        """The error that cut the last call short. The next call raises it."""

    @property
    def warn(self) -> Callable[[str], None]:
        return self.collector.environments.warn

    @warn.setter
    def warn(self, warn: Callable[[str], None]) -> None:
        self.collector.environments.warn = warn
        if self._evaluator is not None:
            self._evaluator.environments.warn = warn

    def template(self) -> TrainState:
        return jax.eval_shape(self.collector.init, jax.random.key(0))

    def start(self, seeds: list[int]) -> TrainState:
        started = time.monotonic()
        state = jax.block_until_ready(self.trainer.begin(self.collector.init(jax.random.key(seeds[0]))))
        return_freed_memory()
        self.compile_seconds += time.monotonic() - started
        return state

    def join(self, states: list[TrainState]) -> TrainState:
        return self.trainer.begin(states[0])

    def seed_state(self, state: TrainState, index: int) -> TrainState:
        return state

    def with_new_episodes(self, state: TrainState) -> TrainState:
        return self.collector.with_new_episodes(state.learner, state.collector.key)

    def compile(self, state: TrainState) -> None:
        started = time.monotonic()
        self.collector.prepare(state)
        return_freed_memory()
        self.compile_seconds += time.monotonic() - started

    def advance(self, state: TrainState, num_updates: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        if self._failure is not None:
            raise self._failure
        updates: list[dict[str, float]] = []
        for _ in range(num_updates):
            try:
                state, metrics = self.trainer.update(state)
            except (ProximoError, TrainingError) as failure:
                if not updates:
                    raise
                self._failure = failure
                break
            updates.append(metrics)
        names = dict.fromkeys(name for metrics in updates for name in metrics)
        return state, {name: np.array([[metrics.get(name, np.nan) for metrics in updates]]) for name in names}

    def inspect_before(self, state: TrainState) -> LearnerState:
        return state.learner

    def inspect_after(self, state: TrainState, seen: LearnerState) -> list[dict[str, Histogram]]:
        quantities = self.trainer.inspect(seen, state.learner)
        return [] if quantities is None else [histograms.of_rows(quantities)]

    def evaluate(self, policy: ActorCritic, seed: int, stream: int) -> Episodes:
        assert self._evaluator is not None, "eval_episodes = 0"
        return self._evaluator(policy, seed, stream)

    def player(self, seed: int, stream: int) -> GymnasiumPlayer:
        return GymnasiumPlayer(self.env, self.config, seed, stream)

    def is_computing(self) -> bool:
        return self.trainer.learner.is_computing

    def describe(self) -> str:
        vector_env = self.collector.environments.open()
        overlap = ", the policy acting for one half while the other steps" if len(vector_env.groups) > 1 else ""
        lag = ", the learner one update behind" if self.config.ppo.learner_lag else ""
        return f"environments {vector_env.description}{overlap}{lag}"

    def fault(self) -> str:
        return self.trainer.learner.bad_environment

    def close(self) -> None:
        try:
            self.trainer.close()
        finally:
            if self._evaluator is not None:
                self._evaluator.close()
