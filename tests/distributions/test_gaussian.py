import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from proximo.distributions import Gaussian

MEAN = np.array([[0.5, -1.0], [2.0, 0.0], [0.0, 0.0]], np.float32)
LOG_STD = np.array([-0.5, 0.7], np.float32)
ACTION = np.array([[0.0, 1.0], [2.5, -3.0], [0.1, 0.2]], np.float32)


def gaussian():
    return Gaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD))


def test_log_prob_equals_scipy():
    expected = stats.norm(MEAN, np.exp(LOG_STD)).logpdf(ACTION).sum(-1)
    np.testing.assert_allclose(gaussian().log_prob(jnp.asarray(ACTION)), expected, rtol=1e-5)


def test_entropy_equals_scipy():
    expected = stats.norm(MEAN, np.exp(LOG_STD)).entropy().sum(-1)
    np.testing.assert_allclose(gaussian().entropy(), expected, rtol=1e-5)


def test_standard_normal_by_hand():
    standard = Gaussian(jnp.zeros((1, 2)), jnp.zeros(2))
    assert standard.log_prob(jnp.ones((1, 2))).tolist() == pytest.approx([-2.837877], abs=1e-5)
    assert standard.entropy().tolist() == pytest.approx([2.837877], abs=1e-5)


def test_samples_follow_mean_and_standard_deviation():
    noise = jax.random.normal(jax.random.key(0), (5000, 2))
    samples = np.asarray(Gaussian(jnp.broadcast_to(MEAN[0], (5000, 2)), jnp.asarray(LOG_STD)).sample(noise))
    for column, mean, log_std in zip(samples.T, MEAN[0], LOG_STD, strict=True):
        assert stats.kstest(column, stats.norm(mean, np.exp(log_std)).cdf).pvalue > 1e-3


def test_mode_is_the_mean():
    assert jnp.array_equal(gaussian().mode(), MEAN)
