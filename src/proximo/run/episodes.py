"""Episodes of a policy that does not learn, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

EVALUATIONS = 2**30
"""Evaluation keys are ``fold_in(key(seed), EVALUATIONS + stream)``; the first children of the key belong to the training."""
MOST_STEPS = 100_000
MOST_EPISODES = 10**6


def evaluation_key(seed: int, stream: int) -> Key[Array, ""]:
    """The key of the evaluations of ``seed`` in ``stream``, which no training uses."""
    return jax.random.fold_in(jax.random.key(seed), EVALUATIONS + stream)


@dataclass(frozen=True)
class Episodes:
    """One entry an episode. ``success`` is None where the environment does not tell it."""

    episode_return: np.ndarray
    length: np.ndarray
    success: np.ndarray | None
    unfinished: int
    """Episodes that were still running after ``eval_max_steps`` (else ``MOST_STEPS``) steps, counted as they stood."""
    warnings: tuple[str, ...] = ()
    """Why a judgement may not say what was asked of it."""
    seed: list[int | None] | None = None
    """The seed that each episode's environment was reset with, where it was; None where seeds are not known at all."""
    level: list[int | None] | None = None
    """The level that each was played on, where levels were drawn from a range and are known."""

    def rows(self) -> list[dict[str, Any]]:
        """``{index, env_seed, level, return, length, success}`` of each episode, None where it is not known."""
        nothing = [None] * len(self.length)
        columns = {
            "index": range(len(self.length)),
            "env_seed": self.seed or nothing,
            "level": self.level or nothing,
            "return": self.episode_return.astype(np.float64).tolist(),
            "length": self.length.tolist(),
            "success": nothing if self.success is None else self.success.tolist(),
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def summary(self) -> dict[str, Any]:
        """``{episodes, mean_return, std_return, iqm_return, ci95, mean_length, success_rate}``.

        ``iqm_return`` is the mean of the middle half (Agarwal et al. 2021, arXiv:2108.13264); ``ci95`` the 95 % interval
        of ``mean_return`` by the percentile bootstrap, 2,000 resamples.
        """
        returns = self.episode_return.astype(np.float64)
        return {
            "episodes": len(returns),
            "mean_return": float(returns.mean()),
            "std_return": float(returns.std()),
            "iqm_return": interquartile_mean(returns),
            "ci95": bootstrap_interval(returns),
            "mean_length": float(self.length.mean()),
            "success_rate": None if self.success is None else float(self.success.mean()),
        }


def interquartile_mean(x: np.ndarray, axis: int | None = None) -> Any:
    """The mean without the lowest and the highest quarter, rounded down to whole entries: a float, or an array along ``axis``. It is NaN
    if any entry is NaN.

    As ``scipy.stats.trim_mean(x, 0.25)``, which takes longer to import than a report to write.
    """
    ordered = np.sort(x, axis=axis)
    cut = ordered.shape[axis or 0] // 4
    kept = np.take(ordered, range(cut, ordered.shape[axis or 0] - cut), axis=axis or 0)
    # NaN is sorted last and would be trimmed as if it were the highest.
    mean = np.where(np.isnan(np.take(ordered, -1, axis=axis or 0)), np.nan, kept.mean(axis=axis))
    return float(mean) if axis is None else mean


def bootstrap_interval(x: np.ndarray, resamples: int = 2000) -> list[float]:
    """[low, high] of the mean of ``x``, 95 %, percentile bootstrap with a fixed seed."""
    return stratified_interval([x], resamples)


def stratified_interval(strata: Sequence[np.ndarray], resamples: int = 2000) -> list[float]:
    """[low, high] of the mean over ``strata`` of their means, 95 %, each resampled by itself: of these very policies, where a stratum is
    the episodes of one of them (Agarwal et al. 2021, arXiv:2108.13264, section 4)."""
    rng = np.random.default_rng(0)
    means = np.mean([_resampled_means(x, rng, resamples) for x in strata], axis=0)
    return [float(v) for v in np.percentile(means, [2.5, 97.5])]


def _resampled_means(x: np.ndarray, rng: np.random.Generator, resamples: int) -> np.ndarray:
    together = max(1, 1_000_000 // len(x))  # bounds the memory that thousands of episodes take
    draws = [x[rng.integers(0, len(x), (min(together, resamples - done), len(x)))] for done in range(0, resamples, together)]
    return np.concatenate([drawn.mean(axis=1) for drawn in draws])
