"""Normalizes and clips observations before they are encoded.

The running statistics are a tree like the observation, with ``None`` for each part that is not normalized:
choices, bits and bytes (their encoders know the range), other integers, the action mask, and the previous
action and reward that the policy observes. ``None`` for the whole tree normalizes nothing."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from proximo.math.running_statistics import RunningStatistics
from proximo.spaces import ACTION_MASK, Box, Dict, LeafSpace, Space, tree
from proximo.types import Observation

DEFAULT_CLIP = 10.0
_by_part: Callable[..., PyTree] = partial(jax.tree.map, is_leaf=lambda x: x is None or isinstance(x, RunningStatistics))


def is_normalized(leaf: LeafSpace, which: bool | Literal["auto"]) -> bool:
    """Whether ``normalize_observation = which`` normalizes a part. ``auto`` includes stacked vectors."""
    return isinstance(leaf, Box) and leaf.is_float and (len(leaf.shape) <= 2 if which == "auto" else which)


def make_statistics(space: Space, which: bool | Literal["auto"], added: Sequence[str] = ()) -> PyTree:
    """Empty statistics for ``space``, whose entries ``added`` are the previous action and reward."""
    statistics = tree(lambda leaf: RunningStatistics.of_shape(leaf.shape) if is_normalized(leaf, which) else None, space)
    if isinstance(space, Dict):
        statistics |= {name: None for name in (ACTION_MASK, *added) if name in statistics}
    return statistics if jax.tree.leaves(statistics) else None


def with_observations(statistics: PyTree, observation: Observation, valid: Bool[Array, "..."]) -> PyTree:
    """Merge the observations of a rollout where ``valid`` is true into the statistics."""
    return _by_part(lambda part, x: None if part is None else part.merged(x, valid), statistics, observation)


def normalized(statistics: PyTree, observation: Observation, clip: float) -> Observation:
    """Normalize each part, and clip numbers to ± ``clip``; 0 clips normalized parts to ± ``DEFAULT_CLIP``."""

    def clipped(x):
        return jnp.clip(x, -clip, clip) if clip and jnp.issubdtype(x.dtype, jnp.floating) else x

    def normalize(part, x):
        return jax.tree.map(clipped, x) if part is None else part.normalize(x, clip or DEFAULT_CLIP)

    return _by_part(normalize, statistics, observation)
