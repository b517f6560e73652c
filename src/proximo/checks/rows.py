"""Checks of what came: ranges, masks, ends of episodes. They see arrays only, wherever these came from."""

from __future__ import annotations

from typing import Any

import numpy as np

from proximo.checks.finding import Finding, error, ok, warning
from proximo.checks.play import Episode
from proximo.envs.host.observations import Leaf
from proximo.spaces import ACTION_MASK, Box, Discrete, MultiBinary, MultiDiscrete, Space

LIMIT_FIX = "Set --max-episode-steps 1000, or another limit that suits the task."
LIKELY_LIMIT = 20
"""Episodes that all terminate after the same number of steps, and at least so many, look like a time limit."""
FEWEST_EPISODES = 3


def ranges(expected: list[Leaf], observations: list[np.ndarray]) -> Finding:
    """Whether observations ``rows ...`` of each leaf lie within the bounds of their Box."""
    for leaf, values in zip(expected, observations, strict=True):
        if not isinstance(leaf.space, Box) or not leaf.space.is_float:
            continue
        low, high = leaf.space.bounds()
        slack = 1e-5 * (1.0 + np.where(np.isfinite(low), abs(low), 0.0) + np.where(np.isfinite(high), abs(high), 0.0))
        outside = ((values < low - slack) | (values > high + slack)).reshape(len(values), -1).any(axis=1)
        if outside.any():
            return warning(
                "range",
                f"observation{leaf.name} lay outside of the bounds of its {leaf.space} in {outside.sum()} of {len(values)} rows "
                f"(seen {values.min():.4g} … {values.max():.4g}, bounds {low.min():.4g} … {high.max():.4g}): widen the bounds to "
                "what the environment gives. Training does not rely on them.",
            )
    return ok("range", "All observations lie within the bounds of their space.")


def acted_on(ended: np.ndarray) -> np.ndarray:
    """Of the observations of a reset and of ``T`` steps (``T N``, flat: those of the reset first), which are acted on: no action
    follows the one that a step ended with."""
    return np.concatenate([np.ones_like(ended[:1], bool), ~ended]).reshape(-1)


def masks(expected: list[Leaf], observations: list[np.ndarray], action_space: Space, acted: np.ndarray) -> list[Finding]:
    """Whether the action mask, where there is one, has an entry for each choice and always allows some action while an episode
    goes on: in the rows that are ``acted`` on."""
    at = [i for i, leaf in enumerate(expected) if leaf.path == (ACTION_MASK,)]
    if not at:
        return []
    rows = observations[at[0]].reshape(len(observations[at[0]]), -1)[acted] != 0
    return [_mask(rows, action_space)]


def _mask(rows: np.ndarray, space: Space) -> Finding:
    if not isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        return error(
            "action mask", f"There is an action mask, but the actions are {space}: it is for Discrete and MultiDiscrete."
        )
    sizes = [space.n] if isinstance(space, Discrete) else list(space.nvec) if isinstance(space, MultiDiscrete) else [space.size]
    if rows.shape[1] != sum(sizes):
        return error(
            "action mask",
            f"The action mask has {rows.shape[1]} entries: expected {sum(sizes)}, one for each choice of {space}.",
        )
    if not isinstance(space, MultiBinary):
        for number, part in enumerate(np.split(rows, np.cumsum(sizes)[:-1], axis=1)):
            empty = ~part.any(axis=1)
            if empty.any():
                where = f" in component {number}" if len(sizes) > 1 else ""
                return error(
                    "action mask",
                    f"The action mask allowed no action{where} in {empty.sum()} of {len(rows)} rows: expected at least one entry "
                    "other than 0. End the episode where nothing is left to do, or allow an action that does nothing.",
                )
    return ok("action mask", f"It always allows an action; {rows.mean():.0%} of its entries are other than 0.")


def ends(episodes: list[Episode], steps: int, limit: int | None, fix: str = LIMIT_FIX, by_seconds: bool = False) -> Finding:
    """Whether episodes end, by steps or by a ``limit`` that is known."""
    if episodes:
        lengths = [e.length for e in episodes]
        how = f"{sum(e.terminated for e in episodes)} terminated, {sum(e.truncated for e in episodes)} truncated"
        return ok(
            "episodes", f"{len(episodes)} ended within {steps:,} random steps, after {min(lengths)} … {max(lengths)} ({how})."
        )
    if limit:
        return ok("episodes", f"None ended within {steps:,} random steps; the limit is {limit:,}.")
    return warning(
        "episodes",
        f"No episode ended within {steps:,} random steps{' (the time for this check was over)' if by_seconds else ''}, and no limit "
        f"is known: no return can be told before one ends. {fix}",
    )


def time_limits(episodes: list[Episode], infos: list[Any] = []) -> Finding:  # noqa: B006 (never changed)
    """Whether a time limit is told as truncation, and not as a failure."""
    if any(isinstance(info, dict) and info.get("TimeLimit.truncated") for info in infos) and not any(
        e.truncated for e in episodes
    ):
        return warning(
            "time limit",
            'info["TimeLimit.truncated"] is True, but truncated is False: return terminated = False, truncated = True there. '
            "A time limit is no failure: the value of what follows still counts.",
        )
    lengths = {e.length for e in episodes}
    alike = len(episodes) >= FEWEST_EPISODES and len(lengths) == 1 and min(lengths) >= LIKELY_LIMIT
    if alike and not any(e.truncated for e in episodes):
        return warning(
            "time limit",
            f"All {len(episodes)} episodes terminated after exactly {min(lengths)} steps: if that is a time limit, return "
            "terminated = False, truncated = True there. A time limit is no failure: the value of what follows still counts.",
        )
    return ok("time limit", "Nothing looks like a time limit that is told as a termination.")
