"""Several choices at once, against an enumeration of all their combinations."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from proximo.distributions import FORBIDDEN, ProductCategorical

# Components of 3, 2 and 1 options; the second and third are filled up.
LOGITS = jnp.array([[0.5, -1.0, 2.0], [1.0, 0.0, FORBIDDEN], [0.3, FORBIDDEN, FORBIDDEN]])
COMBINATIONS = list(itertools.product(range(3), range(2), range(1)))


def probabilities():
    rows = [np.exp(np.asarray(row[:n], np.float64)) for row, n in zip(LOGITS, (3, 2, 1), strict=True)]
    rows = [row / row.sum() for row in rows]
    return np.array([np.prod([row[a] for row, a in zip(rows, action, strict=True)]) for action in COMBINATIONS])


def test_log_prob_equals_the_enumeration():
    got = ProductCategorical(jnp.broadcast_to(LOGITS, (len(COMBINATIONS), 3, 3))).log_prob(jnp.array(COMBINATIONS))
    np.testing.assert_allclose(got, np.log(probabilities()), atol=1e-6)
    assert np.exp(np.asarray(got)).sum() == pytest.approx(1.0, abs=1e-6)


def test_entropy_equals_the_enumeration():
    assert ProductCategorical(LOGITS).entropy() == pytest.approx(stats.entropy(probabilities()), abs=1e-6)


def test_samples_follow_the_enumeration():
    noise = jax.random.gumbel(jax.random.key(0), (20_000, 3, 3))
    samples = np.asarray(ProductCategorical(jnp.broadcast_to(LOGITS, noise.shape)).sample(noise))
    counts = [int((samples == np.array(action)).all(-1).sum()) for action in COMBINATIONS]
    assert sum(counts) == 20_000
    assert stats.chisquare(counts, probabilities() * 20_000).pvalue > 1e-3


def test_mode_is_the_most_probable_combination():
    assert tuple(ProductCategorical(LOGITS).mode().tolist()) == COMBINATIONS[int(np.argmax(probabilities()))]
