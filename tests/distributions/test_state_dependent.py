import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from proximo.distributions import StateDependentGaussian

MEAN = np.array([0.5, -1.0], np.float32)
FEATURES = np.array([0.3, -0.8, 0.5], np.float32)
LOG_STD = np.array([[-0.5, 0.1], [0.2, -1.0], [0.0, 0.4]], np.float32)
STD = np.sqrt((FEATURES[:, None] ** 2 * np.exp(2 * LOG_STD)).sum(0))


def distribution(batch):
    mean, features = (jnp.broadcast_to(x, (batch, len(x))) for x in (MEAN, FEATURES))
    return StateDependentGaussian.of(mean, features, jnp.asarray(LOG_STD))


def test_log_prob_and_entropy_are_those_of_the_marginal_gaussian():
    action = np.array([[0.1, -0.4]], np.float32)
    np.testing.assert_allclose(
        distribution(1).log_prob(jnp.asarray(action)), stats.norm(MEAN, STD).logpdf(action).sum(-1), rtol=1e-4
    )
    np.testing.assert_allclose(distribution(1).entropy(), stats.norm(MEAN, STD).entropy().sum(), rtol=1e-4)


def test_samples_over_matrices_follow_the_marginal_gaussian():
    noise = StateDependentGaussian.matrices(jax.random.key(0), (5000,), 4, 3, 2)
    samples = np.asarray(distribution(5000).sample(noise))
    for column, mean, std in zip(samples.T, MEAN, STD, strict=True):
        assert stats.kstest(column, stats.norm(mean, std).cdf).pvalue > 1e-3


def test_matrix_is_kept_for_every_steps_of_each_environment():
    noise = np.asarray(StateDependentGaussian.matrices(jax.random.key(0), (7, 2), 3, 3, 2))
    assert noise.shape == (7, 2, 3, 2)
    assert (noise[0] == noise[2]).all()
    assert (noise[3] == noise[5]).all()
    assert (noise[2] != noise[3]).all()
    assert (noise[5] != noise[6]).all()
    assert (noise[0, 0] != noise[0, 1]).all()


def test_equal_features_give_equal_noise_while_the_matrix_is_kept():
    noise = StateDependentGaussian.matrices(jax.random.key(0), (2, 1), 2, 3, 2)[:, 0]
    samples = np.asarray(distribution(2).sample(noise))
    assert (samples[0] == samples[1]).all()


def test_a_matrix_that_is_kept_longer_than_the_rollout_takes_no_more_memory():
    def noise(every):
        return StateDependentGaussian.matrices(jax.random.key(0), (7, 2), every, 3, 2)

    jaxpr = jax.make_jaxpr(lambda: noise(1_000_000))()
    assert max(variable.aval.size for equation in jaxpr.eqns for variable in equation.outvars) <= noise(7).size
    np.testing.assert_array_equal(noise(1_000_000), noise(7))
