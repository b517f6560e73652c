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
        policy, key = on_one_device(state.learner.policy), state.collector.key
        arrays = _arrays(policy), np.asarray(jax.random.key_data(key))
        while not any(parts := self.environments.call("prepare", *arrays)):
            pass  # all actors were lost, and new ones have started; after max_restarts, this raises
        rollout = self._joined(parts, policy, key)[0]
        self.programs.learn.program(0, state.learner, state.healthy, self.programs.joined(rollout))

    def collect(
        self, policy: ActorCritic, state: GymnasiumCollectorState, timing: Timing | None = None
    ) -> tuple[GymnasiumCollectorState, GymnasiumRollout, dict[str, float]]:
        """``num_steps`` steps of all environments. The mean seconds of environments and policy in an actor are added to ``timing``.

        Returns:
            The next state, the rollout, and metrics of the episodes that finished in it.
        """
        policy, key, parts = on_one_device(policy), state.key, []
        arrays = _arrays(policy)
        while not any(parts):  # all actors were lost: the new ones have other seeds
            key = jax.random.fold_in(key, 0) if parts else key
            parts = self.environments.call("collect", arrays, np.asarray(jax.random.key_data(key)), self._begins)
        self._begins = False
        rollout, key = self._joined(parts, policy, key)
        self.episodes.finished = [episode for part in parts if part for episode in part.finished]
        if timing is not None:
            timings = [part.timing for part in parts if part]
            timing.environment += float(np.mean([one.environment for one in timings]))
            timing.policy += float(np.mean([one.policy for one in timings]))
        return GymnasiumCollectorState(key), rollout, self.episodes.metrics(self.episodes.finished)

    def _joined(
        self, parts: list[RolloutPart | None], policy: ActorCritic, key: Key[Array, ""]
    ) -> tuple[GymnasiumRollout, Key[Array, ""]]:
        """The rollout of all parts, and the next key. In the place of a lost part is a copy of another one without a valid step."""
        replacement = next(part.rollout for part in parts if part).invalid()
        packed, _, key = self.programs.begin(0, policy, key)
        return GymnasiumRollout.joined([part.rollout if part else replacement for part in parts], packed), key


def _arrays(policy: ActorCritic) -> list[np.ndarray]:
    return jax.device_get(jax.tree.leaves(policy))
