"""The environments in which episodes to watch are played: one JAX environment, or one Gymnasium environment."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.collect import jax_vector
from proximo.collect.program_cache import reuse
from proximo.config import Config
from proximo.custom_code import custom_code_errors
from proximo.envs import Environment, GymnasiumEnvironment, JaxEnvironment
from proximo.envs.gymnasium.actions import action_storage
from proximo.envs.gymnasium.construction import construction_errors
from proximo.envs.gymnasium.observations import final_observation, leaves, unflatten
from proximo.envs.gymnasium.rollout_buffer import UNREPORTED
from proximo.envs.gymnasium.stepper import environment_seeds, reported_success
from proximo.envs.gymnasium.vector_env_adapter import autoreset_of
from proximo.errors import EnvError
from proximo.evaluation.episodes import evaluation_key
from proximo.evaluation.evaluators import JAX_TOGETHER
from proximo.rendering.display import prepare_drawing
from proximo.rendering.pictures import Draw, can_draw, checked_picture, image_of, no_renderer


class Player(abc.ABC):
    """One environment that plays the first episodes of an evaluation, with the same keys and preprocessing."""

    draws_at_once = False
    """Whether ``picture`` draws at once. A stored picture then holds pixels, otherwise a state of the environment."""

    @abc.abstractmethod
    def reset(self, episode: int) -> Any:
        """Begin the episode with this index. Returns the observation [1, ...]."""

    @abc.abstractmethod
    def key(self) -> Key[Array, ""]:
        """The key that samples the action of the next step."""

    @abc.abstractmethod
    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, bool | None]:
        """Take a step with an action [1, ...]. Returns observation, reward, terminated, truncated, and success, if it is reported."""

    @abc.abstractmethod
    def picture(self) -> Draw:
        """A function that draws the environment as it is now, at any later time."""

    def close(self) -> None:  # noqa: B027 (a JAX environment has nothing to end)
        """End the environment."""


class GymnasiumPlayer(Player):
    """A single Gymnasium environment, or the only one of a vector environment."""

    draws_at_once = True

    def __init__(self, env: GymnasiumEnvironment, config: Config, seed: int, stream: int, window: bool = False):
        self.env, self.config = env, config
        self._leaves = leaves(env.observation_space)
        self._window = window and "human" in env.render_modes
        self._declares_mode = "rgb_array" in env.render_modes
        self._renders = True
        if not self._window:
            prepare_drawing(env.id)
        with custom_code_errors(f"Making {env.id} to watch"):
            if env.make is None:
                assert env.make_vector is not None
                self._single: Any = OnlyEnvironment(env.make_vector(1), env.id)
            else:
                self._single = self._make(env.make)
        self._lacks_mode = env.without_render_mode(self._single)
        self._source = int(np.random.SeedSequence([seed, stream]).generate_state(1)[0])
        self._key = evaluation_key(seed, stream)
        self._total = self._time = 0
        self._observation: Any = None

    def _make(self, make: Callable[..., Any]) -> Any:
        """One environment that draws. One that does not declare the mode ``rgb_array`` may still accept it, and one whose constructor has
        no argument ``render_mode`` may still draw."""
        try:
            return make(render_mode="human" if self._window else "rgb_array")
        except Exception as error:
            if (self._window or self._declares_mode) and not isinstance(error, TypeError):
                raise
            self._window, self._renders = False, isinstance(error, TypeError)
            return make()

    def reset(self, episode: int) -> Any:
        # If the memory is kept between episodes, one environment plays them all. Otherwise each is the first episode of another environment.
        continues = episode > 0 and not self.config.network.reset_memory and self.env.make is not None
        if self.env.make is None:  # most vector environments add the number of an environment to their seed
            seed = (environment_seeds(1, self._source)[0] + episode) % 2**31
        else:
            seed = environment_seeds(episode + 1, self._source)[-1]
        self._time = 0
        with custom_code_errors(f"{self.env.id}.reset"):
            observation, _ = self._single.reset(**({} if continues else {"seed": seed}))
        return self._read(observation)

    def _read(self, observation: Any) -> Any:
        stored = [np.asarray(leaf.of(observation)).astype(leaf.dtype)[None] for leaf in self._leaves]
        self._observation = unflatten(self.env.observation_space, stored)
        return self._observation

    def key(self) -> Key[Array, ""]:
        return jax.random.fold_in(self._key, self._total)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, bool | None]:
        shape, dtype = action_storage(self.env.action_space)
        with custom_code_errors(f"{self.env.id}.step"):
            observation, reward, terminated, truncated, info = self._single.step(np.asarray(action, dtype).reshape(1, *shape)[0])
        self._time, self._total = self._time + 1, self._total + 1
        is_truncated = (bool(truncated) or 0 < self.env.spec.max_episode_steps <= self._time) and not terminated
        success = reported_success(info)
        # Returns are sums of float32 rewards, as in a rollout.
        rest = float(np.float32(reward)), bool(terminated), is_truncated, None if success == UNREPORTED else bool(success)
        return self._read(observation), *rest

    def picture(self) -> Draw:
        # It is drawn at once: the next step would change it.
        if self._window:
            return lambda: None
        frame = self._render() if self._renders else None
        if frame is None:
            self._renders = False
            frame = image_of(self.env.observation_space, self._observation)
        if frame is None:
            raise EnvError(self._lacks_mode) if self._lacks_mode else no_renderer(self.env.id)
        return lambda: frame

    def _render(self) -> np.ndarray | None:
        """The picture that the environment draws; None if it draws none."""
        try:
            with construction_errors(self.env.id, "Drawing"):
                frame = self._single.render()
        except EnvError as error:
            if isinstance(error.__cause__, NotImplementedError) or not self._declares_mode:
                return None
            if self._lacks_mode:
                raise EnvError(self._lacks_mode) from error
            raise
        if isinstance(frame, list):  # of the mode rgb_array_list, which returns the frames since the last call
            frame = frame[-1] if frame else None
        return None if frame is None else np.array(checked_picture(frame, self.env.id))

    def close(self) -> None:
        with custom_code_errors(f"{self.env.id}.close"):
            self._single.close()


class OnlyEnvironment:
    """A vector environment with one environment, as a single environment. The last observation of an episode is the true final one,
    whatever the autoreset mode."""

    def __init__(self, env: Any, env_id: str):
        self.env, self.mode = env, autoreset_of(env, env_id)
        self._frame: np.ndarray | None = None
        self._was_reset = False

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        self._was_reset = False
        observation, info = self.env.reset(seed=seed)
        return jax.tree.map(lambda x: x[0], observation), info

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(np.asarray(action)[None])
        seen = jax.tree.map(lambda x: x[0], observation)
        self._was_reset = self.mode == "same_step" and bool(terminated[0] or truncated[0])
        if self._was_reset:
            final = final_observation(info, 0)
            seen, info = seen if final is None else final, info.get("final_info", info)
        success = {key: np.asarray(value)[0] for key, value in info.items() if key in ("success", "is_success")}
        return seen, float(reward[0]), bool(terminated[0]), bool(truncated[0]), success

    def render(self) -> np.ndarray | None:
        """The picture of the environment; None if the vector environment cannot draw. With same-step autoreset, the last state of an
        episode cannot be drawn, so the picture before it is returned."""
        if not self._was_reset:
            frames = self.env.render() if hasattr(self.env, "render") else None
            self._frame = None if frames is None else frames[0]
        return self._frame

    def close(self) -> None:
        self.env.close()


class JaxPlayer(Player):
    """A JAX environment, which is drawn by its ``render``. It plays the episodes of a ``JaxEvaluator`` in order. A chunk has
    ``JAX_TOGETHER`` episodes, or one if the memory is kept between episodes."""

    def __init__(self, env: JaxEnvironment, config: Config, seed: int, stream: int):
        self.env, self.config = env, config
        if not can_draw(env):
            raise no_renderer(config.env.id)
        self.space = env.observation_space
        self._key = evaluation_key(seed, stream)
        self._params = jax.tree.map(jnp.asarray, env.default_params)
        precision = config.run.matmul_precision
        # The programs refer to env, so Python does not use its id again.
        self._reset, self._step, self._action_key = reuse(("player", id(env), precision), lambda: _programs(env, precision))
        self._state: Any = None
        self._observation: Any = None
        self._index, self._time = np.int32(0), 0

    def reset(self, episode: int) -> Any:
        together = JAX_TOGETHER if self.config.network.reset_memory else 1
        self._index, self._time = np.int32(episode % together), 0
        chunk = np.int32(episode // together)
        self._chunk, self._state, self._observation = self._reset(self._key, chunk, self._index, self._params)
        return self._observation

    def key(self) -> Key[Array, ""]:
        return self._action_key(self._chunk, np.int32(self._time))

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, bool | None]:
        self._state, self._observation, *rest, success = self._step(
            self._chunk, np.int32(self._time), self._index, self._state, action, self._observation, self._params
        )
        reward, terminated, truncated = (np.asarray(x).item() for x in rest)
        self._time += 1
        is_truncated = truncated or (0 < self.config.env.max_episode_steps <= self._time and not terminated)
        return self._observation, reward, terminated, is_truncated, None if success is None else bool(success[0])

    def picture(self) -> Draw:
        env_id, state, params = self.config.env.id, self._state, self.env.default_params
        render = getattr(self.env, "render", None)
        if render is None:
            observation = self._observation
            return lambda: image_of(self.space, observation)

        def draw() -> np.ndarray:
            with custom_code_errors(f"{env_id}.render"):
                return checked_picture(render(jax.tree.map(_single, state), params), env_id)

        return draw


def _programs(env: JaxEnvironment, matmul_precision: str) -> tuple[Callable[..., Any], ...]:
    """Compiled reset, step and key of the action, with the keys of episode ``index`` in a chunk of an evaluation. (Key ``i`` of
    ``jax.random.split(key, n)`` does not depend on ``n``.)"""

    def own(key: Key[Array, ""], index: Array) -> Key[Array, " 1"]:
        return jax.random.split(key, JAX_TOGETHER)[index][None]

    def keys(chunk: Key[Array, ""], time: Array) -> Key[Array, "2"]:
        return jax.random.split(jax.random.fold_in(chunk, time))

    def reset(key: Key[Array, ""], number: Array, index: Array, params: Any) -> tuple[Key[Array, ""], Any, Any]:
        chunk, key_reset = keys(key, number)
        return chunk, *jax_vector.reset(env, own(key_reset, index), params)

    def step(chunk: Key[Array, ""], time: Array, index: Array, *arguments: Any) -> tuple:
        return jax_vector.step(env, own(keys(chunk, time)[1], index), *arguments)

    with_precision = jax.default_matmul_precision(matmul_precision)
    return jax.jit(with_precision(reset)), jax.jit(with_precision(step)), jax.jit(lambda chunk, time: keys(chunk, time)[0])


def _single(x: Any) -> Any:
    return x[0] if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)[0]


def make_player(env: Environment, config: Config, seed: int, stream: int, window: bool = False) -> Player:
    """One environment to play on. Raises ``EnvError`` if it cannot be drawn, as far as that is known."""
    if isinstance(env, GymnasiumEnvironment):
        return GymnasiumPlayer(env, config, seed, stream, window)
    return JaxPlayer(env, config, seed, stream)
