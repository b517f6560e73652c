"""An environment of the host to be looked at: a single one, or the only one of a vectorised one."""

from __future__ import annotations

import os
import sys
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from proximo.config import Config
from proximo.envs import HostEnvironment
from proximo.envs.host.block import told_success
from proximo.envs.host.observations import action_storage, final_observation, leaves, unflatten
from proximo.envs.host.pool import environment_seeds
from proximo.envs.host.slab import UNTOLD
from proximo.errors import EnvError
from proximo.run.episodes import evaluation_key
from proximo.run.stage import Draw, Observed, Step, held_picture, image_of, no_renderer
from proximo.users_code import users_code


class HostStage:
    """A single environment with its preprocessing, seeded as those of ``run.host_evaluation``."""

    def __init__(self, env: HostEnvironment, config: Config, seed: int, stream: int, window: bool = False):
        self.host, self.config, self.env_id = env, config, env.id
        self.space = env.observation_space
        self._leaves = leaves(self.space)
        self._window = window and "human" in env.render_modes
        if not self._window:
            _hush()
        with users_code(f"Making {env.id} to look at"):
            if env.make is None:
                assert env.make_vector is not None
                self._env: Any = Alone(env.make_vector(1), env.id)
            else:
                self._env = env.make(render_mode="human" if self._window else "rgb_array")
        self._source = int(np.random.SeedSequence([seed, stream]).generate_state(1)[0])
        self._key = evaluation_key(seed, stream)
        self._shape, self._dtype = action_storage(env.action_space)
        self._total = self._time = 0
        self._renders = True
        self._seen: Any = None

    def reset(self, episode: int) -> Observed:
        # Where memory is carried over episodes one environment plays them all; else each is the first of another one.
        goes_on = episode > 0 and not self.config.network.reset_memory and self.host.make is not None
        self._time = 0
        with users_code(f"{self.env_id}.reset"):
            seed = None if goes_on else environment_seeds(episode + 1, self._source)[-1]
            observation, _ = self._env.reset(**({} if seed is None else {"seed": seed}))
        return self._read(observation)

    def _read(self, observation: Any) -> Observed:
        self._seen = [np.asarray(leaf.of(observation)).astype(leaf.dtype)[None] for leaf in self._leaves]
        return unflatten(self.space, self._seen)

    def key(self) -> Key[Array, ""]:
        return jax.random.fold_in(self._key, self._total)

    def step(self, action: np.ndarray) -> Step:
        given = np.asarray(action, self._dtype).reshape(1, *self._shape)[0]
        with users_code(f"{self.env_id}.step"):
            observation, reward, terminated, truncated, info = self._env.step(given)
        self._time += 1
        self._total += 1
        limit = self.host.rules.max_episode_steps
        over = (bool(truncated) or 0 < limit <= self._time) and not terminated
        told = told_success(info)
        # Returns are sums of the float32 that a rollout would hold.
        return Step(
            self._read(observation), float(np.float32(reward)), bool(terminated), over, None if told == UNTOLD else bool(told)
        )

    def picture(self) -> Draw:
        """Drawn at once: the next step would change what it shows."""
        if self._window:
            return lambda: None
        frame = self._render() if self._renders else None
        if frame is None:
            self._renders = False
            frame = image_of(self.space, unflatten(self.space, self._seen))
        if frame is None:
            raise no_renderer(self.env_id)
        return lambda: frame

    def _render(self) -> np.ndarray | None:
        """What the environment draws; None where it does not."""
        from proximo.envs.host.gymnasium import making

        try:
            with making(self.env_id, "Drawing"):
                frame = self._env.render()
        except EnvError as error:
            if isinstance(error.__cause__, NotImplementedError):
                return None
            raise
        return None if frame is None else np.array(held_picture(frame, self.env_id))

    def close(self) -> None:
        with users_code(f"{self.env_id}.close"):
            self._env.close()


def _hush() -> None:
    """Have pygame, which many environments draw with, look for no sound card, nor for a screen where there is none: it would tell what
    it has not found on standard error."""
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


class Alone:
    """The only environment of a vectorised one, as a plain one: the observation behind an end is the true final one."""

    def __init__(self, env: Any, env_id: str):
        from proximo.envs.host.vector import autoreset_of

        self.env, self.mode = env, autoreset_of(env, env_id)
        self._begun_anew = False
        self._frame: np.ndarray | None = None

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """A fresh episode of ``seed``."""
        self._begun_anew = False
        observation, info = self.env.reset(seed=seed)
        return jax.tree.map(lambda x: x[0], observation), info

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step of it."""
        observation, reward, terminated, truncated, info = self.env.step(np.asarray(action)[None])
        seen = jax.tree.map(lambda x: x[0], observation)
        told = info
        self._begun_anew = self.mode == "same_step" and bool(terminated[0] or truncated[0])
        if self._begun_anew:
            final = final_observation(info, 0)
            seen = seen if final is None else final
            told = info.get("final_info", info)
        told = {key: np.asarray(value)[0] for key, value in told.items() if key in ("success", "is_success")}
        return seen, float(reward[0]), bool(terminated[0]), bool(truncated[0]) and not terminated[0], told

    def render(self) -> np.ndarray | None:
        """Its picture, where the vectorised environment draws each of its own. One that has begun anew with the end of an episode can
        draw that end no more: the picture before it stays."""
        if not self._begun_anew:
            frames = self.env.render() if hasattr(self.env, "render") else None
            self._frame = None if frames is None else frames[0]
        return self._frame

    def close(self) -> None:
        """End it."""
        self.env.close()
