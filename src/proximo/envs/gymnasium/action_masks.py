"""Finds the action mask of a Gymnasium environment and moves it into the observation, where everything else reads it.

An environment provides its mask in one of three places. If it uses several, the first one counts:

1. an entry ``action_mask`` of a Dict observation;
2. ``info["action_mask"]``, as Gymnasium and PettingZoo do;
3. a method ``action_masks()``, as sb3-contrib does.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from proximo.envs.gymnasium.observations import final_observation
from proximo.errors import EnvError, shown
from proximo.spaces import ACTION_MASK, OBSERVATION

METHOD = "action_masks"
FIX = f'name the method {METHOD}, or return the mask as info["{ACTION_MASK}"] at every reset and step.'


@dataclass(frozen=True)
class MaskSource:
    """Where an environment provides its mask, if not in its observation."""

    in_info: bool
    """Whether it is in ``info``; otherwise a method returns it."""
    env_id: str
    """For messages."""
    size: int = 0
    """Number of entries of a flat mask."""

    def with_mask(self, space: Any) -> Any:
        """``space`` with the mask. A space that is not a Dict becomes one of ``observation`` and ``action_mask``."""
        parts = space.spaces if isinstance(space, gym.spaces.Dict) else space
        return gym.spaces.Dict(_joined(parts, gym.spaces.MultiBinary(self.size)))

    def reader(self, env: Any) -> Callable[[str, dict[str, Any]], np.ndarray]:
        """A function that returns the flat mask of ``env`` after a call with its ``info``; a row for each environment of a vector environment.
        It raises ``EnvError`` if ``info`` has no mask."""
        is_vector, method = _is_vector(env), None if self.in_info else _method(env)

        def read(call: str, info: dict[str, Any]) -> np.ndarray:
            if method is not None:
                return np.stack([flat_mask(mask) for mask in method()]) if is_vector else flat_mask(method())
            if ACTION_MASK not in info:
                raise EnvError(
                    f"{self.env_id}.{call} returned no {ACTION_MASK} in its info, but its first reset did: return one at every reset and step."
                )
            return (info_rows if is_vector else flat_mask)(info[ACTION_MASK])

        return read


def find_mask(env: Any, info: dict[str, Any], env_id: str) -> MaskSource | None:
    """Find the mask of an environment, single or vector, after a reset that returned ``info``. None: none, or in its observation."""
    space = env.single_observation_space if _is_vector(env) else env.observation_space
    in_observation = isinstance(space, gym.spaces.Dict) and ACTION_MASK in space.spaces
    source = MaskSource(ACTION_MASK in info, env_id)
    if in_observation or not (source.in_info or _method(env)):
        return None
    return dataclasses.replace(source, size=source.reader(env)("reset", info).shape[-1])


def _is_vector(env: Any) -> bool:
    return hasattr(env, "single_observation_space")


def _method(env: Any) -> Callable[[], Any] | None:
    """The method ``action_masks`` of an environment or of one of its wrappers. For a vector environment, it returns all masks."""
    if not _is_vector(env):
        method = env.get_wrapper_attr(METHOD) if env.has_wrapper_attr(METHOD) else None
        return method if callable(method) else None
    for layer in layers(env):
        if callable(getattr(layer, METHOD, None)):
            return getattr(layer, METHOD)
        if isinstance(layer, SyncVectorEnv):
            return _method(layer.envs[0]) and partial(layer.call, METHOD)
        if isinstance(layer, AsyncVectorEnv):
            with contextlib.closing(layer.env_fns[0]()) as one:  # asking a worker for a method that it lacks would end it
                return _method(one) and partial(layer.call, METHOD)
    return None


def current_mask(env: Any, observation: Any, info: dict[str, Any]) -> np.ndarray | None:
    """The flat mask that a single environment provides with ``observation`` and ``info``; None if it has none."""
    for place in (observation, info):
        if isinstance(place, dict) and ACTION_MASK in place:
            return flat_mask(place[ACTION_MASK])
    method = _method(env)
    return method and flat_mask(method())


def flat_mask(mask: Any) -> np.ndarray:
    """Return a mask as one flat array. Gymnasium's masks of MultiDiscrete spaces are tuples with an array for each component."""
    parts = mask if isinstance(mask, tuple | list) else (mask,)
    return np.concatenate([_flags(part).reshape(-1) for part in parts])


def _flags(mask: Any) -> np.ndarray:
    """1 where a number is not 0. Raises ``EnvError`` if there are no numbers, or one is NaN or infinite."""
    given = np.asarray(mask)
    if given.dtype.kind not in "biuf" or not np.isfinite(given).all():
        raise EnvError(f"The action mask is {shown(mask)}: expected a number for each choice, other than 0 if it is allowed.")
    return np.asarray(given != 0, np.int8)


def info_rows(mask: Any) -> np.ndarray:
    """Return one flat mask for each environment, from the ``info`` of a vector environment.

    Masks of several components are a tuple of arrays, or an array of tuples. An environment without a mask (zeros, or None in an
    array of tuples) gets zeros.
    """
    if isinstance(mask, tuple | list):
        return np.concatenate([_flags(part).reshape(len(part), -1) for part in mask], axis=1)
    if np.asarray(mask).dtype != object:
        return _flags(mask)
    rows = [None if one is None else flat_mask(one) for one in mask]
    empty = np.zeros_like(next(row for row in rows if row is not None))
    return np.stack([empty if row is None else row for row in rows])


def layers(env: Any) -> Iterator[Any]:
    """An environment, or a vector environment, and what it wraps, from the outside in."""
    while env is not None:
        yield env
        env = getattr(env, "env", getattr(env, "inner", None))


def _joined(observation: Any, mask: Any) -> dict[str, Any]:
    return {**(observation if isinstance(observation, dict) else {OBSERVATION: observation}), ACTION_MASK: mask}


class MaskInObservation(gym.Wrapper):
    """Moves the mask of a single environment into the observation, as an entry ``action_mask``."""

    def __init__(self, env: Any, source: MaskSource):
        super().__init__(env)
        self._mask, self.observation_space = source.reader(env), source.with_mask(env.observation_space)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**arguments)
        return _joined(observation, self._mask("reset", info)), info

    def step(self, action: Any) -> tuple[Any, ...]:
        observation, *result, info = self.env.step(action)
        return _joined(observation, self._mask("step", info)), *result, info


class VectorMaskInObservation(gym.vector.VectorWrapper):
    """``MaskInObservation`` for a vector environment, whose mask has a row for each environment.

    Masks of final observations, and of environments that a partial reset leaves out, have no meaning.
    """

    def __init__(self, env: Any, source: MaskSource):
        super().__init__(env)
        self._masks, self._blank = source.reader(env), np.zeros(source.size, np.int8)
        self.single_observation_space = source.with_mask(env.single_observation_space)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, env.num_envs)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**arguments)
        return _joined(observation, self._masks("reset", info)), info

    def step(self, actions: Any) -> tuple[Any, ...]:
        observation, *result, info = self.env.step(actions)
        if "final_obs" in info:
            finals = np.empty(self.num_envs, object)
            for i in range(self.num_envs):
                final = final_observation(info, i)
                finals[i] = None if final is None else _joined(final, self._blank)
            info = {**info, "final_obs": finals}
        return _joined(observation, self._masks("step", info)), *result, info
