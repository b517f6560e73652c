"""Whole episodes on environments of the host."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from proximo.config import Config
from proximo.drivers.host import pool_options
from proximo.envs.host.environment import HostEnvironment
from proximo.envs.host.observations import unflatten
from proximo.envs.host.pool import Pool, environment_seeds
from proximo.envs.host.slab import SUCCESS, UNTOLD, Slab
from proximo.envs.host.vector import VectorPool
from proximo.envs.host.waiting import reports_waiting
from proximo.envs.levels import LevelDraws, LevelRange
from proximo.networks import ActorCritic
from proximo.networks.memory import select
from proximo.run.episodes import MOST_STEPS, Episodes, evaluation_key
from proximo.users_code import users_code


class HostEvaluator:
    """Plays on environments of its own. Every one of them plays the same number of episodes (or one less), so that short ones
    are not favoured: ``together`` at a time (0: as many as in the training). The environments are made with the first call, and
    kept until ``close``."""

    def __init__(self, env: HostEnvironment, config: Config, episodes: int, stochastic: bool, together: int = 0):
        self.env, self.config, self.episodes, self.stochastic = env, config, episodes, stochastic
        self.together = min(episodes, together or config.env.num_envs)
        self.quota = np.full(self.together, episodes // self.together)
        self.quota[: episodes % self.together] += 1
        self.notify: Callable[[str], None] = lambda message: warnings.warn(message, stacklevel=2)
        self._pool: Pool | None = None
        self._step = jax.jit(self._act)

    def _act(self, policy: ActorCritic, memory, previous, step, observation, first, filler, key, t):
        """``step``: the sampled action, the reward and ``filler`` of the last step; None before the first step."""
        key = None if key is None else jax.random.fold_in(key, t)
        with jax.default_matmul_precision(self.config.run.matmul_precision):
            if step is not None:
                action, reward, invalid = step
                previous = select(invalid, previous, policy.previous(action, reward))
            observation = policy.observed(unflatten(self.env.observation_space, observation), first, previous)
            memory, action, _, _ = policy.step(memory, observation, first, ~filler, key)
            return memory, previous, action, policy.to_space(action)

    def _open(self) -> Pool:
        if self._pool is None:
            options = pool_options(self.config, lambda message: self.notify(message))
            workers = min(options.num_workers, self.together)
            # Every episode is played whole, and by one group.
            options = dataclasses.replace(options, num_workers=workers, num_groups=1, stagger_steps=0)
            with users_code(f"Making {self.env.id} for an evaluation"):
                self._pool = self.env.open(self.together, 1, options, num_slabs=1)
        return self._pool

    def close(self) -> None:
        """End the environments."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def __call__(self, policy: ActorCritic, seed: int, stream: int, stochastic: bool | None = None) -> Episodes:
        """Play with the environment seeds of ``seed`` in ``stream``: the same ones for every policy, and for its mode and its samples
        (``stochastic``, if it is to be other than this evaluator's)."""
        stochastic = self.stochastic if stochastic is None else stochastic
        pool = self._open()
        source = int(np.random.SeedSequence([seed, stream]).generate_state(1)[0])
        limit = self.config.env.reset_timeout if pool.num_workers else 0.0
        with reports_waiting(self.notify, self.together, self.env.id, limit):
            pool.reset(0, source)
        slab, tally = pool.slabs[0], _Tally(self.quota, self.config.run.eval_max_steps or MOST_STEPS)
        key = evaluation_key(seed, stream) if stochastic else None
        memory, previous = policy.init_memory(self.together), policy.nothing_before(self.together)
        t, step = 0, None
        while tally.running:
            observation = tuple(leaf[0].copy() for leaf in slab.observation)
            flags = slab.first[0].copy(), slab.filler[0].copy()
            before = memory
            memory, previous, sampled, action = self._step(policy, memory, previous, step, observation, *flags, key, t)
            slab.clear()
            slab.action[0] = np.asarray(action).reshape(slab.action[0].shape)
            pool.send(0, 0, 0)
            pool.receive(0, 0, 0)
            if slab.cut[0].any():  # an invalid step, which leaves the memory unchanged
                memory = select(jnp.array(slab.cut[0]), before, memory)
            tally.count(slab)
            step = sampled, slab.reward[0].copy(), slab.filler[0].copy()
            slab.begin_after(slab)
            t += 1
        return dataclasses.replace(tally.episodes(), **self._origins(pool, source, tally))

    def _origins(self, pool: Pool, source: int, tally: _Tally) -> dict[str, list[int | None]]:
        """The seed of each environment's first episode, and the levels of all, where single environments were stepped and none was
        lost: what vectorises itself is given one seed for all."""
        if isinstance(pool, VectorPool) or pool.restarts:
            return {}
        seeds = environment_seeds(self.together, source)
        played = [len(rows) for rows in tally.finished]
        origins = {"seed": [seed if k == 0 else None for seed, count in zip(seeds, played, strict=True) for k in range(count)]}
        if self.config.env.levels:
            draws = [LevelDraws(LevelRange.parse(self.config.env.levels), seed) for seed in seeds]
            origins["level"] = [draw() for draw, count in zip(draws, played, strict=True) for _ in range(count)]
        return origins


class _Tally:
    """What has been played, by environment."""

    def __init__(self, quota: np.ndarray, most_steps: int):
        self.left, self.most_steps = quota.copy(), most_steps
        self.reached, self.length = np.zeros(len(quota)), np.zeros(len(quota), np.int64)
        self.finished: list[list[tuple[float, int, int]]] = [[] for _ in quota]
        self.unfinished = 0

    @property
    def running(self) -> bool:
        """Whether any environment has an episode to play."""
        return bool(self.left.any())

    def count(self, slab: Slab) -> None:
        """A step of all environments."""
        valid = ~slab.filler[0]
        self.reached += np.where(valid, slab.reward[0], 0.0)
        self.length += valid
        ends = (slab.terminated[0] | slab.truncated[0]) & valid
        endless = (self.length >= self.most_steps) & (self.left > 0)
        for i in np.flatnonzero(ends | endless | slab.cut[0]):
            if not slab.cut[0, i] and self.left[i] > 0:  # an environment that was lost plays its episode once more
                self.finished[i].append((self.reached[i], int(self.length[i]), int(slab.success[0, i])))
                # What does not end cannot be reset from here: the environment plays no other episode.
                self.left[i] = self.left[i] - 1 if ends[i] else 0
                self.unfinished += int(not ends[i])
            self.reached[i], self.length[i] = 0.0, 0

    def episodes(self) -> Episodes:
        """All of them, environment by environment."""
        returns, lengths, successes = zip(*(row for rows in self.finished for row in rows), strict=True)
        told = np.array(successes)
        success = None if (told == UNTOLD).all() else told == SUCCESS
        return Episodes(np.array(returns), np.array(lengths), success, self.unfinished)
