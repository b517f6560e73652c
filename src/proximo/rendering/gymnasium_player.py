"""A Gymnasium environment to watch: a single one, or the only one of a vectorized environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from proximo.config import Config
from proximo.custom_code import custom_code_errors
from proximo.envs import GymnasiumEnvironment
from proximo.envs.gymnasium.actions import action_storage
from proximo.envs.gymnasium.observations import final_observation, leaves, unflatten
from proximo.envs.gymnasium.rollout_buffer import UNREPORTED
from proximo.envs.gymnasium.stepper import environment_seeds, reported_success
from proximo.errors import EnvError
from proximo.evaluation.episodes import evaluation_key
from proximo.rendering.display import prepare_drawing
from proximo.rendering.pictures import Draw, checked_picture, image_of, no_renderer


class GymnasiumPlayer:
    """Plays the first episodes of a ``GymnasiumEvaluator`` with the same seeds and preprocessing (see ``play.Player``)."""

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
        """Begin the episode with this index."""
        # If the memory is kept between episodes, one environment plays them all. Otherwise each is the first episode of another environment.
        continues = episode > 0 and not self.config.network.reset_memory and self.env.make is not None
        if (
            self.env.make is None
        ):  # most vector environments add the number of an environment to their seed, as SyncVectorEnv does
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
        """The key that samples the action of the next step."""
        return jax.random.fold_in(self._key, self._total)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, bool | None]:
        """Take a step with an action [1, ...]. Returns observation, reward, terminated, truncated, and success, if it is reported."""
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
        """A function that returns the picture of now. It is drawn at once: the next step would change it."""
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
        from proximo.envs.gymnasium.construction import construction_errors

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
        """End the environment."""
        with custom_code_errors(f"{self.env.id}.close"):
            self._single.close()


class OnlyEnvironment:
    """A vector environment with one environment, as a single environment. The last observation of an episode is the true final one,
    whatever the autoreset mode."""

    def __init__(self, env: Any, env_id: str):
        from proximo.envs.gymnasium.vector_env_adapter import autoreset_of

        self.env, self.mode = env, autoreset_of(env, env_id)
        self._frame: np.ndarray | None = None
        self._was_reset = False

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._was_reset = False
        observation, info = self.env.reset(seed=seed)
        return jax.tree.map(lambda x: x[0], observation), info

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
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
        """End the environment."""
        self.env.close()
