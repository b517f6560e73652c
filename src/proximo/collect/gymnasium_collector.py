"""Collects rollouts of Gymnasium environments. The next rollout starts where the last one ended."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.collect.devices import on_one_device
from proximo.collect.environment import vector_options
from proximo.collect.episode_tally import EpisodeTally
from proximo.collect.gymnasium_programs import GymnasiumPrograms
from proximo.collect.gymnasium_rollout import GymnasiumRollout
from proximo.collect.lazy_vector_environment import LazyVectorEnvironment
from proximo.collect.rollout_in_progress import RolloutEnd, RolloutInProgress, Timing
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.networks import ActorCritic
from proximo.ppo import make_hyperparameters
from proximo.ppo.hyperparameters import Hyperparameters
from proximo.types import GymnasiumCollectorState, TrainState


class GymnasiumCollector:
    """Steps Gymnasium environments with a policy.

    Environments cannot be saved. After ``begin`` the next rollout resets them, with seeds from the key of the given state, so
    that two runs from one state are equal.
    """

    def __init__(self, config: Config, env: GymnasiumEnvironment, programs: GymnasiumPrograms | None = None):
        self.config, self.env = config, env
        self.programs = programs or GymnasiumPrograms(config, env)
        self.environments = LazyVectorEnvironment(
            env, vector_options(config), config.env.num_envs, config.ppo.num_steps, 1 + config.ppo.learner_lag, "to train on"
        )
        self.episodes = EpisodeTally(config.env.num_envs)
        self._index = 0
        """The rollout buffer that was filled last."""
        self._end: RolloutEnd | None = None
        """What the last rollout has passed on; None: the environments have to be reset."""

    def init(self, key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
        """The state before the first step."""
        learner, key_collector = self.programs.fresh(key, hyperparameters or make_hyperparameters(self.config.ppo))
        return TrainState(learner, GymnasiumCollectorState(key_collector), jnp.array(True))

    def begin(self) -> None:
        """Have the next rollout begin with new episodes and empty memories."""
        self._end = None

    def prepare(self, state: TrainState) -> None:
        """Make the environments and compile everything."""
        vector_env, policy = self.environments.open(), on_one_device(state.learner.policy)
        packed, noise, _ = self.programs.begin(0, policy, state.collector.key)
        start = RolloutEnd.empty(policy, vector_env, self.programs)
        rollout = RolloutInProgress(vector_env, 0, self.programs, packed, noise, start, Timing()).compile()
        self.programs.learn.program(0, state.learner, state.healthy, self.programs.placed(rollout))

    def collect(
        self, policy: ActorCritic, state: GymnasiumCollectorState, timing: Timing | None = None
    ) -> tuple[GymnasiumCollectorState, GymnasiumRollout, dict[str, float]]:
        """``num_steps`` steps of all environments. The seconds of environments and policy are added to ``timing``.

        Returns:
            The next state, the rollout, and metrics of the episodes that finished in it. The arrays of the rollout belong to a rollout
            buffer, which the next call overwrites (with ``learner_lag`` the call after it).
        """
        vector_env, policy = self.environments.open(), on_one_device(policy)
        if self._end is None:
            self._index, start = 0, self._reset(policy, state)
        else:
            before, self._index = vector_env.buffers[self._index], (self._index + 1) % len(vector_env.buffers)
            vector_env.buffers[self._index].begin_after(before)
            start = self._end
        vector_env.buffers[self._index].clear()
        packed, noise, key = self.programs.begin(0, policy, state.key)
        collecting = RolloutInProgress(vector_env, self._index, self.programs, packed, noise, start, timing or Timing())
        rollout = collecting.run()
        self._end = collecting.end()
        metrics = self.episodes.metrics(self.episodes.add(collecting.buffer))
        return GymnasiumCollectorState(key), rollout, metrics

    def _reset(self, policy: ActorCritic, state: GymnasiumCollectorState) -> RolloutEnd:
        """Reset all environments and the episode statistics."""
        seed = np.random.SeedSequence(np.asarray(jax.random.key_data(state.key)).tolist()).generate_state(1)
        vector_env = self.environments.reset(0, int(seed[0]))
        self.episodes.begin(bool(self.config.env.stagger_steps))
        return RolloutEnd.empty(policy, vector_env, self.programs)
