"""Every family against SciPy, or an enumeration of all its actions; and masks, which allow some."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from proximo.distributions import Bernoulli, Beta, Categorical, Gaussian, ProductCategorical, StateDependentGaussian, TanhGaussian
from proximo.distributions.gaussian import LOG_STD_RANGE
from proximo.networks.heads import FORBIDDEN, mask_bits, mask_choices

DRAWS = 20_000
LOGITS = np.array([0.5, -1.5, 2.0])
PRODUCT = np.array([[0.5, -1.0, 2.0], [1.0, 0.0, FORBIDDEN], [0.3, FORBIDDEN, FORBIDDEN]])  # components of 3, 2 and 1 options
PAIRS = np.array(list(itertools.product(range(3), range(2), range(1))))
BITS = np.array(list(itertools.product((0, 1), repeat=3)))
MEAN, LOG_STD, SHAPES = np.array([0.5, -1.0]), np.array([-0.5, 0.7]), np.array([[1.5, 30.0], [4.0, 12.0]])
FEATURES, MATRIX = np.array([0.3, -0.8, 0.5]), np.array([[-0.5, 0.1], [0.2, -1.0], [0.0, 0.4]])
NORMAL, BETA = stats.norm(MEAN, np.exp(LOG_STD)), stats.beta(*SHAPES)
MARGINAL = stats.norm(MEAN, np.sqrt(FEATURES**2 @ np.exp(2 * MATRIX)))


def beta(alpha, other):
    return Beta(jnp.asarray(alpha, jnp.float32), jnp.asarray(other, jnp.float32))


STATE_DEPENDENT = StateDependentGaussian.of(*(jnp.asarray(x, jnp.float32) for x in (MEAN, FEATURES, MATRIX)))
# The distribution, its noise, all its actions, and their probabilities.
FINITE = {
    "one choice": (Categorical(jnp.array(LOGITS)), jax.random.gumbel, np.arange(3), special.softmax(LOGITS)),
    "several choices": (
        ProductCategorical(jnp.array(PRODUCT)),
        jax.random.gumbel,
        PAIRS,
        np.prod([special.softmax(row)[a] for row, a in zip(PRODUCT, PAIRS.T, strict=True)], axis=0),
    ),
    "bits": (
        Bernoulli(jnp.array(LOGITS)),
        jax.random.logistic,
        BITS,
        np.prod(np.where(BITS == 1, special.expit(LOGITS), special.expit(-LOGITS)), axis=1),
    ),
}
# The distribution, its noise, its components before tanh, and the logarithm of the slope of what follows.
CONTINUOUS = {
    "gaussian": (Gaussian(jnp.array(MEAN), jnp.array(LOG_STD)), jax.random.normal, NORMAL, lambda x: 0.0 * x),
    "squashed": (
        TanhGaussian(jnp.array(MEAN), jnp.array(LOG_STD), (True, False)),
        jax.random.normal,
        NORMAL,
        lambda x: np.log(1 - np.tanh(x) ** 2) * [1, 0],
    ),
    "state-dependent": (STATE_DEPENDENT, jax.random.normal, MARGINAL, lambda x: 0.0 * x),
    "beta": (beta(*SHAPES), lambda key, shape: jax.random.bits(key, (*shape[:-1], 2), "uint32"), BETA, lambda x: 0.0 * x),
}


@functools.cache
def drawn(name):
    """The distribution with a batch axis, and as many samples."""
    distribution, noise, *_ = (FINITE | CONTINUOUS)[name]
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (DRAWS, *x.shape)), distribution)
    shape = distribution.mode().shape
    if name == "state-dependent":
        many = StateDependentGaussian(many.mean, many.log_std, many.features, distribution.matrix_log_std)
        shape = distribution.matrix_log_std.shape
    elif name in FINITE and name != "bits":
        shape = distribution.logits.shape
    return many, np.asarray(jax.jit(lambda drawn: many.sample(drawn))(noise(jax.random.key(0), (DRAWS, *shape))))


@pytest.mark.parametrize("name", FINITE)
def test_finite_families_equal_the_enumeration(name):
    distribution, _, actions, p = FINITE[name]
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(actions), *x.shape)), distribution)
    np.testing.assert_allclose(batch.log_prob(jnp.asarray(actions)), np.log(p), atol=1e-6)
    np.testing.assert_allclose(batch.entropy(), stats.entropy(p), atol=1e-6)
    assert np.array_equal(distribution.mode(), actions[np.argmax(p)])
    counts = [(drawn(name)[1].reshape(DRAWS, -1) == np.reshape(action, -1)).all(1).sum() for action in actions]
    assert stats.chisquare(counts, p * DRAWS).pvalue > 1e-3


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_families_equal_scipy(name):
    distribution, _, components, log_slope = CONTINUOUS[name]
    many, samples = drawn(name)
    surprise = -np.asarray(many.log_prob(jnp.asarray(samples)))
    x = samples.astype(np.float64)
    np.testing.assert_allclose(-surprise, (components.logpdf(x) - log_slope(x)).sum(-1), rtol=1e-3, atol=1e-3)
    assert float(distribution.entropy()) == pytest.approx(surprise.mean(), abs=float(4 * surprise.std() / DRAWS**0.5))
    if name != "squashed":
        np.testing.assert_allclose(distribution.entropy(), components.entropy().sum(), rtol=1e-4)
    uniform = components.cdf(x).T
    assert min(stats.kstest(column, "uniform").pvalue for column in uniform) > 1e-3
    assert abs(np.corrcoef(samples.T)[0, 1]) < 4 / DRAWS**0.5
    assert abs(np.corrcoef(samples[:-1, 0], samples[1:, 0])[0, 1]) < 4 / DRAWS**0.5
    grid = components.ppf(np.linspace(0.001, 0.999, 4001)[:, None])
    mode = np.take_along_axis(grid, components.logpdf(grid).argmax(0)[None], 0)[0]
    np.testing.assert_allclose(distribution.mode(), mode, atol=0.02)


@pytest.mark.parametrize("name", ["one choice", "bits", "beta"])
def test_samples_with_several_axes_have_their_own_parameters(name):
    many, _ = drawn(name)
    noise = (FINITE | CONTINUOUS)[name][1](jax.random.key(1), (6, *jax.tree.leaves(many)[0].shape[1:]))
    few = jax.tree.map(lambda x: x[:6] * jnp.arange(1.0, 7.0)[:, None], many)
    grid = jax.tree.map(lambda x: x.reshape((2, 3, *x.shape[1:])), few)
    np.testing.assert_array_equal(grid.sample(noise.reshape((2, 3, *noise.shape[1:])))[1], few.sample(noise)[3:])


EXTREMES = {
    "one choice": (Categorical, [(jnp.array([200.0, 0.0, -200.0]),)], [0, 2]),
    "bits": (Bernoulli, [(jnp.array([300.0, -300.0, 1e9, -1e9]),)], [[1, 0, 1, 0], [0, 0, 0, 0]]),
    "squashed": (
        lambda mean, log_std: TanhGaussian(mean, log_std, (True,)),
        [(jnp.full(1, a), jnp.full(1, b)) for a, b in ((1e3, 0.0), (-1e3, 2.0), (0.0, -20.0), (0.0, 2.0))],
        [[-3.0], [0.0], [50.0]],
    ),
    "beta": (beta, [(jnp.full(1, a), jnp.full(1, b)) for a, b in ((1.0, 1.0), (1.0, 1e4), (1e4, 1e4))], [[0.0], [1e-6], [1.0]]),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_values_and_gradients_are_finite_at_extremes(name):
    family, parameters, actions = EXTREMES[name]

    @jax.jit
    @jax.value_and_grad
    def total(given, action):
        return family(*given).log_prob(action) + family(*given).entropy()

    for given, action in itertools.product(parameters, actions):
        value, gradients = total(given, jnp.array(action))
        assert np.isfinite(np.concatenate([np.ravel(value), *map(np.ravel, gradients)])).all(), (given, action)


UNMASKED = jnp.array([1.0, 4.0, -2.0, 0.5])
MASK = jnp.array([True, False, True, True])
BITS = jnp.array([[True, True], [True, False], [False, True], [False, False]])  # free, only 0, only 1, nothing: free


def test_masked_choice_is_a_distribution_over_allowed_choices():
    masked = Categorical(mask_choices(UNMASKED, MASK))
    p = special.softmax(np.asarray(UNMASKED, np.float64)[np.asarray(MASK)])
    np.testing.assert_allclose(jax.vmap(masked.log_prob)(jnp.array([0, 2, 3])), np.log(p), atol=1e-6)
    assert masked.entropy() == pytest.approx(stats.entropy(p), abs=1e-6)
    assert masked.log_prob(jnp.array(1)) < -1e8


def test_mask_that_allows_nothing_is_ignored():
    masked = mask_choices(jnp.stack([UNMASKED] * 2), jnp.stack([MASK, jnp.zeros(4, bool)]))
    assert masked[0, 1] < -1e8
    assert jnp.array_equal(masked[1], UNMASKED)


def test_forced_bits_are_certain_and_others_free():
    masked, free = Bernoulli(mask_bits(UNMASKED, BITS)), Bernoulli(UNMASKED[jnp.array([0, 3])])
    assert masked.mode().tolist() == [1, 0, 1, 1]
    assert masked.entropy() == pytest.approx(float(free.entropy()), abs=1e-6)
    actions = jnp.array([1, 0, 1, 0]), jnp.array([1, 0])
    assert masked.log_prob(actions[0]) == pytest.approx(float(free.log_prob(actions[1])), abs=1e-6)


@pytest.mark.parametrize("std", [0.01, 1.0, 4.0, float(np.exp(LOG_STD_RANGE[1]))])
def test_entropy_after_tanh_equals_an_integral(std):
    for mean in (0.0, 0.7, 3.0, 10.0):
        x = np.linspace(mean - 12 * std, mean + 12 * std, 200_001)
        slope = 2.0 * (np.log(2.0) - x - np.logaddexp(0.0, -2.0 * x))
        expected = np.trapezoid(stats.norm(mean, std).pdf(x) * slope, x) + stats.norm(mean, std).entropy()
        ours = TanhGaussian(jnp.array([mean]), jnp.log(jnp.array([std])), (True,)).entropy()
        assert float(ours) == pytest.approx(expected, rel=1e-5, abs=1e-3)
        assert ours <= np.log(2.0) + 1e-3  # the uniform distribution's, the largest on -1 … 1


@pytest.mark.parametrize("shapes", [(31.0, 33.0), (1e2, 150.0), (1e4, 1.5e4), (1e6, 3e6)])
def test_beta_of_large_shapes_is_exact_in_float32(shapes):
    expected, x = stats.beta(*shapes), np.float32(shapes[0] / sum(shapes) + 0.3 / shapes[0] ** 0.5)
    assert float(beta(shapes[:1], shapes[1:]).entropy()) == pytest.approx(expected.entropy(), abs=2e-5)
    if shapes[0] <= 1e4:
        assert float(beta(shapes[:1], shapes[1:]).log_prob(jnp.array([x]))) == pytest.approx(expected.logpdf(x), abs=5e-3)


def test_beta_samples_stay_away_from_the_bounds_and_a_uniform_one_has_its_mode_in_the_middle():
    steep = beta(np.full((500, 2), [1.0, 1e8]), np.full((500, 2), [1e8, 1.0]))
    samples = steep.sample(jax.random.bits(jax.random.key(0), (500, 2), "uint32"))
    assert 0.0 < float(samples.min()) <= float(samples.max()) < 1.0
    assert beta([1.0, 1.0], [1.0, 3.0]).mode().tolist() == [0.5, 0.0]


def test_matrix_is_kept_for_every_steps_of_each_environment():
    def noise(every, steps=7):
        return StateDependentGaussian.matrices(jax.random.key(0), (steps, 2), every, 3, 2)

    changes = np.diff(np.asarray(noise(3)), axis=0) != 0
    assert changes.all((1, 2, 3)).tolist() == changes.any((1, 2, 3)).tolist() == [False, False, True] * 2
    assert (noise(3)[0, 0] != noise(3)[0, 1]).all()
    # Kept longer than the rollout, it takes no more memory.
    jaxpr = jax.make_jaxpr(lambda: noise(1_000_000))()
    assert max(variable.aval.size for equation in jaxpr.eqns for variable in equation.outvars) <= noise(7).size
    np.testing.assert_array_equal(noise(1_000_000), noise(7))
