"""Whole episodes on JAX environments."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, PyTree, UInt32

from proximo.collect import jax_vector
from proximo.collect.compiled_function import TRACING
from proximo.collect.policy_step import StepState, policy_step
from proximo.config import Config
from proximo.envs import JaxEnvironment
from proximo.envs.gymnasium.vector_environment import split
from proximo.envs.level_seeds import JaxLevels
from proximo.evaluation.episodes import MAX_STEPS, Episodes, evaluation_key
from proximo.evaluation.policy import Carried
from proximo.networks import ActorCritic
from proximo.networks.recurrent import select
from proximo.types import CompensatedSum, Observation

JAX_TOGETHER = 512
"""Environments at a time."""


class _RunningEpisodes(NamedTuple):
    """Episodes so far, one in each of ``N`` environments, after ``time`` steps."""

    time: Int32[Array, ""]
    state: StepState
    episode_return: CompensatedSum
    length: Int32[Array, " N"]
    success: Bool[Array, " N"]
    done: Bool[Array, " N"]


class JaxEvaluator:
    """Plays one episode after each reset of an environment, so that short episodes are not favored (see ``make_evaluator``). A memory
    that is not reset is carried to the next episodes. It uses only the time limits and the precision of ``config``. With
    ``part = (i, n)``, it plays in part i of n of the environments."""

    def __init__(
        self, env: JaxEnvironment, config: Config, episodes: int, num_envs: int = JAX_TOGETHER, part: tuple[int, int] = (0, 1)
    ):
        self.env, self.episodes, self.num_envs = env, episodes, min(episodes, num_envs)
        self.own = split(range(self.num_envs), part[1])[part[0]]
        """Numbers of the environments that it plays in."""
        max_episode_steps, max_steps = config.env.max_episode_steps, config.run.eval_max_steps or MAX_STEPS
        self.limit = min(max_episode_steps or max_steps, max_steps)
        self.ends = 0 < max_episode_steps <= max_steps
        """Whether ``limit`` truncates an episode, as in the training. Otherwise the episode is unfinished."""
        with_precision = jax.default_matmul_precision(config.run.matmul_precision)
        self._play = jax.jit(with_precision(self._play_chunk), static_argnums=3)

    def compile(self, policy: ActorCritic) -> None:
        """Compile what a call with the most probable actions needs."""
        if self.own:
            with TRACING:
                carried = jax.eval_shape(lambda network: Carried.initial(network, len(self.own)), policy)
                lowered = self._play.lower(policy, carried, np.zeros(3, np.uint32), True)
            lowered.compile()

    def close(self) -> None:
        """Do nothing: a JAX environment has no process to end."""

    def __call__(
        self, policy: ActorCritic, seed: int, stream: int, deterministic: bool = True, episodes: int | None = None
    ) -> Episodes:
        """Play (see ``make_evaluator``)."""
        if not self.own:
            return Episodes.from_rows([], 0)
        count = min(self.episodes, episodes or self.episodes)
        chunks, carried = [], Carried.initial(policy, len(self.own))
        for i in range(-(-count // self.num_envs)):
            carried, played = self._play(policy, carried, np.array([seed, stream, i], np.uint32), deterministic)
            chunks.append(played)
        index = np.add.outer(self.num_envs * np.arange(len(chunks)), self.own).ravel()
        result = {name: np.concatenate([np.asarray(c[name]) for c in chunks])[index < count] for name in chunks[0]}
        unfinished = 0 if self.ends else int((~result["done"]).sum())
        level = result["level"].tolist() if "level" in result else None
        return Episodes(
            result["episode_return"], result["length"], result.get("success"), unfinished, level=level, index=index[index < count]
        )

    def _play_chunk(
        self, policy: ActorCritic, carried: Carried, numbers: UInt32[Array, "3"], deterministic: bool
    ) -> tuple[Carried, dict[str, Array]]:
        """Play an episode in each environment. The seed, the stream and the number of the chunk determine all random numbers. Returns what
        is carried to the next episodes, and the results."""
        seed, stream, chunk = numbers
        env, num_envs = self.env, len(self.own)

        def own(drawn: PyTree) -> PyTree:  # of what was drawn for the environments of all parts
            return jax.tree.map(lambda x: x[self.own.start : self.own.stop], drawn)

        params = jax.tree.map(jnp.asarray, env.default_params)
        key, key_reset = jax.random.split(jax.random.fold_in(evaluation_key(seed, stream), chunk))
        keys_reset = own(jax.random.split(key_reset, self.num_envs))
        env_state, observation = jax_vector.reset(env, keys_reset, params)
        state, never = StepState(env_state, observation, *carried), jnp.zeros(num_envs, bool)
        start = _RunningEpisodes(
            jnp.int32(0), state, CompensatedSum.zeros(num_envs), jnp.zeros(num_envs, jnp.int32), never, never
        )

        def play(now: _RunningEpisodes) -> _RunningEpisodes:
            key_act, key_step = jax.random.split(jax.random.fold_in(key, now.time))
            episode_start = jnp.broadcast_to(now.time == 0, (num_envs,))
            # An episode in which the policy acts on NaN or infinity has no return.
            or_nan = jnp.where(_all_finite(now.state.observation, num_envs), 0.0, jnp.nan)
            noise = None if deterministic else own(policy.actor.noise(key_act, (self.num_envs,)))
            keys_step = own(jax.random.split(key_step, self.num_envs))
            after, step, success = policy_step(env, policy, now.state, episode_start, ~now.done, noise, keys_step, params)
            return _RunningEpisodes(
                now.time + 1,
                after._replace(previous=select(now.done, now.state.previous, after.previous)),
                now.episode_return.plus(jnp.where(now.done, 0.0, step["reward"] + or_nan)),
                now.length + ~now.done,
                now.success if success is None else jnp.where(now.done, now.success, success),
                now.done | step["terminated"] | step["truncated"],
            )

        end = jax.lax.while_loop(lambda now: (now.time < self.limit) & ~now.done.all(), play, start)
        result: dict[str, PyTree] = {"episode_return": end.episode_return.value, "length": end.length, "done": end.done}
        if jax_vector.reports_success(env):
            # An episode that is cut off counts as no success.
            result["success"] = end.success if self.ends else end.success & end.done
        if isinstance(env, JaxLevels):
            result["level"] = jax.vmap(env.level)(keys_reset)
        return Carried(end.state.memory, end.state.previous), result


def _all_finite(observation: Observation, num_envs: int) -> Bool[Array, " N"]:
    """Whether all floating-point numbers in the observation of each environment are finite."""
    finite = jnp.ones(num_envs, bool)
    for x in jax.tree.leaves(observation):
        if jnp.issubdtype(x.dtype, jnp.floating):
            finite &= jnp.isfinite(x).reshape(num_envs, -1).all(axis=1)
    return finite
