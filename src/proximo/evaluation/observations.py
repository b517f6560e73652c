"""Conversion and checks of the observations, action masks and demonstrated actions that a user passes."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from proximo.errors import ConfigError, shown
from proximo.spaces import Dict, Discrete, MultiDiscrete, Space, Tuple, choices, zeros
from proximo.types import Observation


def convert_observation(given: Any, space: Space, what: str = "The observation") -> Observation:
    """``given``, with any leading axes, as arrays with the structure and the types of ``space``. Raises
    ``ConfigError`` for another structure, or if a number would change: of an image that was already divided
    by 255, of a choice that does not exist, NaN, infinity."""
    if isinstance(space, Dict):
        names = [name for name, _ in space.spaces]
        if not isinstance(given, Mapping) or set(given) != set(names):
            raise ConfigError(f"{what} is {_kind(given)}: expected a dict of {', '.join(names)}.")
        return {name: convert_observation(given[name], part, f"{what}'s {name}") for name, part in space.spaces}
    if isinstance(space, Tuple):
        if not isinstance(given, tuple | list) or len(given) != len(space.spaces):
            raise ConfigError(f"{what} is {_kind(given)}: expected a tuple of {len(space.spaces)}.")
        return tuple(convert_observation(given[i], part, f"{what}'s part {i}") for i, part in enumerate(space.spaces))
    try:
        x = np.asarray(given)
    except jax.errors.TracerArrayConversionError:
        raise ConfigError(f"{what} is within a JAX program that is being traced: call policy.actor_critic.step there.") from None
    except ValueError:  # rows of different lengths
        x = np.asarray(None)
    if x.dtype.kind in "OSUMmc":
        raise ConfigError(f"{what} is {_kind(given)}: expected numbers, in {space}.")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = x.astype(zeros(space, ()).dtype, copy=False)
    is_float = converted.dtype.kind == "f"
    wrong = ~np.isfinite(converted) if is_float else converted != x
    if isinstance(space, Discrete | MultiDiscrete) and x.shape[x.ndim - len(space.shape) :] == space.shape:
        start, n = choices(space)
        wrong |= (converted < start) | (converted >= start + n)
    if wrong.any():
        why = f", which is not in {space}: pass the numbers of the environment, unchanged."
        if is_float:
            why = ": expected finite numbers. Check the code of the environment that computes it."
        raise ConfigError(f"{what} has {(converted if is_float else x)[wrong].flat[0]}{why}")
    return converted


def _kind(given: Any) -> str:
    """``a dict of body, camera``, or the name of the type."""
    if isinstance(given, Mapping):
        return f"a dict of {', '.join(sorted(map(str, given)))}"
    is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping)
    return type(given).__name__ + is_pair * " (env.reset() returns observation, info)"


def count_stacked(observation: Observation, space: Space) -> int | None:
    """Return N if N observations of ``space`` are stacked, and None for a single one. Raises ``ConfigError`` for other shapes."""
    given, singles = jax.tree.leaves_with_path(observation), [x.shape for x in jax.tree.leaves(zeros(space, ()))]
    leading = given[0][1].shape[: max(0, given[0][1].ndim - len(singles[0]))]
    for (path, x), single in zip(given, singles, strict=True):
        if len(leading) > 1 or x.shape != (*leading, *single) or leading == (0,):
            name = f"The observation's part {jax.tree_util.keystr(path)}" if path else "An observation"
            alike = " in all parts alike" if path else ""
            raise ConfigError(f"{name} has the shape {x.shape}: expected {single}, or N of them stacked{alike}.")
    return leading[0] if leading else None


def one_each(name: str, given: Any, count: int | None, expected: str) -> np.ndarray:
    """The argument ``name`` as finite numbers, one for each of ``count`` N stacked observations (None: for a single one)."""
    try:
        x = np.atleast_1d(given) if count is None else np.asarray(given)
    except ValueError:  # rows of different lengths
        x = np.asarray(None)
    if x.shape != (count or 1,) or x.dtype.kind not in "biuf" or not np.isfinite(x).all():
        raise ConfigError(f"{name} = {shown(given)}: expected {expected}{_each(count)}.")
    return x


def _each(count: int | None) -> str:
    return "" if count is None else f" for each of the {count} observations"


def convert_masks(given: Any, sizes: tuple[int, ...], count: int | None) -> np.ndarray:
    """Flags ``[N, sum(sizes)]`` for ``count`` N masks (None: one) of numbers that are 0 for forbidden
    choices.

    ``sizes`` are the entries of each component. A mask may be flat, have an axis for the components, or be a
    tuple or list with an array for each component. N masks may also be a sequence of masks.
    """
    total, stacked, by_component, flags = sum(sizes), count or 1, False, None
    try:
        masks = [given] if count is None else given
        if not _is_array(masks) and len(sizes) > 1:
            by_component = [np.asarray(part, object).shape for part in masks] == [(count, n) for n in sizes]
        flags = np.array([_flat(mask) for mask in (np.concatenate(masks, axis=-1) if by_component else masks)], float)
    except (TypeError, ValueError):  # parts of different lengths, or no numbers
        pass
    if by_component and all(stacked * n == total for n in sizes):
        raise ConfigError(
            f"action_mask is a sequence of {count} arrays, which may be the masks of {count} environments or of {count} components: "
            f"give one array of shape ({count}, {total})."
        )
    if flags is None or flags.shape != (stacked, total) or not np.isfinite(flags).all():
        raise ConfigError(
            f"action_mask = {shown(given)}: expected {total} numbers{_each(count)}, which are 0 for forbidden choices."
        )
    if not np.logical_or.reduceat(flags != 0, np.cumsum((0, *sizes[:-1])), axis=-1).all():
        raise ConfigError("action_mask allows no action, or none in one component: at least one must be allowed.")
    return flags != 0


def _is_array(given: Any) -> bool:
    return getattr(given, "dtype", np.dtype(object)).kind != "O"


def _flat(mask: Any) -> np.ndarray:
    return np.ravel(mask) if _is_array(mask) else np.concatenate([np.ravel(part) for part in mask])
