"""Collects rollouts of Gymnasium environments in Ray actors, and joins them along the axis of environments."""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import Array, Key

from proximo.collect.devices import on_one_device
from proximo.collect.episode_tally import EpisodeTally
from proximo.collect.gymnasium_programs import GymnasiumPrograms
from proximo.collect.gymnasium_rollout import GymnasiumRollout
from proximo.collect.ray_actors import RolloutActors, RolloutPart
from proximo.collect.rollout_in_progress import Timing
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.networks import ActorCritic
from proximo.ppo.hyperparameters import Hyperparameters
from proximo.processes.peers import ALONE
from proximo.types import GymnasiumCollectorState, TrainState


class RayCollector:
    """A ``GymnasiumCollector`` whose environments are divided equally among ``actors`` Ray actors.

    If an actor dies, its part of the rollout has no valid step. The actor that replaces it begins new episodes in the next rollout.
    """

    def __init__(self, config: Config, env: GymnasiumEnvironment, programs: GymnasiumPrograms | None = None):
        self.config = config
        self.programs = programs or GymnasiumPrograms(config, env)
        self.environments = RolloutActors(config, env)
        self.part, self.peers = range(config.env.num_envs), ALONE
        self.episodes = EpisodeTally(config.env.num_envs)
        self._begins = True
        """Whether the next rollout begins with new episodes in all environments."""

    def init(self, key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
        """The state before the first step."""
        return self.programs.init(key, hyperparameters)

    def begin(self) -> None:
        """Have the next rollout begin with new episodes and empty memories."""
        self._begins = True

    def prepare(self, state: TrainState) -> None:
        """Start the actors, make the environments and compile everything."""
        rollout = self._run(state.learner.policy, state.collector.key, None)[0]
        self.programs.learn.program(0, state.learner, state.healthy, self.programs.joined(rollout))

    def collect(
        self, policy: ActorCritic, state: GymnasiumCollectorState, timing: Timing | None = None
    ) -> tuple[GymnasiumCollectorState, GymnasiumRollout, dict[str, float]]:
        """``num_steps`` steps of all environments. The mean seconds of environments and policy in an actor are added to ``timing``.

        Returns:
            The next state, the rollout, and metrics of the episodes that finished in it.
        """
        rollout, key, parts = self._run(policy, state.key, self._begins)
        self._begins = False
        self.episodes.finished = [episode for part in parts for episode in part.finished]
        if timing is not None:
            timing.environment += float(np.mean([part.timing.environment for part in parts]))
            timing.policy += float(np.mean([part.timing.policy for part in parts]))
        return GymnasiumCollectorState(key), rollout, self.episodes.metrics(self.episodes.finished)

    def _run(
        self, policy: ActorCritic, key: Key[Array, ""], begins: bool | None
    ) -> tuple[GymnasiumRollout, Key[Array, ""], list[RolloutPart]]:
        """The rollout of all actors, the next key, and the parts that are not lost. In the place of a lost part is a copy of another one
        without a valid step."""
        policy = on_one_device(policy)
        arrays = jax.device_get(jax.tree.leaves(policy))
        while not any(parts := self.environments.call(arrays, np.asarray(jax.random.key_data(key)), begins)):
            key = jax.random.fold_in(key, 0)  # all actors were lost: the new ones have other seeds
        found = [part for part in parts if part]
        replacement = found[0].rollout.invalid()
        packed, _, key = self.programs.begin(0, policy, key)
        return GymnasiumRollout.joined([part.rollout if part else replacement for part in parts], packed), key, found
