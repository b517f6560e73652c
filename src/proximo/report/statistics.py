"""Aggregates over runs with confidence intervals. Source: Agarwal et al. 2021, arXiv:2108.13264."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

RESAMPLES = 2000
LIMITS = [50, 1949]
"""Ranks of the 2.5 and 97.5 % percentiles among the resamples."""


def rank_weights(counts: np.ndarray) -> np.ndarray:
    """Weight of each rank in the interquartile mean of a resample with ``counts [..., runs]`` draws of each.

    The sorted draws occupy the interval ``0 … runs``. A quarter on each side, rounded down, is cut, as by scipy.
    """
    runs = counts.shape[-1]
    cut = int(0.25 * runs)
    upto = np.clip(counts.cumsum(axis=-1), cut, runs - cut)
    return np.diff(upto, axis=-1, prepend=cut) / (runs - 2 * cut)


@functools.cache
def _resamples(runs: int) -> np.ndarray:
    """``[runs, RESAMPLES]``: weights of the ranks of ``runs`` values, for resamples with a fixed seed."""
    return rank_weights(np.random.default_rng(0).multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES)).T


def interquartile_band(values: np.ndarray) -> dict[str, np.ndarray]:
    """At each point: the interquartile mean ``middle`` over runs, its 95 % interval from ``low`` to ``high`` by the
    percentile bootstrap (NaN for one run), and the number ``count`` of runs. ``values`` are ``[runs, points]``, or NaN.

    Resamples draw ranks instead of values, which gives the same distribution, without sorting each resample.
    """
    counts, ordered = np.isfinite(values).sum(axis=0), np.sort(values, axis=0)  # NaN goes last
    band = np.full((3, len(counts)), np.nan)
    for count in np.unique(counts[counts > 0]):
        at = counts == count
        present = ordered[:count, at]
        band[0, at] = rank_weights(np.ones(count)) @ present
        if count > 1:
            # einsum, because the threads of a matrix product cost more than such a small product.
            means = np.einsum("rp,rd->pd", present, _resamples(int(count)))
            band[1:, at] = np.partition(means, LIMITS, axis=1)[:, LIMITS].T
    return {"middle": band[0], "low": band[1], "high": band[2], "count": counts}


def interquartile_interval(values: Sequence[float]) -> dict[str, Any]:
    """The interquartile mean ``iqm`` and its 95 % interval ``ci95``. Both are None without values, and ``ci95``
    also for one value."""
    middle, low, high, _ = interquartile_band(np.reshape(values, (-1, 1))).values()
    interval = [float(low[0]), float(high[0])]
    return {"iqm": float(middle[0]) if len(values) else None, "ci95": interval if len(values) > 1 else None}


def probability_of_improvement(tasks: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, list[float]]:
    """P(X > Y), a mean over environments, and its 95 % interval. Ties count half. Source: Agarwal et al., section 4.3.

    ``tasks`` has the scores of X and of Y for each environment, in which the stratified bootstrap draws from them.
    """
    rng = np.random.default_rng(0)
    means, resampled = [], []
    for x, y in tasks:
        wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)
        drawn_x, drawn_y = (rng.multinomial(len(z), np.full(len(z), 1 / len(z)), size=RESAMPLES) / len(z) for z in (x, y))
        means.append(wins.mean())
        resampled.append(((drawn_x @ wins) * drawn_y).sum(axis=1))
    return float(np.mean(means)), np.partition(np.mean(resampled, axis=0), LIMITS)[LIMITS].tolist()
