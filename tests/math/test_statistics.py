import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.math.masked_statistics import explained_variance, masked_mean, normalized
from proximo.math.running_statistics import WORD, RunningStatistics, discounted_returns


def samples(statistics):
    return int(statistics.count[0]) + int(WORD) * int(statistics.count[1])


def of(*batches, shape=()):
    """Statistics of batches without padding."""
    statistics = RunningStatistics.of_shape(shape)
    for batch in batches:
        statistics = statistics.merged(batch, jnp.ones(batch.shape[: batch.ndim - len(shape)], bool))
    return statistics


def test_statistics_of_two_batches_by_hand():
    statistics = of(jnp.array([1.0, 2.0, 3.0]))
    assert (float(statistics.mean), float(statistics.variance)) == pytest.approx((2.0, 2 / 3), abs=1e-6)
    statistics = statistics.merged(jnp.array([4.0, 100.0, 6.0]), jnp.array([True, False, True]))
    # of 1, 2, 3, 4, 6
    assert (samples(statistics), float(statistics.mean), float(statistics.variance)) == pytest.approx((5, 3.2, 2.96), abs=1e-5)
    assert statistics.normalize(jnp.array([3.2, 6.0])).tolist() == pytest.approx([0.0, 1.6274669], abs=1e-5)


def test_samples_are_merged_component_by_component():
    rows = np.random.default_rng(0).normal(5.0, [1.0, 10.0, 0.1], size=(6, 50, 3)).astype(np.float32)
    statistics = of(*jnp.asarray(rows.reshape(6, 10, 5, 3)), shape=(3,))
    np.testing.assert_allclose(statistics.mean, rows.mean((0, 1)), rtol=1e-4)
    np.testing.assert_allclose(statistics.variance, rows.var((0, 1)), rtol=1e-3)


def test_neither_a_large_offset_nor_a_small_variance_is_rounded_away():
    rows = 10_000.0 + jnp.array([-1.0, 1.0, -1.0, 1.0])
    assert float(of(rows, rows).variance) == pytest.approx(1.0, abs=1e-3)
    assert float(of(jnp.array([1e-5, -1e-5])).variance) == pytest.approx(1e-10, rel=1e-5)


@pytest.mark.parametrize("sample", [0.1, 1234.567, 1e6])
def test_equal_samples_have_no_variance(sample):
    statistics = of(jnp.full(857, sample), jnp.full(1000, sample))
    assert float(statistics.variance) == 0.0
    assert float(statistics.normalize(jnp.float32(sample))) == 0.0


def test_a_million_merges_agree_with_float64():
    # A cycle of 250 batches of 1,000 samples. A weighted average, kept * variance + share * added, is 1.5 % too small.
    rng = np.random.default_rng(0)
    means, variances = rng.normal(3.0, 0.1, 250), rng.uniform(0.5, 1.5, 250)
    batches = jnp.asarray(means, jnp.float32), jnp.asarray(variances, jnp.float32)

    def merge(i, statistics):
        mean, variance = (x[i % 250] for x in batches)
        return statistics.merged_moments(jnp.float32(1000), mean, variance)

    merged = jax.jit(lambda start: jax.lax.fori_loop(0, 1_000_000, merge, start))(RunningStatistics.of_shape(()))
    assert samples(merged) == 10**9
    assert float(merged.mean) == pytest.approx(means.mean(), abs=2e-3)  # of a standard deviation of 1
    assert float(merged.variance) == pytest.approx(variances.mean() + means.var(), rel=1e-3)


def test_the_count_is_exact_beyond_what_float32_counts():
    statistics = RunningStatistics.of_shape(())
    for added in (WORD - 1, 3, WORD, 1, WORD - 7):
        statistics = statistics.merged_moments(jnp.float32(added), jnp.zeros(()), jnp.ones(()))
    assert samples(statistics) == 3 * WORD - 4


def test_padding_changes_no_statistic():
    rows, valid = jnp.array([[1.0, 2.0], [jnp.nan, jnp.inf], [3.0, 5.0]]), jnp.array([True, False, True])
    without = of(rows[::2], shape=(2,))
    for padded in (RunningStatistics.of_shape((2,)).merged(rows, valid), without.merged(rows, jnp.zeros(3, bool))):
        assert [x.tolist() for x in (padded.mean, padded.variance)] == [x.tolist() for x in (without.mean, without.variance)]
        assert samples(padded) == 2


def test_statistics_of_nothing_only_clip_observations():
    assert of().normalize(jnp.array([0.5, -2.0, 50.0, -50.0])).tolist() == [0.5, -2.0, 10.0, -10.0]


def test_discounted_returns_by_hand():
    reward = jnp.ones((5, 1))
    done = jnp.array([False, True, False, False, False])[:, None]
    valid = jnp.array([True, True, True, False, True])[:, None]
    running, returns = discounted_returns(jnp.array([4.0]), reward, done, valid, jnp.array(0.5))
    # 4/2+1, 3/2+1, a new episode: 1, padding keeps it: 1, 1/2+1
    assert returns[:, 0].tolist() == [3.0, 2.5, 1.0, 1.0, 1.5]
    assert running.tolist() == [1.5]


def test_discounted_returns_continue_across_two_rollouts():
    rng = np.random.default_rng(0)
    reward = jnp.asarray(rng.normal(size=(12, 3)), jnp.float32)
    done, valid = jnp.asarray(rng.random((12, 3)) < 0.2), jnp.ones((12, 3), bool)
    gamma, start = jnp.float32(0.9), jnp.zeros(3)
    last, whole = discounted_returns(start, reward, done, valid, gamma)
    middle, first_half = discounted_returns(start, reward[:6], done[:6], valid[:6], gamma)
    end, second_half = discounted_returns(middle, reward[6:], done[6:], valid[6:], gamma)
    np.testing.assert_allclose(jnp.concatenate([first_half, second_half]), whole, atol=1e-6)
    np.testing.assert_allclose(end, last, atol=1e-6)
    _, forgotten = discounted_returns(start, reward[6:], done[6:], valid[6:], gamma)
    assert np.abs(forgotten - whole[6:]).max() > 0.1


def test_explained_variance_by_hand():
    target, valid = jnp.array([1.0, 2.0, 3.0, 4.0, 1e6]), jnp.array([True] * 4 + [False])
    value = jnp.array([1.0, 2.0, 3.0, 5.0, 0.0])
    assert explained_variance(value, target, valid) == pytest.approx(0.85, abs=1e-6)
    assert explained_variance(target, target, valid) == 1.0
    assert explained_variance(jnp.full(5, 2.5), target, valid) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("number", [0.0, 1.0, 0.1, 1234.567, -1e-6])
def test_what_is_constant_has_no_explained_variance_and_is_normalized_to_zero(number):
    valid = jnp.arange(1000) % 7 > 0  # the mean of 857 numbers is rounded
    numbers = jnp.where(valid, number, 1e6).astype(jnp.float32)
    assert jnp.isnan(explained_variance(jnp.linspace(0, 1, 1000), numbers, valid))
    assert jnp.all(jnp.where(valid, normalized(numbers, jnp.zeros(1000), valid), 0.0) == 0)


def test_advantages_are_normalized_over_valid_steps_only():
    got = normalized(jnp.array([1.0, 2.0, 3.0, 99.0]), jnp.zeros(4), jnp.array([True, True, True, False]))
    assert got[:3].tolist() == pytest.approx([-1.2247449, 0.0, 1.2247449], abs=1e-6)


@pytest.mark.parametrize(("noise", "expected"), [(1e-6, 0.0), (1e-2, 1.0)])
def test_advantages_that_vary_by_the_rounding_of_their_targets_are_normalized_to_zero(noise, expected):
    value = 100.0 + jax.random.normal(jax.random.key(0), (857,))
    target = value + noise * jax.random.normal(jax.random.key(1), (857,))
    got = normalized(target - value, target, jnp.ones(857, bool))
    assert float(jnp.std(got)) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("x", "valid", "expected"), [([1.0, 2.0, 6.0], [1, 1, 0], 1.5), ([1.0, math.nan], [1, 0], 1.0), ([1.0, 2.0], [0, 0], 0.0)]
)
def test_masked_mean_is_over_valid_entries(x, valid, expected):
    assert masked_mean(jnp.array(x), jnp.array(valid, bool)) == expected
