"""From what an environment returns to arrays: where the leaves of a space lie, and what is wrong with a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from proximo.errors import EnvError, shown
from proximo.spaces import ACTION_MASK, Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, zeros


@dataclass(frozen=True)
class Leaf:
    """One array of an observation: the keys that lead to it, its space, and how it is stored."""

    path: tuple[str | int, ...]
    space: Space
    shape: tuple[int, ...]
    dtype: np.dtype

    def of(self, observation: Any) -> Any:
        """This leaf of ``observation``."""
        for key in self.path:
            observation = observation[key]
        return observation

    @property
    def name(self) -> str:
        """`` ['camera']``, as it stands behind "observation" in a sentence; nothing for the whole observation."""
        return "".join(f"[{key!r}]" for key in self.path)


def leaves(space: Space, path: tuple[str | int, ...] = ()) -> list[Leaf]:
    """The leaves of ``space`` in JAX's order: dictionaries by key, tuples by place."""
    if isinstance(space, Dict):
        return [leaf for key, inner in space.spaces for leaf in leaves(inner, (*path, key))]
    if isinstance(space, Tuple):
        return [leaf for i, inner in enumerate(space.spaces) for leaf in leaves(inner, (*path, i))]
    stored = zeros(space, ())
    return [Leaf(path, space, stored.shape, stored.dtype)]


def final_observation(info: dict[str, Any], number: int | np.integer) -> Any:
    """The final observation of environment ``number`` in a vector environment's ``info``; None if there is none.

    ``info["final_obs"]`` is an array or a list with an observation for each environment, as Gymnasium's own vector environments
    give it, or a batch: one array, or a dictionary or tuple of arrays.
    """

    def one(batch: Any) -> Any:
        if isinstance(batch, dict):
            return {key: one(part) for key, part in batch.items()}
        return tuple(map(one, batch)) if isinstance(batch, tuple) else batch[number]

    finals = info.get("final_obs")
    return None if finals is None else one(finals)


def unflatten(space: Space, arrays: tuple[Any, ...] | list[Any]) -> Any:
    """The observation (dictionaries, tuples, arrays) whose leaves are ``arrays``, in the order of ``leaves``."""
    return _build(space, iter(arrays))


def _build(space: Space, left: Iterator[Any]) -> Any:
    if isinstance(space, Dict):
        return {key: _build(inner, left) for key, inner in space.spaces}
    if isinstance(space, Tuple):
        return tuple(_build(inner, left) for inner in space.spaces)
    return next(left)


def action_storage(space: Space) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of one action as Gymnasium's spaces have them."""
    if isinstance(space, Discrete):
        return (), np.dtype(np.int64)
    if isinstance(space, MultiDiscrete):
        return space.shape, np.dtype(np.int64)
    if isinstance(space, MultiBinary):
        return space.shape, np.dtype(np.int8)
    assert isinstance(space, Box)
    return space.shape, np.dtype(space.dtype)


def hold_observation(observation: Any, expected: list[Leaf], where: str) -> None:
    """Raise ``EnvError`` when a leaf is missing, or of another shape, kind or range than its space says; ``where`` names
    environment and call."""
    for leaf in expected:
        try:
            value = np.asarray(leaf.of(observation))
        except (KeyError, IndexError, TypeError) as error:
            raise EnvError(
                f"{where} returned an observation without {leaf.name} ({type(observation).__name__}): its observation space has one."
            ) from error
        _hold_leaf(value, leaf, where)


NUMBERS = frozenset({int, float, bool, np.bool_, *(np.dtype(code).type for code in np.typecodes["AllInteger"] + "efdg")})
FLAGS = frozenset({bool, np.bool_})
_INTEGERS = NUMBERS - {float, np.float16, np.float32, np.float64, np.longdouble}
_BINARY = ("bool", "int8", "uint8")
"""Types of an action mask that is ``MultiBinary``, stored as they are: what is not 0 is 1."""
_FEW = 64


def make_quick_check(expected: list[Leaf]) -> Callable[[Any], bool]:
    """Return a function that checks in a fraction of a microsecond whether an observation may be stored as it is.

    The function may return False for a valid observation: then call ``hold_observation``, which raises if something is wrong.
    """
    checks = [(leaf, _quick_check(leaf)) for leaf in expected]
    if len(checks) == 1 and not expected[0].path:
        return checks[0][1]

    def fits(observation: Any) -> bool:
        try:
            for leaf, check in checks:
                if not check(leaf.of(observation)):
                    return False
        except (KeyError, IndexError, TypeError):
            return False
        return True

    return fits


def _quick_check(leaf: Leaf) -> Callable[[Any], bool]:
    space, shape = leaf.space, leaf.shape
    if isinstance(space, Discrete) and not shape:
        low, high = space.start, space.start + space.n
        return lambda value: type(value) in _INTEGERS and low <= value < high
    inside = _always
    if isinstance(space, Discrete | MultiDiscrete):
        start, n = (space.start, space.n) if isinstance(space, Discrete) else _choices(space)
        inside = _within(np.broadcast_to(start, shape), np.broadcast_to(np.add(start, n) - 1, shape))
        sound = frozenset[np.dtype]()
    elif np.issubdtype(leaf.dtype, np.floating):
        sound = frozenset(np.dtype(kind) for kind in NUMBERS)
    elif isinstance(space, MultiBinary):
        sound = frozenset(map(np.dtype, _BINARY if leaf.path == (ACTION_MASK,) else ("bool",)))
        inside = _within(np.zeros(shape, int), np.ones(shape, int))
    else:
        sound = frozenset(np.dtype(kind) for kind in _INTEGERS if np.can_cast(kind, leaf.dtype, "safe"))
        info = np.iinfo(leaf.dtype)
        inside = _within(np.full(shape, info.min, np.int64), np.full(shape, info.max, np.int64))

    usual = leaf.dtype if leaf.dtype in sound else None

    def fits(value: Any) -> bool:
        try:
            dtype = value.dtype
            return value.shape == shape and (dtype is usual or dtype in sound or (dtype.kind in "iub" and inside(value)))
        except AttributeError:  # not an array
            return False

    return fits


def _always(value: np.ndarray) -> bool:
    return True


def _within(low: np.ndarray, high: np.ndarray) -> Callable[[np.ndarray], bool]:
    """Return a function that checks ``low <= value <= high``. For few integers Python is faster than NumPy."""
    if low.size > _FEW:
        return lambda value: bool(((value >= low) & (value <= high)).all())
    ranges = [range(a, b + 1) for a, b in zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)]
    return lambda value: all(map(range.__contains__, ranges, value.ravel().tolist()))


def hold_mask(observation: Any, expected: list[Leaf], where: str) -> None:
    """Raise ``EnvError`` when an action mask allows nothing although the episode goes on."""
    for leaf in expected:
        if leaf.path == (ACTION_MASK,) and not np.any(leaf.of(observation)):
            raise EnvError(
                f"{where} returned an action_mask that allows no action: at least one must be allowed while the episode goes on."
            )


def _hold_leaf(value: np.ndarray, leaf: Leaf, where: str) -> None:
    what = f"{where} returned observation{leaf.name}"
    if value.shape != leaf.shape:
        raise EnvError(f"{what} of shape {value.shape}: its space is {leaf.space}, expected {leaf.shape}.")
    floating = isinstance(leaf.space, Box) and np.issubdtype(leaf.dtype, np.floating)
    if not (np.issubdtype(value.dtype, np.number) or value.dtype == bool) or (
        not floating and np.issubdtype(value.dtype, np.floating)
    ):
        raise EnvError(f"{what} of {value.dtype}: its space is {leaf.space}, expected {leaf.dtype}.")
    if floating and not _finite(value):
        raise EnvError(f"{what} with NaN or infinity: {_shortened(value)}.")
    if isinstance(leaf.space, Discrete | MultiDiscrete):
        start, n = (leaf.space.start, leaf.space.n) if isinstance(leaf.space, Discrete) else _choices(leaf.space)
        if not ((value >= start) & (value < np.add(start, n))).all():
            raise EnvError(f"{what} = {_shortened(value)}: it is not in its space {leaf.space}.")
    elif (
        floating
        or np.can_cast(value.dtype, leaf.dtype)
        or (leaf.path == (ACTION_MASK,) and leaf.dtype == bool and value.dtype in _BINARY)
    ):
        return
    elif not (value.astype(leaf.dtype) == value).all():
        raise EnvError(f"{what} = {_shortened(value)}: it does not fit into {leaf.dtype}, the type of its space {leaf.space}.")


def _choices(space: MultiDiscrete) -> tuple[np.ndarray, np.ndarray]:
    return np.reshape(space.start, space.shape), np.reshape(space.nvec, space.shape)


def _finite(value: np.ndarray) -> bool:
    """Whether ``value`` is finite as float32 too: 1e300 becomes an infinity."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(value.astype(np.float32)).all())


def _shortened(value: np.ndarray) -> str:
    return np.array2string(value, precision=4, threshold=8, edgeitems=2).replace("\n", "")


def hold_step(reward: Any, terminated: Any, truncated: Any, info: Any, where: str) -> None:
    """Raise ``EnvError`` when the rest of a step is not a finite number, two truth values and a dict."""
    if not isinstance(reward, int | float | np.number | np.ndarray) or np.ndim(reward) != 0:
        raise EnvError(f"{where} returned the reward {shown(reward)}: expected a single number.")
    if not _finite(np.asarray(reward)):
        raise EnvError(f"{where} returned the reward {shown(reward)}: expected a finite number (of float32).")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            raise EnvError(f"{where} returned {name} = {shown(flag)}: expected True or False.")
    if not isinstance(info, dict):
        raise EnvError(f"{where} returned {type(info).__name__} as info: expected a dict.")


def hold_actions(actions: np.ndarray, space: Space, env_id: str) -> None:
    """Raise ``EnvError`` when an action is not in its space: native environments take it unseen, and break."""
    if isinstance(space, Box):
        low, high = space.bounds()
        fits = np.isfinite(actions) & (actions >= low.astype(actions.dtype)) & (actions <= high.astype(actions.dtype))
    elif isinstance(space, Discrete | MultiDiscrete):
        start, n = (space.start, space.n) if isinstance(space, Discrete) else _choices(space)
        fits = (actions >= start) & (actions < np.add(start, n))
    else:
        fits = (actions == 0) | (actions == 1)
    if not fits.all():
        number = int(np.argwhere(~fits)[0][0])
        raise EnvError(f"The action {actions[number]} for environment {number} of {env_id} is not in its space {space}.")


def random_actions(space: Space, rng: np.random.Generator, num_envs: int) -> np.ndarray:
    """Actions drawn evenly from a space; unbounded components from a standard normal distribution."""
    shape, dtype = action_storage(space)
    if isinstance(space, Discrete):
        return rng.integers(space.start, space.start + space.n, num_envs)
    if isinstance(space, MultiDiscrete):
        start, n = _choices(space)
        return rng.integers(start, start + n, (num_envs, *shape))
    if isinstance(space, MultiBinary):
        return rng.integers(0, 2, (num_envs, *shape)).astype(dtype)
    assert isinstance(space, Box)
    low, high = space.bounds()
    bounded = np.isfinite(low) & np.isfinite(high)
    even = rng.uniform(np.where(bounded, low, 0.0), np.where(bounded, high, 1.0), (num_envs, *shape))
    return np.where(bounded, even, np.clip(rng.standard_normal((num_envs, *shape)), low, high)).astype(dtype)


def allows(space: Space, mask: np.ndarray, action: Any) -> bool:
    """Whether the flat ``mask`` allows ``action``. True if the size of the mask does not fit ``space``: other checks report that."""
    flat = np.reshape(action, -1)
    if isinstance(space, Discrete):
        size, chosen = space.n, flat - space.start
    elif isinstance(space, MultiDiscrete):
        size, chosen = sum(space.nvec), np.cumsum((0, *space.nvec[:-1])) + flat - np.asarray(space.start)
    elif isinstance(space, MultiBinary):
        size, chosen = 2 * space.size, 2 * np.arange(space.size) + flat
    else:
        return True
    return mask.size != size or bool(mask[chosen].all())


def allowed_action(space: Space, rng: np.random.Generator, mask: Any = None) -> Any:
    """A random action of ``space`` that ``mask``, where there is one that fits, allows."""
    action = random_actions(space, rng, 1)[0]
    if mask is None:
        return action
    flat = np.asarray(mask).reshape(-1) != 0
    if isinstance(space, Discrete) and flat.size == space.n and flat.any():
        return space.start + rng.choice(np.flatnonzero(flat))
    if isinstance(space, MultiDiscrete) and flat.size == sum(space.nvec):
        parts = np.split(flat, np.cumsum(space.nvec)[:-1])
        if all(part.any() for part in parts):
            chosen = [rng.choice(np.flatnonzero(part)) for part in parts]
            return np.add(np.reshape(space.start, space.shape), np.reshape(chosen, space.shape))
    if isinstance(space, MultiBinary) and flat.size == 2 * space.size:
        may_be_0, may_be_1 = flat.reshape(-1, 2).T
        bits = np.where(may_be_0 & may_be_1, action.reshape(-1), may_be_1)
        return bits.reshape(space.shape).astype(action.dtype)
    return action


def allowed_actions(space: Space, rng: np.random.Generator, masks: np.ndarray | None, num_envs: int) -> np.ndarray:
    """A random action for each of ``num_envs`` environments that its row of ``masks`` allows."""
    if masks is None:
        return random_actions(space, rng, num_envs)
    return np.stack([allowed_action(space, rng, mask) for mask in masks]).astype(action_storage(space)[1])
