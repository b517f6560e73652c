"""Conversion and checks of the observations, and of demonstrated actions, that a user passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from proximo.errors import ConfigError
from proximo.spaces import Dict, Discrete, LeafSpace, MultiDiscrete, Space, Tuple, zeros
from proximo.types import Observation

NON_NUMERIC_KINDS = "OSUMmc"
"""``numpy.dtype.kind`` of types that are not real numbers."""


def convert_observation(given: Any, space: Space, what: str = "The observation") -> Observation:
    """Convert ``given``, with any leading axes, to arrays with the structure and the types of ``space``. Lists become arrays.

    Error messages call it ``what``.

    Raises:
        ConfigError: If entries are missing or unknown, or if the conversion would change a number: an image that was already
            divided by 255, a choice that does not exist, NaN or infinity.
    """
    pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping)
    hint = "; Gymnasium's reset returns a pair: observation, info = env.reset()" if pair else ""

    def part(given: Any, space: Space, where: str) -> Any:
        if isinstance(space, Dict):
            names = [name for name, _ in space.spaces]
            if not isinstance(given, Mapping) or set(given) != set(names):
                raise ConfigError(f"{where} is {_kind(given)}: expected a dict of {', '.join(names)}{hint}.")
            return {name: part(given[name], inner, f"{where}'s {name}") for name, inner in space.spaces}
        if isinstance(space, Tuple):
            if not isinstance(given, tuple | list) or len(given) != len(space.spaces):
                raise ConfigError(f"{where} is {_kind(given)}: expected a tuple of {len(space.spaces)}{hint}.")
            return tuple(
                part(x, inner, f"{where}'s part {i}") for i, (x, inner) in enumerate(zip(given, space.spaces, strict=True))
            )
        return _array(given, space, where, hint)

    return part(given, space, what)


def flat_masks(given: Any, sizes: tuple[int, ...], count: int | None) -> Any:
    """Convert action masks as environments give them to flags ``[..., sum(sizes)]``.

    Args:
        given: One mask or N masks of numbers other than 0 for allowed choices: flat, with an axis for the components, or as a tuple or
            list with an array for each component. N masks may also be a sequence or an array of N masks.
        sizes: Entries of the mask for each component of the action.
        count: N; None for one mask.

    Returns:
        The flags; ``given`` itself if it has another form.

    Raises:
        ConfigError: ``given`` may be a sequence of masks or of components.
    """
    if isinstance(given, Tracer):
        return given
    try:
        if isinstance(given, tuple | list):
            given = _of_sequence(given, sizes, count)
        mask = np.asarray(given)
        if mask.dtype == object and mask.ndim == 1:
            mask = np.stack([flat_masks(one, sizes, None) for one in mask])
    except (TypeError, ValueError):  # parts of different lengths
        return given
    if mask.dtype.kind not in "biuf" or not np.isfinite(mask).all():
        return given
    for axis in range(mask.ndim - 1, -1, -1):
        if math.prod(mask.shape[axis:]) == sum(sizes):
            return (mask != 0).reshape(*mask.shape[:axis], -1)
    return given


def _of_sequence(given: Sequence[Any], sizes: tuple[int, ...], count: int | None) -> Any:
    """One array of what ``given`` has for each component or for each environment; else ``given``."""
    stacked = () if count is None else (count,)
    components = len(given) == len(sizes) > 1 and all(_has_shape(x, (*stacked, n)) for x, n in zip(given, sizes, strict=True))
    masks = [flat_masks(one, sizes, None) for one in given] if len(given) == count else []
    if not masks or not all(_has_shape(mask, (sum(sizes),)) for mask in masks):
        return np.concatenate([np.asarray(part) for part in given], axis=-1) if components else given
    if components:
        raise ConfigError(
            f"action_mask is a sequence of {count} arrays, which may be the masks of {count} environments or of {len(sizes)} components: "
            f"give one array of shape ({count}, {sum(sizes)})."
        )
    return np.stack(masks)


def _has_shape(array: Any, shape: tuple[int, ...]) -> bool:
    try:
        return np.shape(array) == shape
    except ValueError:  # parts of different lengths
        return False


def count_stacked(observation: Observation, space: Space) -> int | None:
    """Return N if N observations of ``space`` are stacked, and None for a single one. Raises ``ConfigError`` for other shapes."""
    given, expected = jax.tree.leaves_with_path(observation), jax.tree.leaves(zeros(space, ()))
    shapes = [(x.shape, like.shape) for (_, x), like in zip(given, expected, strict=True)]
    leading = shapes[0][0][: max(0, len(shapes[0][0]) - len(shapes[0][1]))]
    for (path, _), (found, single) in zip(given, shapes, strict=True):
        if len(leading) > 1 or found != (*leading, *single) or leading == (0,):
            name = f"The observation's part {jax.tree_util.keystr(path)}" if path else "An observation"
            alike = " in all parts alike" if path else ""
            raise ConfigError(f"{name} has the shape {found}: expected {single}, or N of them stacked{alike}.")
    return leading[0] if leading else None


def _array(given: Any, space: LeafSpace, where: str, hint: str) -> np.ndarray:
    if isinstance(given, Tracer):
        raise ConfigError(f"{where} is within a JAX program that is being traced: call policy.actor_critic.step there.")
    try:
        x = np.asarray(given)
    except ValueError:  # rows of different lengths
        x = np.asarray(None)
    if x.dtype.kind in NON_NUMERIC_KINDS:
        raise ConfigError(f"{where} is {_kind(given)}: expected an array of {space}{hint}.")
    kept = zeros(space, ())
    if kept.dtype.kind == "f":
        if x.dtype != kept.dtype:
            with np.errstate(over="ignore"):
                x = x.astype(kept.dtype)
        if not np.isfinite(x).all():
            raise ConfigError(
                f"{where} has {x[~np.isfinite(x)].flat[0]}: expected finite numbers. Check the code of the environment that computes it."
            )
        return x
    with np.errstate(invalid="ignore"):
        cast = x.astype(kept.dtype)
    wrong = cast != x
    if isinstance(space, Discrete | MultiDiscrete) and x.shape[x.ndim - kept.ndim :] == kept.shape:
        start, n = (np.reshape(of, kept.shape) for of in ((space.start, space.n if isinstance(space, Discrete) else space.nvec)))
        wrong = wrong | (cast < start) | (cast >= start + n)
    if wrong.any():
        raise ConfigError(
            f"{where} has {x[wrong].flat[0]}, which is not in {space}: pass the numbers of the environment, unchanged."
        )
    return cast


def _kind(given: Any) -> str:
    """``a dict of body, camera``; ``a tuple of 2``; ``str``."""
    if isinstance(given, Mapping):
        return f"a dict of {', '.join(sorted(map(str, given)))}"
    if isinstance(given, tuple | list):
        return f"a {type(given).__name__} of {len(given)}"
    return f"an array of {given.dtype}" if hasattr(given, "dtype") else type(given).__name__
