"""A JAX environment to watch: stepped one step at a time, drawn by its ``render``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.collect import jax_vector
from proximo.collect.program_cache import reuse
from proximo.config import Config
from proximo.custom_code import custom_code_errors
from proximo.envs import JaxEnvironment
from proximo.evaluation.episodes import evaluation_key
from proximo.evaluation.jax_evaluator import JAX_TOGETHER
from proximo.rendering.pictures import Draw, can_draw, checked_picture, image_of, no_renderer


class JaxPlayer:
    """Plays the first episodes of a ``JaxEvaluator`` with the same keys (see ``Player``): those of one chunk of episodes, or
    chunks of one episode if the memory is kept between episodes."""

    draws_at_once = False

    def __init__(self, env: JaxEnvironment, config: Config, seed: int, stream: int):
        self.env, self.config = env, config
        if not can_draw(env):
            raise no_renderer(config.env.id)
        self.space = env.observation_space
        self._key = evaluation_key(seed, stream)
        self._params = jax.tree.map(jnp.asarray, env.default_params)
        precision = config.run.matmul_precision
        self._programs = reuse(("player", id(env), precision), lambda: _PlayerPrograms(env, precision))
        self._state: Any = None
        self._observation: Any = None
        self._index, self._time = np.int32(0), 0

    def reset(self, episode: int) -> Any:
        """Begin the episode with this index."""
        together = JAX_TOGETHER if self.config.network.reset_memory else 1
        self._index, self._time = np.int32(episode % together), 0
        chunk = np.int32(episode // together)
        self._chunk, self._state, self._observation = self._programs.reset(self._key, chunk, self._index, self._params)
        return self._observation

    def key(self) -> Key[Array, ""]:
        """The key that samples the action of the next step."""
        return self._programs.action_key(self._chunk, np.int32(self._time))

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, bool | None]:
        """Take a step with an action [1, ...]. Returns observation, reward, terminated, truncated, and success, if it is reported."""
        self._state, self._observation, *rest, success = self._programs.step(
            self._chunk, np.int32(self._time), self._index, self._state, action, self._observation, self._params
        )
        reward, terminated, truncated = (np.asarray(x).item() for x in rest)
        self._time += 1
        is_truncated = truncated or (0 < self.config.env.max_episode_steps <= self._time and not terminated)
        return self._observation, reward, terminated, is_truncated, None if success is None else bool(success[0])

    def picture(self) -> Draw:
        """A function that draws the environment as it is now, at any later time."""
        env_id, state, params = self.config.env.id, self._state, self.env.default_params
        render = getattr(self.env, "render", None)
        if render is None:
            observation = self._observation
            return lambda: image_of(self.space, observation)

        def draw() -> np.ndarray:
            with custom_code_errors(f"{env_id}.render"):
                return checked_picture(render(jax.tree.map(_single, state), params), env_id)

        return draw

    def close(self) -> None:
        """Do nothing: a JAX environment has no process to end."""


class _PlayerPrograms:
    """Compiled reset and step of one environment, with the keys of episode ``index`` in a chunk of an evaluation. (Key ``i`` of
    ``jax.random.split(key, n)`` does not depend on ``n``.)"""

    def __init__(self, env: JaxEnvironment, matmul_precision: str):
        self.env = env  # a reference: the cache key contains id(env), which Python would reuse if env were freed
        with_precision = jax.default_matmul_precision(matmul_precision)
        self.reset, self.step = jax.jit(with_precision(self._reset)), jax.jit(with_precision(self._step))
        self.action_key = jax.jit(lambda chunk, time: jax.random.split(jax.random.fold_in(chunk, time))[0])

    def _reset(self, key: Key[Array, ""], number: Array, index: Array, params: Any) -> tuple[Key[Array, ""], Any, Any]:
        chunk, key_reset = jax.random.split(jax.random.fold_in(key, number))
        return chunk, *jax_vector.reset(self.env, _of(index, key_reset), params)

    def _step(self, chunk: Key[Array, ""], time: Array, index: Array, *arguments: Any) -> tuple:
        key_step = jax.random.split(jax.random.fold_in(chunk, time))[1]
        return jax_vector.step(self.env, _of(index, key_step), *arguments)


def _of(index: Array, key: Key[Array, ""]) -> Key[Array, " 1"]:
    return jax.random.split(key, JAX_TOGETHER)[index][None]


def _single(x: Any) -> Any:
    return x[0] if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)[0]
