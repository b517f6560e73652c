import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from proximo.distributions import Categorical

LOGITS = jnp.array([[0.0, 1.0, -2.0], [3.0, 3.0, 3.0]])


def probabilities():
    p = np.exp(np.asarray(LOGITS, np.float64))
    return p / p.sum(-1, keepdims=True)


def test_log_prob_equals_scipy():
    for action in range(3):
        got = Categorical(LOGITS).log_prob(jnp.full(2, action))
        expected = [stats.multinomial(1, p).logpmf(np.eye(3)[action]) for p in probabilities()]
        np.testing.assert_allclose(got, expected, atol=1e-6)


def test_log_prob_of_a_batch_is_elementwise():
    # A (B,) action against (B, n) logits must not broadcast to (B, B).
    got = Categorical(LOGITS).log_prob(jnp.array([1, 2]))
    assert got.tolist() == pytest.approx([-0.3490122, -1.0986123], abs=1e-6)


def test_entropy_equals_scipy():
    np.testing.assert_allclose(Categorical(LOGITS).entropy(), [stats.entropy(p) for p in probabilities()], atol=1e-6)


def test_entropy_of_a_certain_choice_is_zero_with_finite_gradient():
    certain = jnp.array([200.0, 0.0, -200.0])
    assert Categorical(certain).entropy() == pytest.approx(0.0, abs=1e-6)
    assert jnp.all(jnp.isfinite(jax.grad(lambda x: Categorical(x).entropy())(certain)))


def test_samples_follow_the_probabilities():
    noise = jax.random.gumbel(jax.random.key(0), (20_000, 2, 3))
    samples = np.asarray(Categorical(jnp.broadcast_to(LOGITS, (20_000, 2, 3))).sample(noise))
    for column, p in zip(samples.T, probabilities(), strict=True):
        assert stats.chisquare(np.bincount(column, minlength=3), p * 20_000).pvalue > 1e-3


def test_mode_is_the_largest_logit():
    assert Categorical(LOGITS[:1]).mode().tolist() == [1]
