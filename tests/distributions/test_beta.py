import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from proximo.distributions import Beta

ALPHA = np.array([[1.5, 30.0], [2.0, 1.0], [1.0, 7.0]], np.float32)
BETA = np.array([[4.0, 12.0], [1.2, 1.0], [3.0, 7.0]], np.float32)
ACTION = np.array([[0.1, 0.8], [0.999, 0.5], [0.3, 0.45]], np.float32)


def beta(alpha=ALPHA, other=BETA):
    return Beta(jnp.asarray(alpha, jnp.float32), jnp.asarray(other, jnp.float32))


@functools.cache
def drawn():
    """5000 samples of the first distribution, and the distribution."""
    some = beta(*(np.broadcast_to(x[0], (5000, 2)) for x in (ALPHA, BETA)))
    return some, jax.jit(lambda key: some.sample(jax.random.bits(key, (5000, 2), "uint32")))(jax.random.key(0))


def test_log_prob_equals_scipy():
    expected = stats.beta(ALPHA, BETA).logpdf(ACTION).sum(-1)
    np.testing.assert_allclose(beta().log_prob(jnp.asarray(ACTION)), expected, rtol=1e-5, atol=1e-5)


def test_entropy_equals_scipy():
    expected = stats.beta(ALPHA, BETA).entropy().sum(-1)
    np.testing.assert_allclose(beta().entropy(), expected, rtol=1e-4, atol=1e-5)


def test_entropy_is_the_mean_of_minus_log_prob():
    some, samples = drawn()
    surprise = -np.asarray(some.log_prob(samples))
    assert float(some.entropy()[0]) == pytest.approx(surprise.mean(), abs=float(4 * surprise.std() / 5000**0.5))


def test_values_by_hand():
    # 6 a (1 - a) at ½ is 3/2; the uniform one has density 1 and entropy 0.
    assert beta([[2.0]], [[2.0]]).log_prob(jnp.full((1, 1), 0.5)).tolist() == pytest.approx([np.log(1.5)], abs=1e-6)
    assert beta([[1.0]], [[1.0]]).log_prob(jnp.full((1, 1), 0.2)).tolist() == pytest.approx([0.0], abs=2e-6)
    assert beta([[1.0]], [[1.0]]).entropy().tolist() == pytest.approx([0.0], abs=2e-6)


def test_samples_follow_both_shapes_independently():
    samples = np.asarray(drawn()[1])
    for column, a, b in zip(samples.T, ALPHA[0], BETA[0], strict=True):
        assert stats.kstest(column, stats.beta(a, b).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(samples.T)[0, 1]) < 4 / 5000**0.5
    assert abs(np.corrcoef(samples[:-1, 0], samples[1:, 0])[0, 1]) < 4 / 5000**0.5


def test_same_noise_gives_same_sample_with_any_leading_axes():
    noise = jax.random.bits(jax.random.key(1), (2, 3, 2), "uint32")
    alpha, other = (np.broadcast_to(x[:, None], (3, 2, 2)).swapaxes(0, 1) for x in (ALPHA, BETA))
    together = beta(alpha, other).sample(noise)
    assert together.shape == (2, 3, 2)
    np.testing.assert_array_equal(together[1], beta(alpha[1], other[1]).sample(noise[1]))
    assert (together[0] != together[1]).all()


def test_samples_stay_away_from_the_bounds():
    steep = beta(np.full((5000, 2), [1.0, 1e8]), np.full((5000, 2), [1e8, 1.0]))
    samples = steep.sample(jax.random.bits(jax.random.key(0), (5000, 2), "uint32"))
    assert 0.0 < float(samples.min()) <= float(samples.max()) < 1.0
    assert np.isfinite(steep.log_prob(samples)).all()


def test_mode_has_the_largest_density():
    alpha, other = jnp.array([[1.5], [30.0], [2.0], [1.0]]), jnp.array([[4.0], [12.0], [1.2], [5.0]])
    grid = jnp.linspace(1e-4, 1 - 1e-4, 2001)
    density = jax.vmap(Beta(alpha, other).log_prob)(jnp.broadcast_to(grid[:, None, None], (2001, 4, 1)))
    np.testing.assert_allclose(Beta(alpha, other).mode()[:, 0], grid[jnp.argmax(density, axis=0)], atol=1e-3)


def test_mode_of_a_uniform_beta_is_the_middle():
    assert beta([[1.0, 1.0]], [[1.0, 3.0]]).mode().tolist() == [[0.5, 0.0]]


@pytest.mark.parametrize("shapes", [(1.0, 1.0), (1.0 + 1e-6, 1e4), (1e4, 1.0), (1e4, 1e4)])
def test_gradients_are_finite_at_extremes_and_at_the_bounds(shapes):
    def total(alpha, other, action):
        some = Beta(alpha, other)
        return jnp.sum(some.log_prob(action) + some.entropy())

    for action in (0.0, 1e-6, 0.5, 1.0):
        value, gradients = jax.value_and_grad(total, argnums=(0, 1))(
            *(jnp.full((1, 1), x) for x in shapes), jnp.full((1, 1), action)
        )
        assert np.isfinite([float(value), *(float(g[0, 0]) for g in gradients)]).all()


def test_float32_densities_are_exact_for_shapes_up_to_10000():
    for scale in (1e2, 1e4):
        x = np.float32(0.4) + np.float32(0.3 / scale**0.5)
        expected = stats.beta(scale, 1.5 * scale).logpdf(x)
        assert float(beta([[scale]], [[1.5 * scale]]).log_prob(jnp.full((1, 1), x))[0]) == pytest.approx(expected, abs=5e-3)


@pytest.mark.parametrize("shapes", [(1e3, 1e3), (1e5, 1e5), (1e6, 3e6), (31.0, 33.0)])
def test_float32_entropies_are_exact_for_large_shapes(shapes):
    expected = stats.beta(*shapes).entropy()
    assert float(beta([shapes[:1]], [shapes[1:]]).entropy()[0]) == pytest.approx(expected, abs=2e-5)
