"""Intervals over runs, compared with bootstraps that draw by index."""

import itertools

import numpy as np
import pytest
from scipy import stats

from proximo.report.results import (
    interquartile_band,
    interquartile_interval,
    probability_of_improvement,
    rank_weights,
)


def iqm(x, axis=0):
    return stats.trim_mean(x, 0.25, axis=axis)


@pytest.mark.parametrize("runs", [1, 3, 4, 11])
def test_weights_of_ranks_give_the_trimmed_mean_of_the_resample(runs):
    rng = np.random.default_rng(runs)
    x = np.sort(rng.normal(size=runs))
    draws = itertools.product(range(runs), repeat=runs) if runs < 5 else rng.integers(0, runs, (200, runs))
    for draw in map(list, draws):
        np.testing.assert_allclose(rank_weights(np.bincount(draw, minlength=runs)) @ x, iqm(x[draw]), atol=1e-12)


@pytest.mark.parametrize("runs", [3, 10])
def test_the_interval_is_that_of_a_bootstrap_by_index(runs):
    x = np.random.default_rng(runs).normal(size=runs)
    found = interquartile_interval(x)
    drawn = iqm(x[np.random.default_rng(1).integers(0, runs, (20_000, runs))], axis=1)
    assert found["iqm"] == pytest.approx(iqm(x))
    # 2,000 resamples place a percentile to a sixteenth of the deviation.
    np.testing.assert_allclose(found["ci95"], np.percentile(drawn, [2.5, 97.5]), atol=0.25 * drawn.std())


def test_points_use_only_the_runs_that_reach_them_and_not_their_neighbours():
    nan = np.nan
    values = np.array([[1.0, 1.0, nan, nan], [3.0, nan, nan, 7.0], [5.0, 5.0, nan, nan]])
    band = interquartile_band(values)
    np.testing.assert_array_equal(band["count"], [3, 2, 0, 1])
    np.testing.assert_allclose(band["middle"], [3.0, 3.0, nan, 7.0])
    np.testing.assert_array_equal(np.isnan(band["low"]), [False, False, True, True])
    np.testing.assert_allclose([band["low"][1], band["high"][1]], [1.0, 5.0])
    for i in range(4):
        alone = interquartile_band(values[:, [i]])
        np.testing.assert_allclose([alone[name][0] for name in band], [band[name][i] for name in band])


TASKS = [
    (np.array([1.0, 2.0, 3.0, 3.0]), np.array([0.0, 2.0, 3.0])),
    (np.array([110.0, 90.0, 100.0]), np.array([95.0, 105.0, 80.0, 100.0])),
]


@pytest.mark.parametrize("tasks", [TASKS[:1], TASKS])
def test_probability_of_improvement_equals_the_brute_force_result(tasks):
    def wins(x, y):
        return np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a in x for b in y])

    rng = np.random.default_rng(5)
    drawn = [np.mean([wins(rng.choice(x, len(x)), rng.choice(y, len(y))) for x, y in tasks]) for _ in range(1000)]
    probability, interval = probability_of_improvement(tasks)
    assert probability == pytest.approx(np.mean([wins(x, y) for x, y in tasks]))
    np.testing.assert_allclose(interval, np.percentile(drawn, [2.5, 97.5]), atol=0.06)
