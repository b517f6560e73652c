"""What happens to observations before the encoder: running statistics of every part that is made of floating-point numbers,
and a clip.

The statistics are a tree like the observation, with ``None`` where a part is exempt: bytes, integers and bits, whose encoders
know their range, the action mask, and what the drivers add. ``None`` in place of the whole tree normalises nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from proximo.math.statistics import RunningStatistics
from proximo.spaces import ACTION_MASK, PREVIOUS_ACTION, PREVIOUS_REWARD, Box, Dict, LeafSpace, Space, tree
from proximo.types import Observation

DEFAULT_CLIP = 10.0


def make_statistics(space: Space) -> PyTree[RunningStatistics] | None:
    """Statistics of nothing yet for observations of ``space``; None where every part is exempt."""

    def of_leaf(leaf: LeafSpace) -> RunningStatistics | None:
        return RunningStatistics.of_shape(leaf.shape) if isinstance(leaf, Box) and leaf.is_float else None

    statistics = tree(of_leaf, space)
    if isinstance(space, Dict):
        statistics |= {name: None for name in (ACTION_MASK, PREVIOUS_ACTION, PREVIOUS_REWARD) if name in statistics}
    return statistics if jax.tree.leaves(statistics) else None


def observed(statistics: PyTree, observation: Observation, valid: Bool[Array, "..."]) -> PyTree:
    """The statistics with the valid rows of ``observation`` included."""

    def part(seen: RunningStatistics | None, x: Observation) -> RunningStatistics | None:
        return None if seen is None else seen.merged(x, valid)

    return jax.tree.map(part, statistics, observation, is_leaf=_is_part)


def normalized(statistics: PyTree, observation: Observation, clip: float) -> Observation:
    """Every part by its statistics, clipped to ± ``clip``. With ``clip`` 0, to ± 10 where there are statistics and not at all
    where there are none; parts that are no floating-point numbers stay as they are."""

    def part(seen: RunningStatistics | None, x: Observation) -> Observation:
        return jax.tree.map(clipped, x) if seen is None else seen.normalize(x, clip or DEFAULT_CLIP)

    def clipped(x: Array) -> Array:
        return jnp.clip(x, -clip, clip) if clip and jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(part, statistics, observation, is_leaf=_is_part)


def _is_part(x: Any) -> bool:
    return x is None or isinstance(x, RunningStatistics)
