"""Bits, against an enumeration of all their combinations."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from proximo.distributions import Bernoulli

LOGITS = jnp.array([0.5, -1.5, 3.0])
COMBINATIONS = np.array(list(itertools.product((0, 1), repeat=3)))


def probabilities():
    p = 1 / (1 + np.exp(-np.asarray(LOGITS, np.float64)))
    return np.prod(np.where(COMBINATIONS == 1, p, 1 - p), axis=-1)


def test_log_prob_equals_the_enumeration():
    got = Bernoulli(jnp.broadcast_to(LOGITS, (8, 3))).log_prob(jnp.asarray(COMBINATIONS))
    np.testing.assert_allclose(got, np.log(probabilities()), atol=1e-6)


def test_entropy_equals_the_enumeration():
    assert Bernoulli(LOGITS).entropy() == pytest.approx(stats.entropy(probabilities()), abs=1e-6)


def test_entropy_of_certain_bits_is_zero_with_finite_gradient():
    certain = jnp.array([300.0, -300.0, 1e9, -1e9])
    assert Bernoulli(certain).entropy() == pytest.approx(0.0, abs=1e-6)
    assert jnp.all(jnp.isfinite(jax.grad(lambda x: Bernoulli(x).entropy())(certain)))


def test_samples_follow_the_enumeration():
    noise = jax.random.logistic(jax.random.key(0), (20_000, 3))
    samples = np.asarray(Bernoulli(jnp.broadcast_to(LOGITS, noise.shape)).sample(noise))
    counts = np.bincount(samples @ np.array([4, 2, 1]), minlength=8)
    assert stats.chisquare(counts, probabilities() * 20_000).pvalue > 1e-3


def test_mode_is_the_more_probable_bit():
    assert Bernoulli(LOGITS).mode().tolist() == [1, 0, 1]
