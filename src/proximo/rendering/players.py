"""The environments in which episodes to watch are played: one JAX environment, or one Gymnasium environment.

Both play the first episodes of an evaluation, with the same keys and preprocessing. ``reset`` begins the
episode with an index and returns its observation [1, ...]; ``step`` takes an action [1, ...] and returns
observation, reward, terminated, truncated, and success, if it is reported. ``key`` returns the key that
samples the next action, and ``picture`` a function that draws the environment as it is now, at any later
time.
"""

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
from proximo.envs.gymnasium.environment import construction_errors
from proximo.envs.gymnasium.rollout_buffer import UNREPORTED
from proximo.envs.gymnasium.stepper import environment_seeds, reported_success
from proximo.envs.gymnasium.vector_env_adapter import autoreset_of, final_observation
from proximo.errors import EnvError
from proximo.evaluation.episodes import evaluation_key
from proximo.evaluation.evaluators import JAX_TOGETHER
from proximo.rendering.display import prepare_drawing
from proximo.rendering.pictures import Draw, can_draw, checked_picture, image_of, no_renderer
from proximo.spaces import action_dtype, leaves, unflatten

Step = tuple[Any, float, bool, bool, bool | None]


class GymnasiumPlayer:
    """A single Gymnasium environment, or the only one of a vector environment."""

    draws_at_once = True
    """Whether ``picture`` draws at once. A stored picture then holds pixels, otherwise a state of the environment."""

    def __init__(self, env: GymnasiumEnvironment, config: Config, seed: int, stream: int, window: bool = False):
        self.env, self.config = env, config
        self._window = window and "human" in env.render_modes
        self._declares_mode, self._renders = "rgb_array" in env.render_modes, True
        if not self._window:
            prepare_drawing(env.id)
        with custom_code_errors(f"Making {env.id} to watch"):
            self._single = self._make()
        self._lacks_mode = env.without_render_mode(self._single)
        self._source = int(np.random.SeedSequence([seed, stream]).generate_state(1)[0])
        self._key = evaluation_key(seed, stream)
        self._total = self._time = 0
        self._observation: Any = None

    def _make(self) -> Any:
        """One environment that draws, if it can. It may accept the mode ``rgb_array`` without declaring it,
        or draw without the argument ``render_mode``."""
        if self.env.make is None:
            assert self.env.make_vector is not None
            return OnlyEnvironment(self.env.make_vector(1), self.env.id)
        try:
            return self.env.make(render_mode="human" if self._window else "rgb_array")
        except Exception as error:
            if (self._window or self._declares_mode) and not isinstance(error, TypeError):
                raise
            self._window, self._renders = False, isinstance(error, TypeError)
            return self.env.make()

    def reset(self, episode: int) -> Any:
        arguments = {}
        if self.env.make is None:  # most vector environments add the number of an environment to their seed
            arguments = {"seed": (environment_seeds(1, self._source)[0] + episode) % 2**31}
        elif episode == 0 or self.config.network.reset_memory:  # the first episode of environment ``episode``
            arguments = {"seed": environment_seeds(episode + 1, self._source)[-1]}
        self._time = 0
        with custom_code_errors(f"{self.env.id}.reset"):
            observation, _ = self._single.reset(**arguments)
        return self._read(observation)

    def _read(self, observation: Any) -> Any:
        space = self.env.observation_space
        self._observation = unflatten(space, [np.asarray(x.of(observation)).astype(x.dtype)[None] for x in leaves(space)])
        return self._observation

    def key(self) -> Key[Array, ""]:
        return jax.random.fold_in(self._key, self._total)

    def step(self, action: np.ndarray) -> Step:
        space = self.env.action_space
        with custom_code_errors(f"{self.env.id}.step"):
            observation, reward, terminated, truncated, info = self._single.step(
                np.asarray(action, action_dtype(space)).reshape(space.shape)[()]
            )
        self._time, self._total = self._time + 1, self._total + 1
        truncated = (truncated or 0 < self.env.spec.max_episode_steps <= self._time) and not terminated
        success = reported_success(info)
        # Returns are sums of float32 rewards, as in a rollout.
        rest = float(np.float32(reward)), bool(terminated), bool(truncated), None if success == UNREPORTED else bool(success)
        return self._read(observation), *rest

    def picture(self) -> Draw:
        if self._window:
            return lambda: None
        frame = self._render() if self._renders else None  # now: the next step changes it
        if frame is None:
            self._renders = False
            frame = image_of(self.env.observation_space, self._observation)
        if frame is None:
            raise EnvError(self._lacks_mode) if self._lacks_mode else no_renderer(self.env.id)
        return lambda: frame

    def _render(self) -> np.ndarray | None:
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
    """A vector environment with one environment, as a single one, whose last observation of an episode is the true final one."""

    def __init__(self, env: Any, env_id: str):
        self.env, self.resets_at_once = env, autoreset_of(env, env_id) == "same_step"
        self._frame: np.ndarray | None = None
        self._was_reset = False

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        self._was_reset = False
        observation, info = self.env.reset(seed=seed)
        return jax.tree.map(lambda x: x[0], observation), info

    def step(self, action: np.ndarray) -> Step:
        observation, reward, [terminated], [truncated], info = self.env.step(np.asarray(action)[None])
        seen = jax.tree.map(lambda x: x[0], observation)
        self._was_reset = self.resets_at_once and bool(terminated or truncated)
        if self._was_reset:
            final = final_observation(info, 0)
            seen, info = seen if final is None else final, info.get("final_info", info)
        success: Any = {key: np.asarray(value)[0] for key, value in info.items() if key in ("success", "is_success")}
        return seen, reward[0], terminated, truncated, success

    def render(self) -> np.ndarray | None:
        """The picture; None if the vector environment cannot draw. With same-step autoreset, an episode has
        no picture of its final observation: the one before it stays."""
        if not self._was_reset:
            frames = self.env.render() if hasattr(self.env, "render") else None
            self._frame = None if frames is None else frames[0]
        return self._frame

    def close(self) -> None:
        self.env.close()


class JaxPlayer:
    """A JAX environment, which is drawn by its ``render``. It plays the episodes of a ``JaxEvaluator`` in order."""

    draws_at_once = False

    def __init__(self, env: JaxEnvironment, config: Config, seed: int, stream: int):
        self.env, self.config = env, config
        if not can_draw(env):
            raise no_renderer(config.env.id)
        self._key, self._params = evaluation_key(seed, stream), jax.tree.map(jnp.asarray, env.default_params)
        kind = config.run.matmul_precision, JAX_TOGETHER if config.network.reset_memory else 1
        # The programs refer to env, so Python does not use its id again.
        self._reset, self._step, self._action_key = reuse(("player", id(env), *kind), lambda: _programs(env, *kind))
        self._state: Any = None
        self._observation: Any = None
        self._episode = self._time = np.int32(0)

    def reset(self, episode: int) -> Any:
        self._episode, self._time = np.int32(episode), np.int32(0)
        self._state, self._observation = self._reset(self._key, self._episode, self._params)
        return self._observation

    def key(self) -> Key[Array, ""]:
        return self._action_key(self._key, self._episode, self._time)

    def step(self, action: np.ndarray) -> Step:
        self._state, self._observation, *rest, success = self._step(
            self._key, self._episode, self._time, self._state, action, self._observation, self._params
        )
        reward, terminated, truncated = (np.asarray(x).item() for x in rest)
        self._time += 1
        truncated = truncated or (0 < self.config.env.max_episode_steps <= self._time and not terminated)
        return self._observation, reward, terminated, bool(truncated), None if success is None else bool(success[0])

    def picture(self) -> Draw:
        env_id, state, observation = self.config.env.id, self._state, self._observation
        render = getattr(self.env, "render", None)

        def draw() -> np.ndarray | None:
            if render is None:
                return image_of(self.env.observation_space, observation)
            with custom_code_errors(f"{env_id}.render"):
                return checked_picture(render(jax.tree.map(_single, state), self.env.default_params), env_id)

        return draw

    def close(self) -> None:
        """There is nothing to end."""


def _programs(env: JaxEnvironment, matmul_precision: str, together: int) -> tuple[Callable[..., Any], ...]:
    """Compiled reset, step and key of the action, with the keys of an evaluation that plays ``together``
    episodes at a time. (Key ``i`` of ``jax.random.split(key, n)`` does not depend on ``n``.)"""

    def keys(key: Array, episode: Array, time: Array | None = None) -> tuple[Array, Array]:
        """The keys of an action and of its step; without ``time``, the second one is for the reset."""
        chunk, key_own = jax.random.split(jax.random.fold_in(key, episode // together))
        if time is not None:
            chunk, key_own = jax.random.split(jax.random.fold_in(chunk, time))
        return chunk, jax.random.split(key_own, JAX_TOGETHER)[episode % together][None]

    functions = (
        lambda key, episode, params: jax_vector.reset(env, keys(key, episode)[1], params),
        lambda key, episode, time, *arguments: jax_vector.step(env, keys(key, episode, time)[1], *arguments),
        lambda key, episode, time: keys(key, episode, time)[0],
    )
    return tuple(jax.jit(jax.default_matmul_precision(matmul_precision)(function)) for function in functions)


def _single(x: Any) -> Any:
    return x[0] if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)[0]


Player = GymnasiumPlayer | JaxPlayer


def make_player(env: Environment, config: Config, seed: int, stream: int, window: bool = False) -> Player:
    """One environment to play on. Raises ``EnvError`` if it is known that it cannot be drawn."""
    if isinstance(env, GymnasiumEnvironment):
        return GymnasiumPlayer(env, config, seed, stream, window)
    return JaxPlayer(env, config, seed, stream)
