"""Intervals over runs, held against bootstraps that are written out."""

import itertools

import numpy as np
import pytest
from scipy import stats

from proximo.report.statistics import (
    PERCENT,
    RESAMPLES,
    interquartile_band,
    interquartile_interval,
    probability_of_improvement,
    rank_weights,
)

DRAWN = 20_000


def resampled_means(x):
    """Interquartile means of resamples that are drawn by index."""
    drawn = x[np.random.default_rng(1).integers(0, len(x), (DRAWN, len(x)))]
    return stats.trim_mean(drawn, 0.25, axis=1)


def iqm(x):
    return stats.trim_mean(x, 0.25)


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 8, 11])
def test_weights_of_ranks_give_the_trimmed_mean_of_the_resample(runs):
    rng = np.random.default_rng(runs)
    x = np.sort(rng.normal(size=runs))
    for counts in rng.multinomial(runs, np.full(runs, 1 / runs), size=200):
        np.testing.assert_allclose(rank_weights(counts) @ x, iqm(np.repeat(x, counts)), atol=1e-12)


def test_rank_weights_match_every_resample_of_four_runs():
    x = np.array([1.0, 2.0, 4.0, 9.0])
    for draw in itertools.product(range(4), repeat=4):
        counts = np.bincount(draw, minlength=4)
        assert rank_weights(counts) @ x == pytest.approx(iqm(x[list(draw)]))


@pytest.mark.parametrize("runs", [3, 5, 10])
def test_the_interval_is_that_of_a_bootstrap_by_index(runs):
    x = np.random.default_rng(runs).normal(size=runs)
    band = interquartile_band(x[:, None])
    drawn = resampled_means(x)
    # 2,000 resamples place a percentile to a sixteenth of the deviation.
    low, high = np.percentile(drawn, PERCENT)
    assert band.middle[0] == pytest.approx(iqm(x))
    assert band.low[0] == pytest.approx(low, abs=0.25 * drawn.std())
    assert band.high[0] == pytest.approx(high, abs=0.25 * drawn.std())


def test_scipy_draws_the_same_interval():
    x = np.random.default_rng(7).gamma(2.0, size=12)
    theirs = stats.bootstrap(
        (x,), iqm, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(3), vectorized=False
    ).confidence_interval
    _, ours = interquartile_interval(x.tolist())
    np.testing.assert_allclose(ours, theirs, atol=0.1 * x.std())


def test_outlier_run_does_not_move_the_interquartile_mean():
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    far = np.append(x[:-1], 1e6)
    assert interquartile_band(far[:, None]).middle[0] == interquartile_band(x[:, None]).middle[0] == 4.5
    assert far.mean() > 1e5


def test_points_use_only_the_runs_that_reach_them():
    nan = np.nan
    values = np.array([[1.0, 1.0, nan, nan], [3.0, nan, nan, 7.0], [5.0, 5.0, nan, nan]])
    band = interquartile_band(values)
    np.testing.assert_array_equal(band.count, [3, 2, 0, 1])
    np.testing.assert_allclose(band.middle, [3.0, 3.0, nan, 7.0])
    np.testing.assert_array_equal(np.isnan(band.low), [False, False, True, True])
    np.testing.assert_allclose([band.low[1], band.high[1]], [1.0, 5.0])


def test_points_do_not_depend_on_their_neighbours():
    values = np.random.default_rng(0).normal(size=(6, 40))
    whole = interquartile_band(values)
    for i in (0, 17, 39):
        alone = interquartile_band(values[:, [i]])
        assert (alone.low[0], alone.high[0]) == (pytest.approx(whole.low[i]), pytest.approx(whole.high[i]))


def test_an_interval_narrows_with_the_number_of_runs():
    rng = np.random.default_rng(0)
    intervals = [[interquartile_interval(rng.normal(size=n).tolist())[1] for _ in range(20)] for n in (4, 16, 64)]
    widths = [np.mean([high - low for low, high in drawn]) for drawn in intervals]
    assert widths[0] > 1.5 * widths[1] > 2 * widths[2]


def test_no_values_have_no_mean_and_one_no_interval():
    assert interquartile_interval([]) == (None, None)
    assert interquartile_interval([np.nan]) == (None, None)
    assert interquartile_interval([3.0, np.nan]) == (3.0, None)


def brute_improvement(tasks, stratified=True):
    """The probability of improvement of resamples, pair by pair; not stratified, the environments are thrown together."""
    rng = np.random.default_rng(5)
    tasks = tasks if stratified else [tuple(np.concatenate(side) for side in zip(*tasks, strict=True))]

    def probability(x, y):
        return np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a in x for b in y])

    drawn = [np.mean([probability(rng.choice(x, len(x)), rng.choice(y, len(y))) for x, y in tasks]) for _ in range(2000)]
    return np.mean([probability(x, y) for x, y in tasks]), np.percentile(drawn, PERCENT)


TASKS = [
    (np.array([1.0, 2.0, 3.0, 3.0]), np.array([0.0, 2.0, 3.0])),
    (np.array([110.0, 90.0, 100.0]), np.array([95.0, 105.0, 80.0, 100.0])),
]


@pytest.mark.parametrize("tasks", [TASKS[:1], TASKS])
def test_probability_of_improvement_equals_the_brute_force_result(tasks):
    probability, interval = probability_of_improvement(tasks)
    expected, limits = brute_improvement(tasks)
    assert probability == pytest.approx(expected)
    np.testing.assert_allclose(interval, limits, atol=0.06)


def test_pooling_the_environments_would_change_the_probability():
    assert brute_improvement(TASKS, stratified=False)[0] != pytest.approx(probability_of_improvement(TASKS)[0], abs=0.02)


def test_improvement_counts_ties_half_and_is_antisymmetric():
    x, y = TASKS[0]
    assert probability_of_improvement([(x, x)])[0] == 0.5
    assert probability_of_improvement([(x, y)])[0] == pytest.approx(1 - probability_of_improvement([(y, x)])[0])
    assert probability_of_improvement([(x + 10, y)]) == (1.0, [1.0, 1.0])
