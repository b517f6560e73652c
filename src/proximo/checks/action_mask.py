"""Checks the action mask of an environment, and whether an environment without one has something that looks like a mask."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from proximo.checks.finding import Finding, error, ok, warning
from proximo.envs.gymnasium.observations import Leaf
from proximo.spaces import ACTION_MASK, MultiBinary, Space, mask_sizes

NAME = "action mask"
_KINDS = "(legal|valid|invalid|avail|available|allowed)"
_MASK_NAMES = re.compile(rf"actions?_?mask|mask(ed)?_?actions?|^(get_)?{_KINDS}_?(actions?|moves?)(_?masks?)?$")


def is_acted_on(ended: np.ndarray) -> np.ndarray:
    """Whether an action follows each observation of a reset and of ``T`` steps. No action follows the last one of an episode.

    Args:
        ended: Whether each step ended an episode, of shape ``[T, N]``.

    Returns:
        One flag for each observation, of shape ``[(T + 1) * N]``; those of the reset come first.
    """
    return np.concatenate([np.ones_like(ended[:1], bool), ~ended]).reshape(-1)


def check_action_mask(
    expected: list[Leaf], observations: list[np.ndarray], action_space: Space, acted_on: np.ndarray
) -> list[Finding]:
    """Check that the mask has one entry for each choice, and allows an action wherever ``acted_on`` is True.

    Returns no finding for an environment without a mask.
    """
    masks = [values for leaf, values in zip(expected, observations, strict=True) if leaf.path == (ACTION_MASK,)]
    return [_check(values.reshape(len(values), -1)[acted_on] != 0, action_space) for values in masks]


def _check(allowed: np.ndarray, space: Space) -> Finding:
    sizes = mask_sizes(space)
    if not sizes:
        return error(
            NAME,
            f"The environment has an action mask, but the action space is {space}: expected Discrete, MultiDiscrete or MultiBinary.",
        )
    if allowed.shape[1] != sum(sizes):
        each = f"two for each bit of {space}" if isinstance(space, MultiBinary) else f"one for each choice of {space}"
        return error(NAME, f"The action mask has {allowed.shape[1]} entries: expected {sum(sizes)}, {each}.")
    for number, part in enumerate(np.split(allowed, np.cumsum(sizes)[:-1], axis=1)):
        empty = ~part.any(axis=1)
        if empty.any():
            where = f" in component {number}" if len(sizes) > 1 else ""
            return error(
                NAME,
                f"The action mask allowed no action{where} in {empty.sum()} of {len(allowed)} observations: expected at least "
                "one nonzero entry. End the episode if no action is left, or allow an action that does nothing.",
            )
    return ok(NAME, f"It always allows an action; {allowed.mean():.0%} of its entries are nonzero.")


def check_unused_mask(layers: Sequence[Any], info: Any, expected: list[Leaf], action_space: Space, fix: str) -> list[Finding]:
    """Report a method or an entry that looks like a mask. Only for environments without a mask.

    Args:
        layers: The environment and what it wraps.
        info: What a reset returned beside the observation, or for JAX environments a step.
        expected: The leaves of the observation.
        action_space: The action space.
        fix: Where a mask is expected, for messages.
    """
    size = sum(mask_sizes(action_space))
    if not size or any(leaf.path == (ACTION_MASK,) for leaf in expected):
        return []
    # An entry with a vague name, such as a mask of pixels, is one of actions only if it has their size.
    entries = [f"info[{key!r}]" for key, value in info.items() if _looks_like_mask(key, _size(value) == size)]
    parts = [
        f"observation{leaf.name}"
        for leaf in expected
        if leaf.path and _looks_like_mask(leaf.path[-1], math.prod(leaf.shape) == size)
    ]
    members = dict.fromkeys(name for layer in layers for name in dir(layer) if _looks_like_mask(name, False))
    return [
        warning(NAME, f"The environment has {what}, which looks like an action mask and is not used: {fix}")
        for what in [*entries, *parts, *members][:1]
    ]


def _size(value: Any) -> int:
    try:
        return np.size(value)
    except ValueError:  # rows of different lengths
        return 0


def _looks_like_mask(name: Any, has_its_size: bool) -> bool:
    """Whether a name is one that environments give an action mask. A vague name counts if the value has the size of a mask."""
    if not isinstance(name, str) or name.startswith("_"):
        return False
    return bool(_MASK_NAMES.search(name.lower()) or (has_its_size and "mask" in name.lower()))
