"""Checks of what an environment returns: observations, action masks, rewards, flags and info."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from proximo.custom_code import exception_text, is_of_library
from proximo.envs.gymnasium.actions import choices
from proximo.envs.gymnasium.observations import Leaf
from proximo.errors import EnvError, EnvironmentFault, ProximoError, shown
from proximo.spaces import ACTION_MASK, Box, Discrete, MultiBinary, MultiDiscrete

NUMBERS = frozenset({int, float, bool, np.bool_, *(np.dtype(code).type for code in np.typecodes["AllInteger"] + "efdg")})
FLAGS = frozenset({bool, np.bool_})
_INTEGERS = NUMBERS - {float, np.float16, np.float32, np.float64, np.longdouble}
_BINARY = ("bool", "int8", "uint8")
"""Types in which a ``MultiBinary`` action mask may be stored; values other than 0 count as 1."""
_MAX_PYTHON_SIZE = 64
"""Integers up to which a range check in Python is faster than in NumPy."""


def make_quick_check(expected: list[Leaf]) -> Callable[[Any], bool]:
    """Return a function that checks in a fraction of a microsecond whether an observation may be stored as it is.

    The function may return False for a valid observation: then call ``check_observation``, which raises if something is wrong.
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
    inside: Callable[[Any], bool] = lambda value: True  # noqa: E731
    if isinstance(space, Discrete | MultiDiscrete):
        start, n = choices(space)
        safe_types, inside = frozenset[np.dtype](), _within(start, start + n - 1, shape)
    elif np.issubdtype(leaf.dtype, np.floating):
        safe_types = frozenset(np.dtype(kind) for kind in NUMBERS)
    elif isinstance(space, MultiBinary):
        safe_types = frozenset(map(np.dtype, _BINARY if leaf.path == (ACTION_MASK,) else ("bool",)))
        inside = _within(0, 1, shape)
    else:
        safe_types = frozenset(np.dtype(kind) for kind in _INTEGERS if np.can_cast(kind, leaf.dtype, "safe"))
        inside = _within(*((0, 1) if leaf.dtype == bool else (np.iinfo(leaf.dtype).min, np.iinfo(leaf.dtype).max)), shape)

    usual = leaf.dtype if leaf.dtype in safe_types else None

    def fits(value: Any) -> bool:
        try:
            dtype = value.dtype
            return value.shape == shape and (dtype is usual or dtype in safe_types or (dtype.kind in "iub" and inside(value)))
        except AttributeError:  # not an array
            return False

    return fits


def _within(low: Any, high: Any, shape: tuple[int, ...]) -> Callable[[np.ndarray], bool]:
    """Return a function that checks ``low <= value <= high``."""
    low, high = (np.broadcast_to(np.asarray(bound), shape) for bound in (low, high))
    if low.size > _MAX_PYTHON_SIZE:
        return lambda value: bool(((value >= low) & (value <= high)).all())
    ranges = [range(a, b + 1) for a, b in zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)]
    return lambda value: all(map(range.__contains__, ranges, value.ravel().tolist()))


class MaskCheck:
    """Checks that action masks of ``size`` entries allow an action in each component, which has ``sizes`` entries."""

    def __init__(self, size: int, sizes: tuple[int, ...]):
        # A mask of another size is an error where the policy is made.
        self._starts = np.cumsum((0, *sizes[:-1])) if sum(sizes) == size else np.zeros(1, int)

    def allows(self, masks: np.ndarray) -> np.ndarray | np.bool_:
        """Whether each of ``masks``, of shape ``[..., size]``, allows an action in every component."""
        return np.logical_or.reduceat(masks, self._starts, axis=-1).all(axis=-1)

    def check(self, mask: Any, where: str) -> None:
        """Raise ``EnvError`` if ``mask`` allows no action in some component. ``where`` names environment and call."""
        flat = np.asarray(mask).reshape(-1)
        if not self.allows(flat):
            empty = int(np.argmin(np.logical_or.reduceat(flat, self._starts)))
            component = f" in component {empty}" if len(self._starts) > 1 else ""
            raise EnvError(
                f"{where} returned an action_mask that allows no action{component}: at least one must be allowed while the episode "
                "goes on."
            )


def check_observation(observation: Any, expected: list[Leaf], where: str) -> None:
    """Raise ``EnvError`` if a leaf is missing or does not fit its space. ``where`` names environment and call."""
    for leaf in expected:
        try:
            value = np.asarray(leaf.of(observation))
        except (KeyError, IndexError, TypeError) as error:
            raise EnvError(
                f"{where} returned an observation without {leaf.name} ({type(observation).__name__}): its observation space has this entry."
            ) from error
        if problem := _problem(value, leaf):
            raise EnvError(f"{where} returned observation{leaf.name} {problem}.")


def _problem(value: np.ndarray, leaf: Leaf) -> str:
    """Why ``value`` does not fit ``leaf``; empty if it does."""
    floating = isinstance(leaf.space, Box) and np.issubdtype(leaf.dtype, np.floating)
    if value.shape != leaf.shape:
        return f"of shape {value.shape}: its space is {leaf.space}, expected {leaf.shape}"
    if value.dtype.kind not in ("fiub" if floating else "iub"):
        return f"of {value.dtype}: its space is {leaf.space}, expected {leaf.dtype}"
    if floating:
        return "" if _finite(value) else f"with NaN or infinity: {_shortened(value)}"
    if isinstance(leaf.space, Discrete | MultiDiscrete):
        start, n = choices(leaf.space)
        return (
            ""
            if ((value >= start) & (value < start + n)).all()
            else f"= {_shortened(value)}: it is not in its space {leaf.space}"
        )
    is_mask = leaf.path == (ACTION_MASK,) and leaf.dtype == bool and value.dtype in _BINARY
    if is_mask or np.can_cast(value.dtype, leaf.dtype) or (value.astype(leaf.dtype) == value).all():
        return ""
    return f"= {_shortened(value)}: it does not fit into {leaf.dtype}, the type in which proximo stores {leaf.space}"


def _shortened(value: np.ndarray) -> str:
    return np.array2string(value, precision=4, threshold=8, edgeitems=2).replace("\n", "")


def _finite(value: np.ndarray) -> bool:
    """Whether ``value`` is finite as float32, where 1e300 is infinite."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(value.astype(np.float32)).all())


def check_step(reward: Any, terminated: Any, truncated: Any, info: Any, where: str) -> None:
    """Raise ``EnvError`` unless the reward is a finite number, the flags are bool and ``info`` is a dict."""
    if not isinstance(reward, int | float | np.number | np.ndarray) or np.ndim(reward) != 0 or np.iscomplexobj(reward):
        raise EnvError(
            f"{where} returned the reward {shown(reward)}: expected a single number. Return float(reward); combine several parts, for "
            "example in a weighted sum."
        )
    if not _finite(np.asarray(reward)):
        raise EnvError(f"{where} returned the reward {shown(reward)}: expected a finite number (as float32).")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            raise EnvError(f"{where} returned {name} = {shown(flag)}: expected True or False.")
    if not isinstance(info, dict):
        raise EnvError(f"{where} returned {type(info).__name__} as info: expected a dict.")


def located(error: BaseException, env_id: str, where: str) -> BaseException:
    """Return the exception to raise for ``error`` of an environment: its message begins with ``where``, unless the message already contains
    ``env_id``. An ``EnvironmentFault`` ends with the traceback, from the first line of the user's code."""
    if isinstance(error, ProximoError):
        return error if env_id in str(error) else EnvError(f"{where} {error}")
    frames = error.__traceback__
    while frames is not None and is_of_library(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames or error.__traceback__)).rstrip()
    return EnvironmentFault(f"{where} raised {exception_text(error)}\n{text}")
