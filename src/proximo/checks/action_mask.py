"""Checks the action mask of an environment that has one."""

from __future__ import annotations

import numpy as np

from proximo.checks.finding import Finding, error, ok
from proximo.envs.gymnasium.observations import Leaf
from proximo.spaces import ACTION_MASK, Discrete, MultiBinary, MultiDiscrete, Space

NAME = "action mask"


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
    if not isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        return error(
            NAME, f"The observation has an action mask, but the action space is {space}: expected Discrete or MultiDiscrete."
        )
    sizes = [space.n] if isinstance(space, Discrete) else list(space.nvec) if isinstance(space, MultiDiscrete) else [space.size]
    if allowed.shape[1] != sum(sizes):
        return error(
            NAME, f"The action mask has {allowed.shape[1]} entries: expected {sum(sizes)}, one for each choice of {space}."
        )
    if not isinstance(space, MultiBinary):
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
