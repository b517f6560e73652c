"""Checks whether episodes end, and whether a time limit is reported as a truncation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from proximo.checks.finding import Finding, ok, warning
from proximo.checks.random_play import Episode

LIMIT_FIX = "Set --max-episode-steps 1000, or another limit that suits the task."
MIN_LIMIT = 20
"""Episodes that all terminate after the same number of steps look like a time limit if they have at least this many steps."""
MIN_EPISODES = 3
TRUNCATE = "return terminated = False, truncated = True there. A time limit is not a termination, so the value of the next state still counts."


def check_ends(
    episodes: list[Episode], steps: int, limit: int | None, fix: str = LIMIT_FIX, out_of_time: bool = False
) -> Finding:
    """Check that an episode ended within ``steps`` random steps, or that the environment has a ``limit`` of steps."""
    if episodes:
        lengths = [e.length for e in episodes]
        how = f"{sum(e.terminated for e in episodes)} terminated, {sum(e.truncated for e in episodes)} truncated"
        return ok(
            "episodes",
            f"{len(episodes)} episodes ended within {steps:,} random steps, after {min(lengths)} … {max(lengths)} steps ({how}).",
        )
    if limit:
        return ok("episodes", f"No episode ended within {steps:,} random steps; the time limit is {limit:,}.")
    return warning(
        "episodes",
        f"No episode ended within {steps:,} random steps{' (this check ran out of time)' if out_of_time else ''}, and the environment "
        f"has no known time limit: training cannot report a return before an episode ends. {fix}",
    )


def check_time_limit(
    episodes: list[Episode], values: Sequence[np.ndarray], terminated: np.ndarray, infos: Sequence[Any] = ()
) -> Finding:
    """Check that a time limit is reported as a truncation, not as a termination. ``values`` are rewards and true observations of steps,
    ``[steps, ...]``; ``terminated`` is whether each of them terminated its episode."""
    if any(isinstance(info, dict) and info.get("TimeLimit.truncated") for info in infos) and not any(
        e.truncated for e in episodes
    ):
        return warning("time limit", f'info["TimeLimit.truncated"] is True, but truncated is False: {TRUNCATE}')
    lengths = {e.length for e in episodes}
    alike = len(episodes) >= MIN_EPISODES and len(lengths) == 1 and min(lengths) >= MIN_LIMIT
    if alike and not any(e.truncated for e in episodes) and not _stand_out(values, terminated):
        return warning(
            "time limit",
            f"All {len(episodes)} episodes terminated after exactly {min(lengths)} steps, and no reward or observation of their last steps "
            f"is outside the range of the other steps. If this is a time limit, {TRUNCATE}",
        )
    return ok("time limit", "No time limit seems to be reported as a termination.")


def _stand_out(values: Sequence[np.ndarray], terminated: np.ndarray) -> bool:
    """Whether some number is outside the range of all other steps in every step that terminated an episode, as after a crash."""
    for array in values:
        flat = array.reshape(len(array), -1)
        last, other = flat[terminated], flat[~terminated]
        if len(last) and len(other) and ((last > other.max(axis=0)) | (last < other.min(axis=0))).all(axis=0).any():
            return True
    return False
