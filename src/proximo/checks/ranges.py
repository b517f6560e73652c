"""Checks whether observations are within the bounds of their space."""

from __future__ import annotations

import numpy as np

from proximo.checks.finding import Finding, ok, warning
from proximo.envs.gymnasium.observations import Leaf
from proximo.spaces import Box


def check_ranges(expected: list[Leaf], observations: list[np.ndarray]) -> Finding:
    """Check that each leaf's observations, of shape ``[steps, ...]``, are within the bounds of their Box."""
    for leaf, values in zip(expected, observations, strict=True):
        if not isinstance(leaf.space, Box) or not leaf.space.is_float:
            continue
        low, high = leaf.space.bounds()
        slack = 1e-5 * (1.0 + np.where(np.isfinite(low), abs(low), 0.0) + np.where(np.isfinite(high), abs(high), 0.0))
        outside = ((values < low - slack) | (values > high + slack)).reshape(len(values), -1).any(axis=1)
        if outside.any():
            return warning(
                "range",
                f"{outside.sum()} of {len(values)} observations{leaf.name} are outside the bounds of {leaf.space} "
                f"(seen {values.min():.4g} … {values.max():.4g}, bounds {low.min():.4g} … {high.max():.4g}): widen the bounds of "
                "the space. Training does not depend on them.",
            )
    return ok("range", "All observations are within the bounds of their space.")
