import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from proximo.distributions import LOG_STD_RANGE, Gaussian, TanhGaussian

MEAN = np.array([[0.5, -1.0], [2.0, 0.0], [0.0, 3.0]], np.float32)
LOG_STD = np.array([-0.5, 0.3], np.float32)
BEFORE = np.array([[0.0, 1.0], [1.5, -2.0], [0.1, 0.2]], np.float32)


def squashed(mean=MEAN, log_std=LOG_STD, which=(True, True)):
    return TanhGaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(log_std, jnp.float32), which)


def entropy_by_integration(mean, std):
    """``h(x) + E[log (1 - tanh²(x))]``, by a sum over a fine grid in float64."""
    x = np.linspace(mean - 12 * std, mean + 12 * std, 200_001)
    slope = 2.0 * (np.log(2.0) - x - np.logaddexp(0.0, -2.0 * x))
    return np.trapezoid(stats.norm(mean, std).pdf(x) * slope, x) + stats.norm(mean, std).entropy()


def test_log_prob_is_the_density_after_tanh():
    # That of scipy's normal at atanh(y), and the derivative of atanh: dx/dy = 1 / (1 - y²).
    y = np.tanh(BEFORE.astype(np.float64))
    expected = (stats.norm(MEAN, np.exp(LOG_STD)).logpdf(np.arctanh(y)) - np.log(1 - y**2)).sum(-1)
    np.testing.assert_allclose(squashed().log_prob(jnp.asarray(BEFORE)), expected, rtol=1e-5)


def test_density_integrates_to_one():
    y = np.linspace(-1, 1, 20_003)[1:-1]
    one = squashed(np.zeros((len(y), 1)) + 0.4, [-0.7], (True,))
    density = np.exp(np.asarray(one.log_prob(jnp.asarray(np.arctanh(y)[:, None], jnp.float32)), np.float64))
    assert np.trapezoid(density, y) == pytest.approx(1.0, abs=1e-4)


def test_entropy_is_the_mean_of_minus_log_prob():
    n = 40_000
    some = squashed(np.broadcast_to(MEAN[0], (n, 2)))
    drawn = -np.asarray(some.log_prob(some.sample(jax.random.normal(jax.random.key(0), (n, 2)))))
    assert float(some.entropy()[0]) == pytest.approx(drawn.mean(), abs=float(4 * drawn.std() / n**0.5))


def test_entropy_equals_integral_over_all_standard_deviations():
    for std in (0.01, 0.3, 1.0, 2.0, 4.0, np.exp(LOG_STD_RANGE[1])):
        means = np.array([0.0, 0.2, 0.7, 1.3, 3.0, 10.0])
        ours = squashed(means[:, None], [np.log(std)], (True,)).entropy()
        np.testing.assert_allclose(ours, [entropy_by_integration(mean, std) for mean in means], rtol=1e-5, atol=1e-3)


def test_the_uniform_distribution_has_the_largest_entropy():
    # On -1 … 1 it is log 2, which no density surpasses: an unsquashed Gaussian's grows for ever.
    entropies = np.asarray(squashed(np.zeros((60, 1)), np.linspace(-2, 2, 60)[:, None], (True,)).entropy())
    assert entropies.max() == pytest.approx(np.log(2.0), abs=2e-2)
    assert entropies.max() <= np.log(2.0) + 1e-3
    assert entropies[-1] < entropies.max() - 1.0


def test_unsquashed_components_stay_gaussian():
    plain = Gaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD))
    for method, arguments in (("log_prob", (jnp.asarray(BEFORE),)), ("entropy", ())):
        none = getattr(squashed(which=(False, False)), method)(*arguments)
        np.testing.assert_array_equal(none, getattr(plain, method)(*arguments))
        second = getattr(squashed(which=(False, True)), method)(*arguments)
        parts = [
            getattr(family(jnp.asarray(MEAN[:, i, None]), jnp.asarray(LOG_STD[i, None]), *more), method)(
                *(x[:, i, None] for x in arguments)
            )
            for i, (family, more) in enumerate(((Gaussian, ()), (TanhGaussian, ((True,),))))
        ]
        np.testing.assert_allclose(second, parts[0] + parts[1], rtol=1e-5)


def test_samples_and_mode_are_those_before_tanh():
    plain, noise = Gaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD)), jax.random.normal(jax.random.key(0), (3, 2))
    np.testing.assert_array_equal(squashed().sample(noise), plain.sample(noise))
    np.testing.assert_array_equal(squashed().mode(), plain.mode())


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1e3, 0.0), (-1e3, 2.0), (0.0, -20.0), (0.0, 20.0)])
def test_gradients_are_finite_at_extremes(mean, log_std):
    def total(mean, log_std):
        some = TanhGaussian(mean, log_std, (True,))
        return jnp.sum(some.log_prob(mean + 3.0 * jnp.exp(log_std)) + some.entropy())

    value, gradients = jax.value_and_grad(total, argnums=(0, 1))(jnp.full((1, 1), mean), jnp.full((1,), log_std))
    assert np.isfinite([float(value), float(gradients[0][0, 0]), float(gradients[1][0])]).all()
