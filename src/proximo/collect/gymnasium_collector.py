"""Collects rollouts of Gymnasium environments. The next rollout starts where the last one ended."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.collect.devices import on_one_device
from proximo.collect.environment import vector_options
from proximo.collect.episode_tally import Episode, EpisodeTally
from proximo.collect.gymnasium_programs import GymnasiumPrograms
from proximo.collect.gymnasium_rollout import GymnasiumRollout, PackedPolicy
from proximo.collect.lazy_vector_environment import LazyVectorEnvironment
from proximo.collect.rollout_in_progress import RolloutEnd, RolloutInProgress, Timing
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.networks import ActorCritic
from proximo.ppo.hyperparameters import Hyperparameters
from proximo.processes.peers import ALONE, Peers
from proximo.threads import together
from proximo.types import GymnasiumCollectorState, TrainState


class GymnasiumCollector:
    """Steps Gymnasium environments with a policy.

    Environments cannot be saved. After ``begin`` the next rollout resets them, with seeds from the key of the given state, so
    that two runs from one state are equal.

    ``part`` has the numbers of its environments if others are collected elsewhere, for example by other ``peers``; None: all ``num_envs``.
    Seeds and noise of an environment depend on its number, and not on the part.
    """

    def __init__(
        self,
        config: Config,
        env: GymnasiumEnvironment,
        programs: GymnasiumPrograms | None = None,
        part: range | None = None,
        peers: Peers = ALONE,
    ):
        self.part = part or range(config.env.num_envs)
        numbered = dataclasses.replace(env, spec=dataclasses.replace(env.spec, first_env=self.part.start))
        self.config, self.env, self.peers = config, env, peers
        self.programs = programs or GymnasiumPrograms(config, env)
        self.environments = LazyVectorEnvironment(
            numbered, vector_options(config), len(self.part), config.ppo.num_steps, 1 + config.ppo.learner_lag, "to train on"
        )
        self.episodes = EpisodeTally(len(self.part))
        self._index = 0
        """The rollout buffer that was filled last."""
        self._end: RolloutEnd | None = None
        """What the last rollout has passed on; None: the environments have to be reset."""

    def init(self, key: Key[Array, ""], hyperparameters: Hyperparameters | None = None) -> TrainState:
        """The state before the first step."""
        return self.programs.init(key, hyperparameters)

    def begin(self) -> None:
        """Have the next rollout begin with new episodes and empty memories."""
        self._end = None

    def prepare(self, state: TrainState) -> None:
        """Make the environments and compile everything."""
        example = self._example(on_one_device(state.learner.policy), state.collector)
        rollout = self.programs.joined(example.any_rollout())
        together(example.compile, lambda: self.programs.learn.program(0, state.learner, state.healthy, rollout))

    def compile(self, policy: ActorCritic, state: GymnasiumCollectorState) -> GymnasiumRollout:
        """Make the environments and compile what collecting needs. Returns a rollout whose shapes are right and whose numbers are arbitrary."""
        example = self._example(policy, state)
        example.compile()
        return example.any_rollout()

    def _example(self, policy: ActorCritic, state: GymnasiumCollectorState) -> RolloutInProgress:
        """A rollout before its first step."""
        vector_env = self.environments.open()
        packed, noise, _ = self._begin(policy, state)
        start = RolloutEnd.empty(policy, vector_env, self.programs)
        return RolloutInProgress(vector_env, 0, self.programs, packed, noise, start, Timing())

    def _begin(self, policy: ActorCritic, state: GymnasiumCollectorState) -> tuple[PackedPolicy, PyTree, Key[Array, ""]]:
        """The packed policy, the noise of the environments, and the next key."""
        packed, noise, key = self.programs.begin(0, policy, state.key)
        return packed, jax.tree.map(lambda leaf: np.asarray(leaf)[:, self.part.start : self.part.stop], noise), key

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
        packed, noise, key = self._begin(policy, state)
        collecting = RolloutInProgress(vector_env, self._index, self.programs, packed, noise, start, timing or Timing())
        rollout = collecting.run()
        self._end = collecting.end()
        self.episodes.add(collecting.buffer)
        self.episodes.finished = self._of_all_processes(self.episodes.finished)
        metrics = self.episodes.metrics(self.episodes.finished)
        return GymnasiumCollectorState(key), rollout, metrics

    def _of_all_processes(self, finished: list[Episode]) -> list[Episode]:
        """The episodes that finished in the environments of all processes."""
        numbered = [episode._replace(env=self.part[episode.env]) for episode in finished]
        return [Episode(*fields) for part in self.peers.agree(numbered, "the episodes of a rollout") for fields in part]

    def _reset(self, policy: ActorCritic, state: GymnasiumCollectorState) -> RolloutEnd:
        """Reset all environments and the episode statistics."""
        seed = np.random.SeedSequence(np.asarray(jax.random.key_data(state.key)).tolist()).generate_state(1)
        vector_env = self.environments.reset(0, int(seed[0]))
        self.episodes.begin(bool(self.config.env.stagger_steps))
        return RolloutEnd.empty(policy, vector_env, self.programs)
