"""Whole episodes on Gymnasium environments."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import numpy as np

from proximo.collect.compiled_function import TRACING
from proximo.collect.environment import vector_options
from proximo.collect.episode_tally import Episode, EpisodeTally
from proximo.collect.lazy_vector_environment import LazyVectorEnvironment
from proximo.config import Config
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.observations import leaves, unflatten
from proximo.envs.gymnasium.rollout_buffer import SUCCESS, UNREPORTED, RolloutBuffer
from proximo.envs.gymnasium.stepper import environment_seeds
from proximo.envs.gymnasium.vector_environment import VectorEnvironment, split
from proximo.envs.level_seeds import LevelRange
from proximo.evaluation.episodes import MAX_STEPS, Episodes, evaluation_key
from proximo.evaluation.policy import Carried, act
from proximo.networks import ActorCritic
from proximo.networks.custom.forward import Forward
from proximo.networks.recurrent import select
from proximo.types import Previous

_select = jax.jit(select)


class GymnasiumEvaluator:
    """Plays on environments of its own (see ``make_evaluator``), ``num_envs`` at a time. They are made with the first call, and kept
    until ``close``. Every environment plays the same number of episodes (or one less), so that short ones are not favored. With
    ``part = (i, n)``, it plays in part i of n of the environments.

    The first episodes of all environments come first in the result, then the second ones, and so on. If the
    memory is kept between episodes, all episodes of the first environment come first."""

    def __init__(self, env: GymnasiumEnvironment, config: Config, episodes: int, num_envs: int, part: tuple[int, int] = (0, 1)):
        self.env, self.config, self.episodes, self.num_envs = env, config, episodes, min(episodes, num_envs)
        self.own = split(range(self.num_envs), part[1])[part[0]]
        """Numbers of the environments that it plays in."""
        options = vector_options(config, lambda message: warnings.warn(message, stacklevel=2))
        workers = min(options.num_workers, len(self.own))
        # Every episode is played whole, and by one group. The training has already warned of more workers than cores.
        options = dataclasses.replace(
            options, num_workers=workers, num_groups=1, stagger_steps=0, cores=max(workers, options.cores)
        )
        numbered = dataclasses.replace(env, spec=dataclasses.replace(env.spec, first_env=self.own.start))
        self.environments = LazyVectorEnvironment(numbered, options, len(self.own), 1, "for an evaluation")
        self._predict = getattr(Forward.of(config.network), "predict", None)

        def act_at(policy: ActorCritic, carried: Carried, observation: Any, episode_start: Any, key: Any, t: Any) -> Any:
            return act(policy, carried, observation, episode_start, None if key is None else jax.random.fold_in(key, t))

        self._act = jax.jit(jax.default_matmul_precision(config.run.matmul_precision)(act_at))

    def compile(self, policy: ActorCritic) -> None:
        """Compile what a call with the most probable actions needs."""
        n = len(self.own)
        if n and self._predict is None:
            parts = [np.zeros((n, *leaf.shape), leaf.dtype) for leaf in leaves(self.env.observation_space)]
            observation = unflatten(self.env.observation_space, parts)
            with TRACING:
                carried = jax.eval_shape(lambda network: Carried.initial(network, len(self.own)), policy)
                lowered = self._act.lower(policy, carried, observation, np.zeros(n, bool), None, 0)
            lowered.compile()

    def close(self) -> None:
        """End the environments."""
        self.environments.close()

    def __call__(
        self, policy: ActorCritic, seed: int, stream: int, deterministic: bool = True, episodes: int | None = None
    ) -> Episodes:
        """Play (see ``make_evaluator``)."""
        if not self.own:
            return Episodes.from_rows([], 0)
        source = int(np.random.SeedSequence([seed, stream]).generate_state(1)[0])
        vector_env = self.environments.reset(source)
        count = min(self.episodes, episodes or self.episodes)
        quotas = [count // self.num_envs + (i < count % self.num_envs) for i in range(self.num_envs)]
        max_steps = self.config.run.eval_max_steps or MAX_STEPS
        buffer, played = vector_env.buffer, _PlayedEpisodes(quotas[self.own.start : self.own.stop], max_steps)
        key = None if deterministic else evaluation_key(seed, stream)
        carried, t = Carried.initial(policy, len(self.own)), 0
        while played.is_running:
            before, valid = carried, buffer.valid[0].copy()
            parts = [leaf[0].copy() for leaf in buffer.observation]
            played.check(parts, valid)
            observation = unflatten(self.env.observation_space, parts)
            if self._predict is None:
                carried, action = self._act(policy, before, observation, buffer.episode_start[0].copy(), key, t)
            else:
                action = self._predict(policy, observation, deterministic)
            buffer.clear()
            buffer.action[0] = np.asarray(action).reshape(buffer.action[0].shape)
            vector_env.send(0, 0)
            vector_env.receive(0, 0)
            if carried.previous is not None:
                carried = Carried(carried.memory, Previous(carried.previous.action, jax.device_put(buffer.reward[0].copy())))
            valid = buffer.valid[0].copy()
            if not valid.all():  # a padding step, or a lost one
                carried = _select(valid, carried, before)
            played.add(buffer)
            buffer.begin_again()
            t += 1
        return Episodes.from_rows(self._rows(played.finished, quotas, vector_env, source), played.unfinished)

    def _rows(
        self, finished: list[Episode], quotas: list[int], vector_env: VectorEnvironment, source: int
    ) -> list[dict[str, Any]]:
        """``Episodes.rows``. Seeds and levels are unknown if a worker was lost, and for environments that vectorize themselves, which are
        given one seed for all."""
        is_known = not (self.env.uses_vector_env(self.environments.options) or vector_env.restarts)
        seeds, levels = environment_seeds(self.own.stop, source), self.config.env.levels
        draws = [LevelRange.parse(levels).draws(seed) for seed in seeds] if levels else []
        rows, counts = [], [0] * self.own.stop
        for episode in finished:
            env = self.own.start + episode.env
            k, counts[env] = counts[env], counts[env] + 1
            row = {
                "index": k * self.num_envs + env if self.config.network.reset_memory else sum(quotas[:env]) + k,
                "env_seed": seeds[env] if is_known and k == 0 else None,
                "level": next(draws[env]) if is_known and levels else None,
                "return": episode.episode_return,
                "length": episode.length,
                "success": None if episode.success == UNREPORTED else episode.success == SUCCESS,
            }
            rows.append(row)
        return rows


class _PlayedEpisodes:
    """The episodes of an evaluation, until each environment has played its quota."""

    def __init__(self, quotas: list[int], max_steps: int):
        self._left, self._max_steps, self._tally = np.array(quotas), max_steps, EpisodeTally(len(quotas))
        self.finished: list[Episode] = []
        self.unfinished = 0

    @property
    def is_running(self) -> bool:
        """Whether any environment has an episode to play."""
        return bool(self._left.any())

    def check(self, observation: list[np.ndarray], valid: np.ndarray) -> None:
        """Set the return of an episode to NaN if the policy is about to act on NaN or infinity in it."""
        for x in observation:
            if x.dtype.kind == "f" and not (finite := np.isfinite(x)).all():
                self._tally.episode_return[valid & ~finite.reshape(len(x), -1).all(axis=1)] = np.nan

    def add(self, buffer: RolloutBuffer) -> None:
        """Count one step of all environments. An environment that was lost plays its episode once more."""
        for episode in self._tally.add(buffer):
            if self._left[episode.env]:
                self.finished.append(episode)
                self._left[episode.env] -= 1
        lengths, returns = self._tally.length, self._tally.episode_return
        for i in np.flatnonzero((lengths >= self._max_steps) & (self._left > 0)).tolist():
            # An endless episode cannot be reset from here: the environment plays no other one.
            self.finished.append(Episode(i, float(returns[i]), int(lengths[i]), int(buffer.success[0, i])))
            self._left[i] = 0
            self.unfinished += 1
