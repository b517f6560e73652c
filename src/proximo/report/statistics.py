"""Aggregates over runs with confidence intervals.

Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", arXiv:2108.13264.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from proximo.evaluation.episodes import interquartile_mean

RESAMPLES = 2000
PERCENT = (2.5, 97.5)


class Band(NamedTuple):
    """Interquartile mean at each point, its 95 % interval (NaN for fewer than two runs), and the number of runs."""

    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray


def rank_weights(counts: np.ndarray) -> np.ndarray:
    """Weight of each rank in the interquartile mean of a resample that draws the ranks ``counts [..., runs]`` times.

    The sorted draws occupy the interval ``0 … runs``. Only the middle half counts: a quarter on each side, rounded down, is cut, as in
    scipy's ``trim_mean``.
    """
    runs = counts.shape[-1]
    cut = int(0.25 * runs)
    upto = np.clip(counts.cumsum(axis=-1), cut, runs - cut)
    return np.diff(upto, axis=-1, prepend=cut) / (runs - 2 * cut)


@functools.cache
def _resamples(runs: int) -> np.ndarray:
    """``[runs, RESAMPLES]``: weights of the ranks of ``runs`` values, for resamples with a fixed seed."""
    counts = np.random.default_rng(0).multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES)
    return rank_weights(counts).T


def interquartile_band(values: np.ndarray) -> Band:
    """Interquartile mean and percentile bootstrap over the runs of one environment. ``values`` are ``[runs, points]``, NaN where a run
    has no value.

    Resamples draw ranks instead of values. At each single point this gives the same distribution, with one matrix product instead of
    one sort for each resample.
    """
    counts = np.isfinite(values).sum(axis=0)
    ordered = np.sort(values, axis=0)  # NaN goes last
    middle, low, high = (np.full(values.shape[1], np.nan) for _ in range(3))
    for count in np.unique(counts[counts > 0]):
        at = np.flatnonzero(counts == count)
        present = ordered[:count, at]
        middle[at] = interquartile_mean(present, axis=0)
        if count > 1:
            low[at], high[at] = _limits(present, _resamples(int(count)))
    return Band(middle, low, high, counts)


def _limits(present: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The percentiles of the resampled means, ``present [runs, points]`` and ``weights [runs, RESAMPLES]``.

    ``einsum`` and a full sort are faster here than a matrix product, whose threads cost more than such a small product, and than
    ``np.percentile`` (6 ms instead of 20 ms for five runs at 150 points).
    """
    means = np.sort(np.einsum("rp,rd->pd", present, weights), axis=1)
    places = np.array(PERCENT) / 100 * (weights.shape[1] - 1)
    below = places.astype(int)
    share = places - below
    low, high = (means[:, below] * (1 - share) + means[:, below + 1] * share).T
    return low, high


def interquartile_interval(values: Sequence[float] | np.ndarray) -> tuple[float | None, list[float] | None]:
    """Interquartile mean of ``values`` and its 95 % interval. Both are None without values. The interval is also None for a single value."""
    finite = np.array([v for v in values if np.isfinite(v)], np.float64)
    if not len(finite):
        return None, None
    band = interquartile_band(finite[:, None])
    return float(band.middle[0]), [float(band.low[0]), float(band.high[0])] if len(finite) > 1 else None


def probability_of_improvement(tasks: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, list[float]]:
    """P(X > Y), a mean over environments, and its 95 % interval. Ties count half. Source: Agarwal et al. 2021, section 4.3.

    ``tasks`` has the scores of the runs of X and those of Y for each environment. The interval is a stratified bootstrap: X and Y are
    resampled within each environment.
    """
    rng = np.random.default_rng(0)
    means, resampled = [], []
    for x, y in tasks:
        wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)
        drawn_x, drawn_y = (rng.multinomial(len(z), np.full(len(z), 1 / len(z)), size=RESAMPLES) / len(z) for z in (x, y))
        means.append(wins.mean())
        resampled.append(((drawn_x @ wins) * drawn_y).sum(axis=1))
    low, high = np.percentile(np.mean(resampled, axis=0), PERCENT)
    return float(np.mean(means)), [float(low), float(high)]
