"""Actions of Gymnasium environments: how they are stored, checks, and random actions that a mask allows."""

import functools
from typing import Any

import numpy as np

from proximo.errors import EnvError
from proximo.spaces import ActionSpace, Box, Discrete, MultiBinary, MultiDiscrete, Space, mask_sizes


def action_storage(space: Space) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and the type of one action of a Gymnasium space."""
    if isinstance(space, Box):
        return space.shape, np.dtype(space.dtype)
    assert isinstance(space, Discrete | MultiDiscrete | MultiBinary)
    return space.shape, np.dtype(np.int8 if isinstance(space, MultiBinary) else np.int64)


@functools.cache
def choices(space: Discrete | MultiDiscrete) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest value and the number of values of each component, in the shape of ``space``."""
    n = space.n if isinstance(space, Discrete) else space.nvec
    return np.reshape(space.start, space.shape), np.reshape(n, space.shape)


def check_actions(actions: np.ndarray, space: ActionSpace, env_id: str, first_env: int) -> None:
    """Raise ``EnvError`` if one of ``actions`` ``[N, ...]`` is not in ``space``. Native code may accept such an action and crash.
    ``first_env`` is the number of the first environment, for the message."""
    if isinstance(space, Box):
        low, high = (bound.astype(actions.dtype) for bound in space.bounds())
        fits = np.isfinite(actions) & (actions >= low) & (actions <= high)
    else:
        start, n = (0, 2) if isinstance(space, MultiBinary) else choices(space)
        fits = (actions >= start) & (actions < start + n)
    if not fits.all():
        i = int(np.argwhere(~fits)[0][0])
        raise EnvError(f"The action {actions[i]} for environment {first_env + i} of {env_id} is not in its space {space}.")


def random_actions(space: Space, rng: np.random.Generator, num_envs: int) -> np.ndarray:
    """Draw ``num_envs`` actions uniformly from ``space``; components without bounds from a standard normal distribution."""
    shape, dtype = action_storage(space)
    if isinstance(space, Discrete | MultiDiscrete):
        start, n = choices(space)
        return rng.integers(start, start + n, (num_envs, *shape))
    if isinstance(space, MultiBinary):
        return rng.integers(0, 2, (num_envs, *shape)).astype(dtype)
    assert isinstance(space, Box)
    low, high = space.bounds()
    bounded = space.is_bounded()
    even = rng.uniform(np.where(bounded, low, 0.0), np.where(bounded, high, 1.0), (num_envs, *shape))
    return np.where(bounded, even, np.clip(rng.standard_normal((num_envs, *shape)), low, high)).astype(dtype)


def allows(space: Space, mask: np.ndarray, action: Any) -> bool:
    """Whether the flat ``mask`` allows ``action``. True if the size of the mask does not fit ``space``: other checks report that."""
    sizes = mask_sizes(space)
    chosen = np.reshape(action, -1) - np.asarray(getattr(space, "start", 0))
    return not sizes or mask.size != sum(sizes) or bool(mask[np.cumsum((0, *sizes[:-1])) + chosen].all())


def allowed_action(space: Space, rng: np.random.Generator, mask: Any = None) -> Any:
    """Draw an action of ``space`` that ``mask`` allows. Other checks report a mask that does not fit."""
    sizes, flat = mask_sizes(space), np.asarray(() if mask is None else mask).reshape(-1) != 0
    parts = np.split(flat, np.cumsum(sizes)[:-1]) if sizes and flat.size == sum(sizes) else []
    if not parts or not all(part.any() for part in parts):
        return random_actions(space, rng, 1)[0]
    drawn = np.array([rng.choice(np.flatnonzero(part)) for part in parts]) + np.asarray(getattr(space, "start", 0))
    shape, dtype = action_storage(space)
    return drawn.reshape(shape).astype(dtype)[()]
