"""Property: what a mask forbids is never sampled, never the mode, and has no gradient; the rest is the distribution over the rest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from proximo.distributions import Bernoulli, Categorical, mask_bits, mask_choices

LOGITS = jnp.array([1.0, 4.0, -2.0, 0.5])
MASK = jnp.array([True, False, True, True])
BITS = jnp.array([[True, True], [True, False], [False, True], [False, False]])  # free, only 0, only 1, nothing: free


def test_masked_choice_is_a_distribution_over_allowed_choices():
    masked = Categorical(mask_choices(LOGITS, MASK))
    kept = np.asarray(LOGITS, np.float64)[np.asarray(MASK)]
    p = np.exp(kept) / np.exp(kept).sum()
    np.testing.assert_allclose(jax.vmap(masked.log_prob)(jnp.array([0, 2, 3])), np.log(p), atol=1e-6)
    assert masked.entropy() == pytest.approx(stats.entropy(p), abs=1e-6)
    assert masked.log_prob(jnp.array(1)) < -1e8


def test_forbidden_choice_is_neither_sampled_nor_the_mode():
    masked = Categorical(jnp.broadcast_to(mask_choices(LOGITS, MASK), (20_000, 4)))
    samples = np.asarray(masked.sample(jax.random.gumbel(jax.random.key(0), (20_000, 4))))
    assert set(samples) == {0, 2, 3}
    assert set(np.asarray(masked.mode())) == {0}
    free = Categorical(jnp.broadcast_to(LOGITS, (20_000, 4)))
    assert 1 in free.sample(jax.random.gumbel(jax.random.key(0), (20_000, 4)))
    assert set(np.asarray(free.mode())) == {1}


def objective(distribution, action):
    return distribution.log_prob(action) + distribution.entropy()


def test_forbidden_choice_has_zero_gradient_and_others_finite_ones():
    gradient = jax.grad(lambda x: objective(Categorical(mask_choices(x, MASK)), jnp.array(2)))(LOGITS)
    assert gradient[1] == 0.0
    assert jnp.all(jnp.isfinite(gradient))
    assert jnp.all(jnp.abs(gradient[MASK]) > 1e-3)
    assert jax.grad(lambda x: objective(Categorical(x), jnp.array(2)))(LOGITS)[1] != 0.0


def test_mask_that_allows_nothing_is_ignored():
    assert jnp.array_equal(mask_choices(LOGITS, jnp.zeros(4, bool)), LOGITS)
    masked = mask_choices(jnp.stack([LOGITS] * 2), jnp.stack([MASK, jnp.zeros(4, bool)]))
    assert masked[0, 1] < -1e8
    assert jnp.array_equal(masked[1], LOGITS)


def test_forced_bits_are_certain_and_others_free():
    masked = Bernoulli(jnp.broadcast_to(mask_bits(LOGITS, BITS), (5000, 4)))
    samples = np.asarray(masked.sample(jax.random.logistic(jax.random.key(0), (5000, 4))))
    assert [set(column) for column in samples.T] == [{0, 1}, {0}, {1}, {0, 1}]
    assert masked.mode()[0].tolist() == [1, 0, 1, 1]
    free = Bernoulli(LOGITS[jnp.array([0, 3])])
    assert masked.entropy()[0] == pytest.approx(float(free.entropy()), abs=1e-6)
    assert masked.log_prob(jnp.broadcast_to(jnp.array([1, 0, 1, 0]), (5000, 4)))[0] == pytest.approx(
        float(free.log_prob(jnp.array([1, 0]))), abs=1e-6
    )


def test_the_gradient_of_a_forced_bit_is_zero():
    gradient = jax.grad(lambda x: objective(Bernoulli(mask_bits(x, BITS)), jnp.array([1, 0, 1, 0])))(LOGITS)
    assert (gradient == 0.0).tolist() == [False, True, True, False]
    assert jnp.all(jnp.isfinite(gradient))
