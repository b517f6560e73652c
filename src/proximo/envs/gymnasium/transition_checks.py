"""Checks of what an environment returns: observations, action masks, rewards, flags and info."""

import functools
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from proximo.custom_code import exception_text, is_of_library
from proximo.errors import EnvError, EnvironmentFault, ProximoError, shown
from proximo.spaces import ACTION_MASK, ActionSpace, Box, Discrete, Joint, Leaf, MultiBinary, MultiDiscrete, choices

_INTEGERS = frozenset({int, bool, np.bool_, *(np.dtype(code).type for code in np.typecodes["AllInteger"])})
NUMBERS = _INTEGERS | {float, np.float16, np.float32, np.float64, np.longdouble}
FLAGS = frozenset({bool, np.bool_})
_MASK_TYPES = {np.dtype(kind) for kind in (bool, np.int8, np.uint8)}
"""Types in which an action mask may be stored; values other than 0 count as 1."""


def make_quick_check(expected: list[Leaf]) -> Callable[[Any], bool]:
    """Return a function that checks in about a microsecond whether an observation may be stored as it is.

    The function may return False for a valid observation: then call ``check_observation``, which raises if
    something is wrong.
    """
    checks = [(leaf, _quick_check(leaf)) for leaf in expected]
    if len(checks) == 1 and not expected[0].path:
        return checks[0][1]

    def fits(observation: Any) -> bool:
        try:
            return all(check(leaf.of(observation)) for leaf, check in checks)
        except (KeyError, IndexError, TypeError):
            return False

    return fits


def _quick_check(leaf: Leaf) -> Callable[[Any], bool]:
    if isinstance(leaf.space, Discrete) and not leaf.shape:
        low, high = leaf.space.start, leaf.space.start + leaf.space.n
        return lambda value: type(value) in _INTEGERS and low <= value < high
    always = {np.dtype(kind) for kind in NUMBERS} if leaf.dtype.kind == "f" else set[np.dtype]()

    def fits(value: Any) -> bool:
        try:
            return value.shape == leaf.shape and (value.dtype in always or (value.dtype.kind in "iub" and _in_range(value, leaf)))
        except AttributeError:  # not an array
            return False

    return fits


def _in_range(value: np.ndarray, leaf: Leaf) -> bool:
    """Whether the integers ``value`` are in the space of ``leaf``, or fit into its type if this is a
    ``Box``. A mask may have any numbers."""
    if isinstance(leaf.space, Discrete | MultiDiscrete):
        start, n = choices(leaf.space)
        return bool(((value >= start) & (value < start + n)).all())
    if value.dtype == leaf.dtype or (leaf.path == (ACTION_MASK,) and value.dtype in _MASK_TYPES):
        return True
    return bool((value.astype(leaf.dtype) == value).all())


def check_actions(actions: np.ndarray, space: ActionSpace, env_id: str, first_env: int) -> None:
    """Raise ``EnvError`` if one of ``actions`` ``[N, ...]`` is not in ``space``: native code may accept it and crash.
    ``first_env`` is the number of the first environment, for the message."""
    if isinstance(space, Joint):
        for part, at in space.slices():
            check_actions(actions[:, at].reshape((len(actions), *part.space.shape)), part.space, env_id, first_env)
        return
    if isinstance(space, Box):
        low, high = (bound.astype(actions.dtype) for bound in space.bounds())
    else:
        low, n = (0, 2) if isinstance(space, MultiBinary) else choices(space)
        high = low + n - 1
    fits = np.isfinite(actions) & (actions >= low) & (actions <= high)
    if not fits.all():
        i = int(np.argwhere(~fits)[0][0])
        raise EnvError(f"The action {actions[i]} for environment {first_env + i} of {env_id} is not in its space {space}.")


def check_observation(
    observation: Any, expected: list[Leaf], where: Callable[..., str], numbers: Sequence[int] | None = None
) -> None:
    """Raise ``EnvError`` if a leaf is missing or does not fit its space.

    Args:
        observation: An observation, or a batch of observations.
        expected: Its leaves, with the shape of the batch.
        where: Names environment and call. For a batch, ``where(number)`` names one of its environments.
        numbers: Environments of the batch to check; None: ``observation`` is no batch.
    """
    for leaf in expected:
        try:
            value = np.asarray(leaf.of(observation))
        except (KeyError, IndexError, TypeError) as error:
            raise EnvError(
                f"{where()} returned an observation without {leaf.name} ({type(observation).__name__}): its observation space has this entry."
            ) from error
        which: list[int] = []
        if value.shape != leaf.shape:
            problem = f"of shape {value.shape}: its space is {leaf.space}, expected {leaf.shape}"
        elif problem := _problem(value if numbers is None or len(numbers) == len(value) else value[list(numbers)], leaf):
            if numbers is not None:
                which, problem = next(([i], found) for i in numbers if (found := _problem(value[i, ...], leaf)))
        else:
            continue
        raise EnvError(f"{where(*which)} returned observation{leaf.name} {problem}.")


def _problem(value: np.ndarray, leaf: Leaf) -> str:
    """Why ``value`` does not fit the type and the range of ``leaf``; empty if it does."""
    floating = leaf.dtype.kind == "f"
    if value.dtype.kind not in ("fiub" if floating else "iub"):
        return f"of {value.dtype}: its space is {leaf.space}, expected {leaf.dtype}"
    if is_finite(value) if floating else _in_range(value, leaf):
        return ""
    words = np.array2string(value, precision=4, threshold=8, edgeitems=2).replace("\n", "")
    if floating:
        return f"with NaN or infinity: {words}"
    if isinstance(leaf.space, Discrete | MultiDiscrete):
        return f"= {words}: it is not in its space {leaf.space}"
    return f"= {words}: it does not fit into {leaf.dtype}, the type in which proximo stores {leaf.space}"


def is_finite(value: Any) -> bool:
    """Whether ``value`` is finite as float32, where 1e300 is infinite."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.asarray(value).astype(np.float32)).all())


def check_step(reward: Any, terminated: Any, truncated: Any, info: Any, where: Callable[[], str]) -> None:
    """Raise ``EnvError`` unless the reward is a finite number, the flags are bool and ``info`` is a dict."""
    is_number = isinstance(reward, int | float | np.number | np.ndarray) and np.ndim(reward) == 0 and not np.iscomplexobj(reward)
    if not is_number:
        raise EnvError(
            f"{where()} returned the reward {shown(reward)}: expected a single number. Return float(reward); combine several parts, for "
            "example in a weighted sum."
        )
    if not is_finite(reward):
        raise EnvError(f"{where()} returned the reward {shown(reward)}: expected a finite number (as float32).")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            raise EnvError(f"{where()} returned {name} = {shown(flag)}: expected True or False.")
    if not isinstance(info, dict):
        raise EnvError(f"{where()} returned {type(info).__name__} as info: expected a dict.")


def located(method: Callable[..., Any]) -> Callable[..., Any]:
    """``method`` of a stepper, whose exceptions name the environment, as ``self.where()`` does. An
    ``EnvironmentFault`` ends with the traceback, from the first line of the user's code."""

    @functools.wraps(method)
    def run(self: Any, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except ProximoError as error:
            if self.spec.env_id in str(error):
                raise
            raise EnvError(f"{self.where()} {error}") from error
        except (Exception, SystemExit) as error:  # some simulators call sys.exit when their window is closed
            frames = error.__traceback__
            while frames is not None and is_of_library(frames.tb_frame.f_code.co_filename):
                frames = frames.tb_next
            text = "".join(traceback.format_exception(type(error), error, frames or error.__traceback__)).rstrip()
            raise EnvironmentFault(f"{self.where()} raised {exception_text(error)}\n{text}") from error

    return run
