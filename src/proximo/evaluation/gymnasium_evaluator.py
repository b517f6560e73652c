"""Whole episodes on Gymnasium environments."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.collect.compiled_function import TRACING
from proximo.collect.environment import vector_options
from proximo.collect.episode_tally import Episode, EpisodeTally
from proximo.collect.lazy_vector_environment import LazyVectorEnvironment
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.observations import leaves, unflatten
from proximo.envs.gymnasium.rollout_buffer import SUCCESS, UNREPORTED, RolloutBuffer
from proximo.envs.gymnasium.vector_environment import VectorEnvironment, environment_seeds, split
from proximo.envs.level_seeds import LevelDraws, LevelRange
from proximo.evaluation.episodes import MAX_STEPS, Episodes, evaluation_key
from proximo.evaluation.policy import Carried
from proximo.networks import ActorCritic
from proximo.networks.custom.forward import Forward
from proximo.networks.recurrent import select
from proximo.threads import together


class GymnasiumEvaluator:
    """Plays on environments of its own (see ``Evaluator``), ``num_envs`` at a time. They are made with the first call, and kept
    until ``close``. Every environment plays the same number of episodes (or one less), so that short ones are not favored. With
    ``part = (i, n)``, it plays in part i of n of the environments.

    The first episodes of all environments come first in the result, then the second ones, and so on. If the memory is kept between
    episodes, all episodes of the first environment come first."""

    def __init__(self, env: GymnasiumEnvironment, config: Config, episodes: int, num_envs: int, part: tuple[int, int] = (0, 1)):
        self.env, self.config = env, config
        self.num_envs = min(episodes, num_envs)
        self.own = split(range(self.num_envs), part[1])[part[0]]
        """Numbers of the environments that it plays in."""
        self.quota = np.full(self.num_envs, episodes // self.num_envs)
        """Episodes of each environment."""
        self.quota[: episodes % self.num_envs] += 1
        options = vector_options(config, lambda message: warnings.warn(message, stacklevel=2))
        workers = min(options.num_workers, len(self.own))
        # Every episode is played whole, and by one group. The training has already warned of more workers than cores.
        options = dataclasses.replace(
            options, num_workers=workers, num_groups=1, stagger_steps=0, cores=max(workers, options.cores)
        )
        numbered = dataclasses.replace(env, spec=dataclasses.replace(env.spec, first_env=self.own.start))
        self.environments = LazyVectorEnvironment(numbered, options, len(self.own), 1, 1, "for an evaluation")
        self._predict = getattr(Forward.of(config.network), "predict", None)
        self._act = jax.jit(jax.default_matmul_precision(config.run.matmul_precision)(self._acted))

    def compile(self, policy: ActorCritic) -> None:
        shape = (len(self.own),)
        if not shape[0] or self._predict is not None:
            return
        of_envs = functools.partial(jax.ShapeDtypeStruct, shape)
        observation = tuple(
            jax.ShapeDtypeStruct((*shape, *leaf.shape), leaf.dtype) for leaf in leaves(self.env.observation_space)
        )
        flags = of_envs(bool), of_envs(bool)
        with TRACING:
            carried = jax.eval_shape(self._carried, policy)
            first = self._act.lower(policy, carried, None, observation, *flags, None, 0)
            carried, sampled, _ = first.out_info
            later = self._act.lower(policy, carried, (sampled, of_envs(np.float32), of_envs(bool)), observation, *flags, None, 1)
        together(first.compile, later.compile)

    def close(self) -> None:
        """End the environments."""
        self.environments.close()

    def _carried(self, policy: ActorCritic) -> Carried:
        """What is carried to the first episodes."""
        return Carried(policy.init_memory(len(self.own)), policy.no_previous_step(len(self.own)))

    def __call__(
        self, policy: ActorCritic, seed: int, stream: int, deterministic: bool = True, episodes: int | None = None
    ) -> Episodes:
        quota = (
            self.quota if episodes is None or episodes >= self.quota.sum() else np.full(self.num_envs, episodes // self.num_envs)
        )
        own = slice(self.own.start, self.own.stop)
        first, quota = int(quota[: own.start].sum()), quota[own]
        if not len(quota):
            return Episodes.none()
        source = int(np.random.SeedSequence([seed, stream]).generate_state(1)[0])
        vector_env = self.environments.reset(0, source)
        buffer, played = vector_env.buffers[0], _PlayedEpisodes(quota, self.config.run.eval_max_steps or MAX_STEPS)
        key = None if deterministic else evaluation_key(seed, stream)
        carried, last_step, t = self._carried(policy), None, 0
        while played.is_running:
            observation = tuple(leaf[0].copy() for leaf in buffer.observation)
            flags = buffer.episode_start[0].copy(), buffer.valid[0].copy()
            played.check(observation, flags[1])
            memory_before = carried.memory
            if self._predict is None:
                carried, sampled, action = self._act(policy, carried, last_step, observation, *flags, key, t)
            else:
                sampled = action = self._predict(policy, unflatten(self.env.observation_space, observation), deterministic)
            buffer.clear()
            buffer.action[0] = np.asarray(action).reshape(buffer.action[0].shape)
            vector_env.send(0, 0, 0)
            vector_env.receive(0, 0, 0)
            if buffer.lost[0].any():  # a padding step, which leaves the memory unchanged
                carried = carried._replace(memory=select(jnp.array(buffer.lost[0]), memory_before, carried.memory))
            played.add(buffer)
            last_step = sampled, buffer.reward[0].copy(), buffer.valid[0].copy()
            buffer.begin_after(buffer)
            t += 1
        order = [(i, k) for i, episodes_of in enumerate(played.finished) for k in range(len(episodes_of))]
        index = first + np.arange(len(order))
        if self.config.network.reset_memory:
            order.sort(key=lambda one: (one[1], one[0]))
            index = np.array([k * self.num_envs + self.own.start + i for i, k in order])
        return dataclasses.replace(played.episodes(order), index=index, **self._origins(vector_env, source, order))

    def _acted(
        self,
        policy: ActorCritic,
        carried: Carried,
        last_step: tuple[Array, Array, Array] | None,
        observation: tuple[Any, ...],
        episode_start: Array,
        valid: Array,
        key: Key[Array, ""] | None,
        t: int,
    ) -> tuple[Carried, Array, Array]:
        """Act in step ``t``. ``last_step`` has the sampled action, the reward and ``valid`` of step ``t - 1``, from which the previous step
        in the observation is made. Returns what is carried, the sampled action, and the action as the environment takes it."""
        key = None if key is None else jax.random.fold_in(key, t)
        memory, previous = carried
        if last_step is not None:
            action, reward, was_valid = last_step
            previous = select(was_valid, policy.previous_step(action, reward), previous)
        observed = policy.with_previous_step(unflatten(self.env.observation_space, observation), episode_start, previous)
        memory, action, _, _ = policy.step(memory, observed, episode_start, valid, key)
        return Carried(memory, previous), action, policy.to_space(action)

    def _origins(self, vector_env: VectorEnvironment, source: int, order: list[tuple[int, int]]) -> dict[str, list[int | None]]:
        """The seed of each environment's first episode, and the levels of all episodes. They are unknown if a worker was lost,
        and for environments that vectorize themselves, which are given one seed for all."""
        if self.env.uses_vector_env(self.environments.options) or vector_env.restarts:
            return {}
        seeds = environment_seeds(self.own.stop, source)[self.own.start :]
        origins = {"seed": [seeds[i] if k == 0 else None for i, k in order]}
        if self.config.env.levels:
            draws = [LevelDraws(LevelRange.parse(self.config.env.levels), seed) for seed in seeds]
            origins["level"] = [draws[i]() for i, _ in order]  # those of one environment are in their order
        return origins


class _PlayedEpisodes:
    """The episodes of an evaluation, by environment, until each has played its quota."""

    def __init__(self, quota: np.ndarray, max_steps: int):
        self._left, self._max_steps = quota.copy(), max_steps
        self._tally = EpisodeTally(len(quota))
        self.finished: list[list[Episode]] = [[] for _ in quota]
        self.unfinished = 0

    @property
    def is_running(self) -> bool:
        """Whether any environment has an episode to play."""
        return bool(self._left.any())

    def check(self, observation: tuple[np.ndarray, ...], valid: np.ndarray) -> None:
        """Set the return of an episode to NaN if the policy is about to act on NaN or infinity in it."""
        for x in observation:
            if x.dtype.kind == "f" and not (finite := np.isfinite(x)).all():
                self._tally.episode_return[valid & ~finite.reshape(len(x), -1).all(axis=1)] = np.nan

    def add(self, buffer: RolloutBuffer) -> None:
        """Count one step of all environments. An environment that was lost plays its episode once more."""
        for episode in self._tally.add(buffer):
            if self._left[episode.env]:
                self.finished[episode.env].append(episode)
                self._left[episode.env] -= 1
        lengths, returns = self._tally.length, self._tally.episode_return
        for i in np.flatnonzero((lengths >= self._max_steps) & (self._left > 0)):
            # An endless episode cannot be reset from here: the environment plays no other one.
            self.finished[i].append(Episode(int(i), float(returns[i]), int(lengths[i]), int(buffer.success[0, i])))
            self._left[i] = 0
            self.unfinished += 1

    def episodes(self, order: list[tuple[int, int]]) -> Episodes:
        """All episodes. ``order`` has the environment of each one, and its number among those of this environment."""
        _, returns, lengths, successes = zip(*(self.finished[i][k] for i, k in order), strict=True)
        reported = np.array(successes)
        success = None if (reported == UNREPORTED).all() else reported == SUCCESS
        return Episodes(np.array(returns), np.array(lengths), success, self.unfinished)
