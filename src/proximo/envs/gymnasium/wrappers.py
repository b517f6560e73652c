"""Wrappers of Gymnasium environments. Gymnasium's own wrappers are used where they exist."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from proximo.envs.gymnasium.actions import allows
from proximo.envs.gymnasium.observations import final_observation
from proximo.envs.hidden_velocities import VelocityMask
from proximo.envs.level_seeds import LevelDraws, LevelRange
from proximo.errors import ConfigError, EnvError
from proximo.spaces import ACTION_MASK, from_any


def atari(env: Any, env_id: str) -> Any:
    """Add the standard Atari preprocessing (Mnih et al. 2015; Machado et al. 2018).

    Observations are 84×84 gray images. A step takes 4 frames, and its observation is the maximum of the last two. An episode starts
    with up to 30 no-ops.
    """
    if not hasattr(env.unwrapped, "ale"):
        raise ConfigError(f"preprocessing = atari: {env_id} is not an Atari game.")
    if len(env.observation_space.shape) == 1:
        raise ConfigError(
            f"preprocessing = atari: {env_id} observes the memory of the game (obs_type): set preprocessing = none."
        )
    try:
        import cv2  # noqa: F401
    except ImportError:
        raise EnvError("preprocessing = atari needs OpenCV: pip install 'proximo[atari]'.") from None
    return gym.wrappers.AtariPreprocessing(env, noop_max=30, frame_skip=4, screen_size=84)


def stack_frames(env: Any, env_id: str, frames: int) -> Any:
    """Stack the last ``frames`` observations along a new first axis; the first one of an episode is repeated."""
    if not isinstance(env.observation_space, gym.spaces.Box):
        raise ConfigError(f"frame_stack: the observations of {env_id} are {env.observation_space}: expected a Box.")
    # Copied, because an environment may write its next observation into the same array.
    copied = gym.wrappers.TransformObservation(env, np.copy, env.observation_space)
    return gym.wrappers.FrameStackObservation(copied, frames, padding_type="reset")


class Levels(gym.Wrapper):
    """Draws the seed of each episode from a range of levels. The seed passed to ``reset`` seeds the draws."""

    def __init__(self, env: Any, levels: LevelRange):
        super().__init__(env)
        self.levels, self.draw = levels, LevelDraws(levels)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode of a newly drawn level."""
        if seed is not None:
            self.draw = LevelDraws(self.levels, seed)
        return self.env.reset(seed=self.draw(), options=options)


class ActionRepeat(gym.Wrapper):
    """Takes each action ``times`` times and sums the rewards.

    It stops early if the episode ends or the mask forbids the action; the policy then chooses another one.
    """

    def __init__(self, env: Any, times: int):
        super().__init__(env)
        self.times = times

    def _forbids(self, observation: Any, info: dict[str, Any], action: Any) -> bool:
        mask = info.get(ACTION_MASK, observation.get(ACTION_MASK) if isinstance(observation, dict) else None)
        return mask is not None and not allows(from_any(self.env.action_space, "action"), flat_mask(mask), action)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Return the last step, with the sum of the rewards."""
        total = 0.0
        for _ in range(self.times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated or self._forbids(observation, info, action):
                break
        return observation, total, terminated, truncated, info


def hide_velocities(env: Any, mask: VelocityMask) -> Any:
    """Hide the velocities of observations."""
    space = env.observation_space
    if mask.drops:
        space = gym.spaces.Box(mask.hide(space.low), mask.hide(space.high), dtype=space.dtype)
    return gym.wrappers.TransformObservation(env, mask.hide, space)


def with_base_class(env: Any) -> Any:
    """Return ``env`` as a ``gymnasium.Env``, which Gymnasium's wrappers require."""
    return env if isinstance(env, gym.Env) else WithBaseClass(env)


class WithBaseClass(gym.Env):
    """Gives an environment Gymnasium's base class."""

    def __init__(self, env: Any):
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)
        self.inner = env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment, without ``options``, which it may not accept."""
        return self.inner.reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        return self.inner.step(action)

    def render(self) -> Any:
        """Draw the environment. Raises ``NotImplementedError`` if it cannot draw."""
        return self.inner.render() if hasattr(self.inner, "render") else super().render()

    def close(self) -> None:
        """Close the environment if it has ``close``."""
        getattr(self.inner, "close", lambda: None)()


class MaskFromInfo(gym.Wrapper):
    """Moves ``info["action_mask"]`` into the observation.

    A Dict observation gets the key ``action_mask``. Another one becomes a Dict of ``observation`` and ``action_mask``.
    """

    def __init__(self, env: Any, size: int):
        super().__init__(env)
        self.observation_space, self.is_dict = _with_mask(env.observation_space, size)

    def _joined(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        parts = observation if self.is_dict else {"observation": observation}
        return {**parts, ACTION_MASK: flat_mask(_mask_in(info))}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the first observation with its mask."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._joined(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step; the observation contains the mask of the next action."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._joined(observation, info), reward, terminated, truncated, info


class VectorMaskFromInfo:
    """``MaskFromInfo`` for a vector environment, whose ``info["action_mask"]`` has a row for each environment."""

    def __init__(self, env: Any, size: int):
        self.env, self.size, self.metadata = env, size, env.metadata
        self._masks = np.zeros((0, size), np.int8)
        self.single_action_space = env.single_action_space
        self.single_observation_space, self.is_dict = _with_mask(env.single_observation_space, size)

    def _joined(self, observation: Any, mask: Any) -> dict[str, Any]:
        parts = observation if self.is_dict else {"observation": observation}
        return {**parts, ACTION_MASK: mask}

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Return the first observations with their masks.

        After a partial reset (``options["reset_mask"]``), ``info`` only has masks of the environments that were reset. The others keep
        the mask of their last step.
        """
        which = (arguments.get("options") or {}).get("reset_mask", ...)
        observation, info = self.env.reset(**arguments)
        masks = mask_rows(info)
        if which is ...:
            self._masks = masks
        else:
            self._masks = self._masks.copy()
            self._masks[which] = masks[which]
        return self._joined(observation, self._masks), info

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Take a step; observations contain the masks of the next actions. Masks of final observations are zeros."""
        observation, reward, terminated, truncated, info = self.env.step(actions)
        if "final_obs" in info:
            finals = np.empty(len(reward), object)
            for i in np.flatnonzero(terminated | truncated):
                final = final_observation(info, i)
                finals[i] = None if final is None else self._joined(final, np.zeros(self.size, np.int8))
            info = {**info, "final_obs": finals}
        self._masks = mask_rows(info)
        return self._joined(observation, self._masks), reward, terminated, truncated, info

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


def mask_rows(info: dict[str, Any]) -> np.ndarray:
    """Return one flat mask for each environment of a vector environment.

    Masks of several components are a tuple of arrays, or an array of tuples. An environment without a mask (zeros, or None in an
    array of tuples) gets zeros. Raises ``EnvError`` if ``info`` has no masks.
    """
    mask = _mask_in(info)
    if isinstance(mask, tuple | list):
        return np.concatenate([np.asarray(part, np.int8).reshape(len(part), -1) for part in mask], axis=1)
    mask = np.asarray(mask)
    if mask.dtype != object:
        return mask
    rows = [None if one is None else flat_mask(one) for one in mask]
    empty = np.zeros_like(next(row for row in rows if row is not None))
    return np.stack([empty if row is None else row for row in rows])


def _mask_in(info: dict[str, Any]) -> Any:
    if ACTION_MASK not in info:
        raise EnvError("returned no action_mask in its info, but its first reset did: return one at every reset and step.")
    return info[ACTION_MASK]


def _with_mask(space: Any, size: int) -> tuple[gym.spaces.Dict, bool]:
    """Return ``space`` with a mask, and whether it was a Dict before."""
    is_dict = isinstance(space, gym.spaces.Dict)
    parts = space.spaces if is_dict else {"observation": space}
    return gym.spaces.Dict({**parts, ACTION_MASK: gym.spaces.MultiBinary(size)}), is_dict


def flat_mask(mask: Any) -> np.ndarray:
    """Return a mask as one flat array. Gymnasium's masks of MultiDiscrete spaces are tuples with an array for each component."""
    parts = mask if isinstance(mask, tuple | list) else (mask,)
    return np.concatenate([np.asarray(part, np.int8).reshape(-1) for part in parts])
