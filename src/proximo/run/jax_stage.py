"""An environment in JAX to be looked at: stepped row by row, drawn by its ``render``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.config import Config
from proximo.drivers import vector
from proximo.envs import JaxEnvironment
from proximo.run.episodes import evaluation_key
from proximo.run.evaluation import MOST_TOGETHER
from proximo.run.reuse import precision, reuse
from proximo.run.stage import Draw, Observed, Step, draws, held_picture, image_of, no_renderer
from proximo.spaces import from_any
from proximo.users_code import users_code


class JaxStage:
    """The keys are those of ``run.evaluation``: one chunk of episodes that are played together, or, where memory is carried over
    episodes, chunks of one."""

    def __init__(self, env: JaxEnvironment, config: Config, seed: int, stream: int):
        self.env, self.config = env, config
        if not draws(env):
            raise no_renderer(config.env.id)
        self.space = from_any(env.observation_space, "observation")
        self._key = evaluation_key(seed, stream)
        self._params = jax.tree.map(jnp.asarray, env.default_params)
        settings = (config.run.matmul_precision, precision())
        self._functions = reuse(("stage", id(env), *settings), lambda: _Functions(env))
        self._state: Any = None
        self._observation: Any = None
        self._place, self._time = np.int32(0), 0

    def reset(self, episode: int) -> Observed:
        together = MOST_TOGETHER if self.config.network.reset_memory else 1
        self._place, self._time = np.int32(episode % together), 0
        with jax.default_matmul_precision(self.config.run.matmul_precision):
            self._chunk, self._state, self._observation = self._functions.reset(
                self._key, np.int32(episode // together), self._place, self._params
            )
        return self._observation

    def key(self) -> Key[Array, ""]:
        return self._functions.action_key(self._chunk, np.int32(self._time))

    def step(self, action: np.ndarray) -> Step:
        with jax.default_matmul_precision(self.config.run.matmul_precision):
            self._state, self._observation, *rest = self._functions.step(
                self._chunk, np.int32(self._time), self._place, self._state, action, self._observation, self._params
            )
        reward, terminated, truncated, success = (np.asarray(x).item() for x in rest)
        self._time += 1
        over = truncated or (0 < self.config.env.max_episode_steps <= self._time and not terminated)
        return Step(self._observation, reward, terminated, over, success if self._functions.tells else None)

    def picture(self) -> Draw:
        env_id, state, params = self.config.env.id, self._state, self.env.default_params
        render = getattr(self.env, "render", None)
        if render is None:
            seen = self._observation
            return lambda: image_of(self.space, seen)

        def draw() -> np.ndarray:
            with users_code(f"{env_id}.render"):
                return held_picture(render(jax.tree.map(_single, state), params), env_id)

        return draw

    def close(self) -> None:
        """Nothing runs beside it."""


class _Functions:
    """Reset and step of one environment, compiled once, by the keys of episode ``place`` of those that an evaluation plays together
    (a key's parts do not depend on how many they are)."""

    def __init__(self, env: JaxEnvironment):
        self.env = env  # the key holds its id, which must not go to another object
        self.tells = vector.tells_success(env)
        self.reset, self.step = jax.jit(self._reset), jax.jit(self._step)
        self.action_key = jax.jit(lambda chunk, time: jax.random.split(jax.random.fold_in(chunk, time))[0])

    def _reset(self, key: Key[Array, ""], number: Array, place: Array, params: Any) -> tuple[Key[Array, ""], Any, Any]:
        chunk, key_reset = jax.random.split(jax.random.fold_in(key, number))
        return chunk, *vector.reset(self.env, _of(place, key_reset), params)

    def _step(self, chunk: Key[Array, ""], time: Array, place: Array, *arguments: Any) -> tuple:
        key_step = jax.random.split(jax.random.fold_in(chunk, time))[1]
        return vector.step(self.env, _of(place, key_step), *arguments)


def _of(place: Array, key: Key[Array, ""]) -> Key[Array, " 1"]:
    return jax.random.split(key, MOST_TOGETHER)[place][None]


def _single(x: Any) -> Any:
    return x[0] if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)[0]
