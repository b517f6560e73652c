"""Finds the action mask of a Gymnasium environment and moves it into the observation, where everything else
reads it.

An environment provides its mask in one of three places. If it uses several, the first one counts:

1. an entry ``action_mask`` of a Dict observation;
2. ``info["action_mask"]``, as Gymnasium and PettingZoo do;
3. a method ``action_masks()``, as sb3-contrib does.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from proximo.envs.gymnasium.vector_env_adapter import final_observation
from proximo.errors import EnvError, shown
from proximo.spaces import ACTION_MASK, OBSERVATION

METHOD = "action_masks"
FIX = f'name the method {METHOD}, or return the mask as info["{ACTION_MASK}"] at every reset and step.'
Reader = Callable[[Any, dict[str, Any]], np.ndarray | None]


def mask_reader(env: Any) -> Reader:
    """A function that returns the flat mask that ``env`` provides with an observation and an ``info``; None
    if it has none. The masks of a vector environment have a row for each environment."""
    is_vector, method = _is_vector(env), functools.cache(lambda: _method(env))

    def read(observation: Any, info: dict[str, Any]) -> np.ndarray | None:
        for place in (observation, info):
            if isinstance(place, dict) and ACTION_MASK in place:
                return info_rows(place[ACTION_MASK]) if is_vector else flat_mask(place[ACTION_MASK])
        if (call := method()) is None:
            return None
        return np.stack([flat_mask(mask) for mask in call()]) if is_vector else flat_mask(call())

    return read


def mask_size(env: Any, info: dict[str, Any]) -> int:
    """Entries of the mask that an environment, single or vector, provides after a reset that returned
    ``info``. 0: there is no mask, or the observation has it."""
    space = env.single_observation_space if _is_vector(env) else env.observation_space
    in_observation = isinstance(space, gym.spaces.Dict) and ACTION_MASK in space.spaces
    mask = None if in_observation else mask_reader(env)(None, info)
    return 0 if mask is None else mask.shape[-1]


def with_mask(space: Any, size: int) -> Any:
    """``space`` with a mask of ``size`` entries. A space that is not a Dict becomes one of ``observation``
    and ``action_mask``."""
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else space
    return gym.spaces.Dict(_joined(parts, gym.spaces.MultiBinary(size)))


def _is_vector(env: Any) -> bool:
    return hasattr(env, "single_observation_space")


def _method(env: Any) -> Callable[[], Any] | None:
    """The method ``action_masks`` of an environment or of one of its wrappers. For a vector environment, it
    returns all masks."""
    if isinstance(env, gym.Env):  # not what a plain environment holds: only wrappers pass it on
        method = env.get_wrapper_attr(METHOD) if env.has_wrapper_attr(METHOD) else None
        return method if callable(method) else None
    for layer in layers(env):
        if callable(getattr(layer, METHOD, None)):
            return getattr(layer, METHOD)
        if isinstance(layer, SyncVectorEnv):
            return _method(layer.envs[0]) and functools.partial(layer.call, METHOD)
        if isinstance(layer, AsyncVectorEnv):
            with contextlib.closing(layer.env_fns[0]()) as one:  # asking a worker for a method that it lacks would end it
                return _method(one) and functools.partial(layer.call, METHOD)
    return None


def flat_mask(mask: Any) -> np.ndarray:
    """Return a mask as one flat array. Gymnasium's masks of MultiDiscrete spaces are tuples with an array
    for each component."""
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

    Masks of several components are a tuple of arrays, or an array of tuples. An environment without a mask
    (zeros, or None in an array of tuples) gets zeros.
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


class _Masked:
    """Moves the mask, of ``size`` entries, into the observation, as an entry ``action_mask``."""

    env: Any

    def __init__(self, env: Any, size: int, env_id: str):
        super().__init__(env)  # pyright: ignore[reportCallIssue]
        self._read, self._size, self._id = mask_reader(env), size, env_id
        if _is_vector(env):
            self.single_observation_space = with_mask(env.single_observation_space, size)
            self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, env.num_envs)
        else:
            self.observation_space = with_mask(env.observation_space, size)

    def _with_mask(self, call: str, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        if (mask := self._read(None, info)) is None:
            raise EnvError(
                f"{self._id}.{call} returned no {ACTION_MASK} in its info, but its first reset did: return one at every reset and step."
            )
        return _joined(observation, mask)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**arguments)
        return self._with_mask("reset", observation, info), info

    def step(self, action: Any) -> tuple[Any, ...]:
        observation, *result, info = self.env.step(action)
        return self._with_mask("step", observation, info), *result, info


class MaskInObservation(_Masked, gym.Wrapper):
    """The wrapper of a single environment."""


class VectorMaskInObservation(_Masked, gym.vector.VectorWrapper):
    """The wrapper of a vector environment, whose mask has a row for each environment.

    Masks of final observations, and of environments that a partial reset leaves out, have no meaning.
    """

    def step(self, action):
        *result, info = super().step(action)
        if "final_obs" in info:
            finals, blank = [final_observation(info, i) for i in range(self.num_envs)], np.zeros(self._size, np.int8)
            info = {**info, "final_obs": [None if final is None else _joined(final, blank) for final in finals]}
        return *result, info
