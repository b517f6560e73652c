"""Property: what a mask forbids is never sampled, never the mode, and has no gradient; the rest is the distribution over the rest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from proximo.distributions import Bernoulli, Categorical, mask_bits, mask_choices

LOGITS = jnp.array([1.0, 4.0, -2.0, 0.5])
MASK = jnp.array([True, False, True, True])
BITS = jnp.array([[True, True], [True, False], [False, True], [False, False]])  # free, only 0, only 1, nothing: free


def test_masked_choice_is_a_distribution_over_allowed_choices():
    masked = Categorical(mask_choices(LOGITS, MASK))
    p = special.softmax(np.asarray(LOGITS, np.float64)[np.asarray(MASK)])
    np.testing.assert_allclose(jax.vmap(masked.log_prob)(jnp.array([0, 2, 3])), np.log(p), atol=1e-6)
    assert masked.entropy() == pytest.approx(stats.entropy(p), abs=1e-6)
    assert masked.log_prob(jnp.array(1)) < -1e8


def test_mask_that_allows_nothing_is_ignored():
    masked = mask_choices(jnp.stack([LOGITS] * 2), jnp.stack([MASK, jnp.zeros(4, bool)]))
    assert masked[0, 1] < -1e8
    assert jnp.array_equal(masked[1], LOGITS)


def test_forced_bits_are_certain_and_others_free():
    masked, free = Bernoulli(mask_bits(LOGITS, BITS)), Bernoulli(LOGITS[jnp.array([0, 3])])
    assert masked.mode().tolist() == [1, 0, 1, 1]
    assert masked.entropy() == pytest.approx(float(free.entropy()), abs=1e-6)
    actions = jnp.array([1, 0, 1, 0]), jnp.array([1, 0])
    assert masked.log_prob(actions[0]) == pytest.approx(float(free.log_prob(actions[1])), abs=1e-6)
